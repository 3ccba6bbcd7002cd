"""Regions in a plane: what the classifier and DRQ answer all over it, computed before anything is drawn."""

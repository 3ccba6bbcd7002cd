"""Compute the answers of the classifier and of DRQ over a plane of the input space, for figures to draw."""

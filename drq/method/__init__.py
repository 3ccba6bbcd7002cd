"""Equations 1 to 5 in the paper's order: inputs are checked, radii calibrated, classes explored and quantified."""

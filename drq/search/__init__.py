"""How a point is searched: the only loop over steps, and the methods that propose points."""

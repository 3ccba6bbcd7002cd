"""Searches for a better point: the only loop over steps, and the methods that propose points."""

from drq.old_names import of_room

__getattr__ = of_room(__name__)

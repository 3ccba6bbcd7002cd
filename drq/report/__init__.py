"""Turn records into tables, statistics, plots and reports, with pure functions that never run a model."""

from drq.old_names import of_room

__getattr__ = of_room(__name__)

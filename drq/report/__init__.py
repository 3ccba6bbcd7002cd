"""Pure functions of records: tables, statistics, abstention, plots, and a report on one page. Plots never touch a model."""

from drq.old_names import of_room

__getattr__ = of_room(__name__)

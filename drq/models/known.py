"""Models and sources of models that have a name: their description, and how they are loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import nn


class FittedModel(NamedTuple):
    """A model that scikit-learn's data is fitted to at first use; its name stands in :data:`drq.registry.FITTED`."""

    summary: str
    load: Callable[..., nn.Module]


class ModelSource(NamedTuple):
    """A source of models, ``source:name``; names of sources stand in :data:`drq.registry.SOURCES`."""

    summary: str
    load: Callable[..., nn.Module]  # takes what follows the name of the source, then options
    example: str = ""  # of what follows; none where its models are listed one by one
    ours: bool = False  # whether it needs nothing besides this package: neither a library nor, mostly, a download

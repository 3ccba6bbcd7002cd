"""Data sets by name: images in [0, 1], found below the folder that DRQ_DATA names."""

from drq.data.dataset import Data, Relabelled
from drq.data.loading import Entry, list, load

__all__ = ["Data", "Entry", "Relabelled", "list", "load"]

"""Data sets by name: images in [0, 1], found below the folder that DRQ_DATA names."""

from drq.data.catalogue import Entry, list, load
from drq.data.dataset import Data, Relabelled

__all__ = ["Data", "Entry", "Relabelled", "list", "load"]

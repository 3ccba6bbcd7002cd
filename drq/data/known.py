"""A data set that has a name: its description, how it is opened, and whether it is present."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

from drq.data.dataset import Data
from drq.data.places import DataRequest, Origin
from drq.system.files import data_folder

BOTH = ("train", "test")


class KnownData(NamedTuple):
    """A data set, or a family of them; its name stands in :data:`drq.registry.DATA`."""

    summary: str
    open: Callable[[DataRequest], Data]
    splits: tuple[str, ...] = ("test",)
    origin: Origin | None = None
    needed: tuple[str, ...] = ()  # in the folder, to be present
    choice: str = ""  # of a family: what stands behind its name, in capitals
    made_of: KnownData | None = None  # of corruptions: what they are made of on the fly, where they are missing
    source: str = ""  # what it is read from, where that is no folder
    library: str = ""  # that must be installed for it

    @property
    def expected(self) -> str:
        """What it is read from."""
        folder = self.origin.folders[0] if self.origin is not None else self.choice
        return self.source or str(data_folder() / folder)

    @property
    def present(self) -> bool:
        """Whether that is there now."""
        if self.origin is not None:
            found = self.origin.find(*self.needed) is not None
            return found or (self.made_of is not None and self.made_of.present)
        return not self.library or find_spec(self.library) is not None

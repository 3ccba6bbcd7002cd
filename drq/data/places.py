"""Folders of data sets, and what to do where one is missing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from drq.errors import MissingError
from drq.images import View
from drq.system.downloads import RemoteFile, fetch, fetch_archive
from drq.system.files import data_folder
from drq.system.progress import Tell, silent


@dataclass(frozen=True)
class DataRequest:
    """A data set as a caller asks for it."""

    name: str  # in full, as "cifar10-c/fog/3"
    split: str = "test"
    severity: int | None = None
    view: View | None = None
    download: bool = False
    tell: Tell = silent

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the name after the first slash."""
        return tuple(self.name.split("/")[1:])


@dataclass(frozen=True)
class Origin:
    """A folder of data and where it comes from: an archive or files that can be fetched, or a page for people."""

    folders: tuple[str, ...]  # below the data folder; any of them will do, the first is the usual one
    page: str = ""  # where people get it
    archive: RemoteFile | None = None  # what holds the first folder
    gzipped: tuple[RemoteFile, ...] = ()  # files of the first folder, each as NAME.gz; there they may lie as NAME or as NAME.gz

    def find(self, *needed: str) -> Path | None:
        """The folder that has all these files or folders; None where there is none."""
        places = (data_folder() / each for each in self.folders)
        return next((place for place in places if all(self.within(place, name).exists() for name in needed or ("",))), None)

    def within(self, folder: Path, name: str) -> Path:
        """Where a file of the folder lies, or would lie."""
        path, packed = folder / name, folder / f"{name}.gz"
        return packed if self.gzipped and packed.exists() and not path.exists() else path

    def get(self, request: DataRequest, *needed: str) -> Path:
        """As :meth:`find`, after a download where one is asked for and possible; an error says how to come by the data."""
        if (place := self.find(*needed)) is not None:
            return place
        if request.download:
            self._fetch(data_folder() / self.folders[0], needed, request.tell)
            if (place := self.find(*needed)) is not None:
                return place
        raise self.missing(request.name, *needed)

    def _fetch(self, folder: Path, needed: tuple[str, ...], tell: Tell) -> None:
        if self.archive is not None:
            fetch_archive(self.archive, folder, needed, tell)
        for name in needed if self.gzipped else ():
            if not self.within(folder, name).exists():
                fetch(self._source(name), folder / f"{name}.gz", tell)

    def _source(self, name: str) -> RemoteFile:
        return next(each for each in self.gzipped if each.file_name == f"{name}.gz")

    def absent(self, *needed: str) -> str:
        """The first file or folder that is missing, below the data folder."""
        return "/".join((self.folders[0], *self._lacking(*needed)[:1]))

    def _lacking(self, *needed: str) -> list[str]:
        folder = data_folder() / self.folders[0]
        return [each for each in needed if not self.within(folder, each).exists()]

    def missing(self, name: str, *needed: str) -> MissingError:
        """The error for data that is missing, with what to do."""
        absent = data_folder() / self.absent(*needed)
        by_hand = f"get it by hand from {self.page} and put it there"
        if self.gzipped:
            address = self._source(self._lacking(*needed)[0]).url
            by_hand = f"run drq data {name} --download (or pass download=True), or get {address} by hand and put it there"
        if self.archive is not None:
            by_hand = (
                f"run drq data {name} --download (or pass download=True), or unpack {self.archive.url} in {data_folder()} by hand"
            )
        rule = "be a data set that is present"
        return MissingError(
            f"name must {rule}, got {name!r} without {absent}: {by_hand}, or set DRQ_DATA to the folder that has it"
        )

"""The pictures of the NIPS 2017 competition on adversarial attacks and defences, labelled by the 1000 logits of ImageNet."""

from __future__ import annotations

import csv
import logging
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from drq.data.dataset import Data, Files
from drq.data.folders import Pictures, first_shape
from drq.data.imagenet import VIEW, wnids
from drq.data.known import KnownData
from drq.data.places import DataRequest, Origin
from drq.errors import InputError, one_line, require

logger = logging.getLogger("drq")

TABLE, PUBLISHED = "dev_dataset.csv", 1000
NAME, LABEL = "ImageId", "TrueLabel"  # columns; labels count from 1
CLEVERHANS = "https://github.com/cleverhans-lab/cleverhans"
ORIGIN = Origin(("nips2017",), f"{CLEVERHANS} (nips17_adversarial_competition/dataset, whose script fetches the pictures)")
MOST = 16 * 2**20  # bytes of the table, which has some 400 a picture
REMEDY = "put the published table there"


@dataclass(frozen=True, eq=False)
class Listed(Pictures):
    """A reader of pictures that a table lists with their labels."""

    table: str

    @property
    def sha256(self) -> str:
        """Of the table and of all pictures."""
        return Files(self.files.folder, (self.table, *self.files.names)).sha256


def load_nips2017(request: DataRequest) -> Data:
    """The pictures that are there, in the order of the table."""
    folder = ORIGIN.get(request, TABLE, "images")
    labels = read_table(folder / TABLE)
    files = {name: f"images/{name}.png" for name in labels}
    names = tuple(name for name in labels if (folder / files[name]).is_file())
    got, remedy = f"none of the {len(labels)} that {TABLE} lists", "name them ImageId.png, as published"
    require(len(names) > 0, str(folder / "images"), "have pictures", got, remedy)
    if len(names) < len(labels):
        _tell(f"{len(labels) - len(names)} of {len(labels)} pictures in {folder / TABLE} are not in its folder images")
    note = "" if len(names) == PUBLISHED else f"{len(names)} pictures are present, {PUBLISHED} are published"
    listed, view = Files(folder, tuple(files[name] for name in names)), request.view or VIEW
    y = torch.tensor([labels[name] for name in names])
    return Data(request.name, Listed(listed, y, view, first_shape(listed, view), TABLE), wnids(), note=note)


@cache
def _tell(what: str) -> None:
    """Once: an evaluation opens the same data for every model."""
    logger.warning("drq: %s: they are left out", what)


def read_table(path: Path) -> dict[str, int]:
    """The label of every picture, by its name; names are letters, digits, - and _, so that none leads out of the folder."""
    size = path.stat().st_size
    require(size <= MOST, str(path), f"have at most {MOST:,} bytes", f"{size:,}", REMEDY)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            labels = _labels(csv.DictReader(file), path)
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} must be a table of commas and text, got {one_line(error)}: {REMEDY}") from error
    require(len(labels) > 0, str(path), "list pictures", "none", REMEDY)
    return labels


def _labels(rows: csv.DictReader[str], path: Path) -> dict[str, int]:
    columns = rows.fieldnames or []
    for column in (NAME, LABEL):
        require(column in columns, str(path), f"have the column {column}", f"{', '.join(columns):.200}" or "none", REMEDY)
    labels: dict[str, int] = {}
    for row in rows:
        where = f"line {rows.line_num} of {path}"
        name = _name(row[NAME], where)
        require(name not in labels, where, "name a picture that no line before it names", repr(name), REMEDY)
        labels[name] = _label(row[LABEL], where)
    return labels


def _name(text: str | None, where: str) -> str:
    plain = text is not None and re.fullmatch(r"[0-9A-Za-z_-]{1,64}", text) is not None
    require(plain, where, f"have an {NAME} of at most 64 letters, digits, - and _", f"{text!r:.80}", REMEDY)
    assert text is not None
    return text


def _label(text: str | None, where: str) -> int:
    """The position among the logits."""
    whole = text is not None and re.fullmatch(r"[0-9]{1,4}", text) is not None and 1 <= int(text) <= len(wnids())
    require(whole, where, f"have a {LABEL} from 1 to {len(wnids())}", f"{text!r:.80}", REMEDY)
    assert text is not None
    return int(text) - 1


NIPS2017 = KnownData(
    "1000 photographs of 299 x 299, with labels of ImageNet", load_nips2017, origin=ORIGIN, needed=(TABLE, "images")
)

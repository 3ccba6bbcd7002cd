"""ImageNet and its relatives: pictures in folders by wnid, labelled by the 1000 logits that models of ImageNet have."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

from drq.data.dataset import Data
from drq.data.folders import class_folders, pictures
from drq.data.known import KnownData
from drq.data.places import DataRequest, Origin
from drq.errors import require
from drq.images import View

VIEW = View(224, 224, resize=256, interpolation="bilinear")
AUTHORS = "https://people.eecs.berkeley.edu/~hendrycks"
VALIDATION = Origin(("imagenet/val", "ILSVRC2012/val"), "https://image-net.org (it needs a login; one folder a wnid)")
VARIANTS = {
    "imagenet-a": Origin(("imagenet-a",), f"{AUTHORS}/imagenet-a.tar"),
    "imagenet-r": Origin(("imagenet-r",), f"{AUTHORS}/imagenet-r.tar"),
}
SHOWN = 200  # classes in each variant, of 1000


@cache
def wnids() -> tuple[str, ...]:
    """What each of the 1000 logits stands for: a number of a noun in WordNet."""
    return tuple((resources.files("drq.data") / "imagenet_wnids.txt").read_text().split())


@cache
def names() -> tuple[str, ...]:
    """The same in words: the first of each noun in WordNet 3.0 (Princeton University), told apart where two have the same."""
    return tuple((resources.files("drq.data") / "imagenet_names.txt").read_text().splitlines())


def of_folder(name: str, folder: Path, view: View, shown: int = 1000) -> Data:
    """The pictures in folders by wnid, with the label that each folder has among all 1000."""
    found, labels = class_folders(folder), {wnid: label for label, wnid in enumerate(wnids())}
    unknown = [each for each in found if each not in labels]
    rule = "have folders named by the 1000 wnids of ImageNet"
    require(not unknown, str(folder), rule, ", ".join(unknown[:3]), "as in n01440764/*.JPEG; move others away")
    note = "" if len(found) == shown else f"{len(found)} classes are present, {shown} are published"
    subset = None if shown == len(labels) else tuple(sorted(labels[each] for each in found))
    return Data(name, pictures(folder, found, labels, view), wnids(), subset, note)


def load_validation(request: DataRequest) -> Data:
    """The validation images, which serve as the test images: those of the test have no labels."""
    return of_folder(request.name, VALIDATION.get(request), request.view or VIEW)


def load_variant(request: DataRequest) -> Data:
    """ImageNet-A or ImageNet-R, where only the logits of the classes that are shown count."""
    return of_folder(request.name, VARIANTS[request.name].get(request), request.view or VIEW, SHOWN)


IMAGENET = KnownData("50 000 validation images, 1000 classes", load_validation, ("test", "val"), VALIDATION)
IMAGENET_A = KnownData("7500 photographs that models get wrong, 200 classes", load_variant, origin=VARIANTS["imagenet-a"])
IMAGENET_R = KnownData("30 000 paintings, toys and other renditions, 200 classes", load_variant, origin=VARIANTS["imagenet-r"])

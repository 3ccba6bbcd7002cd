"""Small networks that others published with their papers: from their own files, which are downloaded only on request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from drq import registry
from drq.errors import InputError, MissingError, nearest, require
from drq.models import weights
from drq.models.classifier import Card, Classifier
from drq.models.known import ModelSource
from drq.models.stored import CIFAR10, CIFAR10_CLASSES, IMAGENET, Normalisation, StoredModel
from drq.system import downloads
from drq.system.files import models_folder
from drq.system.progress import Bar

FOLDER = "published"  # in DRQ_MODELS, where downloads go
DIGITS = tuple("0123456789")
GREY = Normalisation((0.0,), (1.0,))
CNN_A = Normalisation(CIFAR10.mean, (0.2023, 0.1994, 0.2010))


class Repository(NamedTuple):
    """A folder of a repository on GitHub, as it was at a commit."""

    name: str
    commit: str
    folder: str
    licence: str  # as SPDX abbreviates it

    def shown(self, file: str) -> str:
        """Where people look at a file."""
        return f"https://github.com/{self.name}/blob/{self.commit}/{self.folder}/{file}"

    def fetched(self, file: str) -> str:
        """Where its content comes from."""
        return f"https://raw.githubusercontent.com/{self.name}/{self.commit}/{self.folder}/{file}"


@dataclass(frozen=True)
class Published:
    """A classifier from a file that others published."""

    stored: StoredModel
    file: str  # as it is called here
    source: downloads.RemoteFile

    def place(self) -> Path:
        """Where the file is, or would be downloaded to."""
        folder = models_folder()
        return folder / self.file if (folder / self.file).is_file() else folder / FOLDER / self.file


AKAMASTER = Repository(
    "akamaster/pytorch_resnet_cifar10", "d5489e8995e81e91ce6b1d69dcc98ad579b0b153", "pretrained_models", "BSD-2-Clause"
)
CROWN = "Verified-Intelligence/alpha-beta-CROWN", "8250d5fbd530c76e5e3243db28b3cad5fbaef740"
CROWN_RESNET = Repository(*CROWN, "complete_verifier/models/cifar10_resnet", "BSD-3-Clause")
CROWN_SDP = Repository(*CROWN, "complete_verifier/models/sdp", "BSD-3-Clause")
ADVERTORCH = Repository(
    "BorealisAI/advertorch", "e063e341c87d9a621ae1a8f72c3507d5ea5bd327", "advertorch_examples/trained_models", "LGPL-3.0"
)
CONVEX = Repository("locuslab/convex_adversarial", "2cd8149249b9e90383af10fc7e9b9fe90166813e", "models", "MIT")


def _network(
    arch: str,
    card: Card,
    channels: Normalisation,
    repository: Repository,
    file: str,
    sha256: str,
    size: int,
    called: str | None = None,
) -> Published:
    """A network of ten classes; ``called`` is its file's name here, where the published one says too little."""
    classes = CIFAR10_CLASSES if len(channels.mean) == 3 else DIGITS
    card = replace(card, classes=classes, source=repository.shown(file), licence=repository.licence)
    source = downloads.RemoteFile(repository.fetched(file), sha256, size)
    return Published(StoredModel(arch, 10, card, channels), called or file, source)


def _trained(summary: str, norm: str | None = None, radius: float | None = None) -> Card:
    return Card("", summary, norm=norm, radius=radius)


# Norms and radii of adversarial training are those that the repositories state, and none where they state none.
RESNET20 = _network(
    "resnet20",
    _trained("ResNet-20, plainly trained on CIFAR-10"),
    IMAGENET,
    AKAMASTER,
    "resnet20-12fca82f.th",
    "12fca82f0bebc4135bf1f32f6e3710e61d5108578464b84fd6d7f5c1b04036c8",
    1_099_231,
)
RESNET56 = _network(
    "resnet56",
    _trained("ResNet-56, plainly trained on CIFAR-10"),
    IMAGENET,
    AKAMASTER,
    "resnet56-4bfd9763.th",
    "4bfd97631478d6b638d2764fd2baff3edb1d7d82252d54439343b6596b9b5367",
    3_471_733,
)
RESNET2B = _network(
    "resnet_2b",
    _trained("ResNet-2B without batch norm, adversarially trained on CIFAR-10 with linf 2/255", "linf", 2 / 255),
    CIFAR10,
    CROWN_RESNET,
    "resnet2b.pth",
    "ef824b47175668e924d7fd409b5ef7e239012b8f0c31fefa66c643efda1eb05b",
    453_823,
)
RESNET4B = _network(
    "resnet_4b",
    _trained("ResNet-4B without batch norm, adversarially trained on CIFAR-10 with linf 2/255", "linf", 2 / 255),
    CIFAR10,
    CROWN_RESNET,
    "resnet4b.pth",
    "6158f9668935890e832d4e0fdc3b6cece2386ec826319eac36f329490b7729e7",
    504_281,
)
CNN_A_MIX = _network(
    "four_layers",
    _trained("CNN-A-Mix, robustly trained on CIFAR-10; its repository states no radius"),
    CNN_A,
    CROWN_SDP,
    "cifar_cnn_a_mix.model",
    "5a1370f41961766db169ad9f945e9cc3157c9afd7986eac73bf2786c35dc3773",
    862_519,
)
CNN_A_ADV4 = _network(
    "four_layers",
    _trained("CNN-A-Adv-4, adversarially trained on CIFAR-10; its repository states no radius"),
    CNN_A,
    CROWN_SDP,
    "cifar_cnn_a_adv4.model",
    "f872a69536be3f0ab98397094bb7c3952d747b08321b81eafd00d9fab5eca0e7",
    862_519,
)
LENET5_ADVTRAINED = _network(
    "lenet5",
    _trained("LeNet-5, adversarially trained on MNIST with linf 0.3", "linf", 0.3),
    GREY,
    ADVERTORCH,
    "mnist_lenet5_advtrained.pt",
    "b89abfcfe8b33235fe8f8e964188d82a97c56a12ffe25132eaba197e40ac7658",
    2_594_377,
)
LENET5_CLNTRAINED = _network(
    "lenet5",
    _trained("LeNet-5, plainly trained on MNIST"),
    GREY,
    ADVERTORCH,
    "mnist_lenet5_clntrained.pt",
    "551a11267982991fb0c9f74e9094de19e54b51455eff9bd1c19c77a69d85156a",
    2_594_377,
)
CONVEX_MNIST = _network(
    "four_layers_grey",
    _trained("two convolutions and two linear layers, trained on MNIST with a certificate for linf 0.1", "linf", 0.1),
    GREY,
    CONVEX,
    "mnist.pth",
    "95014ab0c04c73f48b3be0cb7acc42aff60ce4420c6c43bec25e9a1447279e08",
    666_692,
    called="convex_mnist.pth",
)
PUBLISHED: Mapping[str, Published] = registry.PUBLISHED


def load(name: str, download: bool = False) -> Classifier:
    """A network of :data:`PUBLISHED`.

    Args:
        name: its name there.
        download: fetch its file where it is not there yet.
    """
    if name not in PUBLISHED:
        raise InputError(
            f"published: must be one of {', '.join(PUBLISHED)}, got {name!r}: {nearest(name, PUBLISHED, 'drq models lists them')}"
        )
    known = PUBLISHED[name]
    path, full = known.place(), f"published:{name}"
    if download and not path.is_file():
        downloads.fetch(known.source, path, Bar(f"fetching {full}"))
    rule = f"be the file {known.file} in {models_folder()}, or in its folder {FOLDER}"
    remedy = f"download=True (--download) fetches {known.source.url}; or set DRQ_MODELS to the folder that has it"
    require(path.is_file(), full, rule, "no such file", remedy, MissingError)
    stored = replace(known.stored, card=replace(known.stored.card, name=full))
    return stored.classifier(weights.read(path, known.source.checksum))


SOURCE = ModelSource("small networks that others published", load)

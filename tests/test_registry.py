"""One registration for everything that has a name: what is registered is there, and is found wherever names are read."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

import pytest
import torch
from testbed.refusals import refused
from torch import Tensor, nn

import drq
from drq import registry
from drq.commands import completion
from drq.commands.cli import main
from drq.data.dataset import Data, InMemory
from drq.data.known import KnownData
from drq.defences.defence import Peer
from drq.evaluation import reading
from drq.models.classifier import Card
from drq.models.imagenet import Packaged
from drq.models.known import FittedModel, ModelSource
from drq.models.published import Published
from drq.models.stored import StoredModel
from drq.playground import image_sources, shifts
from drq.presets import Preset
from drq.registry import Registry
from drq.search.gradient import Smoothing
from drq.system import downloads
from drq.threats.corruptions import constants
from drq.threats.threat import Shifted, Threat

TABLES = {name: each for name, each in vars(registry).items() if isinstance(each, Registry)} | registry.THREATS
ENTRIES = [(kind, name) for kind, table in TABLES.items() for name in table]
CLASSES = {"NORMS": drq.Norm, "SEARCHES": drq.Search, "SMOOTHINGS": Smoothing, "PEERS": Peer} | dict.fromkeys(
    registry.THREATS, Threat
)
KINDS = {
    "PRESETS": Preset,
    "DATA": KnownData,
    "FITTED": FittedModel,
    "TRAINED": StoredModel,
    "ROBUSTBENCH": StoredModel,
    "SOURCES": ModelSource,
}
KINDS |= {"PACKAGED": Packaged, "PUBLISHED": Published}


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_what_is_registered_is_there(kind, name):
    """It says of itself what it is called, where it does at all."""
    found = TABLES[kind][name]
    if kind in CLASSES:
        assert issubclass(found, CLASSES[kind])
    elif kind in KINDS:
        assert isinstance(found, KINDS[kind])
    else:
        assert callable(found)
    if kind in ("SEARCHES", "SMOOTHINGS", "FRONTS", "AIMS", "CORRUPTIONS", *registry.THREATS):
        assert found.__name__ == name
    if kind == "PEERS":
        assert found.name == name
    if kind in ("TRAINED", "PACKAGED"):
        assert (found.stored if kind == "PACKAGED" else found).card.name == name


def test_every_corruption_has_its_constants():
    assert [*constants.TABLE] == [*registry.CORRUPTIONS] == [*constants.KINDS]


def test_a_registry_is_a_mapping_that_imports_nothing_to_list_names():
    table = Registry({"half": "fractions:Fraction", "gone": "no_such_module:Thing"})
    assert isinstance(table, Mapping)
    assert [*table] == ["half", "gone"]
    assert len(table) == 2
    assert "gone" in table
    assert ["half"] not in table
    assert table.get("third") is None
    assert str(table["half"](1, 2)) == "1/2"
    with pytest.raises(KeyError, match="third"):
        _ = table["third"]
    with pytest.raises(TypeError):
        table["third"] = "fractions:Fraction"


class Sum(drq.L1):
    """Another norm."""


@dataclass(frozen=True)
class Slow(drq.Gradient):
    """Another search."""


@dataclass(frozen=True)
class Halved(drq.Noise):
    """Another smoothing."""


@dataclass(frozen=True)
class Dark:
    """Another front."""

    share: float = 0.5

    def __call__(self, x: Tensor) -> Tensor:
        return self.share * x


@dataclass(frozen=True)
class Grey(Threat):
    """Everything grey."""

    level: float = 0.5

    def shift(self, model, x, y, index) -> Shifted:
        return Shifted(torch.full_like(x, self.level), torch.zeros(len(x), dtype=torch.long))


@dataclass(frozen=True)
class Twice(Peer):
    """Another peer."""

    name = "twice"
    summary = "the same"

    times: int = 2

    def around(self, model: nn.Module) -> nn.Module:
        return model


def last(model: object, y: Tensor) -> drq.Objective:
    """Another aim."""
    return drq.last_place(model, y)


def mist(x: Tensor, *, strength: float) -> Tensor:
    """Another corruption."""
    return x + strength


def load_points(request) -> Data:
    return Data(request.name, InMemory(torch.rand(4, 2), torch.zeros(4, dtype=torch.long)))


def load_flat(bias: bool = True) -> nn.Module:
    return nn.Linear(2, 2, bias=bias).eval()


def load_mine(name: str, width: int = 2) -> nn.Module:
    return nn.Linear(len(name), width).eval()


NEW = StoredModel("preact_resnet18", 10, Card("", "a third new one"))
MADE_UP = {
    "NORMS": ("sum", Sum),
    "SEARCHES": ("Slow", Slow),
    "SMOOTHINGS": ("Halved", Halved),
    "FRONTS": ("Dark", Dark),
    "AIMS": ("last", last),
    "PRESETS": ("slow", Preset("two steps", "table1", {"explore": drq.Gradient(2)})),
    "CORRUPTIONS": ("mist", mist),
    "PEERS": ("twice", Twice),
    "DATA": ("points", KnownData("four points", load_points)),
    "FITTED": ("flat", FittedModel("a linear model", load_flat)),
    "TRAINED": ("cifar10-new", StoredModel("preact_resnet18", 10, Card("cifar10-new", "a new one"))),
    "ROBUSTBENCH": ("cifar10/Linf/New", StoredModel("preact_resnet18", 10, Card("", "another new one"))),
    "PACKAGED": ("wrapped", Packaged(NEW, "no_such_package", "new.pth", "0" * 64)),
    "PUBLISHED": ("new", Published(NEW, "new.pth", downloads.RemoteFile("https://example.org/new.pth", "0" * 64))),
    "SOURCES": ("mine:", ModelSource("models of mine", load_mine, "abc", ours=True)),
}


@pytest.fixture
def made_up(monkeypatch):
    """One thing more of each kind, registered and nothing else."""
    module = ModuleType("made_up")
    monkeypatch.setitem(sys.modules, "made_up", module)
    for kind, (name, thing) in MADE_UP.items():
        setattr(module, kind, thing)
        monkeypatch.setitem(getattr(registry, kind).places, name, f"made_up:{kind}")
    module.Grey = Grey
    monkeypatch.setitem(registry.THREATS["noise"].places, "Grey", "made_up:Grey")
    row = ((0.1,),) * 5
    monkeypatch.setitem(constants.TABLE, "mist", constants.Kind("a thin haze", ("strength",), row, row))


def test_every_kind_is_made_up():
    assert MADE_UP.keys() == {name for name, each in vars(registry).items() if isinstance(each, Registry)}


@pytest.mark.usefixtures("made_up")
def test_specs_find_it():
    tables = {
        "drq": {"norm": "sum", "radius": 0.1, "explore": "Slow", "quantify": {"search": "Gradient", "smooth": "Halved"}},
        "dark": {"norm": "l2", "radius": 0.1, "front": {"front": "Dark", "share": 0.25}},
        "preset": {"defence": "drq", "preset": "slow"},
        "twice": {"times": 3},
    }
    threats = {"Grey": {"level": 0.25}, "mist": {"severity": 2}, "PGD": {"norm": "sum", "radius": 0.1, "aim": "last"}}
    spec = drq.Spec(models=["flat"], data=["points"], threats=threats, defences=tables)
    assert spec.defences["drq"].settings == {
        "norm": "sum",
        "radius": 0.1,
        "explore": Slow(),
        "quantify": drq.Gradient(smooth=Halved()),
    }
    assert spec.defences["drq"].around(load_flat()).norm == Sum()
    assert spec.defences["dark"].settings["front"] == Dark(0.25)
    assert spec.defences["preset"].settings == {"explore": drq.Gradient(2)}
    assert spec.defences["twice"] == Twice(3)
    assert spec.threats["Grey"].threat == Grey(0.25)
    assert spec.threats["PGD"].threat.aim is last
    fog = spec.threats["mist"].threat(None, torch.zeros(1, 3, 8, 8), None)
    assert torch.equal(fog, torch.full_like(fog, 0.1))
    refused(reading.threat, "gray", {"threat": "Gray"}, "threats.gray", 0, words=["did you mean Grey?"])


@pytest.mark.usefixtures("made_up")
def test_loaders_find_it():
    assert len(drq.load_data("points")) == 4
    assert drq.load_model("flat?bias=").bias is None
    assert drq.load_model("mine:abc").in_features == 3
    refused(drq.load_model, "cifar10-new", words=["cifar10-new must be the file"])
    refused(drq.load_model, "wrapped", words=["find new.pth, which the package no-such-package has"])
    refused(drq.load_model, "published:new", words=["published:new must be the file new.pth"])
    refused(drq.load_model, "robustbench:cifar10/Linf/New", words=["robustbench:cifar10/Linf/New must be the file"])
    assert drq.preset("slow") == {"explore": drq.Gradient(2)}


@pytest.mark.usefixtures("made_up")
def test_lists_have_it(capsys):
    for command in ("models", "data", "threats"):
        assert main([command]) == 0
    words = capsys.readouterr().out
    for name in (
        "flat",
        "wrapped",
        "cifar10-new",
        "published:new",
        "robustbench:cifar10/Linf/New",
        "mine:abc",
        "points",
        "Grey",
        'Corruption("mist")',
    ):
        assert name in words.replace("[", "")
    assert "Everything grey." in words
    assert "a thin haze" in words


@pytest.mark.usefixtures("made_up")
def test_the_tab_key_offers_it():
    models = {"flat", "wrapped", "cifar10-new", "published:new", "robustbench:cifar10/Linf/New", "mine:"}
    assert models <= {*completion.model_names()}
    assert "points" in completion.data_names("")
    assert "cifar10-c/mist" in completion.data_names("cifar10-c/")
    assert "twice" in completion.defence_names()
    assert "sum" in completion.complete_with(registry.NORMS)()
    assert "slow" in completion.complete_with(registry.PRESETS)()


@pytest.mark.usefixtures("made_up")
def test_the_playground_has_it():
    pytest.importorskip("gradio")
    from drq.playground import plane_tab

    assert "mist" in shifts.all_shifts()
    assert "cifar10-new" in image_sources.models_for(image_sources.CIFAR)
    settings = plane_tab.settings_from_controls("Moons", "Logistic regression", "sum", plane_tab.SET, 0.9, 0.1, 0.5, 5)
    assert settings.robust(0.1).norm == Sum()
    assert "sum" in plane_tab.norms()

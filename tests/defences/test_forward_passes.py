"""Passes with a gradient and without, as DRQ tells them, against a model that counts how often it is asked for either."""

import pytest
import torch
from testbed.classifiers import inputs
from torch import Tensor, nn

import drq
from drq.defences.answers import answered
from drq.presets import PAPER_REACH, named
from drq.registry import PRESETS
from drq.views import Gamma, Gate, Mirror, Rotation

N = 6


class Followed(torch.autograd.Function):
    """The identity, which counts the rows of which a gradient is asked."""

    @staticmethod
    def forward(context, x: Tensor, model: "Counting") -> Tensor:
        context.model = model
        return x.clone()

    @staticmethod
    def backward(context, gradient: Tensor) -> tuple[Tensor, None]:
        context.model.backward_rows += len(gradient)
        return gradient, None


class Counting(nn.Module):
    """A small network that counts its rows itself."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        layers = nn.Flatten(), nn.Linear(3 * 64, 20), nn.Tanh(), nn.Linear(20, 5)
        self.layers = nn.Sequential(*layers)
        draws = torch.Generator().manual_seed(3)
        for each in self.parameters():
            each.data = torch.randn(each.shape, generator=draws) * 3 / each.shape[-1] ** 0.5
        self.to(dtype).eval().requires_grad_(False)
        self.rows = self.backward_rows = 0

    def forward(self, x: Tensor) -> Tensor:
        self.rows += len(x)
        return self.layers(Followed.apply(x, self) if torch.is_grad_enabled() else x)


class Card:
    """Of a model that was trained adversarially."""

    def region(self, norm: str | None, radius: object, reach: float) -> dict[str, object]:
        return {"norm": norm or "linf", "radius": radius or 0.05 * reach}


FIXED = {"norm": "linf", "radius": 0.1}
FEW = {"explore": drq.Gradient(4), "quantify": drq.Gradient(3)}
SETTINGS = {
    **{f"preset {name}": named(name).around(Card()) for name in PRESETS},
    **{
        f"preset {name}, calibrated": named(name).changed({"norm": "l2", "radius": drq.Calibrated()})
        for name in ("paper", "fast")
    },
    "no pruning": FIXED | FEW | {"prune": "none"},
    "a race": FIXED | {"prune": "race"},
    "two classes": FIXED | FEW | {"classes": 2},
    "random points": FIXED | {"explore": drq.Random(5), "quantify": drq.Random(4)},
    "noise": FIXED | FEW | {"quantify": drq.Gradient(2, smooth=drq.Noise(3))},
    "inner attacks": FIXED | FEW | {"explore": drq.Gradient(2, smooth=drq.InnerAttack(2, steps=3))},
    "confident elsewhere": FEW | {"radius": drq.Calibrated(0.999999, 7)},
    "the base label read off": FIXED | FEW | {"explore_base": False},
    "a gated ball": FIXED | FEW | {"gate": Gate(0.1)},
    "views": {"views": Rotation(90, 5) + Mirror() * Gamma()},
    "gated views": {"views": Rotation(90, 5), "gate": Gate(0.3)},
    "views that are not looked at": {"views": Rotation(90, 5), "gate": Gate(torch.inf)},
    "fewer views": {"views": Rotation(90, 5), "gate": Gate(0.3, ahead=1.0), "prune": "race"},
    "neighbouring views": {"views": Rotation(90, 5), "alpha": 0.5},
    "views in balls": FIXED | FEW | {"views": Mirror() * Gamma()},
}


@pytest.mark.parametrize("chunk", [None, 7])
@pytest.mark.parametrize("name", SETTINGS)
def test_passes_are_those_that_the_model_saw(name: str, chunk: int | None) -> None:
    model, x = Counting(), inputs(4, N, 3, 8, 8)
    robust = drq.DRQ(model, **SETTINGS[name], chunk=chunk)
    robust.decide(x[:1])  # the first call looks once more
    model.rows = model.backward_rows = 0
    decision = robust.decide(x)
    seen = (model.rows, model.rows - model.backward_rows)
    assert (int(decision.passes.sum()), int(decision.forward_passes.sum())) == seen
    assert (decision.forward_passes >= 1).all()
    assert (decision.forward_passes <= decision.passes).all()
    assert (model.backward_rows == 0) == ((robust.views is not None and not robust.ball_searched) or name == "random points")
    assert int(decision.passes.max()) <= robust.most_passes(5)


@pytest.mark.parametrize("name", ["preset paper", "preset paper, calibrated", "a race", "views"])
def test_every_sample_has_its_own(name: str) -> None:
    model, x = Counting(), inputs(4, N, 3, 8, 8)
    robust = drq.DRQ(model, **SETTINGS[name])
    decision = robust.decide(x)
    for row in range(N):
        model.rows = model.backward_rows = 0
        alone = robust.decide(x[row : row + 1])
        assert (model.rows, model.rows - model.backward_rows) == (int(alone.passes), int(alone.forward_passes))
        assert int(alone.passes) == int(decision.passes[row]) or robust.prune == "race" or "preset" in name


def test_a_record_has_the_same() -> None:
    model, x = Counting(), inputs(4, N, 3, 8, 8)
    robust = drq.DRQ(model, **SETTINGS["views in balls"])
    found, decision = answered(robust, x, torch.zeros(N).long()), robust.decide(x)
    assert torch.equal(found.forward_passes, decision.forward_passes)
    assert (found.forward_passes < found.passes).all()
    assert PAPER_REACH == 2.0

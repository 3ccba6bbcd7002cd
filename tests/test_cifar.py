"""The method on real CIFAR-10 models. Needs the folder that DRQ_TEST_ASSETS names, with weights/ and data/."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from testbed.assets import needs_assets
from torch import Tensor
from torch.nn.functional import avg_pool2d

import drq
from drq.search.loop import search

pytestmark = [pytest.mark.slow, needs_assets]


trained = cache(drq.load_model)


@pytest.fixture(scope="module")
def cifar(assets: Path) -> tuple[Tensor, Tensor]:
    """The first 300 test images, (N, 3, 32, 32) in [0, 1], and their labels."""
    assert assets.is_dir()
    return drq.load_data("cifar10").batch(range(300))


@pytest.mark.parametrize(
    ("name", "published"),
    [("cifar10-linf", 0.8214), ("cifar10-l2", 0.8341), ("cifar10-augment", 0.9116)],  # on all 10 000 test images
)
def test_weights_have_their_accuracy(name: str, published: float, cifar: tuple[Tensor, Tensor]) -> None:
    x, y = cifar
    with torch.no_grad():
        logits = torch.cat([trained(name)(part) for part in x.split(50)])
    accuracy = (logits.argmax(1) == y).double().mean().item()
    print(f"accuracy {accuracy:.4f}, published {published:.4f}")
    assert abs(accuracy - published) < 3 * (published * (1 - published) / len(x)) ** 0.5  # three standard errors


class Calibration(NamedTuple):
    """The nearest confident points of another class, and what they were asked to be."""

    x: Tensor
    label: Tensor  # of the model, at x
    odds: Tensor  # log-odds of that label at x, which the points must have for another
    objective: drq.Objective
    found: drq.SearchResult


CALIBRATED: dict[str, Calibration] = {}


@pytest.fixture
def calibration(norm: str, cifar: tuple[Tensor, Tensor]) -> Calibration:
    if norm not in CALIBRATED:
        model, x = trained("cifar10-augment"), cifar[0][:8]
        logits = model(x)
        label = logits.argmax(1)
        odds = drq.log_odds(logits.double(), label)  # a confidence in float32 would be rounded to 1
        objective = drq.confident_elsewhere(model, label, odds.sigmoid())
        CALIBRATED[norm] = Calibration(x, label, odds, objective, drq.nearest(objective, x, norm, steps=100))
    return CALIBRATED[norm]


both_norms = pytest.mark.parametrize("norm", ["l2", "linf"])


@both_norms
def test_calibrated_points_are_confident_elsewhere(norm: str, calibration: Calibration) -> None:
    x, label, odds, _, found = calibration
    logits = trained("cifar10-augment")(found.point)
    elsewhere = logits.argmax(1)
    assert found.admitted.all()
    assert (elsewhere != label).all()
    assert (drq.log_odds(logits.double(), elsewhere) >= odds - 1e-4).all()
    assert drq.Ball(x, found.merit, norm, bounds=(0, 1)).contains(found.point).all()
    assert (found.merit > 0).all()
    low, high = {"l2": (0.1, 1.0), "linf": (0.7 / 255, 7 / 255)}[norm]
    median = found.merit.median().item()
    print(f"{norm}: median radius {median:.4f} = {255 * median:.2f}/255, from {found.merit.min():.4f} to {found.merit.max():.4f}")
    assert low < median < high


@both_norms
def test_calibrate_returns_their_distance(norm: str, calibration: Calibration) -> None:
    radius, found = drq.calibrate(trained("cifar10-augment"), calibration.x[:1], norm, steps=100)
    assert found.all()
    torch.testing.assert_close(radius, calibration.found.merit[:1], rtol=0.02, atol=0)  # alone in its batch it rounds otherwise


@both_norms
def test_nothing_confident_is_much_nearer(norm: str, calibration: Calibration) -> None:
    """Projected descent at a fixed radius, which shares no step rule with the calibration, finds nothing at 0.9 of it."""

    def reached(share: float, steps: int) -> int:
        ball = drq.Ball(calibration.x, share * calibration.found.merit, norm, bounds=(0, 1))
        return int((search(drq.Gradient(steps), calibration.objective, ball).value <= 0).sum())

    nearer, farther = reached(0.9, steps=50), reached(1.3, steps=20)
    print(f"{norm}: {nearer} of 8 reached at 0.9 of the radius, {farther} at 1.3")
    assert nearer <= 2
    assert farther >= 6  # otherwise the search would be too weak to contradict anything


def test_exact_pruning_changes_no_answer(cifar: tuple[Tensor, Tensor]) -> None:
    x, few = cifar[0][:4], drq.Gradient(steps=5)
    options = {"norm": "linf", "radius": 16 / 255, "explore": few, "quantify": few}
    full, pruned = (drq.DRQ(trained("cifar10-linf"), prune=prune, **options).decide(x) for prune in ("none", "exact"))
    print(f"passes {full.passes.tolist()} without pruning, {pruned.passes.tolist()} with; margins {full.margin.tolist()}")
    assert torch.equal(pruned.label, full.label)
    assert torch.equal(pruned.reached, full.reached)
    # Rows are searched in other batches, which round otherwise, and steps along signs amplify that.
    torch.testing.assert_close(pruned.margin, full.margin, rtol=0, atol=1e-3)
    torch.testing.assert_close(pruned.robustness[pruned.exact], full.robustness[pruned.exact], rtol=0, atol=1e-3)
    assert (pruned.robustness >= full.robustness - 1e-3).all()
    assert (pruned.passes <= full.passes).all()
    assert pruned.passes.sum() < full.passes.sum()
    assert not pruned.exact.all()


SHIFTS = {
    "brightness": lambda x: (x + 0.3).clamp(0, 1),
    "blur": lambda x: avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False),
}


@pytest.mark.parametrize("shift", SHIFTS)
def test_invariants_hold_on_shifted_images(shift: str, cifar: tuple[Tensor, Tensor]) -> None:
    model, few, radius, alpha = trained("cifar10-linf"), drq.Gradient(steps=5), 16 / 255, 0.5
    x = SHIFTS[shift](cifar[0][4:6])
    decision = drq.DRQ(model, "linf", radius, alpha=alpha, explore=few, quantify=few, keep_points=True).decide(x)
    assert decision.explored is not None
    assert decision.quantified is not None
    assert (decision.robustness <= decision.explored_confidence).all()
    assert decision.reached.gather(1, decision.base_label[:, None]).all()
    assert torch.equal(decision.explored.isnan().flatten(2).any(2), ~decision.reached)
    assert torch.equal(decision.quantified.isnan().flatten(2).any(2), ~(decision.reached & decision.exact))

    sample, label = (decision.reached & decision.exact).nonzero(as_tuple=True)  # all classes are searched, in their order
    explored, quantified = decision.explored[sample, label], decision.quantified[sample, label]
    assert drq.Ball(x[sample], radius, "linf", bounds=(0, 1)).contains(explored).all()
    assert drq.Ball(x[sample], (1 + alpha) * radius, "linf", bounds=(0, 1)).contains(quantified).all()
    assert drq.Ball(explored, alpha * radius, "linf", bounds=(0, 1)).contains(quantified).all()
    assert torch.equal(model(explored).argmax(1), label)
    for points, confidence in ((explored, decision.explored_confidence), (quantified, decision.robustness)):
        recomputed = model(points).softmax(1).gather(1, label[:, None])[:, 0]
        torch.testing.assert_close(recomputed, confidence[sample, label], rtol=0, atol=1e-4)


def test_bfloat16_agrees_with_float32(cifar: tuple[Tensor, Tensor]) -> None:
    # Few steps of few classes: without instructions for bfloat16, a processor needs seconds for a row.
    x, few = cifar[0][:2], drq.Gradient(steps=2)
    options = {"norm": "linf", "radius": 16 / 255, "explore": few, "quantify": few, "classes": 2}
    whole, half = (
        drq.DRQ(trained("cifar10-linf"), precision=precision, **options).decide(x) for precision in ("float32", "bfloat16")
    )
    print(f"robustness {whole.robustness.amax(1).tolist()} and {half.robustness.amax(1).tolist()}")
    assert half.robustness.dtype == torch.float32
    assert torch.equal(half.label, whole.label)
    torch.testing.assert_close(half.robustness, whole.robustness, rtol=0, atol=0.05)

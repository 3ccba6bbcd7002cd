"""Attacks of other libraries: they stay in their ball, leave no trace, and find what closed forms say is there."""

import copy
import random
import sys
import types
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from testbed.digits import Digits
from torch import Tensor, nn

import drq
from drq.errors import InputError
from drq.search.loop import search
from drq.threats.third_party import AutoAttack, Foolbox, ThirdParty

MEMBERS = {
    "apgd-ce": AutoAttack("linf", 0.15, "apgd-ce", 10),
    "apgd-ce l2": AutoAttack("l2", 1.2, "apgd-ce", 10, restarts=2),
    "apgd-dlr": AutoAttack("linf", 0.15, "apgd-dlr", 10),
    "apgd-t": AutoAttack("linf", 0.15, "apgd-t", 5, targets=3),
    "fab-t": AutoAttack("linf", 0.15, "fab-t", 10, targets=3),
    "fab-t l2": AutoAttack("l2", 1.2, "fab-t", 10, targets=3),
    "square": AutoAttack("linf", 0.15, "square", 150),
    "square l2": AutoAttack("l2", 1.5, "square", 100),
    "LinfPGD": Foolbox("linf", 0.15, "LinfPGD", {"steps": 10, "rel_stepsize": 0.2}),
    "L2PGD": Foolbox("l2", 1.2, "L2PGD", {"steps": 10, "rel_stepsize": 0.2}),
    "L2DeepFool": Foolbox("l2", 1.2, "L2DeepFoolAttack", {"steps": 10, "candidates": 3}),
    "noise": Foolbox("linf", 0.4, "LinfRepeatedAdditiveUniformNoiseAttack", {"repeats": 30}),
}
COUNT = 30
every_attack = pytest.mark.parametrize("name", MEMBERS)


@pytest.fixture
def batch(digits: Digits) -> tuple[Tensor, Tensor]:
    return digits.x[:COUNT], digits.y[:COUNT]


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return (model(x).argmax(1) == y).double().mean().item()


@every_attack
def test_attacks_stay_inside_and_lower_the_accuracy(name: str, digits: Digits, batch: tuple[Tensor, Tensor]) -> None:
    threat, (x, y) = MEMBERS[name], batch
    shifted = threat.run(digits.model, x, y)
    before, after = accuracy(digits.model, x, y), accuracy(digits.model, shifted.x, y)
    print(f"accuracy {before:.2f} -> {after:.2f}, {shifted.passes[0]} passes")
    assert drq.Ball(x, threat.radius, threat.norm, bounds=(0, 1)).contains(shifted.x, tolerance=1e-7).all()
    assert 0 <= shifted.x.min() <= shifted.x.max() <= 1
    assert not shifted.x.requires_grad
    assert after <= before - 0.25
    assert (shifted.passes > 0).all()


class ChannelsLast(nn.Module):
    """A linear model of the last axis first: the gradient comes back in another layout than the image has, as on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(3 * 5 * 6, 4, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).flatten(1) @ self.weight


@pytest.mark.parametrize("name", ["apgd-ce l2", "fab-t l2", "apgd-t", "L2PGD"])
def test_any_layout_will_do(name: str) -> None:
    """On a GPU samples come in the order that convolutions like, whichever they were given in."""
    model, threat = ChannelsLast().eval(), MEMBERS[name]
    x = torch.rand(8, 3, 5, 6, generator=torch.Generator().manual_seed(1))
    x, y, setting = threat.prepare_batch(model, x, model(x).argmax(1))
    usual, other = x.contiguous(), x.contiguous(memory_format=torch.channels_last)
    found = [threat.attack(setting, each, y, torch.arange(8)).x for each in (usual, other)]
    assert torch.equal(*found)
    assert accuracy(model, found[0], y) < 0.5


@every_attack
def test_nothing_else_is_touched_and_the_seed_decides(name: str, digits: Digits, batch: tuple[Tensor, Tensor]) -> None:
    threat, (x, y) = MEMBERS[name], batch
    model = copy.deepcopy(digits.model).requires_grad_(True)  # parameters that want gradients, which the libraries would fill
    given, state = (x.clone(), y.clone()), copy.deepcopy(model.state_dict())
    python, numbers, torchs = random.getstate(), np.random.get_state(), torch.get_rng_state()
    first = threat(model, x, y)
    assert random.getstate() == python
    assert all(np.array_equal(one, other) for one, other in zip(numbers, np.random.get_state(), strict=True))
    assert torch.equal(torch.get_rng_state(), torchs)
    assert torch.equal(x, given[0])
    assert torch.equal(y, given[1])
    assert all(weight.requires_grad and weight.grad is None for weight in model.parameters())
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert not model.training
    with torch.random.fork_rng(), torch.inference_mode():
        torch.rand(3)
        assert torch.equal(threat(model, x, y), first)


@pytest.mark.parametrize("name", ["apgd-ce", "apgd-t", "square", "LinfPGD"])
def test_another_seed_draws_otherwise(name: str, digits: Digits, batch: tuple[Tensor, Tensor]) -> None:
    first, second = (replace(MEMBERS[name], seed=seed)(digits.model, *batch) for seed in (0, 1))
    assert not torch.equal(first, second)


@every_attack
def test_radius_0_needs_no_library(name: str, batch: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pyautoattack", "foolbox"):
        monkeypatch.setitem(sys.modules, package, None)
    x, y = batch
    shifted = replace(MEMBERS[name], radius=0.0).run(linear(10, 64), x, y)
    assert torch.equal(shifted.x, x)
    assert (shifted.passes == 0).all()


@every_attack
def test_a_missing_package_names_the_extra(name: str, digits: Digits, monkeypatch: pytest.MonkeyPatch) -> None:
    package = "foolbox" if isinstance(MEMBERS[name], Foolbox) else "pyautoattack"
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"{package} .*pip install decision-region-quantification\[attacks\]$"):
        MEMBERS[name](digits.model, digits.x[:1], digits.y[:1])


def test_batches_have_the_recorded_size(digits: Digits, batch: tuple[Tensor, Tensor]) -> None:
    x, y = batch
    threat = replace(MEMBERS["apgd-ce"], batch=12, seed=4)
    assert {"batch": 12, "seed": 4, "batch_dependent": True, "member": "apgd-ce", "steps": 10}.items() <= threat.record.items()
    sizes: list[int] = []

    class Sized(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            sizes.append(len(x))
            return digits.model(x)

    whole = threat.run(Sized().eval(), x, y)
    assert sizes[0] == 1  # the check of the model
    assert set(sizes[1:]) == {12, 6}
    assert sum(sizes[1:]) == whole.passes.sum()
    parts = [threat(digits.model, x[rows], y[rows]) for rows in (slice(0, 12), slice(12, 24), slice(24, 30))]
    assert torch.equal(torch.cat(parts), whole.x)


def test_apgd_attacks_what_is_misclassified_already(digits: Digits, batch: tuple[Tensor, Tensor]) -> None:
    """A defence may classify it correctly: only the point of highest loss is worth a transfer. FAB and Square leave it."""
    x, wrong = batch[0], (batch[1] + 1) % 10
    start = drq.log_odds(digits.model(x), wrong)
    for name in ("apgd-ce", "apgd-dlr", "apgd-t"):
        attacked = MEMBERS[name](digits.model, x, wrong)
        assert ((attacked != x).flatten(1).any(1)).all()
        if name == "apgd-ce":
            assert (drq.log_odds(digits.model(attacked), wrong) < start).all()
    for name in ("fab-t", "square"):
        assert torch.equal(MEMBERS[name](digits.model, x, wrong), x)


def test_apgd_returns_the_point_of_highest_loss(digits: Digits, batch: tuple[Tensor, Tensor]) -> None:
    """As low as our own search gets, long past the first misclassification."""
    x, y = batch
    ball = drq.Ball(x, 0.15, "linf", bounds=(0, 1))
    ours = search(drq.Gradient(30), drq.away_from(digits.model, y), ball).value
    theirs = drq.log_odds(digits.model(AutoAttack("linf", 0.15, "apgd-ce", 30)(digits.model, x, y)), y)
    torch.testing.assert_close(theirs, ours, rtol=0, atol=0.5)
    assert (theirs < -5).any()


def linear(classes: int, features: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    random = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(features, classes))
    with torch.no_grad():
        model[1].weight.copy_(torch.randn((classes, features), generator=random))
        model[1].bias.zero_()
    return model.to(dtype).eval()


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("classes", [2, 4])
def test_fab_finds_the_boundary_of_a_linear_model(classes: int, norm: str) -> None:
    """The distance to class j is (z_y - z_j) / |w_y - w_j|_*; in the middle of the box nothing else matters."""
    model, x = linear(classes, 12), 0.5 + 0.05 * torch.randn((40, 12), generator=torch.Generator().manual_seed(1))
    logits, weight = model(x).detach(), model[1].weight.detach()
    y = logits.argmax(1)
    gap = logits.gather(1, y[:, None]) - logits
    slope = torch.stack([drq.norms.as_norm(norm).dual_length(weight[y] - row) for row in weight], 1)
    nearest = (gap / slope).scatter(1, y[:, None], torch.inf).amin(1)
    radius = nearest.median().item()
    moved = AutoAttack(norm, radius, "fab-t", 10)(model, x, y)
    fooled = model(moved).argmax(1) != y
    within, beyond = nearest < 0.94 * radius, nearest > 1.001 * radius  # FAB steps over the boundary by 5 percent
    print(f"{norm}: radius {radius:.3f}, {within.sum()} within, {beyond.sum()} beyond")
    assert min(within.sum(), beyond.sum()) >= 10
    assert fooled[within].all()
    assert torch.equal(moved[beyond], x[beyond])
    length = drq.norms.as_norm(norm).length(moved - x)[within]
    assert (length > 0.999 * nearest[within]).all()
    if classes == 2:  # otherwise the first target within the radius will do, the nearest or not
        assert (length < 1.06 * nearest[within]).all()


def test_deepfool_finds_the_boundary_of_a_linear_model() -> None:
    model, x = linear(2, 12), 0.5 + 0.02 * torch.randn((10, 12), generator=torch.Generator().manual_seed(1))
    logits, weight = model(x).detach(), model[1].weight
    y, nearest = logits.argmax(1), (logits[:, 0] - logits[:, 1]).abs() / (weight[0] - weight[1]).norm()
    moved = Foolbox("l2", 5.0, "L2DeepFoolAttack")(model, x, y)
    assert (model(moved).argmax(1) != y).all()
    torch.testing.assert_close((moved - x).norm(dim=1), nearest, rtol=0.03, atol=2e-4)
    cut = Foolbox("l2", nearest.min().item() / 2, "L2DeepFoolAttack")(model, x, y)
    torch.testing.assert_close((cut - x).norm(dim=1), nearest.min().expand(10) / 2, rtol=1e-3, atol=0)


@pytest.mark.parametrize("member", ["apgd-t", "fab-t"])
def test_targets_are_other_classes_and_no_more_than_there_are(member: str) -> None:
    model, x = linear(4, 12), torch.rand((5, 12), generator=torch.Generator().manual_seed(0))
    y = model(x).argmax(1)
    all_of_them, three, one = (AutoAttack("linf", 0.3, member, 5, targets=targets)(model, x, y) for targets in (50, 3, 1))
    assert torch.equal(all_of_them, three)
    assert (model(one).argmax(1) != y).all()
    in_vain = [AutoAttack("linf", 1e-6, member, 5, targets=targets).run(model, x, y).passes[0].item() for targets in (3, 1)]
    assert in_vain[0] > 2.5 * in_vain[1]


@pytest.mark.parametrize("name", ["apgd-ce", "apgd-t", "fab-t", "square", "LinfPGD", "L2DeepFool"])
def test_double_precision_is_kept(name: str) -> None:
    draws = torch.Generator().manual_seed(0)  # on other images Square may find nothing, and then moves nothing
    model, x = linear(10, 64, dtype=torch.float64), torch.rand((4, 1, 8, 8), dtype=torch.float64, generator=draws)
    threat, y = MEMBERS[name], model(x).argmax(1)
    moved = threat(model, x, y)
    assert moved.dtype == torch.float64
    assert drq.Ball(x, threat.radius, threat.norm, bounds=(0, 1)).contains(moved).all()
    assert not torch.equal(moved, x)
    if name in ("fab-t", "square"):
        assert torch.equal(threat(model, x, (y + 1) % 10), x)  # not rounded to single precision on the way


class Careless:
    """An attack with all bad habits: it leaves the ball, writes into what it was given and reseeds everything."""

    distance = types.SimpleNamespace(p=2)

    def __call__(self, model: object, x: Tensor, y: Tensor, *, epsilons: float) -> tuple[None, Tensor, None]:
        x += 3
        y += 1
        random.seed(12345)
        np.random.seed(12345)
        torch.manual_seed(12345)
        return None, x, None


def test_careless_attacks_do_no_harm(digits: Digits) -> None:
    x, y = digits.x[:3], digits.y[:3]
    python, numbers, torchs = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    moved = Foolbox("l2", 0.5, Careless())(digits.model, x, y)
    assert random.getstate() == python
    assert np.array_equal(np.random.get_state()[1], numbers)
    assert torch.equal(torch.get_rng_state(), torchs)
    assert drq.Ball(x, 0.5, "l2", bounds=(0, 1)).contains(moved).all()
    assert not torch.equal(moved, x)


class Pixels(nn.Module):
    """Its logits are the first pixels themselves: who writes into them writes into the image."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :10]


def test_square_does_not_write_into_images() -> None:
    x = torch.rand((6, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    model, y = Pixels().eval(), x.flatten(1)[:, :10].argmax(1)
    moved = AutoAttack("linf", 0.2, "square", 50)(model, x, y)
    assert drq.Ball(x, 0.2, "linf", bounds=(0, 1)).contains(moved).all()
    assert (model(moved).argmax(1) != y).sum() >= 4


def test_the_wrapped_model_is_attacked_too(digits: Digits) -> None:
    few = drq.Gradient(steps=2)
    robust = drq.DRQ(digits.model, "linf", 0.25, explore=few, quantify=few, prune="none")
    x, y = digits.x[:4], digits.y[:4]
    for name in ("apgd-ce", "LinfPGD"):
        moved = MEMBERS[name](robust, x, y)
        assert not torch.equal(moved, x)
        assert drq.Ball(x, 0.15, "linf", bounds=(0, 1)).contains(moved).all()


def test_an_attack_made_already_is_the_one_named(digits: Digits, batch: tuple[Tensor, Tensor]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from foolbox.attacks import LinfPGD
    named = MEMBERS["LinfPGD"]
    made = Foolbox("linf", 0.15, LinfPGD(steps=10, rel_stepsize=0.2))
    assert torch.equal(made(digits.model, *batch), named(digits.model, *batch))
    assert "rel_stepsize=0.2" in made.record["method"]
    assert named.record["options"] == {"steps": 10, "rel_stepsize": 0.2}


def call(threat: ThirdParty, classes: int = 3, shape: tuple[int, ...] = (1, 1, 8, 8)) -> Tensor:
    return threat(linear(classes, 64), torch.rand(2, *shape[1:]), torch.tensor([0, 1]))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: call(AutoAttack("linf", 0.1, "apgd-dlr"), 2), "model must have at least 3 classes for apgd-dlr, got 2"),
        (lambda: call(AutoAttack("linf", 0.1, "apgd-t"), 3), "model must have at least 4 classes for apgd-t, got 3"),
        (lambda: call(AutoAttack("linf", 0.1, "square"), 3, (1, 64)), r"x must be images \(N, C, H, W\) with sides"),
        (lambda: AutoAttack("linf", 0.1, "pgd"), "member must be one of apgd-ce, apgd-dlr"),
        (lambda: AutoAttack("linf", 0.1, "fab-t", 0), "steps"),
        (lambda: AutoAttack("linf", 0.1, targets=0), "targets"),
        (lambda: AutoAttack("linf", 0.1, restarts=0), "restarts"),
        (lambda: AutoAttack("linf", 0.1, batch=0), "batch"),
        (lambda: AutoAttack("linf", -0.1), "radius"),
        (lambda: AutoAttack("linf", 0.1, bounds=(-1.0, 1.0)), r"bounds must be \(0.0, 1.0\)"),
        (lambda: AutoAttack("linf", 0.1, bounds=None), "bounds"),
        (lambda: AutoAttack("linf", 0.1, frozen=torch.tensor(True)), "frozen must be None"),
        (lambda: Foolbox("linf", 0.1, bounds=None), "bounds must be a pair of numbers"),
        (lambda: Foolbox("linf", 0.1, 3), "method"),
        (lambda: Foolbox("linf", 0.1, print, {"steps": 2}), "options"),
        (lambda: call(Foolbox("linf", 0.1, "LinfPDG")), "method must be an attack in foolbox.attacks, got 'LinfPDG'"),
        (lambda: call(Foolbox("l2", 0.1, "LinfPGD")), "norm must be that of the attack"),
    ],
)
def test_mistakes_are_named(make: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()

"""One suite over every threat of ours: what holds for all of them, whatever they do to an input."""

import json
import random
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
import torch
from testbed.classifiers import inputs, network
from torch import Tensor, nn

import drq
from drq import threats
from drq.threats import BallThreat, Pursuit, Threat

few = drq.Gradient(steps=3)
IMAGE = (3, 8, 8)
N = 5

ON_A_MODEL = {
    "PGD": threats.PGD("linf", 0.1, 4),
    "PGD l2": threats.PGD("l2", 0.5, 4, restarts=2),
    "PGD l1": threats.PGD("l1", 2.0, 4),
    "PGD targeted": threats.PGD("linf", 0.1, 4, aim=drq.favour),
    "PGDNoise": threats.PGDNoise("linf", 0.1, 3),
    "PGDAttack": threats.PGDAttack("l2", 0.5, 3, smooth=drq.InnerAttack(2, steps=2)),
    "APGD": threats.APGD("linf", 0.1, 9),
    "APGD-DLR": threats.APGD("l2", 0.5, 9, aim=drq.dlr),
    "APGDTargeted": threats.APGDTargeted("linf", 0.1, 5, targets=2),
    "LastPlace": threats.LastPlace("linf", 0.1, 5),
    "RandomNoise": threats.RandomNoise("l1", 2.0, 9),
    "SquareAttack": threats.SquareAttack("linf", 0.1, 20),
    "SquareAttack l2": threats.SquareAttack("l2", 0.5, 20),
    "RaySAttack": threats.RaySAttack("linf", 0.1, 40),
}
ON_A_DEFENCE = {
    "EndToEnd": threats.EndToEnd("linf", 0.1, 2),
    "Manipulation": threats.Manipulation("linf", 0.1, 3, inner=(2,)),
    "Transfer": threats.Transfer("linf", 0.1, threats.APGD("linf", 0.1, 4)),
    "Envelope": threats.Envelope("l2", 0.5, 3, inner=(2,)),
    "Rivals": threats.Rivals("linf", 0.1, 2, rank=1, inner=(2,)),
    "Sampling": threats.Sampling("l2", 0.5, 4, inner=(2,)),
    "FewerSteps": threats.FewerSteps("linf", 0.1, 3, inner=2),
    "ScoreBased": threats.ScoreBased("linf", 0.1, 4),
    "DecisionBased": threats.DecisionBased("linf", 0.1, 6),
    "Chain": threats.Chain(
        "linf",
        0.1,
        (threats.Transfer("linf", 0.1, threats.PGD("linf", 0.1, 3)), threats.Envelope("linf", 0.1, 3, inner=(2,))),
    ),
}
MOVEMENTS = {
    "Rotation": threats.Rotation(20.0),
    "Rotation, worst of 3": threats.Rotation(20.0, worst_of=3),
    "Translation": threats.Translation(2.0),
    "RotationTranslation": threats.RotationTranslation(20.0, 2.0, padding="border"),
    "Translation, worst of 3": threats.Translation(2.0, worst_of=3, padding="reflection"),
}
NOISES = {"GaussianNoise": threats.GaussianNoise(0.2)}
CORRUPTIONS = {entry.name: eval(f"threats.{entry.name}") for entry in threats.list() if entry.family == "corruption"}
ATTACKS: dict[str, BallThreat] = ON_A_MODEL | ON_A_DEFENCE
THREATS: dict[str, Threat] = ATTACKS | MOVEMENTS | NOISES | CORRUPTIONS
FREE_OF_LABELS = {name for name in THREATS if name not in ATTACKS and "worst" not in name}


@cache
def classifier(shape: tuple[int, ...]) -> nn.Module:
    size = int(np.prod(shape))
    return nn.Sequential(nn.Flatten(), network(1, size, 4)).eval().requires_grad_(False)


def victim(name: str, shape: tuple[int, ...] = IMAGE, dtype: torch.dtype = torch.float64) -> nn.Module:
    model = classifier(shape)
    model = model if dtype == torch.float64 else nn.Sequential(nn.Flatten(), network(1, int(np.prod(shape)), 4)).to(dtype).eval()
    return drq.DRQ(model, "linf", 0.2, explore=few, quantify=few) if name in ON_A_DEFENCE else model


def batch(shape: tuple[int, ...] = IMAGE, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    x = inputs(3, N, *shape)
    return x.to(dtype), classifier(shape)(x).argmax(1)


each = pytest.mark.parametrize("name", THREATS)
each_attack = pytest.mark.parametrize("name", ATTACKS)


def test_every_threat_is_here():
    """A threat that is listed and not tested would be a hole in this suite; third-party attacks have a file of their own."""
    listed = {entry.name.split("(")[0] for entry in threats.list()} - {"AutoAttack", "Foolbox", "RedTeam"}
    assert listed == {type(threat).__name__ for threat in THREATS.values()}
    assert len(CORRUPTIONS) == 15


@each
@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 9, 7)], ids=["RGB", "grey, not square"])
def test_shape_type_and_box_are_kept(name: str, shape: tuple[int, ...]) -> None:
    for dtype in (torch.float32, torch.float64):
        x, y = batch(shape, dtype)
        shifted = THREATS[name](victim(name, shape, dtype), x, y)
        assert shifted.shape == x.shape
        assert shifted.dtype == dtype
        assert not shifted.requires_grad
        assert shifted.isfinite().all()
        assert shifted.min() >= 0
        assert shifted.max() <= 1
        assert not torch.equal(shifted, x) or name == "Manipulation"  # which may find nothing better


@each_attack
def test_attacks_stay_in_their_ball(name: str) -> None:
    x, y = batch()
    assert ATTACKS[name].ball(x).contains(ATTACKS[name](victim(name), x, y), tolerance=1e-9).all()


@each_attack
def test_radius_0_is_the_identity(name: str) -> None:
    x, y = batch()
    threat = ATTACKS[name]
    if isinstance(threat, threats.Transfer):
        threat = replace(threat, radius=0.0, attack=replace(threat.attack, radius=0.0))
    elif isinstance(threat, threats.Chain):
        threat = replace(threat, radius=0.0, members=(threats.Envelope("linf", 0.0, 3),))
    assert torch.equal(replace(threat, radius=0.0)(victim(name), x, y), x)


@each_attack
def test_frozen_features_and_bounds_per_feature_are_kept(name: str) -> None:
    x, y = batch()
    frozen = torch.zeros(IMAGE, dtype=torch.bool)
    frozen[0] = True
    low, high = (x.amin(0) - 0.01).clamp(min=0), (x.amax(0) + 0.01).clamp(max=1)
    changed = {"frozen": frozen, "bounds": (low, high)}
    threat = replace(ATTACKS[name], **changed)
    if isinstance(threat, threats.Transfer):
        threat = replace(threat, attack=replace(threat.attack, **changed))
    robust = victim(name)
    robust = robust.variant(**changed) if isinstance(robust, drq.DRQ) else robust
    shifted = threat(robust, x, y)
    assert torch.equal(shifted[:, 0], x[:, 0])
    assert ((shifted >= low) & (shifted <= high)).all()


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "PGDAttack"] + ["PGDAttack"])
def test_attacks_take_tensors_that_are_no_images(name: str) -> None:
    x, y = batch((7,))
    shifted = ATTACKS[name](victim(name, (7,)), x, y)
    assert ATTACKS[name].ball(x).contains(shifted, tolerance=1e-9).all()


def everything_global(model: nn.Module) -> list[object]:
    hooks = [len(module._forward_hooks) for module in model.modules()]
    flags = [(parameter.requires_grad, parameter.grad is None) for parameter in model.parameters()]
    numpy = np.random.get_state()
    return [hooks, flags, torch.random.get_rng_state().tolist(), list(numpy[1]), numpy[2:], random.getstate(), model.training]


@each
def test_nothing_is_touched(name: str) -> None:
    (x, y), model = batch(), victim(name)
    given, weights = (x.clone(), y.clone()), {key: value.clone() for key, value in model.state_dict().items()}
    before = everything_global(model)
    THREATS[name](model, x, y)
    assert everything_global(model) == before
    assert torch.equal(x, given[0])
    assert torch.equal(y, given[1])
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())


@each
def test_same_seed_same_bytes_with_and_without_gradients(name: str) -> None:
    (x, y), model = batch(), victim(name)
    first = THREATS[name](model, x, y)
    for without in (torch.no_grad, torch.inference_mode):
        with without():
            assert torch.equal(THREATS[name](model, x, y), first)


@each
def test_order_and_company_do_not_matter(name: str) -> None:
    (x, y), model, index = batch(), victim(name), torch.tensor([4, 17, 3, 99, 250])
    together = THREATS[name](model, x, y, index=index)
    order = torch.tensor([3, 0, 2])
    apart = THREATS[name](model, x[order], y[order], index=index[order])
    torch.testing.assert_close(apart, together[order], rtol=0, atol=1e-9)


@each_attack
def test_chunks_do_not_matter(name: str) -> None:
    (x, y), model = batch(), victim(name)
    torch.testing.assert_close(replace(ATTACKS[name], chunk=2)(model, x, y), ATTACKS[name](model, x, y), rtol=0, atol=1e-9)


@each_attack
def test_passes_are_those_that_the_model_saw(name: str) -> None:
    (x, y), model = batch(), victim(name)
    seen = []
    static = model.model if isinstance(model, drq.DRQ) else model
    handle = static.register_forward_hook(lambda _module, given, _output: seen.append(len(given[0])))
    shifted = ATTACKS[name].run(model, x, y)
    handle.remove()
    checks = 1 + (name in ON_A_DEFENCE)  # one row is examined before anything else, and prices of looks are taken
    counted = shifted.passes.double().sum().item()
    assert counted <= sum(seen) + 1e-6
    assert sum(seen) - counted <= 60 * checks, (sum(seen), counted)
    assert counted >= N


@each
def test_records_are_json_and_say_what_is_needed_to_repeat(name: str) -> None:
    record = THREATS[name].record
    assert json.loads(json.dumps(record)) == record
    assert record["threat"] == type(THREATS[name]).__name__
    assert record["batch_dependent"] is False
    settings = {field.name for field in fields(THREATS[name]) if field.compare}
    assert settings <= record.keys()


@each
def test_nan_and_empty_batches_get_one_clear_line(name: str) -> None:
    (x, y), model = batch(), victim(name)
    spoiled = x.clone()
    spoiled[1, 0, 0, 0] = torch.nan
    with pytest.raises(drq.InputError, match=r"^x must be finite, got NaN or infinity: "):
        THREATS[name](model, spoiled, y)
    with pytest.raises(drq.InputError, match=r"^x must have at least one sample, got shape "):
        THREATS[name](model, x[:0], y[:0])
    with pytest.raises(drq.InputError, match=r"^x must lie within bounds=\(0\.0, 1\.0\), got "):
        THREATS[name](model, x + 1, y)
    with pytest.raises(drq.InputError, match=r"^index must be a tensor of 5 whole numbers of at least 0, got "):
        THREATS[name](model, x, y, index=torch.arange(4))


@each_attack
def test_attacks_need_a_model_and_labels_that_fit(name: str) -> None:
    (x, y), model = batch(), victim(name)
    for labels, message in (
        (None, r"^y must be a tensor of labels, got None: "),
        (y[:-1], r"^y must be a tensor of 5 whole numbers of at least 0, got "),
        (y.double(), r"^y must be a tensor of 5 whole numbers of at least 0, got torch.float64"),
        (y + 4, r"^y must lie below 4, the model's classes, got "),
    ):
        with pytest.raises(drq.InputError, match=message):
            ATTACKS[name](model, x, labels)
    with pytest.raises(drq.InputError, match=r"^model must be "):
        ATTACKS[name](None, x, y)
    training = victim(name)
    (training.model if isinstance(training, drq.DRQ) else training).train()
    try:
        with pytest.raises(drq.InputError, match=r"^model must be in evaluation mode, got "):
            ATTACKS[name](training, x, y)
    finally:
        training.eval()


@pytest.mark.parametrize("name", sorted(FREE_OF_LABELS))
def test_shifts_need_neither_model_nor_labels(name: str) -> None:
    x, y = batch()
    assert torch.equal(THREATS[name](None, x, None), THREATS[name](victim(name), x, y))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
@each
def test_gpu_and_cpu_agree(name: str) -> None:
    (x, y), model = batch(), victim(name)
    there = THREATS[name](model.to("cuda"), x.to("cuda"), y.to("cuda"))
    here = THREATS[name](model.to("cpu"), x, y)
    assert there.is_cuda
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=1e-6)


IMPOSSIBLE: list[tuple[Callable[[], object], str]] = [
    (lambda: threats.PGD(classifier(IMAGE), 0.1), r"^norm must be one of linf, l2, l1 or a drq.Norm, got Sequential"),
    (lambda: threats.PGD("l3", 0.1), r"^norm must be one of linf, l2, l1 or a drq.Norm, got 'l3'"),
    (lambda: threats.PGD("linf", -0.1), r"^radius must be finite and at least 0, got -0.1"),
    (lambda: threats.PGD("linf", float("nan")), r"^radius must be finite and at least 0, got nan"),
    (lambda: threats.PGD("linf", 0.1, 0), r"^steps must be a whole number of at least 1, got 0"),
    (lambda: threats.PGD("linf", 0.1, step=0), r"^step must be above 0, got 0"),
    (lambda: threats.PGD("linf", 0.1, restarts=0), r"^restarts must be a whole number of at least 1, got 0"),
    (lambda: threats.PGD("linf", 0.1, bounds=(1, 0)), r"^bounds must have lowest <= highest"),
    (lambda: threats.PGD("linf", 0.1, chunk=0), r"^chunk must be None or at least 1, got 0"),
    (lambda: threats.APGD("linf", 0.1, 2.5), r"^steps must be a whole number of at least 1, got 2.5"),
    (lambda: threats.APGDTargeted("linf", 0.1, targets=0), r"^targets must be a whole number of at least 1, got 0"),
    (lambda: threats.RandomNoise("linf", 0.1, 0), r"^samples must be a whole number of at least 1, got 0"),
    (lambda: threats.SquareAttack("linf", 0.1, 0), r"^queries must be a whole number of at least 1, got 0"),
    (lambda: threats.RaySAttack("l2", 0.1), r"^norm must be linf for RayS, got L2\(\)"),
    (lambda: threats.DecisionBased("l2", 0.1), r"^norm must be linf for RayS, got L2\(\)"),
    (lambda: threats.EndToEnd("linf", 0.1, clip=0), r"^clip must be None or above 0, got 0"),
    (lambda: threats.Envelope("linf", 0.1, inner=(0,)), r"^inner must be a whole number of at least 1, got 0"),
    (lambda: threats.Envelope("linf", 0.1, rank=-1), r"^rank must be a whole number of at least 0, got -1"),
    (lambda: threats.Transfer("linf", 0.1, threats.PGD("l2", 0.1)), r"^attack must have the norm and the radius of the transfer"),
    (lambda: threats.PGD("linf", torch.tensor([0.1, 0.2])), r"^radius must be a number, got tensor"),
    (lambda: threats.PGD("linf", 0.1, aim="dlr"), r"^aim must be an objective such as drq.away_from, got 'dlr'"),
    (lambda: threats.APGDTargeted("linf", 0.1, first=-1), r"^first must be a whole number of at least 0, got -1"),
    (lambda: threats.APGDTargeted("linf", 0.1, first=1.5), r"^first must be a whole number of at least 0, got 1.5"),
    (lambda: threats.Envelope("linf", 0.1, rank=1.5), r"^rank must be a whole number of at least 0, got 1.5"),
    (lambda: threats.Envelope("linf", 0.1, restart=-1), r"^restart must be a whole number of at least 0, got -1"),
    (lambda: threats.Envelope("linf", 0.1, inner=7), r"^inner must be a tuple of numbers of steps, got 7"),
    (lambda: threats.Transfer("linf", 0.1, threats.PGD("linf", 0.2)), r"^attack must have the norm and the radius of the"),
    (lambda: threats.Transfer("linf", 0.1, None), r"^attack must be one on a static model, such as drq.threats.APGD, got None"),
    (
        lambda: threats.Chain("linf", 0.1, (threats.APGD("linf", 0.1),)),
        r"^members must be one or more attacks on a defence, as a tuple, got APGD",
    ),
    (
        lambda: threats.Chain("linf", 0.1, threats.Envelope("linf", 0.1)),
        r"^members must be one or more attacks on a defence, as a tuple, got Envelope",
    ),
    (lambda: threats.Chain("linf", 0.1, ()), r"^members must be one or more attacks on a defence, as a tuple, got none"),
    (lambda: threats.Chain("linf", 0.1, (threats.Envelope("linf", 0.2),)), r"^members must have the norm and the radius of the"),
    (lambda: drq.DRQ(classifier(IMAGE), explore=drq.RayS(50)), r"^explore must be a search within a ball, got RayS"),
    (lambda: threats.RedTeam("linf", 0.1, "slow"), r"^strength must be 'quick' or 'full', got 'slow'"),
]


@pytest.mark.parametrize(("make", "message"), IMPOSSIBLE, ids=[message[1:40] for _, message in IMPOSSIBLE])
def test_impossible_settings_get_one_clear_line(make: Callable[[], object], message: str) -> None:
    with pytest.raises(drq.InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_losses_that_need_more_classes_say_so() -> None:
    two, (x, y) = nn.Sequential(nn.Flatten(), network(0, 192, 2)).eval(), batch()
    y = y % 2
    with pytest.raises(drq.InputError, match=r"^model must have at least 3 classes for this loss, got 2"):
        threats.APGD("linf", 0.1, aim=drq.dlr)(two, x, y)
    with pytest.raises(drq.InputError, match=r"^model must have at least 4 classes for this loss, got 2"):
        threats.APGDTargeted("linf", 0.1)(two, x, y)


def test_only_drq_can_be_attacked_end_to_end() -> None:
    x, y = batch()
    for name in ("EndToEnd", "Manipulation"):
        with pytest.raises(drq.InputError, match=r"^model must be a drq.DRQ, got Sequential"):
            ATTACKS[name](classifier(IMAGE), x, y)


def test_the_catalogue_describes_everything() -> None:
    entries = threats.list()
    assert len({entry.name for entry in entries}) == len(entries)
    assert all(entry.summary and "\n" not in entry.summary for entry in entries)
    pgd = next(entry for entry in entries if entry.name == "PGD")
    assert pgd.settings["steps"] == 100
    assert pgd.settings["radius"] == "required"
    assert all(issubclass(kind, Pursuit | BallThreat) for kind in (threats.RedTeam, threats.Envelope))


def test_defaults_are_json_without_infinity() -> None:
    assert "Infinity" not in json.dumps([entry._asdict() for entry in threats.list()])


def test_a_threat_of_ones_own_is_held_to_the_contract() -> None:
    class Careless(Threat):
        def shift(self, model: object, x: Tensor, y: object, index: Tensor) -> Tensor:
            return x

    x, _ = batch()
    with pytest.raises(drq.InputError, match=r"^shift must return a drq\.threats\.Shifted with as many inputs, got Tensor"):
        Careless()(None, x, None)


def test_an_attack_without_gradients_says_so(caplog: pytest.LogCaptureFixture) -> None:
    class Rounded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return classifier(IMAGE)((x * 4).round() / 4)

    x, y = batch()
    threats.PGD("linf", 0.1, 3)(Rounded().eval(), x, y)
    assert "PGD found no gradient for 5 of 5 samples: they show nothing" in caplog.text


def test_images_are_not_moved_out_of_sight() -> None:
    x, _ = batch()
    with pytest.raises(drq.InputError, match=r"^pixels must lie below the side of the images, 8, got 100"):
        threats.Translation(100)(None, x, None)

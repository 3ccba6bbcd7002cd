"""One suite over every threat of ours: what holds for all of them, whatever they do to an input."""

import json
import random
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from testbed.every_threat import (
    ATTACKS,
    CORRUPTIONS,
    FREE_OF_LABELS,
    IMAGE,
    ON_A_DEFENCE,
    THREATS,
    N,
    batch,
    each,
    each_attack,
    victim,
)
from torch import Tensor, nn

import drq
from drq import threats
from drq.threats import BallThreat, Pursuit, Threat


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
    if isinstance(robust, drq.DRQ):  # views change all features
        robust = robust.variant(**changed if robust.views is None else {"bounds": (low, high)})
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


def test_the_listing_describes_everything() -> None:
    entries = threats.list()
    assert len({entry.name for entry in entries}) == len(entries)
    assert all(entry.summary and "\n" not in entry.summary for entry in entries)
    assert not [entry.summary for entry in entries if "`" in entry.summary], "terminals show the markup of docstrings as it is"
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


def test_images_are_not_moved_out_of_sight() -> None:
    x, _ = batch()
    with pytest.raises(drq.InputError, match=r"^pixels must lie below the side of the images, 8, got 100"):
        threats.Translation(100)(None, x, None)

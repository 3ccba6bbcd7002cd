"""Test-time adaptation: closed forms of what each method computes, and a model that stays as it was."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from testbed.refusals import refused
from torch import Tensor, nn

from drq.defences import Memo, NormAdaptation, Tent
from drq.defences.adaptation import entropy
from drq.defences.answers import answered
from drq.defences.defence import Peer
from drq.defences.memo import views
from drq.method.adapters import Wrapper
from drq.method.execution import InPrecision
from drq.seeds import generator
from drq.threats.target import Target

FAST = {"bn-adapt": NormAdaptation(batch=4), "tent": Tent(batch=4, steps=2), "memo": Memo(samples=3, steps=2, source=16)}
every = pytest.mark.parametrize("peer", FAST.values(), ids=FAST)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def small(seed: int = 1) -> nn.Sequential:
    """Convolution, batch norm with statistics of its own, and a linear layer; for images (3, 8, 8)."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 5)).double()
    for number, (name, value) in enumerate(model.state_dict().items()):
        if value.is_floating_point():
            values = drawn(*value.shape, seed=seed + number)
            value.copy_(values if "running" in name else 4 * (values - 0.5))
    return model.eval()


def one_norm(affine: bool = True) -> nn.BatchNorm1d:
    """Batch norm alone: its outputs are the scores."""
    layer = nn.BatchNorm1d(3, affine=affine).double()
    for number, value in enumerate(each for each in layer.state_dict().values() if each.is_floating_point()):
        value.copy_(drawn(3, seed=7 + number) + 0.2)
    return layer.eval()


def photograph(model: nn.Module) -> dict[str, Any]:
    """All that a defence must leave as it is."""
    hooks = [(len(each._forward_hooks), len(each._forward_pre_hooks)) for each in model.modules()]
    tensors = [*model.parameters(), *model.buffers()]
    return {
        "state": {name: value.clone() for name, value in model.state_dict().items()},
        "which": [(id(each), each._version, each.requires_grad) for each in tensors],
        "gradients": [None if each.grad is None else each.grad.clone() for each in model.parameters()],
        "training": [each.training for each in model.modules()],
        "hooks": hooks,
    }


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    exact = all(torch.equal(value, second["state"][name]) for name, value in first["state"].items())
    slopes = zip(first["gradients"], second["gradients"], strict=True)
    kept = all(a is b is None or (a is not None and b is not None and torch.equal(a, b)) for a, b in slopes)
    return exact and kept and all(first[key] == second[key] for key in ("which", "training", "hooks"))


def close(first: Tensor, second: Tensor) -> bool:
    return torch.allclose(first, second, rtol=1e-10, atol=1e-12)


@every
@pytest.mark.parametrize("context", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_the_model_stays_as_it_was(peer: Peer, context: Callable[[], Any]) -> None:
    model, x = small(), drawn(9, 3, 8, 8)
    model[4].weight.requires_grad_(False)
    model[0].weight.grad = torch.ones_like(model[0].weight)
    before, state = photograph(model), torch.random.get_rng_state()
    with context():
        defended = peer.around(model)
        scores, label = defended(x), defended.decide(x).label  # type: ignore[operator]
    assert same(before, photograph(model))
    assert torch.equal(state, torch.random.get_rng_state())
    assert scores.shape == (9, 5)
    assert torch.equal(scores.argmax(1), label)
    assert not torch.allclose(scores, model(x))
    assert defended.model is model


@every
def test_hooks_leave_when_the_model_fails(peer: Peer) -> None:
    model = small()
    before, defended = photograph(model), peer.around(model)
    with pytest.raises(RuntimeError):
        defended(drawn(4, 7, 8, 8))
    assert same(before, photograph(model))


@every
def test_calls_are_repeatable_and_not_random(peer: Peer) -> None:
    defended, x = peer.around(small()), drawn(9, 3, 8, 8)
    first = defended(x)
    defended(drawn(9, 3, 8, 8, seed=5))
    assert torch.equal(first, defended(x))


@every
def test_passes_are_counted_on_the_model(peer: Peer) -> None:
    model, x, y = small(), drawn(6, 3, 8, 8), torch.zeros(6).long()
    honest = {"bn-adapt": 1, "tent": 2, "memo": 2 * 3 + 1}[peer.name]
    assert answered(peer.around(model), x, y, model).passes.tolist() == [honest] * 6
    assert answered(peer.around(model), x, y).passes.tolist() == [honest] * 6
    assert Target(peer.around(model)).scores_cost(x) == honest


@every
def test_wrapped_models_and_other_precisions(peer: Peer) -> None:
    model, x = small().float(), drawn(8, 3, 8, 8).float()
    plain = peer.around(model)(x)
    assert torch.equal(peer.around(InPrecision(Wrapped(model), None))(x), plain)
    half = peer.around(InPrecision(model, torch.bfloat16))(x)
    assert half.dtype == torch.float32
    assert torch.allclose(half, plain, atol=0.05 * float(plain.detach().abs().max()))


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_models_in_half_precision(peer: Peer, dtype: torch.dtype) -> None:
    model, x = small(), drawn(8, 3, 8, 8)
    exact, rough = peer.around(model)(x), peer.around(deepcopy(model).to(dtype))(x.to(dtype))
    assert rough.dtype == dtype
    assert torch.allclose(rough.double(), exact, atol=0.05 * float(exact.detach().abs().max()))


@pytest.mark.parametrize("peer", [NormAdaptation(source=0), Tent(steps=2, rate=0.1)], ids=["bn-adapt", "tent"])
def test_squares_that_half_precision_cannot_hold(peer: Peer) -> None:
    layer, x = one_norm(), 2000 * drawn(8, 3, seed=2)
    exact, rough = peer.around(layer)(x), peer.around(deepcopy(layer).half())(x.half())
    assert torch.allclose(rough.double(), exact, atol=0.01)


class Wrapped(Wrapper):
    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


@every
def test_scores_can_be_followed(peer: Peer) -> None:
    """Gradients reach the samples, also of batches before an update."""
    model = small()
    point = drawn(8, 3, 8, 8).requires_grad_()
    scores = peer.around(model)(point)
    (slope,) = torch.autograd.grad((scores * drawn(8, 5, seed=3)).sum(), point)
    assert bool((slope != 0).flatten(1).any(1).all())
    assert all(each.grad is None for each in model.parameters())
    assert Target(peer.around(model)).has_gradients(point.detach())


def test_mixed_statistics_by_hand() -> None:
    layer, x = one_norm(), drawn(5, 3, seed=2)
    mean = (16 * layer.running_mean + 5 * x.mean(0)) / 21
    variance = (16 * layer.running_var + 5 * ((x - x.mean(0)) ** 2).mean(0)) / 21
    expected = (x - mean) / (variance + layer.eps).sqrt() * layer.weight + layer.bias
    assert close(NormAdaptation(source=16).around(layer)(x), expected)


@pytest.mark.parametrize("affine", [True, False])
def test_the_batch_alone_is_batch_norm_in_training(affine: bool) -> None:
    layer, x = one_norm(affine), drawn(5, 3, seed=2)
    assert close(NormAdaptation(source=0).around(layer)(x), deepcopy(layer).train()(x))
    model, images = small(), drawn(6, 3, 8, 8)
    assert close(NormAdaptation(source=0).around(model)(images), deepcopy(model).train()(images))


@pytest.mark.parametrize("source", [1e15, float("inf")])
def test_endless_sources_are_the_model(source: float) -> None:
    model, x = small(), drawn(6, 3, 8, 8)
    assert close(NormAdaptation(source=source).around(model)(x), model(x))


def test_batches_keep_their_order() -> None:
    layer, x = one_norm(), drawn(7, 3, seed=2)
    parts = [NormAdaptation().around(layer)(part) for part in (x[:3], x[3:6], x[6:])]
    assert torch.equal(NormAdaptation(batch=3).around(layer)(x), torch.cat(parts))


def test_layers_without_statistics_of_training_use_those_of_the_batch() -> None:
    layer, x = nn.BatchNorm1d(3, track_running_stats=False).double().eval(), drawn(5, 3, seed=2)
    assert close(NormAdaptation(source=16).around(layer)(x), layer(x))


def by_adam(layer: nn.BatchNorm1d, batches: list[Tensor], rate: float) -> list[Tensor]:
    """Scores before each update: Adam written down as in its paper."""
    layer = deepcopy(layer).train()
    first = [torch.zeros(3).double() for _ in range(2)]
    second = [torch.zeros(3).double() for _ in range(2)]
    found = []
    for time, x in enumerate(batches, 1):
        scores = layer(x)
        found.append(scores.detach())
        probability = scores.softmax(1)
        loss = -(probability * probability.log()).sum(1).mean()
        slopes = torch.autograd.grad(loss, list(layer.parameters()))
        for number, (value, slope) in enumerate(zip(layer.parameters(), slopes, strict=True)):
            first[number] = 0.9 * first[number] + 0.1 * slope
            second[number] = 0.999 * second[number] + 0.001 * slope**2
            root = (second[number] / (1 - 0.999**time)).sqrt()
            value.data = value.data - rate * first[number] / (1 - 0.9**time) / (root + 1e-8)
    return found


def test_tent_takes_adam_steps_from_batch_to_batch() -> None:
    layer, x = one_norm(), drawn(12, 3, seed=2)
    expected = by_adam(layer, list(x.split(4)), 0.05)
    found = Tent(rate=0.05, batch=4).around(layer)(x)
    assert close(found, torch.cat(expected))
    assert close(found[:4], NormAdaptation(source=0).around(layer)(x[:4]))
    assert not torch.allclose(found[4:8], NormAdaptation(source=0).around(layer)(x[4:8]), atol=1e-3)


def test_tent_answers_with_the_last_of_its_steps() -> None:
    layer, x = one_norm(), drawn(8, 3, seed=2)
    expected = by_adam(layer, [x[:4]] * 3 + [x[4:]] * 3, 0.05)
    assert close(Tent(steps=3, rate=0.05, batch=4).around(layer)(x), torch.cat([expected[2], expected[5]]))


def test_tent_lowers_the_entropy() -> None:
    model, x = small(), drawn(8, 3, 8, 8)
    falling = [float(entropy(Tent(steps, 0.01).around(model)(x).log_softmax(1)).mean()) for steps in (1, 2, 5, 20)]
    assert falling == sorted(falling, reverse=True)
    assert falling[-1] < 0.9 * falling[0]


def test_memo_takes_gradient_steps_on_all_weights() -> None:
    model, x = small(), drawn(2, 3, 8, 8)
    peer, draws = Memo(steps=2, rate=0.03, samples=4, seed=9), generator(9)
    twin = deepcopy(model)
    for _ in range(2):
        mean = twin(views(x[1:], 4, peer.crop, peer.light, draws)).softmax(1).mean(0)
        slopes = torch.autograd.grad(-(mean * mean.log()).sum(), list(twin.parameters()))
        for value, slope in zip(twin.parameters(), slopes, strict=True):
            assert bool((slope != 0).any())
            value.data -= 0.03 * slope
    fitted = peer.around(model).fit(x[1:])  # type: ignore[operator]
    assert all(close(fitted[name], value) for name, value in twin.named_parameters())
    assert close(peer.around(model)(x)[1:], twin(x[1:]))


def test_memo_sees_samples_alone() -> None:
    defended, x = Memo(samples=3, source=16).around(small()), drawn(5, 3, 8, 8)
    assert close(defended(x), torch.cat([defended(row) for row in x.split(1)]))
    assert torch.equal(defended(x.flip(0)).flip(0), defended(x))


def test_samples_that_are_fitted_to_themselves_go_through_the_model_together() -> None:
    model, x = small(), drawn(5, 3, 8, 8)
    defended, calls = NormAdaptation(source=16, batch=1).around(model), list[int]()
    handle = model.register_forward_hook(lambda *given: calls.append(len(given[1][0])))
    together = defended(x)
    handle.remove()
    assert calls == [5]
    alone = torch.cat([NormAdaptation(source=16, batch=2).around(model)(row) for row in torch.split(x, 1)])
    assert close(together, alone)
    assert not torch.allclose(together, model(x), atol=1e-6)
    flat, rows = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)).double().eval(), drawn(5, 4)
    alone = torch.cat([NormAdaptation(source=3, batch=2).around(flat)(row) for row in torch.split(rows, 1)])
    assert close(NormAdaptation(source=3, batch=1).around(flat)(rows), alone)
    assert not NormAdaptation(batch=1).needs_batch


def test_memo_without_a_step_is_the_model() -> None:
    model, x = small(), drawn(3, 3, 8, 8)
    assert close(Memo(rate=0, samples=3).around(model)(x), model(x))
    mixed = NormAdaptation(source=16, batch=1).around(model)(x)
    assert close(Memo(rate=0, samples=3, source=16).around(model)(x), mixed)


def test_memo_adapts_models_without_batch_norm() -> None:
    model, x = nn.Sequential(nn.Flatten(), nn.Linear(192, 4)).double().eval(), drawn(3, 3, 8, 8)
    assert not torch.allclose(Memo(samples=3).around(model)(x), model(x), atol=1e-6)


def test_views_are_mirror_images_crops_and_light() -> None:
    x = drawn(1, 3, 8, 8)
    plain = views(x, 40, 0.0, 0.0, generator(1))
    mirrored = [close(view, x[0].flip(-1)) for view in plain]
    assert all(close(view, x[0]) != mirror for view, mirror in zip(plain, mirrored, strict=True))
    assert 5 < sum(mirrored) < 35
    wide = nn.functional.pad(x, (1, 1, 1, 1), mode="reflect")[0]
    crops = [wide[:, top : top + 8, left : left + 8] for top in range(3) for left in range(3)]
    possible = crops + [each.flip(-1) for each in crops]
    seen = [[close(view, each) for each in possible].index(True) for view in views(x, 200, 0.125, 0.0, generator(1))]
    assert set(seen) == set(range(18))
    lit = views(x, 40, 0.0, 0.1, generator(1))
    assert x.min() <= lit.min()
    assert lit.max() <= x.max()
    assert 0.05 < float((lit.mean((1, 2, 3)) - x.mean()).abs().max()) < 0.12


def test_refusals_are_one_line() -> None:
    plain = nn.Sequential(nn.Flatten(), nn.Linear(3, 2)).eval()
    for peer in (NormAdaptation(), Tent()):
        refused(peer.around, plain, words=["model", "batch norm", peer.name, "memo"])
    refused(Tent().around, one_norm(affine=False), words=["weights in its batch norm", "bn-adapt"])
    refused(Memo().around(plain), drawn(2, 3).float(), words=["(N, C, H, W)", "(2, 3)"])
    for make in (NormAdaptation, Memo):
        for source in (-1, float("nan"), "many", True):
            refused(make, source=source, words=["source", "inf"])
    for make in (Tent, Memo):
        refused(make, steps=0, words=["steps"])
        refused(make, rate=-1, words=["rate"])
    for make in (NormAdaptation, Tent):
        refused(make, batch=0, words=["batch"])
    refused(Memo, samples=0, words=["samples"])
    refused(Memo, crop=0.6, words=["crop"])
    refused(Memo, light=-0.1, words=["light"])
    refused(Memo, seed=-1, words=["seed"])


@every
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of scripting
def test_models_that_cannot_be_adapted_are_refused(peer: Peer) -> None:
    refused(peer.around, small().train(), words=["evaluation mode", "model.eval()"])
    refused(peer.around, Wrapped(torch.compile(small(), backend="eager")), words=["compiled", peer.name])
    refused(peer.around, Wrapped(torch.jit.script(small())), words=["scripted"])
    in_place = small()
    in_place.compile(backend="eager")
    refused(peer.around, in_place, words=["compiled"])
    later = small()
    defended = peer.around(later)
    later[1].train()
    refused(defended, drawn(4, 3, 8, 8), words=["evaluation mode"])


@every
def test_records_are_json(peer: Peer) -> None:
    kept = json.loads(json.dumps(type(peer)().record, allow_nan=False))
    assert kept["defence"] == peer.name
    assert kept == {"defence": peer.name} | {"bn-adapt": {"source": 16.0, "batch": 200}}.get(peer.name, kept)
    assert peer.summary
    assert (peer.needs_batch, peer.changes_weights) == (peer.name != "memo", peer.name != "bn-adapt")

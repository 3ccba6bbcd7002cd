"""Movements against exact cases, and the laws of random draws."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from testbed.digits import Digits
from torch import Tensor, nn

from drq.errors import InputError
from drq.objectives import log_odds
from drq.threats.spatial import (
    PAPER_ROTATION,
    PAPER_TRANSLATION,
    Rotation,
    RotationTranslation,
    Spatial,
    Translation,
    usual_pixels,
    warp,
)

PADDINGS = ["zeros", "border", "reflection"]
both_ways = pytest.mark.parametrize("interpolation", ["bilinear", "nearest"])
SHAPES = [(3, 1, 8, 8), (3, 3, 7, 7), (3, 2, 6, 9)]


def images(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def warped(x: Tensor, degrees: float = 0.0, right: float = 0.0, down: float = 0.0, **options: str) -> Tensor:
    offset = torch.tensor([[right, down]]).expand(len(x), 2)
    return warp(x, torch.full((len(x),), degrees), offset, **options)


@both_ways
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("side", [1, 2, 7, 8])
@pytest.mark.parametrize("quarters", [-1, 0, 1, 2, 3])
def test_quarter_turns_are_exact(quarters: int, side: int, padding: str, interpolation: str) -> None:
    x = images(2, 3, side, side)
    turned = warped(x, 90.0 * quarters, padding=padding, interpolation=interpolation)
    assert torch.equal(turned, torch.rot90(x, quarters, [2, 3]))


@both_ways
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("right", "down"), [(0, 0), (2, -1), (-3, 0), (0, 4), (50, 0)])
@pytest.mark.parametrize("padding", PADDINGS)
def test_whole_pixels_are_a_shifted_copy(padding: str, right: int, down: int, shape: tuple[int, ...], interpolation: str) -> None:
    x = images(*shape)
    modes = {"zeros": "constant", "border": "edge", "reflection": "symmetric"}
    far = max(abs(right), abs(down))
    wide = np.pad(x.numpy(), [(0, 0), (0, 0), (far, far), (far, far)], modes[padding])
    height, width = shape[2:]
    expected = wide[:, :, far - down : far - down + height, far - right : far - right + width]
    moved = warped(x, 0, right, down, padding=padding, interpolation=interpolation)
    np.testing.assert_allclose(moved.numpy(), expected, rtol=0, atol=1e-12)


def test_half_a_pixel_is_the_mean_of_two() -> None:
    x = images(1, 1, 4, 4)
    expected = (x[..., :-1] + x[..., 1:]) / 2
    torch.testing.assert_close(warped(x, right=0.5)[..., 1:], expected)


def test_rotation_comes_before_translation_and_every_row_has_its_own() -> None:
    x = images(2, 1, 5, 5)
    moved = warp(x, torch.tensor([90.0, 0.0]), torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    assert torch.equal(moved[1], x[1])
    assert torch.equal(moved[0, :, :, 1:], torch.rot90(x[0], 1, [1, 2])[:, :, :-1])
    torch.testing.assert_close(moved[0, :, :, 0], torch.zeros(1, 5), rtol=0, atol=1e-12)


def test_a_rotation_and_back_is_nearly_the_identity() -> None:
    line = torch.linspace(0, 1, 33)
    smooth = (line[:, None] * line[None, :])[None, None]  # bilinear itself: interpolation is exact inside
    there = warped(smooth, 15.0, padding="border")
    back = warped(there, -15.0, padding="border")
    torch.testing.assert_close(back[..., 10:-10, 10:-10], smooth[..., 10:-10, 10:-10], rtol=0, atol=2e-3)
    assert not torch.allclose(there, smooth, atol=0.05)


def test_dtype_and_range_are_kept() -> None:
    for dtype in (torch.float32, torch.float64):
        moved = warped(images(2, 3, 9, 9).to(dtype), 33.0, 1.3, -0.4)
        assert moved.dtype == dtype
        assert 0 <= moved.min() <= moved.max() <= 1


THREATS = {
    "rotation": Rotation(20),
    "translation": Translation(),
    "fractions": Translation(2.5, whole=False, padding="reflection"),
    "nearest": Rotation(35, interpolation="nearest", padding="border", seed=3),
}
every_threat = pytest.mark.parametrize("threat", THREATS.values(), ids=THREATS)


@every_threat
@pytest.mark.parametrize("shape", SHAPES)
def test_a_draw_belongs_to_seed_and_index(threat: Spatial, shape: tuple[int, ...]) -> None:
    x = images(20, *shape[1:])
    whole = threat(None, x, None)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    assert torch.equal(threat(None, x[order], None, index=order), whole[order])
    assert torch.equal(threat(None, x[7:8], None, index=torch.tensor([7])), whole[7:8])
    assert torch.equal(replace(threat, chunk=3)(None, x, None), whole)
    assert not torch.equal(replace(threat, seed=11)(None, x, None), whole)
    assert not torch.equal(threat(None, x, None, index=torch.arange(20) + 1), whole)


def test_the_first_draws_are_the_same_however_many_follow() -> None:
    index = torch.arange(10)
    few, many = (Rotation(20, worst_of=count).movements(index, 32) for count in (3, 50))
    assert all(torch.equal(one.degrees, other.degrees) for one, other in zip(few, many[:3], strict=True))
    assert len(torch.stack([each.degrees for each in many]).unique()) == 500


def test_angles_and_offsets_fill_their_range_evenly() -> None:
    index = torch.arange(4000)
    (turn,), (step,) = Rotation(20).movements(index, 32), Translation().movements(index, 32)
    assert turn.degrees.abs().max() <= 20
    assert turn.degrees.max() > 19.9
    assert turn.degrees.min() < -19.9
    assert abs(turn.degrees.mean()) < 4 * 20 / (3 * 4000) ** 0.5
    assert (turn.offset == 0).all()
    assert (step.degrees == 0).all()
    for column in step.offset.T:
        values, count = column.unique(return_counts=True)
        assert values.tolist() == list(range(-4, 5))
        assert (count.double() - 4000 / 9).abs().max() < 4 * (4000 / 9) ** 0.5
    assert abs(torch.corrcoef(step.offset.T)[0, 1]) < 4 / 4000**0.5
    (free,) = Translation(2.5, whole=False).movements(index, 32)
    assert 2.49 < free.offset.abs().max() <= 2.5


def test_usual_pixels_are_the_papers() -> None:
    assert usual_pixels(32) == 4
    assert usual_pixels(224) == 20
    sizes = [usual_pixels(side) for side in range(1, 512)]
    assert sizes == sorted(sizes)
    assert (Translation().movements(torch.arange(300), 8)[0].offset.abs().amax(0) == 1).all()


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return (model(x).argmax(1) == y).double().mean().item()


@pytest.mark.parametrize("threat", [Rotation(45), Translation(2)], ids=["rotation", "translation"])
def test_more_draws_are_worse(threat: Spatial, digits: Digits) -> None:
    model, x, y = digits
    first = replace(threat, worst_of=1).run(None, x, None)
    assert (first.passes == 0).all()
    odds, accuracies = [log_odds(model(first.x), y)], [accuracy(model, first.x, y)]
    for count in (2, 4, 8):
        shifted = replace(threat, worst_of=count).run(model, x, y)
        assert (shifted.passes == count).all()
        odds.append(log_odds(model(shifted.x), y))
        accuracies.append(accuracy(model, shifted.x, y))
        assert (odds[-1] <= odds[-2] + 1e-4).all()
    print([round(each, 3) for each in accuracies])
    assert accuracies[-1] < accuracies[0] - 0.1  # the loss is a law for every sample, the accuracy only a tendency


def test_the_worst_draw_is_kept_and_the_first_of_equals(digits: Digits) -> None:
    model, x, y = digits.model, digits.x[:30], digits.y[:30]
    threat, index = Rotation(45, worst_of=5), torch.arange(30)
    moved = torch.stack([warp(x, *draw) for draw in threat.movements(index, 8)])
    odds = torch.stack([log_odds(model(each), y) for each in moved])
    worst = moved[odds.argmin(0), index]
    assert torch.equal(threat(model, x, y), worst)
    assert len(odds.argmin(0).unique()) > 2
    blind = Blind()
    assert torch.equal(threat(blind, x, y), moved[0])  # all draws are equal
    assert torch.equal(Rotation(45)(None, x, None), moved[0])


class Blind(nn.Module):
    """Sees nothing but lets gradients through."""

    def __init__(self) -> None:
        super().__init__()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return 0 * x.flatten(1)[:, :10]


def test_the_worst_draw_depends_on_nothing_else(digits: Digits) -> None:
    model, x, y = digits.model, digits.x[:40], digits.y[:40]
    threat = Translation(2, worst_of=4)
    whole = threat(model, x, y)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    assert torch.equal(threat(model, x[order], y[order], index=order), whole[order])
    assert torch.equal(replace(threat, chunk=7)(model, x, y), whole)
    assert torch.equal(threat(model, x[5:9], y[5:9], index=torch.arange(5, 9)), whole[5:9])


def test_a_grid_goes_from_end_to_end(digits: Digits) -> None:
    index = torch.arange(2)
    assert [float(each.degrees[1]) for each in Rotation(20, grid=5).movements(index, 8)] == [-20, -10, 0, 10, 20]
    corners = [tuple(each.offset[0].tolist()) for each in Translation(3, grid=2).movements(index, 8)]
    assert corners == [(-3, -3), (-3, 3), (3, -3), (3, 3)]
    every = {tuple(each.offset[0].tolist()) for each in Translation(2.7, grid=5).movements(index, 8)}
    assert every == {(right, down) for right in range(-2, 3) for down in range(-2, 3)}
    free = {round(float(each.offset[0, 0]), 6) for each in Translation(2.5, grid=3, whole=False).movements(index, 8)}
    assert free == {-2.5, 0, 2.5}
    model, x, y = digits
    shifted = Rotation(40, grid=2).run(model, x, y)
    assert (shifted.passes == 2).all()
    ends = torch.stack([log_odds(model(warped(x, degrees)), y) for degrees in (-40, 40)])
    torch.testing.assert_close(log_odds(model(shifted.x), y), ends.amin(0))
    assert (Translation(1, grid=3).run(model, x, y).passes == 9).all()


def test_the_papers_translation_is_the_worst_of_all_corners() -> None:
    for side, pixels in ((32, 4), (224, 20)):
        corners = {tuple(each.offset[0].tolist()) for each in PAPER_TRANSLATION.movements(torch.arange(1), side)}
        assert corners == {(right, down) for right in (-pixels, pixels) for down in (-pixels, pixels)}


def test_rotation_and_translation_make_the_movements_of_each_alone() -> None:
    """The same draws: its angles are those of Rotation, its offsets those of Translation."""
    index, both = torch.arange(7), RotationTranslation(20, 4, worst_of=3)
    together = both.movements(index, 32)
    turns, steps = (each.movements(index, 32) for each in (Rotation(20, worst_of=3), Translation(4, worst_of=3)))
    assert all(torch.equal(one.degrees, turn.degrees) for one, turn in zip(together, turns, strict=True))
    assert all(torch.equal(one.offset, step.offset) for one, step in zip(together, steps, strict=True))
    assert all(each.degrees.abs().max() > 1 and each.offset.abs().max() > 1 for each in together)
    assert RotationTranslation(20, 4, grid=2).candidates == 8
    assert (PAPER_ROTATION.degrees, PAPER_ROTATION.pixels, PAPER_ROTATION.candidates) == (20, None, 15)


def test_nothing_else_is_touched(digits: Digits) -> None:
    model, x, y = digits.model, digits.x[:10], digits.y[:10]
    before = x.clone(), y.clone(), torch.get_rng_state()
    python, numbers = random.getstate(), np.random.get_state()[1].copy()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    Rotation(30, worst_of=3)(model, x, y)
    assert all(torch.equal(one, other) for one, other in zip(before, (x, y, torch.get_rng_state()), strict=True))
    assert random.getstate() == python
    assert np.array_equal(np.random.get_state()[1], numbers)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def test_zeros_stay_within_other_bounds() -> None:
    x = 2 + images(4, 1, 8, 8)
    assert Translation(3, bounds=(2.0, 3.0))(None, x, None).min() == 2
    assert Translation(3, bounds=None)(None, x, None).min() == 0


def test_no_movement_is_the_identity() -> None:
    x = images(5, 3, 8, 8)
    assert torch.equal(Rotation(0)(None, x, None), x)
    assert torch.equal(Translation(0)(None, x, None), x)


def test_the_record_says_what_was_done() -> None:
    record = Translation(3, padding="border", worst_of=2).record
    assert record["threat"] == "Translation"
    assert record["batch_dependent"] is False
    wanted = {"pixels": 3, "padding": "border", "worst_of": 2, "interpolation": "bilinear", "seed": 0, "whole": True}
    assert wanted.items() <= record.items()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Rotation(-1), "degrees must be a finite number of at least 0, got -1"),
        (lambda: Rotation(float("nan")), "degrees"),
        (lambda: Rotation(True), "degrees"),
        (lambda: Translation(float("inf")), "pixels"),
        (lambda: Translation("4"), "pixels"),
        (lambda: Rotation(worst_of=0), "worst_of must be a whole number of at least 1, got 0"),
        (lambda: Rotation(grid=1), "grid must be None or at least 2, got 1"),
        (lambda: Rotation(grid=2, worst_of=3), "worst_of must be 1 beside a grid, got 3"),
        (lambda: Rotation(grid=2)(None, torch.rand(2, 1, 8, 8), None), "model must be callable"),
        (lambda: Rotation(padding="mirror"), "padding must be 'zeros', 'border' or 'reflection', got 'mirror'"),
        (lambda: Rotation(interpolation="cubic"), "interpolation"),
        (lambda: Rotation(chunk=0), "chunk"),
        (lambda: Rotation(bounds=(1.0, 0.0)), "bounds"),
        (lambda: Rotation()(None, torch.rand(2, 64), None), r"x must be images \(N, C, H, W\)"),
        (
            lambda: Rotation(worst_of=2)(None, torch.rand(2, 1, 8, 8), torch.tensor([0, 1])),
            "model must be callable",
        ),
        (lambda: Rotation(worst_of=2)(Blind(), torch.rand(2, 1, 8, 8), None), "y must be a tensor of labels, got None"),
        (lambda: Rotation(worst_of=2)(Blind(), torch.rand(1, 1, 8, 8), torch.tensor([10])), "y must lie below 10"),
        (lambda: Rotation(worst_of=2)(Blind().train(), torch.rand(1, 1, 8, 8), torch.tensor([1])), "model must be in evaluation"),
    ],
)
def test_mistakes_are_named(make, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()

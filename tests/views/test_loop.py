"""DRQ over views is what a plain loop over views says: for every family, batch, dtype, gate and number of classes."""

import math

import pytest
import torch
from testbed.classifiers import inputs
from testbed.every_view import EVERY, PICTURES, SHAPES, batch, each_set, flat, plain_loop

import drq
from drq import registry
from drq.views import Gain, Gamma, Gate, Mirror, Rotation, Scale, Shift, TimeShift
from drq.views.view import Family, neighbours


def same_as_loop(robust: drq.DRQ, x: torch.Tensor, near=None, tolerance: float = 1e-9) -> drq.Decision:
    """The decision, compared with a loop over samples and views."""
    found = robust.decide(x)
    bounds = robust.bounds or (-math.inf, math.inf)
    for number in range(len(x)):
        told = plain_loop(robust.model, x[number : number + 1], robust.views, robust.gate, robust.classes, bounds, near)
        one = found[number : number + 1]
        assert (int(one.label), int(one.base_label), bool(one.kept)) == (told.label, told.base, told.kept)
        assert int(one.view) == told.view
        expected = torch.tensor([told.odds], dtype=x.dtype)
        torch.testing.assert_close(one.log_odds, expected, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(one.robustness, expected.sigmoid(), rtol=0, atol=tolerance)
        if robust.gate is not None:
            distance = told.evidence - robust.gate.threshold
            assert float(one.gate_margin) == pytest.approx(distance, rel=tolerance, abs=tolerance)
        best, second = expected.sigmoid().sort(descending=True).values[0, :2]
        assert float(one.margin) == pytest.approx(float(best - second), abs=max(tolerance, 1e-7 if tolerance > 1e-9 else 0))
    return found


def test_every_family_is_here():
    """A family that is listed and not tested would be a hole in this suite."""
    assert {type(family).__name__ for each in EVERY.values() for family in each.families} - {"Given"} == {*registry.VIEWS}
    assert {each.__name__ for each in registry.VIEWS.values()} == {*registry.VIEWS}


@each_set
@pytest.mark.parametrize("gate", [None, "plain", "standardised"])
def test_it_is_a_loop_over_views(name, gate):
    shape, looks = SHAPES[name], EVERY[name]
    others = len(looks) - 1
    habits = ([0.3 * math.cos(each) for each in range(others)], [0.6 + 0.1 * each for each in range(others)])
    gates = {None: None, "plain": Gate(0.4), "standardised": Gate(0.2, *habits)}
    x = batch(shape)
    found = same_as_loop(drq.DRQ(flat(shape), views=looks, gate=gates[gate]), x)
    assert found.passes.tolist() == found.forward_passes.tolist() == [len(looks)] * len(x)
    assert found.found.all()
    assert found.exact.all()
    assert not found.radius.any()
    assert not found.nonfinite.any()
    assert not found.stalled.any()
    assert gate is not None or found.gate_margin.isnan().all()


def test_the_examples_can_fail():
    """Where views change no answer, nothing would be compared."""
    found = {name: drq.DRQ(flat(SHAPES[name]), views=EVERY[name]).decide(batch(SHAPES[name])) for name in EVERY}
    changed = {name: int((each.label != each.base_label).sum()) for name, each in found.items()}
    assert sum(each > 0 for each in changed.values()) >= len(EVERY) - 3, changed
    for name, looks in EVERY.items():
        assert any((each(batch(SHAPES[name])) - batch(SHAPES[name])).abs().max() > 0.01 for each in looks)


@pytest.mark.parametrize("classes", [1, 2, 3, 5])
@pytest.mark.parametrize("gate", [None, Gate(0.5)])
def test_only_the_likeliest_classes_take_part(classes, gate):
    x, model = batch((3, 8, 8), 20), flat((3, 8, 8))
    found = same_as_loop(drq.DRQ(model, views=Rotation(90, 5) + Mirror(), classes=classes, gate=gate), x)
    assert torch.equal(found.classes.sort(1).values, model(x).topk(classes).indices.sort(1).values)
    assert (found.reached.sum(1) == classes)[~found.kept].all()
    assert found.reached[found.kept].all()
    if classes == 1:
        assert torch.equal(found.label, found.base_label)


@each_set
def test_company_order_and_chunks_do_not_matter(name):
    x, shape = batch(SHAPES[name]), SHAPES[name]
    robust = drq.DRQ(flat(shape), views=EVERY[name], gate=Gate(0.1), keep_points=True)
    together, order = robust.decide(x), torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    apart = [robust.decide(x[each : each + 1]) for each in range(len(x))]
    others = {
        "one by one": apart[0].joined(apart[1:]),
        "in another order": robust.decide(x[order])[order.argsort()],
        "chunks of 1": robust.variant(chunk=1).decide(x),
        "chunks of 5": robust.variant(chunk=5).decide(x),
    }
    for other in others.values():
        for exact in ("label", "base_label", "view", "kept", "passes", "forward_passes", "reached", "classes"):
            assert torch.equal(getattr(other, exact), getattr(together, exact))
        for close in ("log_odds", "robustness", "margin", "gate_margin", "explored_log_odds", "explored", "quantified"):
            torch.testing.assert_close(getattr(other, close), getattr(together, close), rtol=0, atol=1e-9)
    assert len(robust.decide(x[:0])) == 0
    assert robust(x[:0]).shape == (0, 5)


@pytest.mark.parametrize("shape", [(1, 8, 8), (2, 5, 9), (4, 9, 6), (3, 2, 2)])
@pytest.mark.parametrize("name", ["united", "Rotation all around", "Scale", "Detail", "Sharpen", "Denoise"])
def test_pictures_of_any_size_and_number_of_channels(name, shape):
    same_as_loop(drq.DRQ(flat(shape), views=PICTURES[name]), batch(shape, 6))


@pytest.mark.parametrize("name", PICTURES)
def test_float32_gives_the_same_labels(name):
    x, model = batch((3, 8, 8), 20).float(), flat((3, 8, 8)).float()
    robust = drq.DRQ(model, views=PICTURES[name])
    found = robust.decide(x)
    assert found.robustness.dtype == torch.float32
    told = [plain_loop(model, x[each : each + 1], PICTURES[name]) for each in range(len(x))]
    sure = [each for each, one in enumerate(told) if sorted(one.odds)[-1] - sorted(one.odds)[-2] > 1e-4]
    assert len(sure) >= 18
    assert [int(found.label[each]) for each in sure] == [told[each].label for each in sure]
    expected = torch.tensor([one.odds for one in told], dtype=torch.float32)
    torch.testing.assert_close(found.log_odds, expected, rtol=1e-3, atol=1e-3)


def test_neighbours_are_those_that_differ_little():
    turns = Rotation(90, 7)  # steps of 30 degrees
    names = [each.name for each in turns]
    near = neighbours(turns, 1 / 3)
    angles = [0.0, -90.0, -60.0, -30.0, 30.0, 60.0, 90.0]
    assert names[1] == "rotated by -90 degrees"
    assert near.tolist() == [[abs(first - second) <= 30 for second in angles] for first in angles]
    both = turns * Mirror()
    wider = neighbours(both, 1 / 3)
    assert len(both) == 14
    for first, one in enumerate(both):
        for second, other in enumerate(both):
            alike = ("mirrored" in one.name) == ("mirrored" in other.name)
            angle = [next((step[1] for step in each.steps if isinstance(step[0], Rotation)), 0.0) for each in (one, other)]
            assert bool(wider[first, second]) == (alike and abs(angle[0] - angle[1]) <= 30)


def test_neighbours_all_around_and_of_other_kinds():
    """All around, the last turn is next to the first; factors are compared by their ratio, ways by pixels."""
    around = neighbours(Rotation(180, 8), 1 / 4)
    angles = [0, 45, 90, 135, 180, -135, -90, -45]
    assert around.tolist() == [[(one - other) % 360 in (0, 45, 315) for other in angles] for one in angles]
    grown = [1, 0.5, 0.5**0.5, 2**0.5, 2]
    ratios = [[max(one / other, other / one) <= 2**0.5 + 1e-9 for other in grown] for one in grown]
    assert neighbours(Scale(2, 5), 0.5).tolist() == ratios
    assert neighbours(Gain(2, 5), 0.5).tolist() == ratios
    late = [0, -4, -2, 2, 4]
    assert neighbours(TimeShift(4, 5), 0.5).tolist() == [[abs(one - other) <= 2 for other in late] for one in late]
    ways = [(0, 0), (0, -1), (0, 1), (-1, 0), (1, 0), (-1, -1), (-1, 1), (1, -1), (1, 1)]
    steps = [[max(abs(one[0] - other[0]), abs(one[1] - other[1])) <= 1 for other in ways] for one in ways]
    assert neighbours(Shift(3, 9), 1.0).tolist() == steps
    assert torch.equal(neighbours(Shift(3, 9), 0.5), torch.eye(9) > 0)
    alone = Mirror() + Gamma(0.5, 2) + Rotation(30, 3)
    near = neighbours(alone, 1.0)
    assert torch.equal(near, near.T)
    assert near.nonzero().tolist() == [[0, 0], [0, 4], [0, 5], [1, 1], [2, 2], [3, 3], [4, 0], [4, 4], [5, 0], [5, 5]]


@pytest.mark.parametrize("alpha", [0.0, 1 / 6, 1 / 3, 0.5, 1.0])
@pytest.mark.parametrize("gate", [None, Gate(-1.0)])
def test_quantification_is_brute_force_over_neighbours(alpha, gate):
    """The lowest view within alpha of the best one, in one family alone, where distances are angles."""
    looks, x = Rotation(90, 7), batch((3, 8, 8), 30)
    angles = [0.0, -90.0, -60.0, -30.0, 30.0, 60.0, 90.0]
    near = [[number for number, each in enumerate(angles) if abs(each - one) <= 90 * alpha + 1e-9] for one in angles]
    robust = drq.DRQ(flat((3, 8, 8)), views=looks, alpha=alpha, gate=gate, keep_points=True)
    found = same_as_loop(robust, x, near)
    assert (found.explored_log_odds >= found.log_odds).all()
    assert (found.explored_log_odds > found.log_odds).any() == (alpha >= 1 / 3)
    assert gate is None or alpha < 1 / 3 or 0 < int(found.kept.sum()) < 30
    rows = found.log_odds.gather(1, found.classes)
    for samples, points in ((found.explored_log_odds, found.explored), (found.log_odds, found.quantified)):
        looked = drq.objectives.log_odds(robust.model(points.flatten(0, 1))).view(30, 5, 5)
        torch.testing.assert_close(looked.diagonal(dim1=1, dim2=2), samples, rtol=0, atol=1e-9)
    assert rows.shape == (30, 5)


def test_alpha_is_0_where_views_stand_alone():
    assert drq.DRQ(flat((3, 8, 8)), views="Mirror()").alpha == 0
    assert drq.DRQ(flat((3, 8, 8)), radius=0.1, views="Mirror()").alpha == 0.5


class Lost(torch.nn.Module):
    """A model that is lost where the mean of its input is high."""

    def forward(self, x):
        mean = x.mean((1, 2, 3))
        logits = torch.stack([mean, 0.5 - mean, x[:, 0, 0, 0]], 1)
        return torch.where(mean[:, None] > 0.7, torch.nan, 4 * logits)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_views_at_which_the_model_is_lost_are_left_out(alpha):
    x = 0.1 + 0.5 * inputs(4, 9, 3, 8, 8)
    looks = drq.views.Gamma(0.1, 2) + Rotation(90, 3)
    with_lost, without = (
        drq.DRQ(Lost().eval(), views=each, alpha=alpha).decide(x) for each in (looks, "Gamma(2) + Rotation(90, 3)")
    )
    assert with_lost.nonfinite.tolist() == [1] * 9
    assert without.nonfinite.tolist() == [0] * 9
    assert torch.equal(with_lost.label, without.label)
    torch.testing.assert_close(with_lost.log_odds, without.log_odds)
    assert with_lost.passes.tolist() == [5] * 9
    gated = drq.DRQ(Lost().eval(), views=looks).gated(x.repeat(20, 1, 1, 1), 0.1)
    assert all(map(math.isfinite, (*gated.gate.mean, *gated.gate.deviation)))
    assert gated.gate.deviation[0] == 1  # of a view that was never seen
    with pytest.raises(drq.InputError, match="model must return finite logits, got NaN or infinity"):
        drq.DRQ(Lost().eval(), views=looks).decide(x * 0 + 0.8)


def test_views_that_were_left_out_are_nobodys_neighbours():
    """Turned to the left, a bright corner is where the model is lost: the input and the turn to the right remain."""
    inner, x = flat((3, 8, 8)), 0.8 * batch((3, 8, 8))
    x[:, :, 0, 0] = 1

    class LostInACorner(torch.nn.Module):
        def forward(self, x):
            return torch.where(x[:, 0, -1, 0, None] > 0.9, torch.inf, inner(x))

    found = drq.DRQ(LostInACorner().eval(), views=Rotation(90, 3), alpha=1.0).decide(x)
    both = torch.stack([drq.objectives.log_odds(inner(each)) for each in (x, x.rot90(-1, (2, 3)))])
    torch.testing.assert_close(found.log_odds, both.amin(0), rtol=0, atol=1e-9)
    torch.testing.assert_close(found.explored_log_odds, both.amax(0), rtol=0, atol=1e-9)
    assert found.nonfinite.tolist() == [1] * 12


def test_families_are_values():
    for looks in EVERY.values():
        for family in looks.families:
            assert isinstance(family, Family)
            assert hash(family) == hash(family)
            with pytest.raises(AttributeError):
                family.amounts = ()

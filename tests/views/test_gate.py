"""The gate: it does no more than it was asked to, whatever the model is, and says what it promises."""

import json
import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta
from testbed.classifiers import inputs
from testbed.every_view import batch, flat
from testbed.refusals import refused

import drq
from drq.views import Gate, Mirror, Rotation
from drq.views.contest import outcome
from drq.views.gate import habits, largest_share, threshold_for

VIEWS = Rotation(90, 5) + Mirror()
SHAPE = (3, 6, 6)
CLEAN = batch(SHAPE, 300, seed=7)
CHANGES = st.sampled_from([0.0, 0.01, 0.05, 0.1, 0.31, 0.5, 1.0]) | st.floats(0, 1)
few = pytest.mark.filterwarnings("ignore:drq. a gate learnt from")


def changed(robust: drq.DRQ, x: torch.Tensor) -> int:
    found = robust.decide(x)
    assert torch.equal(found.kept, found.gate_margin <= 0)
    assert torch.equal(found.label[found.kept], found.base_label[found.kept])
    return int((found.label != found.base_label).sum())


@few
@settings(deadline=None, derandomize=True, max_examples=80)
@given(
    st.integers(0, 10**6),
    CHANGES,
    st.booleans(),
    st.integers(5, 160),  # one or two different ones, standardised, are all equally far from their mean: rounding decides
    st.integers(2, 6),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_no_more_answers_change_than_asked_for(seed, changes, standardised, count, classes, alpha, dtype):
    model = flat((1, 4, 4), classes, gain=1 + seed % 9).to(dtype)
    x = batch((1, 4, 4), count, seed).to(dtype)
    x = x[torch.arange(count) % max(1, count - seed % 3)]  # some of them twice, which tie
    robust = drq.DRQ(model, views=VIEWS, alpha=alpha)
    gated = robust.gated(x, changes, leads="standardised" if standardised else "handicapped")
    assert changed(gated, x) == gated.gate.changed <= changes * count + 1e-9
    assert gated.gate.inputs == count
    for each in (gated.variant(chunk=7), gated.variant(prune="race")):
        assert changed(each, x) == gated.gate.changed
    if changes == 1:
        assert gated.gate.changed == int((gated.shortened(1).decide(x).label != gated.decide(x).base_label).sum())


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.lists(st.sampled_from([-1.0, 0.0, 0.1, 0.25, 0.5, 2.0]), min_size=1, max_size=40), st.integers(0, 99), CHANGES)
def test_the_threshold_is_the_lowest_that_will_do(values, seed, changes):
    """As many answers change as may, unless equal evidence forbids it."""
    evidence = torch.tensor(values, dtype=torch.float64)
    change = torch.rand(len(values), generator=torch.Generator().manual_seed(seed)) < 0.7
    threshold = threshold_for(evidence, change, changes)
    passing = int((change & (evidence > threshold)).sum())
    assert passing <= changes * len(values) + 1e-9
    if changes > 0:
        lower = [each for each in sorted(set(evidence[change].tolist())) if each <= threshold]
        if lower:
            assert int((change & (evidence >= lower[-1])).sum()) > changes * len(values) - 1e-9


@pytest.mark.parametrize("standardised", [True, False])
@pytest.mark.parametrize("radius", [None, 0.05])
def test_no_changes_is_the_model_itself(standardised, radius):
    model, x = flat(SHAPE), batch(SHAPE, 40, 30)
    ball = {} if radius is None else {"norm": "linf", "radius": radius, "explore": drq.Gradient(2), "quantify": drq.Gradient(2)}
    gated = drq.DRQ(model, views=VIEWS, **ball).gated(CLEAN, 0.0, leads="standardised" if standardised else "handicapped")
    found, logits = gated.decide(x), model(x)
    assert found.kept.all()
    assert torch.equal(found.label, logits.argmax(1))
    assert torch.equal(found.log_odds, drq.objectives.log_odds(logits))
    torch.testing.assert_close(gated(x), logits.log_softmax(1))
    assert torch.equal(gated(x).argmax(1), logits.argmax(1))
    assert radius is not None or found.passes.tolist() == [1] * 40
    assert gated.gate.threshold == math.inf


def test_it_promises_what_a_binomial_bound_allows():
    for total in (1, 7, 60, 500, 3000):
        for count in {0, 1, total // 20, total // 2, total - 1, total}:
            expected = 1.0 if count >= total else beta.ppf(0.95, count + 1, total - count)
            assert largest_share(count, total) == pytest.approx(expected, abs=1e-9)
    gate = Gate(1.0, inputs=500, changed=25)
    assert (
        str(gate) == f"25 of 500 answers change (5.0%); of new inputs of this kind at most {gate.bound:.1%}, with 95 % confidence"
    )
    assert str(Gate(1.5)) == "threshold 1.5"


def test_the_promise_holds_on_new_inputs():
    """Of 40 gates, each for another half of the inputs, more than 3 with a broken bound would be improbable (below 0.2 %)."""
    model, x = flat(SHAPE), batch(SHAPE, 4000, 50)
    robust, broken = drq.DRQ(model, views=VIEWS), 0
    for seed in range(40):
        order = torch.randperm(4000, generator=torch.Generator().manual_seed(seed))
        gated = robust.gated(x[order[:150]], 0.05, leads="plain")
        broken += changed(gated, x[order[150:1150]]) / 1000 > gated.gate.bound
    assert broken <= 6


def test_few_inputs_are_warned_of_with_the_bound(caplog):
    robust = drq.DRQ(flat(SHAPE), views=VIEWS)
    with pytest.warns(
        UserWarning, match=r"drq: a gate learnt from 99 inputs promises little: \d of 99 answers .* at most"
    ) as told:
        gated = robust.gated(CLEAN[:99])
    assert told[0].filename == __file__
    assert f"{gated.gate.bound:.1%}" in str(told[0].message)
    with warnings.catch_warnings(), caplog.at_level("INFO", logger="drq"):
        warnings.simplefilter("error")
        gated = robust.gated(CLEAN[:100])
        robust.gated(CLEAN[:5], 0.0)  # promises all that there is
    assert str(gated.gate) in caplog.text


def test_leads_are_measured_by_their_habit():
    """Mean and population deviation by numpy; a deviation below 1e-6 counts as one."""
    robust = drq.DRQ(flat(SHAPE), views=VIEWS)
    gated = robust.gated(CLEAN, leads="standardised")
    model = robust.model
    own = drq.objectives.log_odds(model(CLEAN)).amax(1)
    for number, view in enumerate(list(VIEWS)[1:]):
        lead = (drq.objectives.log_odds(model(view(CLEAN))).amax(1) - own).detach().numpy()
        assert gated.gate.mean[number] == pytest.approx(lead.mean(), abs=1e-9)
        assert gated.gate.deviation[number] == pytest.approx(lead.std(), abs=1e-9)
    flipped = CLEAN[..., :3]
    symmetrical = torch.cat([flipped, flipped.flip(3)], 3)
    gate = robust.gated(symmetrical, leads="standardised").gate
    assert gate.deviation[-1] == 1
    assert gate.mean[-1] == pytest.approx(0, abs=1e-6)
    assert min(gate.deviation[:-1]) > 1e-3
    assert robust.gated(CLEAN, leads="plain").gate.mean == ()
    mean, deviation = habits(torch.tensor([[[0.0], [1.0]], [[0.0], [1 + 3e-6]]], dtype=torch.float64), torch.zeros(2).double())
    assert deviation[0] == pytest.approx(1.5e-6, rel=1e-3)
    assert mean[0] == pytest.approx(1 + 1.5e-6)


@few
@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(0, 10**6), CHANGES, st.booleans())
def test_with_labels_no_more_right_answers_are_spoilt_than_asked_for(seed, risk, standardised):
    x, model = batch(SHAPE, 120, seed), flat(SHAPE)
    robust = drq.DRQ(model, views=VIEWS)
    base = model(x).argmax(1)
    labels = torch.where(torch.rand(120, generator=torch.Generator().manual_seed(seed)) < 0.6, base, robust.decide(x).label)
    gated = robust.gated(x, labels=labels, risk=risk, leads="standardised" if standardised else "handicapped")
    found = gated.decide(x)
    spoilt = (found.label != found.base_label) & (found.base_label == labels)
    assert int(spoilt.sum()) <= 120 * risk + 1e-9
    assert gated.gate.changed == int((found.label != found.base_label).sum())


def test_with_labels_more_may_change():
    """Where every change is for the better, none is held back."""
    robust = drq.DRQ(flat(SHAPE), views=VIEWS)
    ungated = robust.gated(CLEAN, 1.0, leads="plain").decide(CLEAN)
    assert int((ungated.label != ungated.base_label).sum()) > 50
    gated = robust.gated(CLEAN, labels=ungated.label, risk=0.01, leads="plain")
    assert torch.equal(gated.decide(CLEAN).label, ungated.label)


@pytest.mark.parametrize("views", [None, "Mirror()"])
def test_a_ball_is_gated_by_its_margin(views):
    model = flat(SHAPE)
    robust = drq.DRQ(model, "linf", 0.1, views=views, explore=drq.Gradient(4), quantify=drq.Gradient(4))
    x = CLEAN[:150]
    whole = robust.decide(x)
    change = whole.label != whole.base_label
    assert int(change.sum()) > 8
    gated = robust.gated(x, 0.03)
    found = gated.decide(x)
    threshold = float(whole.margin[change].sort(descending=True).values[4])  # of 150, 4 may change
    assert gated.gate.threshold == pytest.approx(threshold, abs=2e-4)
    assert torch.equal(found.kept, ~(change & (whole.margin > threshold)))
    assert gated.gate.changed == int((found.label != found.base_label).sum()) == 4
    logits = model(x)
    held = found.kept
    assert torch.equal(found.label[held], logits.argmax(1)[held])
    torch.testing.assert_close(found.robustness[held], logits.softmax(1)[held])
    top = logits.softmax(1).topk(2).values
    torch.testing.assert_close(found.margin[held], (top[:, 0] - top[:, 1])[held])
    assert found.reached[held].all()
    assert not found.view[held].any()
    for name in ("label", "robustness", "margin", "reached", "view", "log_odds", "passes"):
        assert torch.equal(getattr(found, name)[~held], getattr(whole, name)[~held])
    evidence = torch.where(change, whole.margin, -whole.margin)
    torch.testing.assert_close(found.gate_margin, evidence - gated.gate.threshold)
    scores = gated(x)
    assert torch.equal(scores.argmax(1), found.label)
    torch.testing.assert_close(scores[held], logits.log_softmax(1)[held])
    torch.testing.assert_close(scores[~held], robust(x)[~held])


def test_it_is_plain_numbers():
    gate = drq.DRQ(flat(SHAPE), views=VIEWS).gated(CLEAN).gate
    record = gate.record
    assert Gate.read(record) == gate
    assert Gate.read(json.loads(json.dumps(record))) == gate
    assert all(isinstance(each, float | int | list) for each in record.values())
    assert drq.DRQ(flat(SHAPE), views=VIEWS, gate=record).gate == gate
    assert Gate.read({"threshold": 0.5}) == Gate(0.5)
    refused(Gate.read, {"mean": [1.0]}, words=["gate must have a threshold, and else of mean, deviation, ahead, inputs, changed"])
    refused(Gate.read, {"threshold": 1.0, "hold": 2}, words=["gate must have a threshold"])


@pytest.mark.parametrize("gate", [None, Gate(0.3), Gate(-0.5, (0.1,), (2.0,))])
def test_it_is_the_rule_as_it_is_told(gate):
    """By hand: two views, three classes; the second view speaks for class 2 by 0.5 over the own answer."""
    logits = torch.tensor([[0.0, 1.0, -1.0]]).double()
    at_x = drq.objectives.log_odds(logits)
    own = float(at_x[0, 1])
    odds = torch.stack([at_x, torch.tensor([[-3.0, own - 1, own + 0.5]], dtype=torch.float64)], 1)
    found = outcome(odds, logits, gate=gate)
    lead = {None: 0.5, Gate(0.3): 0.5}.get(gate, (0.5 - 0.1) / 2)
    assert found.label.tolist() == [2]
    assert float(found.evidence) == pytest.approx(lead)
    assert float(found.log_odds[0, 2]) == pytest.approx(own + lead)
    assert found.explored_at[0].tolist() == [0, 0, 1] if gate is None else True
    habit = ((), ()) if gate is None else (gate.mean, gate.deviation)
    assert outcome(odds, logits, gate=Gate(float(found.evidence), *habit)).kept.tolist() == [True]  # it has to be exceeded
    assert outcome(odds, logits, gate=Gate(lead - 1e-9, *habit)).kept.tolist() == [False]
    held = outcome(odds, logits, gate=Gate(lead + 1e-9, *habit))
    assert held.kept.tolist() == [True]
    assert held.label.tolist() == [1]
    assert torch.equal(held.log_odds, at_x)


def test_early_looks_agree_where_they_were_learnt():
    """What prune="race" leaves out changes no answer on the inputs of the gate; elsewhere it may, and says nothing else."""
    robust = drq.DRQ(flat(SHAPE), views=VIEWS).gated(CLEAN, 0.1)
    early = robust.variant(prune="race")
    whole, fewer = robust.decide(CLEAN), early.decide(CLEAN)
    assert torch.equal(whole.label, fewer.label)
    own = whole.base_log_odds.amax(1)
    assert math.isfinite(robust.gate.ahead)
    assert torch.equal(fewer.passes == 1, own >= robust.gate.ahead)
    assert {*fewer.passes.tolist()} == {1, len(VIEWS)}
    assert fewer.kept[fewer.passes == 1].all()
    assert not fewer.nonfinite.any()
    torch.testing.assert_close(fewer.log_odds[fewer.passes > 1], whole.log_odds[fewer.passes > 1])
    x = batch(SHAPE, 400, 90)
    whole, fewer = robust.decide(x), early.decide(x)
    differ = whole.label != fewer.label
    assert torch.equal(differ, (whole.label != whole.base_label) & (fewer.passes == 1))
    assert torch.equal(fewer.label[fewer.passes > 1], whole.label[fewer.passes > 1])
    assert torch.equal(robust.variant(gate=None, prune="race").decide(x).passes, torch.full((400,), len(VIEWS)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"changes": 1.5}, "changes must be a share from 0 to 1, got 1.5: 0.05 lets one answer in twenty change"),
        ({"changes": True}, "changes must be a share from 0 to 1, got True"),
        ({"changes": math.nan}, "changes must be a share from 0 to 1, got nan"),
        ({"risk": 0.1}, "risk must be given with labels, got 0.1: give both or none"),
        ({"labels": torch.zeros(300).long()}, "risk must be given with labels, got None"),
        ({"labels": torch.zeros(3).long(), "risk": 0.1}, "labels must be a tensor of 300 classes, got"),
        ({"labels": torch.zeros(300).long(), "risk": -1}, "risk must be a share from 0 to 1, got -1"),
        ({"x": CLEAN[:0]}, "x must be a tensor with at least one input, got shape (0, 3, 6, 6)"),
        ({"x": [1, 2]}, "x must be a tensor with at least one input, got list"),
        ({"x": 3 * CLEAN}, "x must lie within bounds=(0.0, 1.0)"),
        ({"x": CLEAN[:, 0, 0]}, "x must be pictures (N, C, H, W) for Rotation(90, 5), got shape (300, 6)"),
    ],
)
def test_mistakes_in_fitting(arguments, words):
    model = flat(SHAPE if "pictures" not in words else (6,))
    refused(drq.DRQ(model, views=VIEWS).gated, **({"x": CLEAN} | arguments), words=[words])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"threshold": math.nan}, "threshold must be a number, got nan: inf keeps every answer of the model, -inf none"),
        ({"threshold": "1"}, "threshold must be a number, got '1'"),
        ({"ahead": None}, "ahead must be a number, got None"),
        ({"mean": 1.0}, "mean must be finite numbers, one for each view but the input, got 1.0"),
        ({"mean": [math.inf], "deviation": [1]}, "mean must be finite numbers"),
        ({"mean": [1.0]}, "deviation must be numbers above 0, as many as mean has, got ()"),
        ({"mean": [1.0], "deviation": [0.0]}, "deviation must be numbers above 0, as many as mean has, got (0.0,)"),
        ({"inputs": -1}, "inputs and changed must be numbers of inputs, changed not above inputs, got -1 and 0"),
        ({"inputs": 3, "changed": 4}, "inputs and changed must be numbers of inputs, changed not above inputs, got 3 and 4"),
    ],
)
def test_mistakes_in_a_gate(arguments, words):
    refused(Gate, **({"threshold": 0.0} | arguments), words=[words])


def test_a_gate_belongs_to_its_views():
    model, gate = flat(SHAPE), Gate(0.1, (1.0, 2.0), (1.0, 1.0))
    words = ["gate must have a mean and a deviation for each of 5 views besides the input, got 2: it was learnt for other views"]
    refused(drq.DRQ, model, views=VIEWS, gate=gate, words=words)
    assert drq.DRQ(model, views=Rotation(90, 3), gate=gate).gate == gate
    for more in ({}, {"radius": 0.1}, {"radius": 0.1, "views": Rotation(90, 3)}):
        refused(drq.DRQ, model, **more, gate=gate, words=["gate must have no means where a ball is searched"])
    refused(drq.DRQ, model, gate=0.3, words=["gate must be a drq.views.Gate or None, got 0.3: robust.gated(x) learns one"])


def test_what_a_gate_is_fitted_to_need_not_be_in_one_block():
    model = flat(SHAPE)
    whole, parts = (drq.DRQ(model, views=VIEWS, chunk=each).gated(inputs(3, 120, *SHAPE), 0.1).gate for each in (None, 7))
    assert parts.threshold == pytest.approx(whole.threshold, abs=1e-9)
    assert parts.mean == pytest.approx(whole.mean, abs=1e-9)
    assert (parts.inputs, parts.changed) == (whole.inputs, whole.changed) == (120, 12)


def test_every_term_has_the_handicap_that_it_would_have_alone():
    """The threshold of a gate for the term by itself, and none where that is below 0; of the input there is none."""
    terms = (Rotation(90, 5), Mirror(), Mirror() @ Rotation(90, 3))
    robust = drq.DRQ(flat(SHAPE), views=terms[0] + terms[1] + terms[2])
    gate = robust.gated(CLEAN, 0.05).gate
    alone = [max(0.0, robust.variant(views=term).gated(CLEAN, 0.05, leads="plain").gate.threshold) for term in terms]
    assert gate.mean == pytest.approx([*[alone[0]] * 4, alone[1], *[alone[2]] * 2])
    assert max(alone) > 0
    assert gate.deviation == (1.0,) * 7
    assert robust.gated(CLEAN, 0).gate.mean == (0.0,) * 7

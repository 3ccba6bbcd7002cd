"""How far a call of DRQ is: known beforehand, never going back, right in the end, and of no effect on the answer."""

import copy
import pickle
import threading
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from testbed.classifiers import inputs, network
from testbed.refusals import refused
from torch import nn

import drq
from drq.system import progress

STEPS = {"explore": drq.Gradient(6), "quantify": drq.Gradient(5)}
SETTINGS = {
    "radius": {"radius": 0.5},
    "calibrated": {"radius": drq.Calibrated(steps=9)},
    "lost": {"radius": drq.Calibrated(0.99999999, steps=9)},  # for some there is no radius, and nothing is explored
    "few classes": {"radius": 0.5, "classes": 3},
    "base apart": {"radius": 0.5, "explore_base": False},
    "noise": {"radius": 0.5, "explore": drq.Gradient(4, smooth=drq.Noise(3))},
    "random": {"radius": 0.5, "explore": drq.Random(4), "quantify": drq.Random(3)},
    "own steps": {"radius": 0.5, "explore": drq.AutoStep(9)},
    "queries": {"radius": 0.5, "quantify": drq.Square(9)},
}
X = inputs(3, 7, 4)


def of(prune="exact", compiled=False, chunk=5, **settings):
    return drq.DRQ(network(3, classes=8, gain=4), "l2", prune=prune, compile=compiled, chunk=chunk, **STEPS | settings)


def heard(robust, x=X):
    told = []
    decision = robust.decide(x, progress=lambda *each: told.append(each))
    return decision, told


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    """In the end every pass that was expected is either done or spared."""
    end = progress.Meter.end

    def checked(meter):
        assert meter.done == meter.total
        end(meter)

    monkeypatch.setattr(progress.Meter, "end", checked)


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """The engine as it is, around a model that is not compiled, which would take half a minute."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("prune", ["none", "exact", "race"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_what_is_told(settings, prune, compiled):
    robust = of(prune, compiled, **settings)
    decision, told = heard(robust)
    passes, most = int(decision.passes.sum()), len(X) * robust.most_passes(8)
    assert told[0][1] == most
    assert told[-1] == (passes, passes)
    assert all(0 < done < total <= most for done, total in told[:-1])
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert [total for _, total in told] == sorted((total for _, total in told), reverse=True)
    shares = [done / total for done, total in told]
    assert shares == sorted(set(shares))
    assert len(told) >= 5
    if decision.found.all():  # else much is spared at once
        assert max(after - before for before, after in pairwise(shares)) < 0.5


@pytest.mark.parametrize("compiled", [False, True])
def test_the_answer_and_its_cost_are_the_same(compiled):
    calls = []
    model = network(3, classes=8, gain=4)
    model.register_forward_hook(lambda _, given, __: calls.append(len(given[0])))
    robust = drq.DRQ(model, "l2", 0.5, compile=compiled, chunk=5, **STEPS)
    robust.decide(X)  # which examines the model, and makes a twin of it
    calls.clear()
    plain, before = robust.decide(X), [*calls]
    calls.clear()
    told, _ = heard(robust)
    assert calls == before
    for name in ("label", "passes", "exact", "log_odds", "margin"):
        assert torch.equal(getattr(plain, name), getattr(told, name)), name


def test_rounding_that_is_searched_again_is_counted_in():
    """Two classes that nearly tie everywhere, so that both are searched again in the precision of x."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval()
    model[1].weight.data = torch.tensor([[1.0, 0.0, 0.0, 0.02], [1.0, 0.0, 0.0, -0.02], [-1.0, 0.0, 0.0, 0.0]])
    model[1].bias.data = torch.tensor([0.0, 0.02, -5.0])
    robust = drq.DRQ(model, "l2", 0.5, precision="bfloat16", **STEPS)
    decision, told = heard(robust, X.float())
    passes = int(decision.passes.sum())
    assert passes > len(X) * robust.most_passes(3)
    assert told[-1] == (passes, passes)
    shares = [done / total for done, total in told]
    assert shares == sorted(set(shares))


def test_a_module_made_with_progress_tells_in_every_call():
    told = []
    robust = of(radius=0.5, progress=lambda *each: told.append(each))
    for call in (robust.decide, robust, lambda x: robust(x.clone().requires_grad_()), robust.variant(alpha=0.2).decide):
        told.clear()
        call(X)
        assert told[-1][0] == told[-1][1]
    told.clear()
    robust.decide(X, progress=False)
    robust.variant(progress=False).decide(X)
    robust.plane(X[:1], *inputs(1, 2, 4), pixels=4)  # many calls in several threads
    assert told == []
    assert robust.settings["progress"] is robust.progress


def test_by_default_nothing_is_shown(monkeypatch, capsys):
    times = iter(range(0, 10**6, 60))
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: float(next(times))))
    of(radius=0.5).decide(X)
    assert capsys.readouterr() == ("", "")
    of(radius=0.5).decide(X, progress=True)
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("deciding ")
    assert "100 %" in errors.splitlines()[-1]
    times = iter([0.0] * 10**4)
    of(radius=0.5).decide(X, progress=True)
    assert capsys.readouterr() == ("", "")  # within a moment


def test_no_samples_no_progress():
    _, told = heard(of(radius=0.5), X[:0])
    assert told == []


@pytest.mark.parametrize("compiled", [False, True])
def test_who_is_told_may_stop_the_call(compiled):
    robust = of(compiled=compiled, radius=0.5)
    expected = robust.decide(X)

    def stop(done, _):
        if done > 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        robust.decide(X, progress=stop)
    decision, told = heard(robust)
    assert torch.equal(decision.log_odds, expected.log_odds)
    assert told[-1][0] == decision.passes.sum()


def test_calls_at_the_same_time_are_counted_apart():
    robust, told = of(radius=0.5), {}

    def work(rows):
        heard_here = told[rows] = []
        robust.decide(X[:rows], progress=lambda *each: heard_here.append(each))

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (2, 5, 7)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for rows, each in told.items():
        assert each[0][1] == rows * robust.most_passes(8)
        assert each[-1][0] == each[-1][1] == robust.decide(X[:rows]).passes.sum()


def test_copies_and_pickles():
    lock, told = threading.Lock(), []

    def tell(done, total):
        with lock:
            told.append((done, total))

    robust = of(radius=0.5, progress=tell)
    for twin in (copy.deepcopy(robust), robust.replica()):
        told.clear()
        twin.decide(X)
        assert told
    told.clear()
    sent = pickle.loads(pickle.dumps(robust))
    assert sent.progress is False
    assert torch.equal(sent.decide(X).log_odds, robust.decide(X, progress=False).log_odds)
    assert told == []
    assert pickle.loads(pickle.dumps(of(radius=0.5, progress=True))).progress is True


def test_wrong_progress_is_refused():
    refused(of, words=["progress must be True, False or a function"], progress="bar", radius=0.5)
    refused(of(radius=0.5).decide, X, words=["progress must be True, False or a function"], progress=1)

"""The command that learns the gates of the package: what it writes, that it goes on where it stopped, and its table."""

import json
import math
import sys

import pytest
import torch
from testbed.brightness import quarters
from torch.utils.data import TensorDataset

import drq
from drq.errors import MissingError
from drq.models import gates as shipped
from drq.report.statistics import wilson
from tools import gates

FITTED, LATER = gates.Inputs("given", 20, 150), gates.Inputs("given", 200, 100)


@pytest.fixture
def looks(monkeypatch):
    """Models and data of our own; counts the models that were loaded and the inputs that they were asked about."""
    x = torch.rand(300, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    data = drq.load_data(TensorDataset(x, torch.zeros(300, dtype=torch.long)))
    asked = []

    def load(name):
        if name == "absent":
            raise MissingError("absent must be here")
        model = quarters()
        model.register_forward_hook(lambda _, inputs, __: asked.append(len(inputs[0])))
        model.register_buffer("number", torch.tensor([float(name[-1])]))  # weights of its own
        return model

    monkeypatch.setattr(gates.drq, "load_model", load)
    monkeypatch.setattr(gates.drq, "load_data", lambda *_, **__: data)
    monkeypatch.setattr(gates, "LEARNT", {"model1": FITTED, "absent": FITTED, "model2": FITTED})
    monkeypatch.setattr(gates, "HELD_OUT", {"model1": LATER})
    return asked


def run(monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", ["gates", *map(str, options)])
    gates.main()


@pytest.mark.usefixtures("looks")
def test_gates_are_those_of_the_named_inputs(monkeypatch, tmp_path, capsys):
    path = tmp_path / "gates.json"
    run(monkeypatch, "--gates", path)
    found = json.loads(path.read_text())
    assert [*found] == ["model1", "model2"]
    assert "left out: absent must be here" in capsys.readouterr().out
    model, known = gates.drq.load_model("model1"), shipped.known(path)
    assert known["model1"].contents == shipped.checksum(model) != known["model2"].contents
    x = drq.load_data("given", view=None).batch(range(20, 170))[0]
    for learnt in known["model1"].learnt:
        preset = drq.presets.PRESETS[learnt.preset]
        expected = drq.DRQ(model, views=learnt.views).gated(x, preset.changes).gate
        assert learnt.gate == expected
        assert learnt.gate.changed <= preset.changes * 150
        assert (learnt.data, learnt.first, learnt.changes) == ("given", 20, preset.changes)


def test_it_goes_on_where_it_stopped(looks, monkeypatch, tmp_path):
    path = tmp_path / "gates.json"
    monkeypatch.setattr(gates, "LEARNT", {"model1": FITTED})
    run(monkeypatch, "--gates", path)
    first = path.read_bytes()
    looks.clear()
    run(monkeypatch, "--gates", path)
    assert (sum(looks), path.read_bytes()) == (0, first)
    found = json.loads(path.read_text())
    found["model1"]["contents"] = "of other weights"
    path.write_text(json.dumps(found))
    run(monkeypatch, "--gates", path)
    assert path.read_bytes() == first
    assert sum(looks) > 0
    looks.clear()
    monkeypatch.setattr(gates, "LEARNT", {"model1": FITTED._replace(count=140)})
    run(monkeypatch, "--gates", path)
    assert json.loads(path.read_text())["model1"]["learnt"][0]["gate"]["inputs"] == 140
    assert sum(looks) > 0


def test_views_that_presets_share_are_looked_at_once(looks, monkeypatch, tmp_path):
    """Of 12 views of one preset 4 are another's, and 5 are among the 16 of the third; besides, a first call tries out."""
    monkeypatch.setattr(gates, "LEARNT", {"model1": FITTED})
    run(monkeypatch, "--gates", tmp_path / "gates.json")
    assert 23 * 150 <= sum(looks) <= 23 * 150 + 20


@pytest.mark.usefixtures("looks")
def test_infinite_numbers_are_left_out(tmp_path):
    model = gates.drq.load_model("model1")
    model.model.forward = lambda x: torch.tensor([[9.0, 0.0]]).expand(len(x), 2)  # nothing changes its answer
    record = gates.learn(model, "upright", FITTED)
    assert {"threshold", "ahead"}.isdisjoint(record["gate"])
    path = tmp_path / "gates.json"
    gates.write(path, {"model1": {"sha256": None, "contents": "", "learnt": [record]}})
    gate = shipped.known(path)["model1"].learnt[0].gate
    assert (gate.threshold, gate.ahead, gate.changed) == (-math.inf, math.inf, 0)


def test_the_table_counts_changed_answers_on_other_inputs(looks, monkeypatch, tmp_path, capsys):
    path, record = tmp_path / "gates.json", tmp_path / "record.json"
    run(monkeypatch, "--gates", path)
    known = shipped.known(path)
    monkeypatch.setattr(gates.gates, "known", lambda: known)
    monkeypatch.setattr(shipped, "known", lambda: known)
    monkeypatch.setattr(gates.drq.models.Card, "fitted", lambda _, views, __: (views, by_views[str(views)]))
    by_views = {each.views: each.gate for each in known["model1"].learnt}
    known["quarters"] = known["model1"]
    capsys.readouterr()
    run(monkeypatch, "--held-out", "--record", record)
    rows, shown = json.loads(record.read_text())["found"], capsys.readouterr().out
    x = drq.load_data("given", view=None).batch(range(200, 300))[0]
    for row, line in zip(rows, shown.splitlines()[2:], strict=True):
        gate = drq.views.Gate.read(shipped.OPEN | row["gate"])
        decision = drq.DRQ(quarters(), views=drq.presets.PRESETS[row["preset"]].settings["views"], gate=gate).decide(x)
        changed = int((decision.label != decision.base_label).sum())
        assert (row["changed"], row["inputs"], row["bound"]) == (changed, 100, gate.bound)
        assert (row["learnt"], row["held_out"]) == ("given, 20 to 169", "given, 200 to 299")
        assert 0 <= row["low"] < changed / 100 < row["high"]
        assert f"| {changed:.1f}% [{100 * row['low']:.1f}, {100 * row['high']:.1f}] |" in line
    looks.clear()
    run(monkeypatch, "--held-out", "--record", record)
    assert (sum(looks), json.loads(record.read_text())["found"]) == (0, rows)


@pytest.mark.parametrize(("changed", "said"), [(20, "yes"), (29, "above, as chance allows"), (60, "no")])
def test_the_table_tells_chance_from_a_broken_promise(changed, said):
    """Of 1000 inputs 20 changed where the gate was learnt: at most 2.89 % of new ones do, and 60 of 1000 are 4.7 % at least."""
    gate = drq.views.Gate(1.0, inputs=1000, changed=20)
    low, high = (float(each) / 100 for each in wilson(changed, 1000))
    row = {"model": "m", "preset": "nature", "gate": gate.record, "bound": gate.bound, "learnt": "a", "held_out": "b"}
    line = gates.table([row | {"inputs": 1000, "changed": changed, "low": low, "high": high}]).splitlines()[-1]
    assert line.endswith(f"| {said} |")

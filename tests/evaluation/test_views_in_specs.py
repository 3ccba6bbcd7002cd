"""Views, gates and rules over views in specs: what text and tables mean, what is recorded, and mistakes in one line."""

import json
import math
from pathlib import Path

import pytest
from testbed.refusals import refused
from testbed.specs import VALID, defence, spec

import drq
from drq import Spec
from drq.defences import InverseTransformation, Quantified, ViewMean, Zero
from drq.defences.learnt_gate import LearntGate
from drq.evaluation import reading
from drq.evaluation.paper import experiments
from drq.views import Gate, Mirror, Rotation

TABLES = """
models = ["digits"]
data = ["digits"]
limit = 2

[defences.turned]
views = "Rotation(90, 5) + Mirror()"
[defences.held]
defence = "drq"
views = "Mirror()"
gate = { threshold = 0.5, mean = [0.1], deviation = [2], ahead = inf }
[defences.learnt]
defence = "drq"
views = "Mirror()"
gate = { data = "digits:train", first = 10, count = 200, changes = "1/50" }
[defences."a gated ball"]
norm = "linf"
radius = 0.1
gate = { data = "digits:train", standardised = false }
[defences.its]
views = "Rotation(90, 5)"
by = "entropy"
[defences.zero]
[defences.mean]
defence = "view-mean"
views = "Mirror()"
"""


@pytest.fixture
def read(tmp_path: Path) -> Spec:
    (tmp_path / "views.toml").write_text(TABLES)
    return Spec.read(tmp_path / "views.toml")


def test_what_tables_mean(read: Spec) -> None:
    mirror = {"views": Mirror()}
    assert read.defences == {
        "turned": Quantified({"views": Rotation(90, 5) + Mirror()}),
        "held": Quantified(mirror | {"gate": Gate(0.5, (0.1,), (2.0,))}),
        "learnt": Quantified(mirror, gate=LearntGate("digits:train", 10, 200, 0.02)),
        "a gated ball": Quantified({"norm": "linf", "radius": 0.1}, gate=LearntGate("digits:train", leads="plain")),
        "its": InverseTransformation(Rotation(90, 5), "entropy"),
        "zero": Zero(Rotation(90, 13), 0.3),
        "mean": ViewMean(Mirror()),
    }


def test_records_are_plain_and_mean_the_same_again(read: Spec) -> None:
    records = {name: each.record for name, each in read.defences.items()}
    assert json.loads(json.dumps(records, allow_nan=False)) == records
    for name, record in records.items():
        again = reading.defence(name, record, "defences")
        assert again == read.defences[name], name
        assert again.record == record
    assert records["turned"] == {"defence": "drq", "views": "Rotation(90, 5) + Mirror()"}
    assert records["learnt"]["gate"] == {
        **{"data": "digits:train", "first": 10, "count": 200},
        **{"changes": 0.02, "leads": "handicapped"},
    }


def test_a_learnt_gate_that_never_opens_is_read_again() -> None:
    model = drq.load_model("digits")
    x = drq.load_data("digits").batch(range(100))[0]
    gate = drq.DRQ(model, views="Mirror()").gated(x, changes=0).gate
    assert gate.threshold == math.inf
    record = Quantified({"views": Mirror(), "gate": gate}).record
    assert reading.defence("mine", json.loads(json.dumps(record)), "defences").settings["gate"] == gate


def test_every_setting_tells_specs_apart() -> None:
    gates = [{"threshold": 0.5}, {"threshold": 0.6}, {"data": "digits"}, {"data": "digits", "changes": 0.1}]
    others = {"first": 1, "count": 9, "leads": "plain", "standardised": True}
    gates += [{"data": "digits", key: value} for key, value in others.items()]
    made = [defence(views=each) for each in ("Mirror()", "Rotation(90, 5)", "Rotation(90, 7)", "Mirror() + Rotation(90, 5)")]
    made += [defence(views="Mirror()", gate=each) for each in gates]
    made += [defence(norm="linf", radius=0.1), defence(norm="linf", radius=0.1, gate=gates[0])]
    assert len({Spec(**each).hash for each in made}) == len(made)
    assert Spec(**defence(views=" Rotation(degrees=90,views=5)")).hash == Spec(**made[1]).hash


def test_specs_without_views_are_known_by_the_hash_that_they_had() -> None:
    """As they stand in the records of experiments that were run before there were views."""
    kept = Path(__file__).parents[2] / "results" / "paper"
    found = 0
    for name, path in experiments().items():
        record = kept / f"{name}.json"
        if record.exists() and "views" not in path.read_text() and (about := json.loads(record.read_text())).get("spec_hash"):
            read = Spec.read(path)
            assert not {"views", "gate"} & {key for each in read.contents["defences"].values() for key in each}
            found += read.hash == about["spec_hash"]
    assert found >= 20


MISTAKES = {
    "a view that is not there": (defence(views="Rotate(90)"), ["defences.mine.views", "got 'Rotate'"]),
    "no parentheses": (defence(views="Mirror"), ["defences.mine.views", "have parentheses behind names"]),
    "a bad angle": (defence(views="Rotation(400, 13)"), ["defences.mine.views", "degrees must"]),
    "an even number": (defence(views="Rotation(90, 4)"), ["defences.mine.views", "views must be"]),
    "a number": (defence(views=13), ["defences.mine", "views must be"]),
    "a table": (defence(views={"a": 1}), ["defences.mine", "views must be"]),
    "code of its own": (defence(views="Mirror().__class__"), ["defences.mine.views", "families joined by +, * and @"]),
    "views of a peer": (spec(defences={"its": {"views": "Mirror(", "by": "energy"}}), ["defences.its.views", "be an expression"]),
    "a peer's choice": (spec(defences={"its": {"by": "certainty"}}), ["defences.its", "by must be 'energy' or 'entropy'"]),
    "a peer's share": (spec(defences={"zero": {"share": 0}}), ["defences.zero", "share must lie above 0"]),
    "a gate of nothing": (defence(views="Mirror()", gate={}), ["defences.mine.gate must have a threshold, or data"]),
    "a gate in a word": (defence(views="Mirror()", gate="strict"), ["defences.mine", "gate must be"]),
    "a misspelt gate": (defence(views="Mirror()", gate={"threshold": 1, "means": []}), ["defences.mine.gate", "'means'", "mean"]),
    "a threshold in words": (defence(views="Mirror()", gate={"threshold": "high"}), ["mine.gate", "threshold must be a number"]),
    "a gate of other views": (
        defence(views="Mirror()", gate={"threshold": 1, "mean": [0, 0], "deviation": [1, 1]}),
        ["defences.mine", "for each of 1 views besides the input"],
    ),
    "a share above 1": (
        defence(views="Mirror()", gate={"data": "digits", "changes": 5}),
        ["mine.gate", "changes must be a share"],
    ),
    "a count of none": (defence(views="Mirror()", gate={"data": "digits", "count": 0}), ["mine.gate", "count must be"]),
    "a gate learnt from a number": (defence(views="Mirror()", gate={"data": 3}), ["mine.gate", "data must be the name"]),
    "both kinds at once": (defence(views="Mirror()", gate={"data": "digits", "threshold": 1}), ["mine.gate", "'threshold'"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_names_its_table_and_key(name: str) -> None:
    table, words = MISTAKES[name]
    refused(Spec.of, table, words=[*words, "got"])


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        ({"data": "no-such-data"}, ["no-such-data"]),
        ({"data": "digits", "first": 10_000}, ["defences.mine", "count must end within the"]),
    ],
)
def test_data_of_a_gate_is_missed_before_anything_is_written(gate: dict, words: list[str], tmp_path: Path) -> None:
    table = VALID | {"defences": {"mine": {"views": "Mirror()", "gate": gate}}}
    refused(drq.evaluate, table, tmp_path / "run", words=words)
    assert not (tmp_path / "run").exists()

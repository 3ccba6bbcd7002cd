"""What a spec asks for, by parts: who is attacked, by what, on which samples."""

from pathlib import Path
from shutil import copytree

import numpy as np
import polars as pl
import pytest
import torch
from testbed.evaluated import COUNT, DEFENCES, FEW, FIXED, INDEX, KEY, MODEL, PGD, X, Y, close, images, network, ours, rows
from testbed.refusals import refused
from torch import Tensor

import drq
from drq import Spec, Trial, threats
from drq.evaluation.showcase import examples


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> drq.Run:
    spec = ours(defences=DEFENCES, threats={"clean": None, "PGD": Trial(PGD, suite="attacks")}, seed=5)
    return drq.evaluate(spec, tmp_path_factory.mktemp("whole"))


def test_the_defence_is_attacked_where_it_is_the_victim(tmp_path: Path) -> None:
    threat = threats.PGD("linf", 0.15, 3)
    both = {"base": Trial(threat, "base"), "own": Trial(threat, "defence")}
    run = drq.evaluate(ours(threats=both, defences={"standard": {}, "fixed": FIXED}, limit=8, keep_images=True), tmp_path)
    robust = drq.DRQ(MODEL, **FIXED, prune="none")  # with "exact" the scores of pruned classes would mislead the attack
    expected = [threat(victim, X[:8], Y[:8]) for victim in (MODEL, MODEL, robust)]
    assert [(each["threat"], each["defences"]) for each in run.about["tasks"]] == [
        ("base", ["standard", "fixed"]),
        ("own", ["standard"]),
        ("own", ["fixed"]),
    ]
    for number, points in enumerate(expected):
        np.testing.assert_allclose(run.images(number), points, atol=1e-6)
    assert not torch.equal(expected[1], expected[2])
    close(rows(run.records, "own", "fixed")["distance_l2"], (expected[2] - X[:8]).flatten(1).norm(dim=1))
    assert rows(run.records, "own", "fixed")["prediction"] == robust.decide(expected[2]).label.tolist()


def test_a_pursuit_tells_whether_the_model_withstood_it(tmp_path: Path) -> None:
    """It reads the defence as it is; the model in it may fall at points that are not the last."""
    threat, wide = threats.Transfer("linf", 0.15, threats.APGD("linf", 0.15, 5)), FIXED | {"radius": 0.6}
    spec = ours(threats={"own": Trial(threat, "defence")}, defences={"wide": wide})
    found = rows(drq.evaluate(spec, tmp_path).records, "own", "wide")
    standing = threat.run(drq.DRQ(MODEL, **wide), X, Y, index=INDEX)
    assert found["prediction"] == drq.DRQ(MODEL, **wide).decide(standing.x).label.tolist()
    right = MODEL(standing.x).argmax(1) == Y
    assert found["base_withstood"] == (right & ~standing.static_fooled).tolist()
    assert found["base_withstood"] != right.tolist()
    close(found["threat_passes"], standing.passes)


def darker(x: Tensor) -> Tensor:
    """A front."""
    return 0.8 * x + 0.1


def test_later_samples_behind_a_front(tmp_path: Path) -> None:
    """Row by row what direct calls say about samples 9 to 14, also where the defence is attacked and where images are kept."""
    table = {"norm": "linf", "radius": 0.2, "front": darker, **FEW}
    trials = {"clean": None, "PGD": PGD, "own": Trial(PGD, victim="defence")}
    given = {"models": {"a": MODEL}, "data": {"x": images(MODEL)}, "threats": trials, "defences": {"DRQ": table}}
    run = drq.evaluate(Spec(**given, first=9, limit=6, shard=4, keep_images=3, rounding=False), tmp_path)
    assert [task["samples"] for task in run.about["tasks"]] == [6, 6, 6]
    robust = drq.DRQ(MODEL, "linf", 0.2, front=darker, **FEW)
    x, y = images(MODEL)[9:15]
    victims = {"clean": None, "PGD": MODEL, "own": robust.variant(prune="none")}
    for number, (threat, victim) in enumerate(victims.items()):
        shifted = x if victim is None else PGD(victim, x, y)
        rows = run.records.filter(pl.col("threat") == threat).sort("index")
        assert rows["index"].to_list() == [*range(9, 15)]
        assert rows["label"].to_list() == y.tolist()
        assert rows["prediction"].to_list() == robust.decide(shifted).label.tolist()
        assert rows["base_prediction"].to_list() == MODEL(shifted).argmax(1).tolist()
        assert rows["cosine"].null_count() + rows["cosine"].is_nan().sum() == 6  # behind a front there is no way from the input
        np.testing.assert_allclose(run.images(number), shifted[:3].numpy(), atol=1e-6)
    shown = examples(run, run.records, each=2)
    assert {each["title"] for each in shown} <= {f"{threat}, image {index} of x" for threat in victims for index in (9, 10, 11)}


def test_costly_attacks_are_on_the_first_samples_that_are_asked_for(tmp_path: Path) -> None:
    asked = threats.DecisionBased("linf", 0.15, queries=20)
    given = {"models": {"a": MODEL}, "data": {"x": images(MODEL, 70)}, "threats": {"asked": Trial(asked, victim="defence")}}
    run = drq.evaluate(Spec(**given, defences={"standard": {}}, first=60, limit=8, shard=4), tmp_path)
    assert run.records["threat_passes"].max() > 10  # every third is wrong already


def test_parts_of_a_spec_are_put_together(tmp_path: Path) -> None:
    """In one directory one after the other, or in two whose files are then copied into one: the rows are those of one call."""
    spec = Spec(
        models={"a": MODEL, "b": network(2)}, data={"x": images(MODEL)}, defences={"standard": {}}, shard=10, name="parts"
    )
    whole = drq.evaluate(spec, tmp_path / "whole").records.select(*KEY, "prediction")
    first = drq.evaluate(spec, tmp_path / "one", only="a")
    assert set(first.records["model"]) == {"a"}
    assert drq.evaluate(spec, tmp_path / "one").records.select(*KEY, "prediction").equals(whole)
    for only in "ab":
        drq.evaluate(spec, tmp_path / f"only-{only}", only=only)
    copytree(tmp_path / "only-b", tmp_path / "only-a", dirs_exist_ok=True)
    events: list[str] = []
    both = drq.evaluate(spec, tmp_path / "only-a", tell=lambda event: events.append(event.what))
    assert "shard" not in events  # nothing was left to do
    assert both.records.select(*KEY, "prediction").equals(whole)
    refused(
        drq.evaluate,
        spec,
        tmp_path / "none",
        only="c",
        words=["only must be a model, data, a threat or a victim of the spec, got 'c'"],
    )


def test_victims_are_parts_of_a_spec(tmp_path: Path) -> None:
    asked = Trial(threats.DecisionBased("linf", 0.15, queries=5), victim="defence")
    given = {"models": {"a": MODEL}, "data": {"x": images(MODEL)}, "threats": {"clean": None, "asked": asked}, "limit": 2}
    spec = Spec(**given, defences={"one": {"defence": "standard"}, "two": {"defence": "standard"}})
    records = drq.evaluate(spec, tmp_path, only="two").records
    assert set(records["threat"]) == {"asked"}  # clean images are no attack on it
    assert set(records["defence"]) == {"two"}


def test_limits(tmp_path: Path) -> None:
    """The threat's own, else the group's, else the spec's; never more than there is."""
    few = {"models": ["mine"], "data": ["mine"], "limit": 5}
    tables = {"clean": None, "own": Trial(limit=3), "all": Trial(limit=1000)}
    records = drq.evaluate(
        ours(
            groups=[few, {"models": ["other"], "data": ["mine"]}], models={"mine": MODEL, "other": MODEL}, threats=tables, limit=8
        ),
        tmp_path,
    ).records
    counts = {tuple(each[:2]): each[2] for each in records.group_by("model", "threat").len().rows()}
    expected = {"mine": {"clean": 5, "own": 3, "all": COUNT}, "other": {"clean": 8, "own": 3, "all": COUNT}}
    assert counts == {(model, threat): count for model, each in expected.items() for threat, count in each.items()}

"""Specs: what a TOML file says becomes threats and defences, and every mistake in one is told in one line before anything is
written."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from testbed.specs import PGD, VALID

import drq
from drq import Group, Spec, Trial, threats
from drq.defences import Custom, Quantified, Standard
from drq.evaluation.plan import shards, tasks

EVERY = """
title = "Everything"
models = ["digits"]
data = ["digits"]
seed = 3
limit = 20
shard = 7

[threats.clean]
[threats.PGD]
norm = "linf"
radius = "8/255"
steps = 5
suite = "attacks"
[threats.smooth]
threat = "PGD"
norm = "l2"
radius = 1
steps = 5
smooth = { smooth = "Noise", samples = 2 }
aim = "margin"
seed = 5
suite = "attacks"
[threats.fog]
severity = 2
[threats."moved on"]
threat = "Transfer"
norm = "linf"
radius = 0.1
attack = { threat = "APGD", norm = "linf", radius = 0.1, steps = 3 }
victim = "defence"
limit = 4

[defences.standard]
[defences."DRQ l2"]
norm = "l2"
alpha = 0.25
radius = { confidence = 0.5, steps = 10 }
explore = { search = "Random", samples = 6 }
quantify = "Gradient"
bounds = "none"
[defences.drq]
radius = "calibrated"
[defences.mine]
defence = "python:torch.nn:Sequential"
"""


@pytest.fixture
def every(tmp_path: Path) -> Spec:
    (tmp_path / "my spec.toml").write_text(EVERY)
    return Spec.read(tmp_path / "my spec.toml", allow_code=True)


def test_a_file_means_what_python_says(every: Spec) -> None:
    """Fractions, names of searches, nested tables and defaults, against the objects that they stand for."""
    transfer = threats.Transfer("linf", 0.1, threats.APGD("linf", 0.1, 3))
    smooth = threats.PGD("l2", 1, 5, smooth=drq.Noise(2), aim=drq.margin, seed=5)
    assert {name: each.threat for name, each in every.threats.items()} == {
        "clean": None,
        "PGD": threats.PGD("linf", 8 / 255, 5, seed=3),
        "smooth": smooth,
        "fog": threats.Corruption("fog", 2, seed=3),
        "moved on": transfer,
    }
    calibrated = {"norm": "l2", "alpha": 0.25, "radius": drq.Calibrated(0.5, 10), "bounds": None}
    assert every.defences == {
        "standard": Standard(),
        "DRQ l2": Quantified(calibrated | {"explore": drq.Random(6), "quantify": drq.Gradient()}),
        "drq": Quantified({"radius": drq.Calibrated()}),
        "mine": Custom("torch.nn:Sequential"),
    }
    assert (every.name, every.title, every.seed, every.limit, every.shard) == ("my spec", "Everything", 3, 20, 7)


def test_values_for_every_feature_are_lists() -> None:
    """In defences and in threats; what is recorded of them reads back as the same."""
    table = {"norm": "l2", "radius": 0.1, "bounds": [[0.0, 0.1], 1.0], "frozen": [True, False]}
    made = Spec(**VALID | {"defences": {"mine": table}, "threats": {"PGD": table | {"steps": 2}}})
    robust, threat = made.defences["mine"].around(torch.nn.Linear(2, 2).eval()), made.threats["PGD"].threat
    for found in (robust, threat):
        assert found.bounds[0].tolist() == [0.0, 0.1]
        assert (found.bounds[0].dtype, found.bounds[1]) == (torch.float64, 1.0)
        assert found.frozen.tolist() == [True, False]
    again = Spec(**VALID | {"defences": {"mine": made.contents["defences"]["mine"]}, "threats": {"PGD": table | {"steps": 2}}})
    assert again.hash == made.hash
    restored = Spec(**VALID | {"defences": {"mine": {"front": {"front": "Restoration", "detail": "none"}}}}).defences["mine"]
    assert restored.settings["front"] == drq.Restoration(None)


def test_suites_victims_and_titles(every: Spec) -> None:
    found = {name: (each.suite, each.victim, each.limit, each.title) for name, each in every.threats.items()}
    assert found == {
        "clean": ("clean", "base", None, "clean"),
        "PGD": ("attacks", "base", None, "PGD"),
        "smooth": ("attacks", "base", None, "smooth"),
        "fog": ("fog", "base", None, "fog"),
        "moved on": ("moved on", "defence", 4, "moved on"),
    }


def test_an_ensemble_becomes_its_members() -> None:
    made = Spec(
        **VALID | {"threats": {"all": {"threat": "ensemble", "radius": "8/255", "victim": "defence", "limit": 7}, "clean": None}}
    )
    members = ["FAB", "Square", "APGD-L2", "APGD-CE", "PGD-noise", "PGD-attack", "APGD-DLR"]
    assert list(made.threats) == [*(f"all: {each}" for each in members), "clean"]
    assert [each.title for each in made.threats.values()] == [*members, "clean"]
    assert {(each.suite, each.victim, each.limit) for each in list(made.threats.values())[:-1]} == {("all", "defence", 7)}
    assert made.threats["all: APGD-CE"].threat.radius == 8 / 255


def test_the_seed_of_the_spec_holds_where_a_table_has_none() -> None:
    tables = {
        "fog": {},
        "snow": {"seed": 1},
        "e": {"threat": "ensemble", "radius": 0.1},
        "own": threats.Corruption("fog", 5, seed=4),
    }
    made = Spec(**VALID | {"threats": tables, "seed": 9}).threats
    assert [made[name].threat.seed for name in ("fog", "snow", "e: FAB", "own")] == [9, 1, 9, 4]


def test_a_star_stands_for_all_fifteen_corruptions() -> None:
    made = Spec(**VALID | {"data": ["cifar10-c/*/3", "digits"]})
    assert len(made.data) == 16
    assert made.data[0] == "cifar10-c/gaussian_noise/3"
    assert len({each.split("/")[1] for each in made.data[:15]}) == 15
    assert Spec(**VALID | {"models": "digits"}).models == ("digits",)


def test_tasks_of_groups_limits_and_victims() -> None:
    """The plan, written down by hand: defences share what a threat on the base makes, and are attacked one by one."""
    shared, own = threats.PGD("linf", 0.1, 2), Trial(threats.PGD("linf", 0.1, 2), "defence", limit=3)
    first = {"models": ["a", "b"], "data": ["x"], "threats": ["clean", "shared"]}
    second = Group(("a",), ("y", "z"), threats=("own",), defences=("standard", "drq"), limit=5)
    made = Spec(
        groups=[first, second],
        threats={"clean": None, "shared": shared, "own": own},
        defences={"standard": {}, "drq": {}, "third": {"alpha": 0.5}},
        limit=9,
    )
    three = ("standard", "drq", "third")
    expected = [(model, "x", name, three, 9) for model in "ab" for name in ("clean", "shared")]
    expected += [("a", data, "own", (each,), 3) for data in "yz" for each in ("standard", "drq")]
    plan = tasks(made)
    assert [(each.model, each.data, each.threat, each.defences, each.limit) for each in plan] == expected
    assert [each.number for each in plan] == list(range(8))
    assert str(plan[-1]) == "a on z, own, against drq"
    group_alone = dataclasses.replace(second, threats=("clean",), defences=None)
    assert [each.limit for each in tasks(Spec(groups=[group_alone], limit=9))] == [5, 5]


def test_a_group_names_an_ensemble_by_its_table() -> None:
    tables = {"e": {"threat": "ensemble", "radius": 0.1}, "clean": None}
    made = Spec(groups=[{"models": ["a"], "data": ["x"], "threats": ["e"]}, {"models": ["b"], "data": ["x"]}], threats=tables)
    assert [len(each.threats or ()) for each in made.groups] == [7, 0]
    assert len(tasks(made)) == 7 + 8


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize(("images", "size", "limit"), [(10, 3, None), (10, 3, 7), (10, 10, None), (4, 100, 50), (4, 1, 1)])
def test_shards_hold_every_sample_once(images: int, size: int, limit: int | None, first: int) -> None:
    (task,) = tasks(Spec(**VALID | {"limit": limit, "first": first}))
    parts = list(shards(task, images, size))
    asked = list(range(images))[first:][:limit]
    assert [each for part in parts for each in range(part.first, part.last)] == asked
    assert max(map(len, parts)) <= size
    assert len({part.key for part in parts}) == len(parts)
    assert sorted(part.key for part in parts) == [part.key for part in parts]


def test_the_first_sample_must_exist() -> None:
    (task,) = tasks(Spec(**VALID | {"first": 4}))
    with pytest.raises(drq.InputError, match="first must be below 4, the samples of "):
        list(shards(task, 4, 2))
    assert "first" not in Spec(**VALID).contents  # so that a spec keeps the hash that it had before there was such a key


def test_the_contents_are_json_and_tell_specs_apart(every: Spec) -> None:
    assert json.loads(json.dumps(every.contents)) == every.contents
    table = {**VALID, "threats": {"PGD": PGD, "clean": None}, "seed": 1}
    first = Spec.of(table)
    same = [{**table, "title": "other"}, {**table, "device": "cpu"}, {**table, "engine": "ray"}]
    same += [{**table, "threats": {"PGD": threats.PGD("linf", 0.1, 2, seed=1), "clean": Trial()}}]
    assert {Spec.of(each).hash for each in same} == {first.hash}
    changes = [
        *({key: value} for key, value in {"seed": 2, "first": 1, "limit": 3, "shard": 5, "threads": 2, "keep_images": 1}.items()),
        *({"rounding": False}, {"precision": "bfloat16"}, {"victim": "defence"}, {"name": "other"}, {"data": ["gaussians"]}),
        *({"defences": {"standard": {}, "drq": {}}}, {"defences": {"other": {"defence": "standard"}}}),
        *({"threats": {"PGD": PGD | {"steps": 3}, "clean": None}}, {"threats": {"PGD": PGD}}),
        {"threats": {"PGD": PGD | {"suite": "attacks"}, "clean": None}},
    ]
    hashes = [Spec.of({**table, **change}).hash for change in changes]
    assert Spec.of({**VALID, "seed": 1}).hash != Spec.of({**VALID, "seed": 2}).hash  # though nothing is drawn
    assert len({first.hash, *hashes}) == len(changes) + 1


def test_a_spec_does_not_change_what_it_is_made_of() -> None:
    table = {**VALID, "threats": {"PGD": dict(PGD), "fog": {}}, "defences": {"drq": {"radius": {"confidence": 0.5}}}}
    before = json.dumps(table)
    Spec.of(table)
    assert json.dumps(table) == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        Spec.of(table).limit = 5  # type: ignore[misc]


def test_a_chain_in_a_table_has_the_same_hash_in_every_process() -> None:
    attack = {"threat": "Transfer", "norm": "linf", "radius": 0.1, "attack": {"threat": "PGD", "norm": "linf", "radius": 0.1}}
    chain = {"threat": "Chain", "norm": "linf", "radius": 0.1, "members": [attack]}
    spec = Spec(models=["digits"], data=["digits"], threats={"chain": chain})
    assert " at 0x" not in json.dumps(spec.contents)
    assert "aim='away_from'" in json.dumps(spec.contents)


def test_what_looks_at_nobody_has_no_victim() -> None:
    threats = {"clean": None, "fog": {}, "noise": {"threat": "GaussianNoise"}, "PGD": {"norm": "linf", "radius": 0.1}}
    spec = Spec(models=["digits"], data=["digits"], threats=threats, victim="defence")
    assert {name: trial.victim for name, trial in spec.threats.items()} == {
        **dict.fromkeys(("clean", "fog", "noise"), "base"),
        "PGD": "defence",
    }

"""Specs: what a TOML file says becomes threats and defences, and every mistake in one is told in one line before anything is
written."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from testbed.refusals import refused
from torch import nn
from torch.utils.data import TensorDataset

import drq
from drq import Group, Spec, Trial, threats
from drq.defences import Custom, Quantified, Standard
from drq.evaluation.plan import shards, tasks

VALID = {"models": ["digits"], "data": ["digits"], "limit": 2, "defences": {"standard": {}}}
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


def spec(**changes) -> dict:
    return VALID | changes


def threat(**settings) -> dict:
    """A spec with one threat of these settings."""
    return spec(threats={"mine": settings})


def defence(**settings) -> dict:
    return spec(defences={"mine": {"defence": "drq"} | settings})


def group(**changes) -> dict:
    return spec(models=[], data=[], groups=[{"models": ["digits"], "data": ["digits"]} | changes])


def network(classes: int = 3) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, classes)).eval()


def items(*labels: int, scale: float = 1.0) -> TensorDataset:
    return TensorDataset(scale * torch.rand(len(labels), 1, 2, 2), torch.tensor(labels))


PGD = {"threat": "PGD", "norm": "linf", "radius": 0.1, "steps": 2}
OURS = {"models": {"mine": network()}, "data": {"mine": items(0, 1, 2)}}
BAD = {  # what is wrong: the spec, and words that the refusal must have
    "an unknown key": (spec(modles=["digits"]), ["spec must have keys that exist, got 'modles'", "did you mean models?"]),
    "a key that is no word": (spec() | {5: 1}, ["spec must have keys that exist, got 5", "it has models, data"]),
    "models that are a number": (spec(models=5), ["models must be a list of names, got 5", '["digits"]']),
    "models that are nothing": (spec(models=None), ["models must be a list of names, got None"]),
    "a number among the models": (spec(models=["digits", 3]), ["models must be a list of names, got ['digits', 3]"]),
    "a model without a name": (spec(models=[""]), ["models must be a list of names, got ['']"]),
    "no models": (spec(models=[]), ["models must name at least one, got none", "[[groups]]"]),
    "no data": (spec(data=[]), ["data must name at least one, got none"]),
    "a model twice": (spec(models=["digits", "digits"]), ["models must name each once, got 'digits'", "remove one"]),
    "a corruption beside all of them": (
        spec(data=["cifar10-c/*/5", "cifar10-c/fog/5"]),
        ["data must name each once, got 'cifar10-c/fog/5'"],
    ),
    "a table of models": (spec(models={"digits": "robust"}), ["models.digits must be a torch Module, got str", "in a list"]),
    "a table of data": (spec(data={"digits": 3}), ["data.digits must be a torch Dataset, got int"]),
    "a model that nobody knows": (spec(models=["digist"]), ["got 'digist'", "did you mean digits?"]),
    "data that nobody knows": (spec(data=["digtis"]), ["got 'digtis'", "the nearest is digits"]),
    "data of another size": (spec(models=["cifar10-small"]), ["cifar10-small on digits: ", "(1, 8, 8)"]),
    "a model of other classes": (
        spec(models={"mine": nn.Sequential(nn.Flatten(), nn.Linear(64, 3))}),
        ["mine must know the classes of digits, got 3 logits for 10 classes", "do not belong together"],
    ),
    "a label without a logit": (
        spec(**OURS | {"data": {"mine": items(5, 0)}}),
        ["mine must know the classes of mine, got 3 logits for label 5"],
    ),
    "images of another shape": (
        spec(**OURS | {"data": {"mine": TensorDataset(torch.rand(2, 3, 4, 4), torch.tensor([0, 1]))}}),
        ["mine must take the images of mine, got images of shape (3, 4, 4)"],
    ),
    "images beyond 1": (spec(**OURS | {"data": {"mine": items(0, 1, scale=255)}}), ["in [0, 1]", "divide"]),
    "a model without logits": (
        spec(**OURS | {"models": {"mine": nn.Identity()}}),
        ["mine must return a table of logits, got shape (1, 1, 2, 2)", "drq.FirstOutput"],
    ),
    "no threats": (spec(threats={}), ["threats must have at least one, got none", "clean"]),
    "a list of threats": (spec(threats=["clean"]), ["threats must be a table, got list", "[threats.NAME]"]),
    "a number for a threat": (spec(threats={"mine": 3}), ["threats.mine must be a table, got 3"]),
    "a threat without a name": (spec(threats={"": {}}), ["threats must have names that are words, got ''"]),
    "an unknown threat": (spec(threats={"PDG": {}}), ["threats.PDG.threat must be the name of a threat", "did you mean PGD?"]),
    "threats where one belongs": (threat(threat=["PGD"]), ["threats.mine.threat must be the name of a threat, got ['PGD']"]),
    "a class for a threat": (spec(threats={"mine": threats.PGD}), ["threats.mine must be a threat", "as in PGD(...)"]),
    "a model for a threat": (spec(threats={"mine": network()}), ["threats.mine must be a threat", "got Sequential("]),
    "a number in a trial": (spec(threats={"mine": Trial(threat=5)}), ["threats.mine must be a threat", "got 5"]),
    "an unknown setting": (threat(**PGD, stpes=3), ["threats.mine must have settings that exist, got 'stpes'", "mean steps?"]),
    "a setting of what changes nothing": (threat(threat="clean", radius=1), ["got 'radius'", "it has no settings"]),
    "a radius below 0": (threat(**PGD | {"radius": -0.1}), ["threats.mine: radius must be finite and at least 0, got -0.1"]),
    "a fraction of 0": (threat(**PGD | {"radius": "8/0"}), ["threats.mine: radius must be a number, got '8/0'"]),
    "a fraction below 0": (threat(**PGD | {"radius": "-8/255"}), ["radius must be a number, got '-8/255'"]),
    "no radius": (threat(threat="PGD", norm="linf"), ["threats.mine must have settings of the right kind", "'radius'"]),
    "an unknown norm": (threat(**PGD | {"norm": "l3"}), ["threats.mine: norm must be one of linf, l2, l1", "got 'l3'"]),
    "steps in words": (threat(**PGD | {"steps": "many"}), ["threats.mine: steps must be a whole number", "got 'many'"]),
    "an unknown aim": (threat(**PGD, aim="dlrr"), ["threats.mine.aim must be one of", "got 'dlrr'", "did you mean dlr?"]),
    "an unknown smoothing": (threat(**PGD, smooth="Noize"), ["threats.mine.smooth", "got 'Noize'", "did you mean Noise?"]),
    "a severity of 9": (threat(threat="fog", severity=9), ["threats.mine: severity must be a whole number from 1 to 5, got 9"]),
    "an ensemble in l1": (threat(threat="ensemble", radius=0.1, norm="l1"), ["threats.mine: norm must be 'linf' or 'l2'"]),
    "an unknown victim": (threat(**PGD, victim="bse"), ["threats.mine.victim must be base or defence", "did you mean base?"]),
    "a threat on nothing": (threat(**PGD, limit=0), ["threats.mine.limit must be a whole number of at least 1, got 0"]),
    "a suite without a name": (threat(**PGD, suite=""), ["threats.mine.suite must be a name, got ''"]),
    "two threats with one name": (
        spec(threats={"a": Trial(title="x", suite="s"), "b": Trial(title="x", suite="s")}),
        ["threats.b must be told from others in its suite, got 'x'", "another suite or title"],
    ),
    "a name that a member has": (
        spec(threats={"e": {"threat": "ensemble", "radius": 0.1}, "e: FAB": {"threat": "clean"}}),
        ["threats.e: FAB must have a name of its own, got 'e: FAB'"],
    ),
    "no defences": (spec(defences={}), ["defences must have at least one, got none", "standard"]),
    "a list of defences": (spec(defences=["standard"]), ["defences must be a table, got list"]),
    "an unknown defence": (spec(defences={"standrad": {}}), ["defences.standrad.defence", "did you mean standard?"]),
    "an unknown kind of defence": (defence(defence="dqr"), ["defences.mine.defence", "got 'dqr'", "did you mean drq?"]),
    "an object for a defence": (spec(defences={"mine": object()}), ["defences.mine must be a defence, its name or a table"]),
    "a setting of no defence": (spec(defences={"standard": {"alpha": 1}}), ["defences.standard", "got 'alpha'"]),
    "an unknown setting of DRQ": (defence(alhpa=0.5), ["defences.mine must have settings that exist", "did you mean alpha?"]),
    "points that records cannot hold": (defence(keep_points=True), ["defences.mine", "got 'keep_points'"]),
    "an alpha of 2": (defence(alpha=2), ["defences.mine: alpha must lie in [0, 1], got 2"]),
    "no fraction for DRQ": (defence(radius="8/0"), ["defences.mine: radius must be a number", "got '8/0'"]),
    "an unknown calibration": (defence(radius={"confidense": 0.5}), ["defences.mine.radius", "did you mean confidence?"]),
    "a confidence of 1.5": (defence(radius={"confidence": 1.5}), ["defences.mine.radius: confidence must lie in [0, 1)"]),
    "an unknown search": (defence(explore="Gradinet"), ["defences.mine.explore.search", "did you mean Gradient?"]),
    "searches where one belongs": (defence(explore={"search": ["Random"]}), ["defences.mine.explore.search", "['Random']"]),
    "bounds in disorder": (defence(bounds=[1, 0]), ["defences.mine: bounds must have lowest <= highest", "swap them"]),
    "a module that is not there": (defence(defence="python:nothing.there:make"), ["defences.mine: nothing.there must be"]),
    "a function that is not there": (defence(defence="python:torch.nn:Lineer"), ["defences.mine: ", "no Lineer"]),
    "options that a defence lacks": (defence(defence="python:torch.nn:ReLU", steps=2), ["defences.mine: ", "steps"]),
    "what makes no module": (
        spec(defences={"mine": lambda _: 3}),
        ["defences.mine: defence must be a torch.nn.Module, got int"],
    ),
    "groups in a word": (spec(groups="digits"), ["groups must be a list of tables, got str", "[[groups]]"]),
    "one bracket": (spec(groups={"models": ["digits"]}), ["groups must be a list of tables, got dict", "two brackets"]),
    "a number for a group": (spec(models=[], data=[], groups=[3]), ["groups[0] must be a table, got int"]),
    "models beside groups": (group() | {"models": ["digits"]}, ["models and data must stand in the groups", "move them"]),
    "an unknown key of a group": (group(modles=1), ["groups[0] must have keys that exist", "did you mean models?"]),
    "a group without models": (group(models=[]), ["groups[0].models must name at least one, got none"]),
    "a group with a table of models": (group(models={"digits": 1}), ["groups[0].models must be a list of names, got a table"]),
    "an unknown threat of a group": (group(threats=["claen"]), ["groups[0].threats", "did you mean clean?"]),
    "a group without threats": (group(threats=[]), ["groups[0].threats must name at least one, got none", "for all"]),
    "an unknown defence of a group": (group(defences=["standrad"]), ["groups[0].defences", "did you mean standard?"]),
    "a group without defences": (group(defences=[]), ["groups[0].defences must name at least one, got none"]),
    "a limit of a group": (group(limit=-1), ["groups[0].limit must be a whole number of at least 1, got -1"]),
    "a task asked for twice": (
        spec(models=[], data=[], groups=2 * [{"models": ["digits"], "data": ["digits"]}]),
        ["groups must ask for everything once, got digits, digits, clean, standard twice"],
    ),
    "a seed below 0": (spec(seed=-1), ["seed must be a whole number of at least 0, got -1"]),
    "half a seed": (spec(seed=1.5), ["seed must be a whole number of at least 0, got 1.5"]),
    "a seed that is true": (spec(seed=True), ["seed must be a whole number of at least 0, got True"]),
    "a seed beyond 64 bits": (spec(seed=2**63), ["seed must lie below 2**63, got 9223372036854775808"]),
    "no images": (spec(limit=0), ["limit must be a whole number of at least 1, got 0"]),
    "a limit in quotes": (spec(limit="5"), ["limit must be a whole number of at least 1, got '5'"]),
    "shards of nothing": (spec(shard=0), ["shard must be a whole number of at least 1, got 0"]),
    "no threads": (spec(threads=0), ["threads must be a whole number of at least 1, got 0"]),
    "fewer images than none": (spec(keep_images=-1), ["keep_images must be a whole number of at least 0, or true, got -1"]),
    "rounding by a number": (spec(rounding=1), ["rounding must be true or false, got 1"]),
    "an unknown precision": (spec(precision="bf16"), ["precision must be one of float32", "did you mean bfloat16?"]),
    "an unknown victim of all": (spec(victim="model"), ["victim must be one of base, defence, got 'model'"]),
    "an unknown engine": (spec(engine="rya"), ["engine must be one of local, ray, got 'rya'", "did you mean ray?"]),
    "an unknown device": (spec(device="cuad"), ["device must be one that this machine has, got 'cuad'", "cpu"]),
    "a device that is a number": (spec(device=0), ["device must be text, got 0", "in quotes"]),
    "a name with a slash": (spec(name="a/b"), ["name must be the name of a folder, got 'a/b'", "slashes"]),
    "the name of the folder above": (spec(name=".."), ["name must be the name of a folder, got '..'"]),
    "a name that is a number": (spec(name=5), ["name must be text, got 5"]),
    "a title that is a number": (spec(title=5), ["title must be text, got 5"]),
    "no spec at all": (5, ["spec must be a drq.Spec, a table or a TOML file, got int"]),
    "a file that is not there": ("nothing.toml", ["spec must be a TOML file that can be read", "No such file"]),
    "a name that no file can have": ("a\0b.toml", ["spec must be a TOML file that can be read", "null"]),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_one_line_and_nothing_is_written(case: str, tmp_path: Path) -> None:
    given, words = BAD[case]
    refused(drq.evaluate, given, tmp_path / "run", words=words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"models = [\n digits", ["Invalid value", "line 2"]),
        (b"models = ['digits']\nmodels = ['digits']", ["overwrite"]),
        (b"\xff\xfe\x00\x01", ["utf-8"]),
        (b"a = " + 10_000 * b"[", ["recursion"]),
    ],
    ids=["syntax", "a key twice", "no text", "tables without end"],
)
def test_files_that_are_no_specs(content: bytes, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_bytes(content)
    refused(drq.evaluate, tmp_path / "my.toml", tmp_path / "run", words=["spec must be a TOML file", "my.toml", *words])
    assert not (tmp_path / "run").exists()


def test_mistakes_in_the_call(tmp_path: Path) -> None:
    refused(drq.evaluate, VALID, tmp_path / "run", engine="spark", words=["engine must be one of local, ray, got 'spark'"])
    refused(drq.evaluate, VALID, tmp_path / "run", device="cuad", words=["device must be one that this machine has, got 'cuad'"])
    refused(drq.evaluate, VALID, tmp_path / "run", engine="ray", workers=0, words=["workers must be a whole number", "got 0"])
    assert not (tmp_path / "run").exists()


@pytest.fixture
def every(tmp_path: Path) -> Spec:
    (tmp_path / "my spec.toml").write_text(EVERY)
    return Spec.read(tmp_path / "my spec.toml")


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

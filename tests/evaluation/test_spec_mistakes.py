"""Specs that are none: every mistake in one is told in one line before anything is written."""

from pathlib import Path

import pytest
import torch
from testbed.refusals import refused
from testbed.specs import PGD, VALID, defence, group, items, network, spec, threat
from torch import nn
from torch.utils.data import TensorDataset

import drq
from drq import Trial, threats

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
    "the radius of a threat by another name": (
        threat(threat="PGD", norm="linf", eps="8/255"),
        ["threats.mine must have settings that exist, got 'eps'", "did you mean radius?"],
    ),
    "steps by another name": (threat(**PGD, nb_iter=3), ["got 'nb_iter'", "did you mean steps?"]),
    "the radius of DRQ by another name": (
        defence(norm="linf", eps="8/255"),
        ["defences.mine must have settings that exist, got 'eps'", "did you mean radius?"],
    ),
    "the radius of a peer by another name": (
        defence(defence="hedge", epsilon="8/255"),
        ["defences.mine must have settings that exist, got 'epsilon'", "did you mean radius?"],
    ),
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
    "a ragged bound": (
        defence(bounds=[[0, [1]], 1]),
        ["defences.mine.bounds must be numbers, in rows of one length, got others"],
    ),
    "a mask of numbers": (
        defence(frozen=[0, 1]),
        ["defences.mine.frozen must be true or false for every feature, got torch.int64"],
    ),
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

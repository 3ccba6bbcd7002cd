"""The specs of the paper's tables and figures: what they ask for, beside the numbers that the paper prints."""

import tomllib
from pathlib import Path

import pytest

import drq
from drq import models, threats
from drq.evaluation.loop import evaluate
from drq.evaluation.paper import experiments, published
from drq.evaluation.plan import Task, tasks
from drq.evaluation.spec import Spec
from drq.models import published as published_networks
from drq.models import robustbench
from drq.models.imagenet import PACKAGED
from drq.norms import as_norm
from drq.threats.corruptions import KINDS

SHOWN = [*(f"table{number}" for number in range(1, 9)), *(f"figure{number}" for number in range(1, 6)), "section5"]
CLAIMED = ["calibration", "plain", "alpha", "gradient", "exploits", "training-data"]  # what the paper says without numbers
REDTEAM = [f"redteam-{each}" for each in ("linf", "small", "l2", "augment", "noise", "peers", "views", "full")]
IMPROVE = ["improve", *(f"improve-{each}" for each in ("augment", "front", "shift", "search", "attacked", "digits"))]
NETWORKS = ["networks", "networks-plain", "networks-mnist", "imagenet-lite", "imagenet-instant", "redteam-networks"]
VIEWS = ["views", "views-photographs", "views-costly", "views-first", "view-gates", "ball-gate"]
BEYOND = [*REDTEAM, "peers", "peers-single", *NETWORKS, *IMPROVE, *VIEWS]  # what the paper has not
SPECS = [*SHOWN, *CLAIMED, *BEYOND, "digits"]
PRINTED = sorted(set(SHOWN) - {"figure1", "figure4"})  # those with numbers
SECOND = "cifar10-small"  # stands in for Wong2020Fast beside another, in some of them
OURS = {"one rotation", "one translation", "random noise", "end to end"}  # threats without numbers
QUANTITIES = {"table8": "difference", "figure5": "median"}


def plan(name: str) -> list[Task]:
    return tasks(Spec.read(experiments()[name]))


def cells(name: str) -> list[dict]:
    """The places of the printed numbers."""
    return published(name, QUANTITIES.get(name, "accuracy")).to_dicts()


def starred(data: str) -> str:
    """Corruptions are printed as their mean."""
    family, *rest = data.split("/")
    return f"{family}/*/5" if rest else data


def test_there_is_one_for_every_table_and_figure():
    assert sorted(experiments()) == sorted(SPECS)


@pytest.mark.parametrize("name", SPECS)
def test_it_is_a_valid_spec_that_says_what_it_is(name):
    spec = Spec.read(experiments()[name])
    assert spec.name == name
    if name[:5] in ("table", "figur"):
        assert spec.title.startswith(f"{name[:-1].capitalize()} {name[-1]}: ")
    assert len(plan(name)) > 0


@pytest.mark.parametrize("name", SPECS)
def test_names_are_known_and_no_paths(name):
    data = {entry.name.split("/")[0] for entry in drq.data.list()}
    for task in plan(name):
        kind, _, rest = task.model.removeprefix("denoised:").partition("?")[0].partition(":")
        places = {"robustbench": robustbench.PUBLISHED, "published": published_networks.PUBLISHED}
        assert rest in places[kind] if kind in places else kind in {*models.loading.NAMED, *PACKAGED}, task.model
        family, *corruption = task.data.split("/")
        assert family.partition(":")[0] in data
        assert corruption in ([], *([kind, "5"] for kind in KINDS))


@pytest.mark.parametrize("name", SPECS)
def test_lines_are_short(name):
    assert max(map(len, experiments()[name].read_text().splitlines())) <= 130


def test_spatial_shifts_are_the_closest_readings():
    spec = Spec.read(experiments()["table3"])
    assert spec.threats["rotations"].threat == threats.PAPER_ROTATION
    assert spec.threats["translations"].threat == threats.PAPER_TRANSLATION


def test_a_defence_is_the_same_wherever_it_has_the_same_name():
    """And its name says what it is."""
    found = {}
    for name in set(SHOWN) - {"figure1"}:  # other points, other radii
        for title, defence in Spec.read(experiments()[name]).defences.items():
            settings = dict(getattr(defence, "settings", {}))
            assert found.setdefault(title, settings) == settings
            if title == "standard":
                continue
            radius = {"linf": 16 / 255, "l2": 1.0}[settings["norm"]]
            if "top-10" in title:
                radius /= 2  # trained with half the radius
                radius *= 288 / 32 if settings["norm"] == "l2" else 1  # a Euclidean length grows with the side
            if settings["radius"] != radius:
                assert isinstance(settings["radius"], drq.Calibrated)
                assert "calibrated" in title or title == f"DRQ c={settings['radius'].confidence}"
            assert settings.get("classes") == (10 if "top-10" in title else None)
    assert len(found) == 1 + 8 + 1 + 3 + 7 + 8


@pytest.mark.parametrize("name", PRINTED)
def test_every_printed_number_is_measured(name):
    """By the same names, in the same suite; a worst case over several threats."""
    planned = plan(name)
    for cell in cells(name):
        if cell["model"] == SECOND and SECOND not in {task.model for task in planned}:
            continue
        rows = [
            task
            for task in planned
            if (task.model, starred(task.data)) == (cell["model"], cell["data"])
            and cell["defence"] in task.defences
            and task.trial.suite == cell["suite"]
            and task.trial.victim == "base"
        ]
        titles = {task.trial.title for task in rows}
        assert len(titles) > 1 if cell["threat"] == "worst case" else cell["threat"] in titles, cell
        if "*" in cell["data"]:
            assert len({task.data for task in rows}) == 15


@pytest.mark.parametrize("name", [name for name in PRINTED if name != "section5"])
def test_every_row_of_a_spec_is_printed(name):
    """But for what is ours: more threats, stand-ins, and the undefended model beside Table 8, Figure 3 and Figure 5."""
    printed = {(cell["model"], cell["data"], cell["suite"], cell["defence"]) for cell in cells(name)}
    for task in plan(name):
        if task.model.startswith(("robustbench:", "denoised:robustbench:")) and task.threat not in OURS:
            left_out = {"standard"} if name in ("table8", "figure3", "figure5") else set()
            for defence in set(task.defences) - left_out:
                assert (task.model, starred(task.data), task.trial.suite, defence) in printed


def test_models_that_were_trained_in_l2_are_attacked_in_l2():
    for task in plan("table4"):
        norm, radius = ("l2", 0.5) if "/L2/" in task.model or task.model == "cifar10-l2" else ("linf", 8 / 255)
        if task.trial.title != "APGD-L2":
            assert (task.trial.threat.norm, task.trial.threat.radius) == (as_norm(norm), radius)


def evaluated(name: str, folder: Path, limit: int):
    """The records of a spec on fewer samples."""
    table = tomllib.loads(experiments()[name].read_text()) | {"name": name, "limit": limit}
    table["threats"] = {key: {**value, "limit": limit} for key, value in table["threats"].items()}
    return evaluate(table, folder).records


def test_figure1(tmp_path):
    records = evaluated("figure1", tmp_path, 40)
    assert records.height == 3 * 40
    assert records["radius"].min() > 0


@pytest.mark.slow
def test_digits(tmp_path):
    records = evaluated("digits", tmp_path, 4)
    assert records.height == 4 * (7 * 3 + 2)  # seven threats for three defences, the red team on two
    assert set(records["suite"]) == {"clean", "noise", "blur", "rotation", "translation", "attacks", "red team"}

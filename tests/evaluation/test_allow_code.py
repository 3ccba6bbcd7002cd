"""Names in files that run code: refused at every entry, unless they are allowed; typed or given in Python they are.

The canary is a module that leaves a file behind once it is imported, and another once it is called.
"""

import json
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from testbed.refusals import refused

import drq
from drq.commands.cli import main
from drq.evaluation import paper
from drq.evaluation.sources import as_spec
from drq.playground.sample_html import rerun_decision
from drq.report import run_report
from drq.system.code import refuse_code

pytest.importorskip("sklearn")

CANARY = """
    from dataclasses import dataclass
    from pathlib import Path
    import drq

    HERE = Path(__file__).parent
    (HERE / "imported").touch()

    def model():
        (HERE / "called").touch()
        return drq.load_model("digits")

    def defended(model):
        (HERE / "called").touch()
        return model

    def darker(x):
        (HERE / "called").touch()
        return x / 2

    @dataclass(frozen=True)
    class Search(drq.Gradient):
        pass
"""
STANDARD = {"standard": {}}
BASE = {"models": ["digits"], "data": ["digits"], "limit": 2, "defences": STANDARD}
PGD = {"threat": "PGD", "norm": "linf", "radius": 0.1, "steps": 1}
SEARCHED = {"norm": "linf", "radius": 0.1, "explore": {"search": "python:canary:Search", "steps": 1}, "quantify": "Random"}
TABLES = {
    "a model": BASE | {"models": ["python:canary:model"]},
    "a model behind another name": BASE | {"models": ["digits", "denoised:python:canary:model"]},
    "a model in a group": {
        "groups": [{"models": ["python:canary:model"], "data": ["digits"]}],
        "limit": 2,
        "defences": STANDARD,
    },
    "a defence": BASE | {"defences": {"mine": {"defence": "python:canary:defended"}}},
    "a defence by the name of its table": BASE | {"defences": {"python:canary:defended": {}}},
    "a search": BASE | {"defences": {"mine": SEARCHED}},
    "a search in a nested table": BASE | {"defences": {"mine": {"explore": {"smooth": {"attack": ["python:canary:Search"]}}}}},
    "views": BASE | {"defences": {"mine": {"views": "Mirror() + python:canary:darker"}}},
    "views of a peer": BASE | {"defences": {"its": {"views": "(python:canary:darker) * Mirror()"}}},
    "views in a list": BASE | {"defences": {"mine": {"views": ["Mirror() + python:canary:darker"]}}},
    "views in a nested table": BASE
    | {"threats": {"mine": {"threat": "Transfer", "attack": {"views": "(python:canary:darker)"}}}},
    "a threat": BASE | {"threats": {"mine": {"threat": "python:canary:Search"}}},
    "a threat by the name of its table": BASE | {"threats": {"python:canary:Search": {}}},
    "a threat in a threat": BASE | {"threats": {"mine": {"threat": "Transfer", "attack": {"threat": "python:canary:Search"}}}},
}
RUNNING = [  # that are whole specs
    *("a model", "a model in a group", "a defence", "a defence by the name of its table", "a search"),
    *("views", "views of a peer"),
]
WORDS = ["must not run code unasked, got", "python:canary:", "read what it would run, then pass --allow-code (allow_code=True"]


@pytest.fixture(autouse=True)
def canary(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "canary"
    folder.mkdir()
    (folder / "canary.py").write_text(textwrap.dedent(CANARY))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "canary", raising=False)
    monkeypatch.chdir(tmp_path)
    return folder


def toml(value) -> str:
    """A value in one line of TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(each)}" for key, each in value.items()) + "}"
    return "[" + ", ".join(map(toml, value)) + "]" if isinstance(value, list) else json.dumps(value)


def written(table, ending) -> str:
    path = Path(f"theirs.{ending}")
    lines = "".join(f"{key} = {toml(value)}\n" for key, value in table.items())
    path.write_text(json.dumps(table) if ending == "json" else lines)
    return str(path)


def silent(canary: Path) -> bool:
    return sorted(each.name for each in canary.iterdir()) == ["canary.py"]


def said(capsys) -> str:
    """The one line that a mistake is told in."""
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1, errors
    return errors


@pytest.mark.parametrize("ending", ["toml", "json"])
@pytest.mark.parametrize("name", TABLES)
def test_a_spec_is_refused(name, ending, canary, capsys):
    path = written(TABLES[name], ending)
    for call in (drq.Spec.read, as_spec, drq.evaluate):
        refused(call, path, words=[f"theirs.{ending}", *WORDS])
    refused(drq.evaluate, path, "elsewhere", words=WORDS)
    assert main(["evaluate", path]) == 2
    assert f"theirs.{ending} must not run code unasked" in said(capsys)
    assert silent(canary)
    assert not Path("runs").exists()


@pytest.mark.parametrize("ending", ["toml", "json"])
@pytest.mark.parametrize("name", RUNNING)
def test_a_spec_is_run_where_it_is_allowed(name, ending, canary):
    path = written(TABLES[name], ending)
    assert drq.evaluate(path, "mine", allow_code=True).records.height == 2
    assert (canary / "imported").exists()
    assert drq.Spec.read(path, allow_code=True).hash == as_spec(path, allow_code=True).hash
    assert main(["evaluate", path, "--allow-code", "--quiet"]) == 0
    assert drq.Run.open("runs/theirs").records.height == 2


@pytest.mark.parametrize("name", RUNNING)
def test_what_is_given_in_python_is_run(name, canary):
    assert drq.evaluate(TABLES[name], "mine").records.height == 2
    assert drq.evaluate(drq.Spec(**TABLES[name]), "again").records.height == 2
    assert not silent(canary)


@pytest.fixture
def kept(monkeypatch) -> Callable[[dict], Path]:
    """Makes the run of a table, with images; then the canary forgets that it was."""

    def made(table) -> Path:
        run = drq.evaluate(table | {"keep_images": 2, "threats": {"PGD": PGD}}, "theirs")
        for name in ("imported", "called"):
            Path("canary", name).unlink(missing_ok=True)
        monkeypatch.delitem(sys.modules, "canary", raising=False)
        return run.path

    return made


@pytest.mark.parametrize("name", RUNNING)
def test_a_run_goes_on_only_where_it_is_allowed(name, kept, canary, capsys):
    path = kept(TABLES[name])
    refused(drq.evaluate, path, words=["run.json", *WORDS])
    assert main(["evaluate", str(path)]) == 2
    assert "run.json must not run code unasked" in said(capsys)
    assert silent(canary)
    assert main(["evaluate", str(path), "--allow-code", "--quiet"]) == 0
    assert not silent(canary)


@pytest.mark.parametrize("name", RUNNING)
def test_a_report_runs_nothing(name, kept, canary):
    """It has no use for leave: it is made of records."""
    path = kept(TABLES[name])
    assert main(["report", str(path), "--compare", str(path)]) == 0
    assert main(["report", str(path), "--format", "csv"]) == 0
    assert main(["report", str(path), "--allow-code"]) == 2
    run = drq.Run.open(path)
    assert len(run_report.records_of(run)) == 2
    assert "python:canary" in Path(path, "report.html").read_text()
    assert silent(canary)


def test_an_experiment_by_its_name(canary, monkeypatch, capsys):
    folder = Path("experiments")
    folder.mkdir()
    Path(written(TABLES["a model"], "toml")).rename(folder / "theirs.toml")
    (folder / paper.PAPER).write_text("")
    monkeypatch.setattr(paper, "PLACES", (folder,))
    refused(drq.evaluate, "theirs", words=["theirs.toml", *WORDS])
    assert main(["evaluate", "theirs"]) == 2
    assert "theirs.toml must not run code unasked" in said(capsys)
    assert silent(canary)
    assert main(["evaluate", "theirs", "--allow-code", "--quiet"]) == 0
    assert not silent(canary)


def test_what_is_typed_is_run(canary):
    assert main(["models", "python:canary:model"]) == 0
    assert (canary / "called").exists()
    (canary / "called").unlink()
    little = ["--norm", "linf", "--radius", "0.1", "--images", "1", "--quiet"]
    assert main(["redteam", "--defence", "python:canary:defended", *little]) == 0
    assert (canary / "called").exists()
    assert main(["redteam", "--set", "explore=python:canary:Search", "--set", "quantify=Random", *little, "--out", "other"]) == 0
    assert main(["redteam", "--views", "Mirror() + python:canary:darker", *little, "--out", "views"]) == 0
    assert drq.Run.open("other").about["source"]["defences"]["drq"]["explore"] == "python:canary:Search"


def test_the_playground_runs_no_views_unasked(canary):
    """What DRQ said of a sample is computed again from the settings in run.json."""
    settings = drq.Spec(**TABLES["views"]).contents["defences"]["mine"]
    assert settings == {"defence": "drq", "views": "Mirror() + python:canary:darker"}
    for name in ("imported", "called"):
        Path(canary, name).unlink(missing_ok=True)
    image = drq.load_data("digits").batch([0])[0][0]
    assert rerun_decision("digits", settings, image) is None
    assert silent(canary)
    assert rerun_decision("digits", settings, image, allow_code=True).passes.tolist() == [3]
    assert (canary / "called").exists()


def test_where_it_stands_is_told_and_long_names_are_cut():
    nested = {"groups": [{"models": ["digits", "python:a:b?" + 300 * "x"]}]}
    message = refused(refuse_code, nested, "x.toml", False, words=["groups[0].models[1] = 'python:a:b?xxx", "...'"])
    assert len(message) < 400
    refused(refuse_code, {"a": {"python:os:system": {}}}, "x.toml", False, words=["a key in a = 'python:os:system'"])
    for harmless in ("about python: and others", "pythonic:a:b", "torchvision:resnet50", "file:python.safetensors", "Python:a:b"):
        refuse_code({"title": harmless}, "x.toml", allow_code=False)


def test_depth_is_no_way_round():
    deep: object = "python:os:system"
    for _ in range(20_000):
        deep = [deep]
    assert len(refused(refuse_code, deep, "x.json", False, words=["must not run code unasked"])) < 400

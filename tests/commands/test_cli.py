"""The command line: exit statuses, one line for every mistake, and clean output for people and programs."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
from typer.main import get_command

import drq
from drq.commands import cli

DRQ = [sys.executable, "-m", "drq"]


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """A cache that holds a hastily trained model in place of the demonstration's own."""
    pytest.importorskip("sklearn")
    from drq.data.digits import split
    from drq.models import digits, weights

    folder = tmp_path_factory.mktemp("cache")
    weights.write(digits.train(digits.Recipe(epochs=1), split()[0]), folder / digits.Recipe().file_name, half=False)
    return folder


@pytest.fixture
def command(monkeypatch, capfd, cache):
    monkeypatch.setenv("DRQ_CACHE", str(cache))

    def run(*arguments):
        status = cli.main(arguments)
        return status, *capfd.readouterr()

    return run


MISTAKES = {
    ("demo", "--images", "0"): r"images must lie between 1 and 500.*got 0",
    ("demo", "--images", "-3"): r"images must .*got -3",
    ("demo", "--images", "99999"): r"images must .*got 99999",
    ("demo", "--images", "many"): r"--images.*many.*see drq demo --help",
    ("demo", "--images"): r"--images.*requires an argument.*see drq",
    ("demo", "--seed", "-1"): r"seed must .*got -1",
    ("demo", "--colour"): r"--colour.*see drq demo --help",
    ("demo", "extra"): r"extra.*see drq demo --help",
    ("dmeo",): r"dmeo.*see drq --help",
    ("--colour",): r"--colour.*see drq --help",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line_and_status_2(arguments, command):
    status, output, errors = command(*arguments)
    assert status == 2
    assert output == ""
    assert re.fullmatch(r"drq: [^\n]+\n", errors)
    assert re.search(MISTAKES[arguments], errors)


def test_a_missing_extra_is_named(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    status, output, errors = command("demo")
    assert (status, output) == (2, "")
    assert "pip install 'decision-region-quantification[demo]'" in errors
    assert errors.count("\n") == 1


def test_an_interruption_is_one_line_and_status_130(command, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("drq.commands.demo.tour", interrupt)
    assert command("demo") == (130, "", "drq: interrupted\n")


def test_a_bug_is_not_hidden(command, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("drq.commands.demo.tour", fail)
    with pytest.raises(ZeroDivisionError):
        command("demo")


def test_version(command):
    assert command("--version") == (0, f"drq {drq.__version__}\n", "")


GROUP = get_command(cli.app)


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",), *((name, "--help") for name in GROUP.commands)], ids=" ".join)
def test_help_fits_a_screen(arguments, command):
    status, output, errors = command(*arguments)
    assert (status, errors) == (0, "")
    assert f"drq {arguments[0] if len(arguments) == 2 else 'demo'}" in output
    assert output.count("\n") <= 42
    assert max(map(len, output.splitlines())) <= 80
    assert "\b" not in output
    assert "\\b" not in output


@pytest.mark.parametrize("name", GROUP.commands)
def test_help_of_every_option_is_a_sentence(name):
    helps = [option.help for option in GROUP.commands[name].params if not getattr(option, "hidden", False)]
    assert helps
    assert not [each for each in helps if not re.fullmatch(r"\S+ .*\w\.", each or "")]


@pytest.mark.parametrize("name", GROUP.commands)
def test_examples_can_be_typed(name, command):
    """Every command has some, on lines of their own; what they say is understood, up to what runs."""
    _, output, _ = command(name, "--help")
    lines = output.partition("Examples:\n")[2].splitlines()
    assert len(lines) >= 2
    for line in lines:
        program, given, *rest = shlex.split(line.partition(">")[0])
        assert (program, given) == ("drq", name)
        GROUP.commands[name].make_context(name, rest)


def test_examples_that_cannot_be_typed_would_be_found():
    with pytest.raises(Exception, match="--colour"):
        GROUP.commands["predict"].make_context("predict", ["photo.jpg", "--colour"])


def test_help_teaches_the_library(command):
    _, output, _ = command("--help")
    assert re.search(r"^ +In Python: +robust = drq.DRQ\(model.*\)\n +robust\(x\) ", output, re.MULTILINE)


@pytest.fixture
def short(monkeypatch, tmp_path):
    """A tour that takes a second."""
    few = {"search": "Gradient", "steps": 3}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "drq.commands.demo.tour",
        lambda images, seed: drq.Spec(
            name="drq-demo",
            models=["digits"],
            data=["digits"],
            limit=images,
            seed=seed,
            rounding=False,
            threats={"clean": None, "noise": {"threat": "GaussianNoise", "deviation": 0.45}},
            defences={"standard": {}, "DRQ": {"defence": "drq", "explore": few, "quantify": few}},
        ),
    )


@pytest.mark.usefixtures("short")
def test_json_matches_the_table(command):
    status, output, errors = command("demo", "--images", "4", "--json")
    assert (status, errors) == (0, "")
    outcome = json.loads(output)
    status, shown, errors = command("demo", "--images", "4", "--quiet")  # the run is there: only the table is made
    assert (status, errors) == (0, "")
    assert "\x1b" not in shown
    assert "\r" not in shown
    for threat in ("clean", "noise"):
        (line,) = [line for line in shown.splitlines() if line.strip().startswith(threat)]
        alone, drq_ = [row for row in outcome["accuracy"] if row["threat"] == threat]
        assert alone["images"] == drq_["images"] == 4
        assert drq_["correct"] == alone["correct"] + drq_["fixed"] - drq_["spoiled"]
        expected = [f"{alone['accuracy']:.1f} [{alone['low']:.0f}, {alone['high']:.0f}]"]
        star = "*" if drq_["p_value"] < 0.05 else " "
        expected.append(f"{drq_['accuracy']:.1f} {drq_['difference']:+.1f}{star} (+{drq_['fixed']} -{drq_['spoiled']})")
        assert re.split(r"\s{2,}(?!\()", line.strip())[1:] == expected
    assert all(line in shown for line in outcome["verdict"] + outcome["cost"])
    assert outcome["report"] in shown


@pytest.mark.usefixtures("short")
def test_a_cache_that_cannot_be_written_costs_a_line(command, monkeypatch, tmp_path):
    from drq.models import digits

    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DRQ_CACHE", str(tmp_path / "file" / "cache"))
    hasty = digits.Recipe(epochs=1)
    monkeypatch.setattr(digits, "Recipe", lambda **_: hasty)
    status, output, errors = command("demo", "--images", "1", "--json")
    assert status == 0
    assert json.loads(output)["accuracy"][0]["images"] == 1
    assert re.fullmatch(r"(drq: [^\n]*cannot be kept[^\n]*\n)+", errors)


EVALUATION_MISTAKES = {
    ("evaluate",): r"spec must be given.*--list",
    ("evaluate", "tabel4"): r"spec must be .*got 'tabel4': did you mean table4",
    ("evaluate", "none.toml"): r"spec must be a TOML file.*No such file",
    ("evaluate", "digits", "--engine", "rya"): r"engine must be one of local, ray.*did you mean ray",
    ("evaluate", "digits", "--device", "abacus"): r"device must be one that this machine has.*abacus",
    ("evaluate", "digits", "--workers", "0", "--engine", "ray"): r"workers must be .*got 0",
    ("report", "nowhere"): r"run must be the directory of a run.*nowhere",
    ("report",): r"RUN.*see drq report --help",
}


@pytest.mark.parametrize("arguments", EVALUATION_MISTAKES, ids=" ".join)
def test_a_mistake_in_an_evaluation_is_one_line(arguments, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, output, errors = command(*arguments)
    assert (status, output) == (2, "")
    assert re.fullmatch(r"drq: [^\n]+\n", errors), errors
    assert re.search(EVALUATION_MISTAKES[arguments], errors), errors
    assert not [*tmp_path.iterdir()]


SPEC = """
title = "a short one"
models = ["digits"]
data = ["digits"]
limit = 4
shard = 2
rounding = false
[threats.clean]
[defences.standard]
[defences.DRQ]
defence = "drq"
explore = { search = "Gradient", steps = 2 }
quantify = { search = "Gradient", steps = 2 }
"""


@pytest.fixture
def short_spec(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.toml").write_text(SPEC)


@pytest.mark.usefixtures("short_spec")
def test_evaluate_then_report(command, tmp_path):
    status, output, errors = command("evaluate", "short.toml", "--quiet")
    assert (status, errors) == (0, "")
    assert "drq report runs/short" in output
    assert len(drq.Run.open("runs/short").records) == 8
    status, output, errors = command("report", "runs/short")
    assert (status, output, errors) == (0, "runs/short/report.html\n", "")
    assert "a short one" in (tmp_path / "runs" / "short" / "report.html").read_text()
    for form, mark in {"markdown": "| threat", "latex": r"\toprule", "csv": "model,data"}.items():
        status, output, errors = command("report", "runs/short", "--format", form)
        assert (status, errors) == (0, "")
        assert mark in output
    status, output, _ = command("report", "runs/short", "--compare", "runs/short", "--out", "both.html")
    assert (status, output) == (0, "both.html\n")
    assert command("report", "runs/short", "--format", "pdf")[0] == 2


@pytest.mark.usefixtures("short_spec")
def test_events_are_json_lines_and_a_run_goes_on_by_its_directory(command):
    status, output, errors = command("evaluate", "short.toml", "--json")
    assert (status, errors) == (0, "")
    events = [json.loads(line) for line in output.splitlines()]
    assert [each["what"] for each in events if each["what"] != "begin"] == ["plan", "start", "shard", "shard", "done"]
    assert events[-1]["done"] == events[-1]["total"] == 4
    status, output, _ = command("evaluate", "runs/short", "--json")
    assert status == 0
    assert [json.loads(line)["what"] for line in output.splitlines()] == ["start", "done"]


@pytest.mark.usefixtures("short_spec")
def test_an_interrupted_evaluation_says_how_to_go_on(command, monkeypatch):
    from drq.evaluation import engines

    judge, calls = engines.judge, []

    def second_is_interrupted(*given):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return judge(*given)

    monkeypatch.setattr(engines, "judge", second_is_interrupted)
    status, output, errors = command("evaluate", "short.toml", "--quiet")
    assert (status, output) == (130, "")
    assert errors == "drq: runs/short keeps what was done: the same command goes on\ndrq: interrupted\n"
    assert len(drq.Run.open("runs/short").records) == 4
    assert command("evaluate", "short.toml", "--quiet")[0] == 0
    assert len(calls) == 3


@pytest.mark.usefixtures("short_spec")
def test_an_unfinished_run_is_reported_as_such(command, tmp_path):
    assert command("evaluate", "short.toml", "--quiet")[0] == 0
    assert command("report", "runs/short")[2] == ""
    page = tmp_path / "runs" / "short" / "report.html"
    assert "not finished" not in page.read_text()
    assert "drq evaluate runs/short" in page.read_text()  # how to repeat it
    about = json.loads((tmp_path / "runs" / "short" / "run.json").read_text())
    about["tasks"][0]["samples"] = 9
    (tmp_path / "runs" / "short" / "run.json").write_text(json.dumps(about))
    status, _, errors = command("report", "runs/short")
    assert status == 0
    assert "is not finished: 8 of 18 rows" in errors
    assert "This run is not finished" in page.read_text()


def test_experiments_are_listed(command):
    status, output, _ = command("evaluate", "--list", "--json")
    assert status == 0
    assert json.loads(output)["table4"].startswith("Table 4: ")


def test_importing_the_library_leaves_the_command_line_alone():
    script = "import sys, drq; sys.exit(bool({'typer', 'rich', 'sklearn', 'drq.commands'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("arguments", [["--help"], ["threats"]], ids=" ".join)
def test_a_reader_that_leaves_early_causes_no_traceback(arguments, cache):
    read, write = os.pipe()
    os.close(read)
    environment = os.environ | {"DRQ_CACHE": str(cache)}
    done = subprocess.run([*DRQ, *arguments], stdout=write, stderr=subprocess.PIPE, env=environment, check=False)
    os.close(write)
    assert done.returncode == 1
    assert done.stderr == b""

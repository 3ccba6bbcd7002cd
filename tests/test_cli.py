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
from drq import cli

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

    monkeypatch.setattr("drq.demo.demonstrate", interrupt)
    assert command("demo") == (130, "", "drq: interrupted\n")


def test_a_bug_is_not_hidden(command, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("drq.demo.demonstrate", fail)
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


def test_json_matches_the_table(command):
    status, output, errors = command("demo", "--images", "4", "--json")
    assert (status, errors) == (0, "")
    outcome = json.loads(output)
    assert outcome["images"] == 4
    status, shown, errors = command("demo", "--images", "4", "--quiet")
    assert (status, errors) == (0, "")
    assert "\x1b" not in shown
    assert "\r" not in shown
    for shift, row in outcome["tallies"].items():
        (line,) = [line for line in shown.splitlines() if line.strip().startswith(shift)]
        low, high = row["standard"]["interval"]
        expected = [f"{row['standard']['accuracy']:.1f} [{low:.1f}, {high:.1f}]"]
        for method in ("linf", "l2"):
            cell = row[method]
            assert cell["correct"] == row["standard"]["correct"] + cell["fixed"] - cell["spoiled"]
            star = "*" if cell["p_value"] < 0.05 else " "
            expected.append(f"{cell['accuracy']:.1f} {cell['difference']:+.1f}{star} (+{cell['fixed']} -{cell['spoiled']})")
        assert re.split(r"\s{2,}(?!\()", line.strip())[1:] == expected
    for name in ("passes", "trusted_half"):
        assert all(f"{share:.{name == 'trusted_half':d}f}" in shown for share in outcome[name].values())
    assert "can undo its gain" in shown


def test_a_cache_that_cannot_be_written_costs_one_line(command, monkeypatch, tmp_path):
    from drq.models import digits

    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DRQ_CACHE", str(tmp_path / "file" / "cache"))
    hasty = digits.Recipe(epochs=1)
    monkeypatch.setattr(digits, "Recipe", lambda _: hasty)
    status, output, errors = command("demo", "--images", "1", "--json")
    assert status == 0
    assert json.loads(output)["images"] == 1
    assert re.fullmatch(r"drq: [^\n]*cannot be kept[^\n]*\n", errors)


def test_importing_the_library_leaves_the_command_line_alone():
    script = "import sys, drq; sys.exit(bool({'typer', 'rich', 'sklearn', 'drq.demo', 'drq.cli'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--images", "1"]], ids=" ".join)
def test_a_reader_that_leaves_early_causes_no_traceback(arguments, cache):
    read, write = os.pipe()
    os.close(read)
    environment = os.environ | {"DRQ_CACHE": str(cache)}
    done = subprocess.run([*DRQ, *arguments], stdout=write, stderr=subprocess.PIPE, env=environment, check=False)
    os.close(write)
    assert done.returncode == 1
    assert done.stderr == b""

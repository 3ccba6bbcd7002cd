"""The Tab key: what it offers is what there is, in every shell, and it waits for nothing."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import drq
from drq.commands import cli, completion


def complete(shell, line, monkeypatch, capfd):
    """What is offered for the last word of a line, as each shell asks for it."""
    words = line.split(" ")
    asked = {
        "bash": {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }
    for name, value in {"_DRQ_COMPLETE": f"complete_{shell}", **asked[shell]}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as done:
        cli.main([])
    assert done.value.code == 0
    output, errors = capfd.readouterr()
    assert errors == ""
    return output


SHELLS = ["bash", "zsh", "fish"]
LINES = {
    "drq pre": ["predict"],
    "drq predict --abst": ["--abstain-below"],
    "drq predict a.png --model cifar10-s": ["cifar10-small"],
    "drq predict --norm l": ["linf", "l2", "l1"],
    "drq predict --device cu": ["cuda"],
    "drq predict --preset u": ["upright"],
    "drq predict --vie": ["--views"],
    "drq thr": ["threshold", "threats"],
    "drq evaluate --def": ["--defence"],
    "drq evaluate --data fash": ["fashion-mnist"],
    "drq models dig": ["digits"],
    "drq data imagenet-": ["imagenet-c/", "imagenet-a", "imagenet-r"],
    "drq data cifar10-c/fo": ["cifar10-c/fog"],
    "drq data digits --split t": ["test", "train"],
    "drq redteam --defence an": ["anti-adversary"],
    "drq redteam --defence it": ["its"],
    "drq redteam --defence z": ["zero"],
    "drq redteam --preset gu": ["guarded"],
    "drq predict photo": [],  # files are found by the shell
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("line", LINES)
def test_what_is_offered(shell, line, monkeypatch, capfd):
    output = complete(shell, line, monkeypatch, capfd)
    if shell == "bash":
        assert output.split() == LINES[line]
    elif shell == "fish":
        assert [each.split("\t")[0] for each in output.splitlines() if each] == LINES[line]
    elif not LINES[line]:
        assert output == "_files\n"
    else:  # each as "name" or "name":"help"
        assert re.findall(r'"([^"]+)"(?::"[^"]*")?', output) == LINES[line]


def test_names_are_those_that_there_are():
    """A model of a source is completed up to the colon, a corruption up to the slash."""
    models = [entry.name for entry in drq.models.list()]
    ours = [
        name if ":" not in name or name.startswith(("published:", "robustbench:")) else name.partition(":")[0] + ":"
        for name in models
    ]
    assert completion.model_names() == ours
    patterns = [entry.name for entry in drq.data.list()]
    assert completion.data_names("") == [each.partition("KIND")[0].partition("NAME")[0] for each in patterns]
    assert completion.data_names("cifar10-c/fo") == [f"cifar10-c/{kind}" for kind in drq.threats.corruptions.KINDS]


def test_names_are_listed_without_what_they_stand_for():
    code = (
        "import sys; from drq.commands import completion; from drq import registry; "
        "assert completion.model_names() and completion.data_names('') and completion.data_names('cifar10-c/'); "
        "assert all(completion.complete_with(each)() for each in (registry.NORMS, registry.PRESETS)); "
        "print(*sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout
    assert output == "\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_its_script(shell, monkeypatch, capfd):
    monkeypatch.setenv("_DRQ_COMPLETE", f"source_{shell}")
    with pytest.raises(SystemExit) as done:
        cli.main([])
    assert done.value.code == 0
    assert f"_DRQ_COMPLETE=complete_{shell}" in capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes(tmp_path):
    """The script as bash runs it, with the command as it is installed."""
    program = tmp_path / "drq"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m drq "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(Path(drq.__file__).parents[1])}
    script = """
        source <(_DRQ_COMPLETE=source_bash drq)
        COMP_WORDS=(drq predict --model cifar10-s) COMP_CWORD=3
        $(complete -p drq | sed 's/.*-F \\([^ ]*\\) .*/\\1/') drq
        echo "${COMPREPLY[@]}"
    """
    command = ["bash", "--norc", "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("cifar10-small\n", "")

"""``drq models``, ``drq data`` and ``drq threats``: one line on each, and all that is known of one."""

import json
import re

import pytest

import drq
from drq.commands import cli


def told(capfd, *arguments):
    status = cli.main(arguments)
    return status, *capfd.readouterr()


@pytest.mark.parametrize("kind", ["models", "data"])
def test_what_there_is_has_one_line_on_each(kind, capfd):
    entries = getattr(drq, kind).list()
    status, output, _ = told(capfd, kind)
    assert status == 0
    for entry in entries:
        sign = "+" if entry.present else "-"
        assert f"{sign} {entry.name}\n    {entry.summary}\n" in output
    status, output, _ = told(capfd, kind, "--json")
    assert json.loads(output) == [entry._asdict() for entry in entries]


def test_a_card_is_shown(capfd):
    status, output, _ = told(capfd, "models", "cifar10-small")
    assert status == 0
    assert re.search(r"^norm +linf$", output, re.MULTILINE)
    status, output, _ = told(capfd, "models", "cifar10-small", "--json")
    assert json.loads(output)["sha256"] == drq.load_model("cifar10-small").card.sha256


def test_a_data_set_is_described(capfd):
    status, output, _ = told(capfd, "data", "digits", "--json")
    assert status == 0
    found = json.loads(output)
    assert (found["images"], found["shape"], len(found["classes"])) == (500, [1, 8, 8], 10)
    assert told(capfd, "data", "digits", "--split", "train")[1].count("1297") == 1


def test_missing_data_says_how_to_get_it(capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("DRQ_DATA", str(tmp_path))
    status, output, errors = told(capfd, "data", "cifar10")
    assert (status, output) == (2, "")
    assert "drq data cifar10 --download" in errors
    assert errors.count("\n") == 1

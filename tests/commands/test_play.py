"""``drq play``: what is missing and what is mistaken is said in one line."""

import sys

import pytest

from drq.commands import cli


def test_the_command_says_what_is_missing(monkeypatch, capfd, tmp_path):
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert cli.main(["play", str(tmp_path), "--no-browser"]) == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert "pip install 'decision-region-quantification[app]'" in error


@pytest.mark.parametrize("arguments", [["nowhere-at-all"], [".", "--port", "70000"], [".", "--port", "0"]])
def test_the_command_refuses_mistakes_in_one_line(arguments, capfd):
    assert cli.main(["play", "--no-browser", *arguments]) == 2
    assert capfd.readouterr().err.count("\n") == 1

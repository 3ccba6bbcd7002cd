"""What ``drq redteam`` asks for, and what it says."""

import json
from fractions import Fraction

import pytest
from testbed.refusals import refused

from drq import threats
from drq.commands.cli import main
from drq.commands.redteam import parse_settings, red_team_spec, trained_on


def test_attacks_follow_the_training():
    spec = red_team_spec("cifar10-small", settings={"alpha": 0.25}, images=7, strength="full")
    attacks = {name: each.threat for name, each in spec.threats.items()}
    assert attacks["clean"] is None
    assert attacks["red team"] == threats.RedTeam("linf", 8 / 255, "full")
    assert attacks["APGD"] == threats.APGD("linf", 8 / 255, 100)
    assert {name: each.victim for name, each in spec.threats.items()} == {"clean": "base", "APGD": "base", "red team": "defence"}
    assert spec.defences["drq"].record == {"defence": "drq", "alpha": 0.25}
    assert (spec.limit, spec.data, spec.quick) == (7, ("cifar10",), True)


def test_attacks_can_be_told():
    spec = red_team_spec("gaussians-svm", data="gaussians", norm="l2", radius="1/8")
    for written in ("0.125", 0.125):  # as on a command line, and in Python
        assert red_team_spec("gaussians-svm", data="gaussians", norm="l2", radius=written).hash == spec.hash
    assert spec.threats["red team"].threat == threats.RedTeam("l2", float(Fraction("1/8")))
    refused(red_team_spec, "gaussians-svm", data="gaussians", words=["norm must be given", "--norm linf --radius 8/255"])
    refused(red_team_spec, "gaussians-svm", data="gaussians", norm="l2", words=["radius must be given"])


@pytest.mark.parametrize(
    ("model", "data"),
    [
        ("digits", "digits"),
        ("denoised:cifar10-linf", "cifar10"),
        ("robustbench:imagenet/Linf/Wong2020Fast", "imagenet"),
        ("gaussians-svm", "gaussians"),
    ],
)
def test_names_say_what_a_model_was_trained_on(model, data):
    assert trained_on(model) == data


def test_a_name_may_say_nothing():
    refused(trained_on, "timm:resnet50", words=["data must be given", "--data"])


def test_settings_on_a_command_line():
    assert parse_settings(["a=1", "b=-0.5", "c=true", "d=l2", "e=8/255"]) == {
        "a": 1,
        "b": -0.5,
        "c": True,
        "d": "l2",
        "e": "8/255",
    }
    for wrong in ("alpha", "=3", "alpha="):
        refused(parse_settings, [wrong], words=["NAME=VALUE"])


def test_mistakes_are_one_line(capsys):
    for given in (["--defence", "hegde"], ["--set", "alpa=1"], ["--model", "timm:resnet50"]):
        assert main(["redteam", *given]) == 2
        error = capsys.readouterr().err.strip()
        assert error.startswith("drq: ")
        assert "\n" not in error


@pytest.mark.slow
def test_it_gives_a_verdict(tmp_path, capsys):
    out = str(tmp_path / "run")
    asked = ["redteam", "--images", "3", "--out", out, "--set", "alpha=0.5", "--set", "radius=0.3", "--set", "norm=linf"]
    assert main([*asked, "--quiet"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "gain survives" in text
    assert "static worst case" in text
    assert main([*asked, "--json"]) == 0  # the run is there
    assert json.loads(capsys.readouterr().out)["survives"].keys() == {"drq"}

"""What ``drq redteam`` asks for, and what it says."""

import json
import warnings
from fractions import Fraction

import pytest
from testbed.refusals import refused

import drq
from drq import threats
from drq.commands.app import parse_number
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


@pytest.mark.parametrize("given", ["abc", "8/0", "8/255/2", "", "-8/255"])
def test_a_radius_that_is_no_number_is_one_line(given, capsys):
    assert main(["redteam", "--model", "digits", "--norm", "linf", "--radius", given]) == 2
    error = capsys.readouterr().err.strip()
    assert error == f"drq: --radius must be a number or a fraction, got {given!r}: as in --radius 8/255"


@pytest.mark.parametrize(("given", "radius"), [("8/255", 8 / 255), ("0.25", 0.25), ("0", 0.0), ("1e-2", 0.01)])
def test_a_radius_is_a_number_or_a_fraction(given, radius):
    assert parse_number("--radius", given) == radius
    attack = red_team_spec("cifar10-small", norm="l2", radius=parse_number("--radius", given)).threats["APGD"].threat
    assert attack.radius == radius
    assert parse_number("--radius", None) is None


def test_what_the_package_warns_of_is_one_line(tmp_path, capsys):
    asked = ["redteam", "--images", "1", "--norm", "linf", "--radius", "0.02", "--quiet", "--out", str(tmp_path / "run")]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main([*asked, "--set", "norm=linf", "--set", "radius=8", "--preset", "fast"]) == 0
        kept = warnings.showwarning
    told = [line for line in capsys.readouterr().err.splitlines() if "radius should be small" in line]
    assert len(told) == 1
    assert told[0].startswith("drq: radius should be small beside the box of inputs, got 8 where no input is farther away than ")
    assert kept is warnings.showwarning


LITTLE = ["--images", "2", "--norm", "linf", "--radius", "0.02", "--quiet"]


def attacked(folder, *options) -> dict:
    """What was attacked, as its run tells."""
    assert main(["redteam", *options, *LITTLE, "--out", str(folder)]) == 0
    run = drq.Run.open(folder)
    assert set(run.records.filter(threat="red team")["victim"]) == {"defence"}
    assert (run.records.filter(threat="red team")["threat_passes"] > 100).all()
    (record,) = (each for name, each in run.about["spec"]["defences"].items() if name != "standard")
    return record


def test_views_are_attacked(tmp_path):
    record = attacked(tmp_path / "views", "--views", "Rotation(90, 3) + Mirror()")
    assert record == {"defence": "drq", "views": "Rotation(90, 3) + Mirror()"}
    answers = drq.Run.open(tmp_path / "views").records.filter(defence="drq", threat="red team")
    assert set(answers["passes"]) == set(answers["forward_passes"]) == {4}


@pytest.mark.slow
def test_presets_and_gates_over_views_are_attacked(tmp_path):
    record = attacked(tmp_path / "its", "--defence", "its", "--views", "Mirror()", "--set", "by=entropy")
    assert record == {"defence": "its", "views": "Mirror()", "by": "entropy"}
    record = attacked(tmp_path / "preset", "--preset", "fast", "--views", "Mirror()", "--set", "radius=0.02")
    assert (record["explore"][:16], record["views"], record["radius"]) == ("Gradient(steps=1", "Mirror()", 0.02)
    gate = 'gate={data = "digits:train", count = 100, changes = 0.1}'
    record = attacked(tmp_path / "gated", "--views", "Mirror()", "--set", gate)
    assert record["gate"]["changes"] == 0.1


@pytest.mark.slow
@pytest.mark.parametrize("peer", ["zero", "view-mean"])
def test_rules_over_views_are_attacked(peer, tmp_path):
    assert attacked(tmp_path / peer, "--defence", peer, "--views", "Mirror()")["defence"] == peer


def test_runs_of_other_settings_have_other_names():
    names = [
        red_team_spec("digits", settings=each).name for each in ({}, {"views": "Mirror()"}, {"preset": "fast"}, {"alpha": 1})
    ]
    assert names == ["redteam-digits-drq", "redteam-digits-drq-Mirror", "redteam-digits-drq-fast", "redteam-digits-drq"]
    assert len(red_team_spec("digits", settings={"views": " + ".join(["Mirror()"] * 100)}).name) < 100


def test_mistakes_in_views_are_one_line(capsys):
    for given in (["--views", "Rotate(3)"], ["--preset", "nachts"], ["--defence", "hedge", "--views", "Mirror()"]):
        assert main(["redteam", *given, *LITTLE]) == 2
        error = capsys.readouterr().err.strip()
        assert error.startswith("drq: defences.")
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

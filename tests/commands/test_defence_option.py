"""``--defence FILE``: a file written in one process gives the same answers in another, in Python and in every command."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from testbed.refusals import refused
from testbed.repository import ROOT, reaching
from testbed.stored import QUICK, edited

import drq
from drq.commands.cli import main
from drq.commands.redteam import red_team_spec
from drq.serving.defence_specs import called, spec_of
from drq.serving.settings_table import spec_table

pytest.importorskip("sklearn")
pytest.importorskip("polars")

COUNT = 4
FRESH = """
    import contextlib, io, json, sys
    import torch
    import drq
    from drq.commands.cli import main
    from drq.playground import image_sources
    from drq.playground.comparison import compare
    from drq.playground.jobs import Job
    from drq.playground.offered import offer

    path, pictures = sys.argv[1], sys.argv[2:]
    robust = drq.load_defence(path)
    x = drq.load_data("digits").batch(range(COUNT))[0]
    decision = robust.decide(x)
    found = {"python": decision.margin.tolist(), "labels": decision.label.tolist(), "scores": robust(x).tolist()}
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert main(["predict", *pictures, "--defence", path, "--json", "--quiet"]) == 0
    found["predict"] = json.loads(said.getvalue())
    for name, arguments in {"evaluate": ["--data", "digits"], "redteam": ["--norm", "linf", "--radius", "0.05"]}.items():
        with contextlib.redirect_stdout(io.StringIO()):
            assert main([name, "--defence", path, "--images", "COUNT", "--out", name, "--quiet", *arguments]) == 0
        rows = drq.Run.open(name).records.filter(defence="defence.toml", threat="clean").sort("index")
        found[name] = rows.select("prediction", "margin").rows()
    with offer("defence.toml", robust):
        shown = [compare(each, "nothing", 0.5, 1, Job()) for each in image_sources.images_of("defence.toml")[:COUNT]]
    found["play"] = [(int(each.decision.label), float(each.decision.margin), each.abstains) for each in shown]
    print(json.dumps(found))
""".replace("COUNT", str(COUNT))
SETTINGS = {
    "a ball": {"norm": "linf", "radius": 0.2},
    "views behind a gate": {"views": "Rotation(60, 5) + Shift(1, 5)", "gate": drq.views.Gate(1.5, ahead=20.0)},
    "a calibrated radius": {"norm": "l2", "radius": drq.Calibrated(0.5, steps=20), "alpha": 0.3, "classes": 4},
}


@pytest.fixture(scope="module")
def images():
    return drq.load_data("digits").batch(range(COUNT))[0]


@pytest.fixture
def pictures(images, tmp_path):
    """The same images in files, whose 16 levels of grey a byte holds up to rounding."""
    for number, each in enumerate(images):
        Image.fromarray((each[0] * 255).round().to(torch.uint8).numpy()).save(tmp_path / f"{number}.png")
    return [str(tmp_path / f"{number}.png") for number in range(COUNT)]


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "defence.toml"
    drq.DRQ(drq.load_model("digits"), "linf", 0.2, **QUICK).save(path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_a_fresh_process_gives_the_same_answers(name, images, pictures, tmp_path):
    robust = drq.DRQ(drq.load_model("digits"), **QUICK, **SETTINGS[name])
    decision = robust.decide(images)
    threshold = float(decision.margin.sort().values[1:3].mean())  # two answer, two abstain
    robust.save(tmp_path / "defence.toml", threshold=threshold)
    script = "\n".join(line[4:] for line in FRESH.splitlines())
    command = [sys.executable, "-c", script, str(tmp_path / "defence.toml"), *pictures]
    environment = reaching(ROOT) | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["python"] == decision.margin.tolist()
    assert found["labels"] == decision.label.tolist()
    assert found["scores"] == robust(images).tolist()
    truth = list(zip(decision.label.tolist(), decision.margin.tolist(), strict=True))
    for command in ("evaluate", "redteam"):
        assert [label for label, _ in found[command]] == [label for label, _ in truth]
        assert [margin for _, margin in found[command]] == pytest.approx([margin for _, margin in truth], abs=1e-5)
    assert [(label, abstains) for label, _, abstains in found["play"]] == [(label, margin < threshold) for label, margin in truth]
    read = drq.load_model("digits").card.view
    seen = robust.decide(torch.stack([read(drq.images.read(each)) for each in pictures]))
    assert [each["margin"] for each in found["predict"]] == pytest.approx(seen.margin.tolist(), abs=1e-5)
    below = (seen.margin < threshold).tolist()
    assert [each["abstained"] for each in found["predict"]] == below
    answers = [None if abstained else str(label) for label, abstained in zip(seen.label.tolist(), below, strict=True)]
    assert [each["answer"] for each in found["predict"]] == answers


def predicted(capfd, *arguments):
    assert main(["predict", *arguments, "--json", "--quiet"]) == 0
    return json.loads(capfd.readouterr().out)


def test_answers_follow_an_editor(file, pictures, capfd):
    margins = sorted(each["margin"] for each in predicted(capfd, *pictures, "--defence", str(file)))
    edited(file, "margin = 0.0", f"margin = {margins[1]}")
    found = predicted(capfd, *pictures, "--defence", str(file))
    assert sum(each["abstained"] for each in found) == 1
    assert sum(each["abstained"] for each in predicted(capfd, *pictures, "--defence", str(file), "--abstain-below", "1")) == COUNT
    edited(file, "radius = 0.2", "radius = 0.1")
    edited(file, '"0", "1"', '"null", "eins"')
    again = predicted(capfd, *pictures, "--defence", str(file))
    assert {round(each["radius"], 6) for each in again} == {0.1}
    assert {name["name"] for name in again[0]["classes"]} >= {"null", "eins"}
    assert main(["predict", pictures[0], "--defence", str(file)]) == 0
    assert "which was chosen by hand: nothing is promised" in capfd.readouterr().err


def test_predict_draws_and_tables_as_ever(file, pictures, tmp_path, capfd):
    arguments = ["predict", *pictures[:2], "--defence", str(file), "--explain", str(tmp_path / "why.png"), "--csv", "rows.csv"]
    assert main(arguments) == 0
    assert (tmp_path / "why-2.png").stat().st_size > 0
    assert (tmp_path / "rows.csv").read_text().count("\n") == 3
    assert "2 pictures" in capfd.readouterr().out


def test_tables_of_many_pictures_abstain_as_the_file_says(file, pictures, capfd):
    shown = predicted(capfd, *pictures, "--defence", str(file), "--device", "auto")
    margin = sorted(each["margin"] for each in shown)[2] - 1e-4
    edited(file, "margin = 0.0", f"margin = {margin}")
    assert main(["predict", *pictures, "--defence", file.name, "--out", "rows.csv", "--quiet"]) == 0
    with Path("rows.csv").open(newline="") as rows:
        found = [*csv.DictReader(rows)]
    assert [float(each["margin"]) for each in found] == pytest.approx([each["margin"] for each in shown], abs=1e-5)
    assert [each["abstains"] for each in found] == [str(each["margin"] < margin).lower() for each in shown]
    edited(file, f"margin = {margin}", "margin = 0.0")
    capfd.readouterr()
    assert main(["predict", *pictures, "--defence", file.name, "--out", "rows.csv", "--quiet"]) == 2
    assert "threshold" in capfd.readouterr().err


def test_evaluate_tells_what_is_left_unanswered(file, images, capfd):
    margins = drq.load_defence(file).decide(images).margin
    edited(file, "margin = 0.0", f"margin = {float(margins.median()) + 1e-4}")
    assert main(["evaluate", "--defence", str(file), "--data", "digits", "--images", str(COUNT), "--quiet"]) == 0
    said = re.sub(r"\s+", " ", capfd.readouterr().out)
    share = float((margins >= float(margins.median()) + 1e-4).float().mean()) * 100
    assert f"digits on digits, clean: {share:.1f} % of {COUNT} answered" in said
    run = drq.Run.open("runs/defence-digits")
    assert set(run.records["defence"]) == {"standard", "defence.toml"}
    assert run.about["source"]["defences"]["defence.toml"]["radius"] == 0.2
    assert main(["evaluate", str(run.path), "--quiet"]) == 0  # a run needs the file no more


def test_the_data_and_threats_of_a_spec_are_taken(file):
    stored = drq.load_defence(file)
    noise = {"noise": {"threat": "GaussianNoise", "deviation": 0.1}}
    spec = drq.Spec.of({"groups": [{"models": ["cifar10-tiny"], "data": ["digits"]}], "threats": noise, "limit": 3})
    made = spec_of(stored, str(file), spec)
    assert (made.models, made.data, made.limit) == (("digits",), ("digits",), 3)
    assert list(made.threats) == ["noise"]
    assert list(made.defences) == ["standard", called(str(file))]
    paper = spec_of(stored, str(file), "table1", data="digits", images=7)
    assert (paper.models, paper.data, paper.limit, paper.name) == (("digits",), ("digits",), 7, "table1-defence-digits")
    refused(spec_of, stored, str(file), words=["--data must be given without a spec"])


def test_a_run_of_the_red_team_is_called_as_the_file(file):
    drq.DRQ(drq.load_model("digits"), views="Mirror()").save(file)
    stored = drq.load_defence(file)
    spec = red_team_spec("digits", called(str(file)), spec_table(stored.table), images=3)
    assert (spec.name, list(spec.defences)) == ("redteam-digits-defence.toml", ["standard", "defence.toml"])
    assert str(spec.defences["defence.toml"].settings["views"]) == "Mirror()"


MISTAKES = {
    ("predict", "x.png", "--defence", "FILE", "--model", "digits"): "--model must be left out beside --defence, which says it",
    ("predict", "x.png", "--defence", "FILE", "--radius", "0.1"): "--radius must be left out",
    ("predict", "x.png", "--defence", "none.toml"): "defence must be a file that can be read",
    ("evaluate", "--defence", "FILE"): "--data must be given without a spec",
    ("evaluate", "--defence", "FILE", "--data", "cifar"): "name must be one of",
    ("evaluate", "digits", "--data", "digits"): "--data must be left out without --defence",
    ("evaluate", "digits", "--images", "7"): "--images must be left out without --defence",
    ("evaluate", "--defence", "FILE", "--data", "digits", "--images", "0"): "limit must be a whole number of at least 1",
    ("redteam", "--defence", "FILE", "--model", "digits"): "--model must be left out where a file says them",
    ("redteam", "--defence", "FILE", "--set", "alpha=0.1"): "--set, --preset and --views must be left out where a file says them",
    ("redteam", "--defence", "none.toml"): "defence must be a file that can be read",
    ("play", "--no-browser", "--defence", "none.toml"): "defence must be a file that can be read",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line(arguments, file, capfd):
    Image.new("L", (8, 8)).save("x.png")
    assert main([str(file) if each == "FILE" else each for each in arguments]) == 2
    output, errors = capfd.readouterr()
    assert output == ""
    assert errors.count("\n") == 1
    assert MISTAKES[arguments] in errors


@pytest.mark.parametrize("command", ["predict x.png", "evaluate --data digits", "redteam", "play --no-browser"])
def test_code_is_not_run_unasked(command, file, monkeypatch, capfd):
    """At any entry."""
    Path("code").mkdir()
    Path("code/unasked.py").write_text("import pathlib\npathlib.Path('ran').touch()\n")
    monkeypatch.syspath_prepend("code")
    edited(file, 'name = "digits"', 'name = "python:unasked:model"')
    assert main([*command.split(), "--defence", str(file)]) == 2
    assert "must not run code unasked, got model.name = 'python:unasked:model'" in capfd.readouterr().err
    assert not Path("ran").exists()
    assert main([*command.split(), "--defence", str(file), "--allow-code"]) == 2  # there is no such function
    assert "unasked" in capfd.readouterr().err
    assert Path("ran").exists()
    sys.modules.pop("unasked")

"""The threshold of a defence: what it promises holds, it is fitted to labelled folders, and a person's file stays theirs."""

import json
import re

import numpy as np
import pytest
import torch
from PIL import Image
from testbed.brightness import stripes
from testbed.refusals import refused
from testbed.stored import QUICK, edited

import drq
from drq.commands import cli
from drq.data.folders import class_folders
from drq.report.selective import abstention, threshold_for
from drq.serving import threshold as fitting
from drq.serving.defence_text import with_threshold
from drq.serving.stored_defence import Fitted, Threshold

STRIPES = "python:testbed.brightness:stripes"
GRID = (np.arange(100_000) + 0.5) / 100_000  # of margins, which are uniform
WRONG = {  # the probability of an error at a margin, and the margin that is seen
    "the surer the better": (lambda u: 0.4 * (1 - u) ** 3, lambda u: u),
    "margins that say nothing, a little too often wrong": (lambda u: 0 * u + 0.052, lambda u: u),
    "a cliff": (lambda u: 0.3 * (u < 0.5), lambda u: u),
    "surest where it is wrong": (lambda u: 0.02 + 0.4 * (u > 0.93) + 0.2 * (u < 0.3), lambda u: u),
    "up and down around the target": (lambda u: 0.05 + 0.045 * np.sin(25 * u), lambda u: u),
    "ten levels": (lambda u: 0.4 * (1 - u) ** 3, lambda u: np.floor(10 * u) / 10),
    "many ties at 0 and at 1": (lambda u: 0.2 * (u < 0.6) + 0.03, lambda u: np.clip(2 * u - 0.5, 0, 1)),
}


def drawn(error, seen, count, random):
    """Whether each of so many answers is right, and its margin, as decisions have it."""
    u = random.random(count)
    return torch.tensor(random.random(count) >= error(u)), torch.tensor(seen(u), dtype=torch.float32)


def true_risk(error, seen, threshold):
    """The share of errors among all answers that will ever be given from this margin on."""
    answered = seen(GRID).astype(np.float32) >= threshold
    return float(error(GRID)[answered].mean()) if answered.any() else 0.0


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("count", [60, 150, 400])
def test_a_promise_is_kept_as_often_as_it_says(kind, count):
    """In 184 of 200 repetitions at the very least: below, chance has no part in it (p < 0.001)."""
    (error, seen), random, kept, given = WRONG[kind], np.random.default_rng(0), 0, 0
    for _ in range(200):
        right, margin = drawn(error, seen, count, random)
        found = threshold_for(right.numpy(), margin.numpy(), 0.05, 0.95)
        given += found.value is not None
        kept += found.value is None or true_risk(error, seen, found.value) <= 0.05
    assert kept >= 184
    if count == 400 and kind in ("the surer the better", "a cliff"):
        assert given >= 150  # which is not bought by promising nothing


def test_who_promises_what_was_seen_breaks_it():
    """So the test above can fail: without the bound, half of all promises are broken."""
    (error, seen), random = WRONG["the surer the better"], np.random.default_rng(0)
    thresholds = [threshold_for(*map(np.asarray, drawn(error, seen, 400, random)), 0.05, None).value for _ in range(50)]
    assert sum(true_risk(error, seen, each) > 0.05 for each in thresholds) > 10


def test_a_margin_just_above_one_that_is_not_answered():
    right, margin = torch.tensor([True] * 300 + [False] * 100), torch.arange(400, 0, -1) / 400
    found = fitting.fit(right, margin.float(), 0.05, 0.95, "somewhere", "0123")
    answered = (margin >= found.margin).sum()
    assert float(margin[answered]) < found.margin <= float(margin[answered - 1])
    assert found.fitted == Fitted(
        found.margin, 0.05, 0.95, 400, round(int(answered) / 400, 4), found.fitted.wrong, "somewhere", "0123"
    )
    always = fitting.fit(torch.ones(300).bool(), margin[:300].float(), 0.05, 0.95, "", "")
    assert (always.margin, always.fitted.answered) == (0.0, 1.0)
    refused(fitting.fit, ~right, margin.float(), 0.05, 0.95, "", "", words=["risk must be one that 400 pictures, 300 of them"])


@pytest.fixture
def folder(tmp_path):
    """Pictures of three levels of brightness; some where two of them meet are in the wrong folder."""
    random = np.random.default_rng(0)
    for number, level in enumerate(random.integers(20, 236, 240)):
        name = "dark" if level < 77 else "grey" if level < 178 else "bright"
        place = tmp_path / "pictures" / ("grey" if abs(level - 77) < 12 and level % 3 else name)
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (int(level),) * 3).save(place / f"{number:03}.png")
    return str(tmp_path / "pictures")


@pytest.fixture
def file(path):
    drq.DRQ(stripes(), "linf", 0.1, **QUICK).save(path, STRIPES)
    return path


def run(capfd, *arguments):
    status = cli.main(["threshold", *map(str, arguments)])
    return status, *capfd.readouterr()


def test_the_command_fits_and_writes(folder, file, capfd):
    arguments = (folder, "--defence", file, "--risk", 0.035, "--allow-code")
    status, output, errors = run(capfd, *arguments)
    assert (status, errors) == (0, "")
    again = drq.load_defence(file, allow_code=True)
    fitted = again.threshold.fitted
    pictures = fitting.labelled(folder, again.about.classes)
    right, margin = fitting.decided(again, again.model.card.view, pictures)
    truth = threshold_for(right.numpy(), margin.numpy(), 0.035)
    assert again.threshold.margin == truth.value > 0
    assert (fitted.risk, fitted.confidence, fitted.pictures) == (0.035, 0.95, 240)
    assert fitted.defence == again.identity
    assert again.promise == f"no answer below margin {truth.value:.4g}: {fitted}"
    assert re.sub(r"\s+", " ", output) == f"{file}: no answer below margin {truth.value:.4g}; {fitted}. "
    status, output, errors = run(capfd, *arguments, "--json", "--quiet")
    assert json.loads(output)["margin"] == again.threshold.margin
    assert json.loads(output)["fitted"]["data"] == folder
    found = class_folders(file.parent / "pictures")
    counts = [int((pictures.labels == each).sum()) for each in range(3)]
    assert [len(found[name]) for name in ("dark", "grey", "bright")] == counts


def test_what_a_person_changes_is_not_promised(folder, file, capfd):
    assert run(capfd, folder, "--defence", file, "--risk", 0.035, "--allow-code")[0] == 0
    fitted = file.read_text()
    assert "is promised" not in drq.load_defence(file, stripes()).promise
    margin = drq.load_defence(file, stripes()).threshold.margin
    file.write_text(fitted.replace(f"[threshold]\nmargin = {margin}", "[threshold]\nmargin = 0.5"))
    assert "0.5, which was chosen by hand: nothing is promised" in drq.load_defence(file, stripes()).promise
    file.write_text(fitted)
    edited(file, "alpha = 0.5", "alpha = 0.4")
    assert "which was fitted to other settings: nothing is promised" in drq.load_defence(file, stripes()).promise


def test_all_else_in_the_file_stays(file):
    """Comments of a person, and the order of things."""
    file.write_text(file.read_text().replace("[measured]", "[measured]\n# at home\nwhere = 'here'") + "# the end\n")
    before = file.read_text()
    once = with_threshold(before, Threshold(0.5, Fitted(0.5, 0.1, 0.9, 10, 1.0, 0.0, "x", "y")))
    assert "# at home\nwhere = 'here'" in once
    assert once.endswith("# the end\n")
    assert with_threshold(once, Threshold(0.0)) == before
    twice = with_threshold(once, Threshold(0.5, Fitted(0.5, 0.1, 0.9, 10, 1.0, 0.0, "x", "y")))
    assert twice == once
    without = before[: before.index("# Nothing is promised")] + before[before.index("# How it was") :]
    file.write_text(with_threshold(without, Threshold(0.25)))
    assert drq.load_defence(file, stripes()).threshold == Threshold(0.25)
    refused(
        with_threshold, "threshold = { margin = 0.1 }\n" + without, Threshold(0.5), words=["[threshold] must be a table with"]
    )


MISTAKES = {
    "no folder": (["nowhere"], "FOLDER must be a folder of labelled pictures, got 'nowhere'"),
    "a name without end": (["x" * 300], "FOLDER must be a folder that can be read, got 'xxx"),
    "a risk of 1": (["--risk", "1"], "risk must lie between 0 and 1, got 1.0"),
    "a small risk": (["--risk", "0.001"], "ask for a higher risk, or give more pictures"),
    "a confidence of 95": (["--confidence", "95"], "confidence must lie between 0 and 1, got 95.0"),
    "no file": (["--defence", "nothing.toml"], "defence must be a file that can be read"),
    "no code": ([], "must not run code unasked"),
    "a device": (["--device", "meta"], "device must be one that this machine has"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_changes_nothing(name, folder, file, capfd):
    options, said = MISTAKES[name]
    before = file.read_text()
    place = options.pop(0) if options and not options[0].startswith("--") else folder
    code = [] if name == "no code" else ["--allow-code"]
    status, output, errors = run(capfd, place, "--defence", file, *options, *code)
    assert (status, output) == (2, "")
    assert errors.count("\n") == 1
    assert said in errors
    assert file.read_text() == before


def test_folders_are_called_as_classes(folder, tmp_path):
    names = ("dark", "grey", "bright")
    assert fitting.class_number("2", names) == 2
    assert fitting.class_number("7", tuple("9876543210")) == 2  # a name before a number
    refused(fitting.labelled, folder, ("dark", "gray", "bright"), words=["'grey': did you mean gray?"])
    refused(fitting.class_number, "3", names, words=["FOLDER must have folders called as the classes of the model, got '3'"])
    refused(fitting.class_number, "crane", ("crane", "dog", "crane"), words=["as 2 are: use the numbers"])
    assert fitting.class_number("5", None) == 5
    (tmp_path / "pictures" / "empty").mkdir()
    refused(fitting.labelled, folder, names, words=["have pictures", "none in empty"])


def test_records_tell_what_a_threshold_does():
    pytest.importorskip("polars")
    from testbed.synthetic import records

    frame = records(100, models=("a",), threats={"clean": "clean"})
    own = frame.filter(defence="DRQ linf")
    threshold = float(own["margin"].median())
    (row,) = abstention(frame, "DRQ linf", threshold).to_dicts()
    answered = own.filter(own["margin"] >= threshold)
    assert row["images"] == 100
    assert row["answered"] == len(answered) / 100
    assert row["wrong"] == (answered["prediction"] != answered["label"]).mean()
    assert abstention(frame, "DRQ linf", 2.0).to_dicts()[0]["wrong"] is None

"""``drq predict --out``: what it prints, and how it refuses."""

import csv
import io
import json
import re
import shlex
import tarfile
import zipfile
from pathlib import Path

import pytest
from testbed.repository import ROOT

from drq.serving.rows import COLUMNS
from drq.system import progress

MODEL = "python:testbed.brightness:stripes"


@pytest.fixture
def photos(picture):
    return [picture(level, f"{level}.png") for level in (20, 75, 100, 178)]


def test_what_is_printed(photos, command, tmp_path):
    out = tmp_path / "a.csv"
    job = (*photos, photos[0], str(tmp_path / "none.png"), "--model", MODEL, "--abstain-below", "0.3", "--out", str(out))
    status, output, errors = command(*job)
    assert status == 2  # one cannot be read
    first, cost = output.splitlines()
    rows = [*csv.DictReader(io.StringIO(out.read_bytes().decode(), newline=""))]
    unsure = sum(row["abstains"] == "true" for row in rows)
    assert 0 < unsure < 4
    assert first == (
        f"{out}: 5 rows, {unsure} below the threshold, 1 without an answer, see the column error. 1 was named more than once, "
        "which is answered once."
    )
    assert re.fullmatch(rf"Cost: {sum(int(row['passes'] or 0) for row in rows):,} passes of the model, \d+\.\d s\.", cost)
    assert errors == "predicting 100 %, 0:00 left  5 of 5 pictures\n"
    status, output, errors = command(*job, "--quiet", "--json")
    assert (status, errors) == (2, "")
    facts = json.loads(output)
    assert facts == {"out": str(out), "rows": 5, "before": 5, "twice": 1, "abstained": unsure, "refused": 1} | {
        name: facts[name] for name in ("passes", "seconds")
    }
    status, output, _ = command(*photos, "--model", MODEL, "--abstain-below", "0.3", "--out", str(out), "--restart")
    assert status == 0
    assert output.startswith(f"{out}: 4 rows, {unsure} below the threshold.\n")


def test_the_time_left_is_that_of_what_is_left(capfd, monkeypatch):
    """Without a terminal, a line from time to time; rows that were there before tell nothing of the pace."""
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    now = 0.0
    bar = progress.Bar("predicting", before=0.5)
    for seconds, share in ((10.0, 0.55), (30.0, 0.6), (45.0, 0.65), (60.0, 0.75), (100.0, 1.0)):
        now = seconds
        bar(share, "pictures")
    assert capfd.readouterr().err.splitlines() == [
        "predicting  60 %, 2:00 left  pictures",
        "predicting  75 %, 1:00 left  pictures",
        "predicting 100 %, 0:00 left  pictures",
    ]


MISTAKES = {
    ("--out", "answers.txt"): "--out must end in .csv, .jsonl, .ndjson, got 'answers.txt'",
    ("--out", "a.csv", "--csv", "b.csv"): "--csv must be left out beside --out, got 'b.csv'",
    ("--out", "a.csv", "--explain", "why.png"): "--explain must be left out beside --out",
    ("--out", "a.csv", "--slice", "9"): "--slice must be left out beside --out, got 9",
    ("--restart",): "--restart must be left out without --out, got --restart",
    ("--engine", "ray"): "--engine must be left out without --out, got 'ray'",
    ("--workers", "2"): "--workers must be left out without --out, got 2",
    ("--address", "auto"): "--address must be left out without --out",
    ("--out", "a.csv", "--engine", "rai"): "engine must be one of local, ray, got 'rai': did you mean ray?",
    ("--out", "a.csv", "--engine", "ray", "--workers", "0"): "workers must be a whole number of at least 1, got 0",
    ("--out", "a.csv", "--abstain-below", "2"): "--abstain-below must lie between 0 and 1, got 2.0",
    ("--out", "a.csv", "--classes", "9"): "classes must be at most 3, the model's classes, got 9",
}


@pytest.mark.parametrize("options", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line_and_leaves_no_file(options, photos, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    there = sorted(tmp_path.iterdir())
    status, output, errors = command(*photos, "--model", MODEL, *options)
    assert (status, output) == (2, "")
    assert re.fullmatch(r"drq: [^\n]+\n", errors)
    assert MISTAKES[options] in errors
    assert sorted(tmp_path.iterdir()) == there


def test_another_threshold_is_refused_and_named(photos, command, tmp_path):
    out = str(tmp_path / "a.csv")
    assert command(*photos, "--model", MODEL, "--out", out)[0] == 0
    status, output, errors = command(*photos, "--model", MODEL, "--out", out, "--abstain-below", "0.2", "--radius", "0.01")
    assert (status, output) == (2, "")
    said = rf"got '{out}' with threshold 0\.0, not 0\.2; radius 0\.1, not 0\.01: --restart begins anew, another name keeps it\n"
    assert re.fullmatch(rf"drq: --out must hold answers with the same settings, {said}", errors)


def test_archives_and_lists_are_shown_as_files_are(photos, command, tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(photos[2], "100.png")
    (tmp_path / "list.txt").write_text(f"{photos[2]}\n")
    given = (f"@{tmp_path / 'list.txt'}", str(tmp_path / "a.tar.gz"), "--explain", str(tmp_path / "why.png"))
    status, output, errors = command(*given, "--model", MODEL, "--json")
    assert (status, errors) == (0, "")
    first, second = json.loads(output)
    assert (first["picture"], second["picture"]) == (photos[2], f"{tmp_path / 'a.tar.gz'}/100.png")
    assert [first[name] for name in ("answer", "margin", "passes")] == [second[name] for name in ("answer", "margin", "passes")]
    assert [each.exists() for each in (tmp_path / "why-1.png", tmp_path / "why-2.png")] == [True, True]


def test_the_commands_of_the_page_run(photos, command, tmp_path, monkeypatch):
    """Those in docs/pictures.md; that for Ray finds all rows there."""
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for name, photo in zip("abc", photos, strict=False):
        Path("photos", f"{name}.png").write_bytes(Path(photo).read_bytes())
    with zipfile.ZipFile("more.zip", "w") as archive:
        archive.write(photos[3], "d.png")
    Path("list.txt").write_text(f"{photos[3]}\n")
    page = (ROOT / "docs" / "pictures.md").read_text()
    lines = [line for block in re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL) for line in block.splitlines()]
    assert len(lines) == 3
    for line in lines:
        program, name, *rest = shlex.split(line)
        assert (program, name) == ("drq", "predict")
        assert command(*rest, "--model", "cifar10-tiny")[0] == 0
    assert [row["file"] for row in map(json.loads, Path("answers.jsonl").read_text().splitlines())] == [
        *("photos/a.png", "photos/b.png", "photos/c.png", "more.zip/d.png", photos[3])
    ]
    columns = re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `")))
    assert columns == [*COLUMNS]

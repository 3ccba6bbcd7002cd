"""Jobs: a row a picture in a table, what decides is DRQ, and whatever stops them they end as if nothing had."""

import csv
import gc
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from testbed.brightness import stripes
from testbed.refusals import refused
from testbed.repository import ROOT, reaching

import drq
from drq.evaluation.engines import Local
from drq.serving import jobs
from drq.serving.answering import Asked, answering
from drq.serving.jobs import fill, parts, prefetched, survey
from drq.serving.picture import Picture
from drq.serving.predict import Predictor
from drq.serving.rows import COLUMNS

MODEL = "python:testbed.brightness:stripes"
REAL = Asked(model="cifar10-tiny", preset="nature")  # its margins depend on what is decided together, in the last digit


def pictures(folder, count, size=32):
    generator = torch.Generator().manual_seed(0)
    for number in range(count):
        values = (255 * torch.rand(5, 5, 3, generator=generator)).to(torch.uint8).numpy()
        place = folder / f"{number % 3}" / f"{number:03}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(values).resize((size, size), Image.Resampling.BICUBIC).save(place)
    (folder / "1" / "broken.png").write_text("no picture")
    return str(folder)


@pytest.fixture
def photos(tmp_path):
    return pictures(tmp_path / "photos", 29)


@pytest.fixture(scope="module")
def real():
    return answering(REAL)


def rows(path):
    """The rows of a CSV file but for the seconds, by file."""
    found = [*csv.DictReader(io.StringIO(path.read_bytes().decode(), newline=""))]
    return {row["file"]: {name: cell for name, cell in row.items() if name != "seconds"} for row in found}


def lines(path):
    return [row["file"] for row in csv.DictReader(io.StringIO(path.read_bytes().decode(), newline=""))]


def test_a_row_says_what_drq_decides(picture, tmp_path):
    paths = [picture(level, f"{level}.png") for level in (20, 75, 100, 178, 250)]
    totals = fill(answering(Asked(model=MODEL, abstain_below=0.3)), [*paths, "missing.png"], tmp_path / "a.jsonl", Local())
    found = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    x = torch.stack([torch.full((3, 8, 8), level / 255) for level in (20, 75, 100, 178, 250)])
    decision, confidence, names = drq.DRQ(stripes(), "linf", 0.1).decide(x), stripes()(x).softmax(1), ("dark", "grey", "bright")
    for number, row in enumerate(found[:-1]):
        assert [*row] == [*COLUMNS]
        assert (row["file"], row["view"], row["error"]) == (paths[number], None, None)
        assert row["answer"] == names[decision.label[number]]
        assert row["score"] == pytest.approx(float(decision.robustness[number, decision.label[number]]), abs=1e-6)
        assert row["margin"] == pytest.approx(float(decision.margin[number]), abs=1e-6)
        assert row["abstains"] == (row["margin"] < 0.3)
        assert row["model_answer"] == names[confidence[number].argmax()]
        assert row["model_confidence"] == pytest.approx(float(confidence[number].max()), abs=1e-6)
        second = decision.runner_up[number]
        assert row["runner_up"] == (names[second] if second >= 0 else None)
        assert row["passes"] == decision.passes[number]
        assert row["seconds"] > 0
    assert {row["abstains"] for row in found[:-1]} == {True, False}
    assert found[-1]["file"] == "missing.png"
    assert "which does not exist" in found[-1]["error"]
    assert {name for name, value in found[-1].items() if value is None} == {*COLUMNS} - {"file", "error"}
    assert (totals.rows, totals.refused, totals.abstained) == (6, 1, sum(bool(row["abstains"]) for row in found))


def test_views_are_named_and_a_front_leaves_the_model_its_own_answer(picture, tmp_path):
    path = picture(120, "a.png")
    fill(answering(Asked(model="cifar10-tiny", views="Rotation(90, 3)")), [path], tmp_path / "views.csv", Local())
    (row,) = rows(tmp_path / "views.csv").values()
    assert row["view"] in ("the input", "rotated by -90 degrees", "rotated by 90 degrees")
    found = answering(Asked(model="cifar10-tiny", norm="linf", radius=0.01))
    found.predictor.robust = found.predictor.robust.variant(front=lambda x: 1 - x)
    fill(found, [path], tmp_path / "front.csv", Local())
    (row,), alone = rows(tmp_path / "front.csv").values(), Predictor("cifar10-tiny")(path)
    assert row["model_answer"] == alone.standard != row["answer"]
    assert float(row["model_confidence"]) == pytest.approx(max(each.confidence for each in alone.classes), abs=1e-6)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_wherever_it_is_stopped_it_ends_as_if_it_had_not_been(ending, photos, real, tmp_path, monkeypatch):
    """After every row; every third time a few bytes of the last one are missing."""
    whole, path = tmp_path / f"whole.{ending}", tmp_path / f"a.{ending}"
    fill(real, [photos], whole, Local())
    decided = []
    decide = drq.DRQ.decide
    monkeypatch.setattr(drq.DRQ, "decide", lambda self, x, **given: decided.append(len(x)) or decide(self, x, **given))

    def stop(count, total):
        assert total == 30
        if count == stop_at:
            raise KeyboardInterrupt

    for stop_at in range(1, 30):
        with pytest.raises(KeyboardInterrupt):
            fill(real, [photos], path, Local(), tell=stop)
        if stop_at % 3 == 0:
            os.truncate(path, path.stat().st_size - stop_at)
    totals = fill(real, [photos], path, Local())
    assert (totals.rows, totals.refused) == (30, 1)

    def untimed(place):
        return re.sub(rb'("seconds": |(?<=,))\d\.\d+(?=,\r|, "error)', b"", place.read_bytes())

    assert len(untimed(path)) == len(untimed(whole)) < whole.stat().st_size
    assert untimed(path) == untimed(whole)
    decided.clear()
    assert fill(real, [photos], path, Local()).before == 30
    assert decided == []


def test_pictures_that_came_since_are_added(photos, real, tmp_path):
    path, folder = tmp_path / "a.csv", tmp_path / "photos"
    fill(real, [photos], path, Local())
    before = path.read_bytes()
    for name in ("0/000a.png", "2/zz.png"):
        (folder / name).write_bytes((folder / "0" / "003.png").read_bytes())
    (folder / "0" / "006.png").unlink()
    totals = fill(real, [photos], path, Local())
    assert (totals.before, totals.rows) == (30, 32)
    assert path.read_bytes().startswith(before)
    found = rows(path)
    assert {*found} >= {str(folder / "0" / "000a.png"), str(folder / "2" / "zz.png"), str(folder / "0" / "006.png")}
    same = [[found[str(folder / each)][name] for name in ("answer", "view")] for each in ("0/000a.png", "0/003.png", "2/zz.png")]
    assert same[0] == same[1] == same[2]


def test_equal_names_are_told_apart_and_what_is_named_twice_is_answered_once(picture, tmp_path):
    for number, folder in enumerate(("b", "a")):
        (tmp_path / folder).mkdir()
        picture(60 + 90 * number, f"{folder}/same.png")
    first, second = (str(tmp_path / each / "same.png") for each in "ab")
    (tmp_path / "list.txt").write_bytes(f"{first}\r\n\n{second}\n{tmp_path / 'b'}\n@missing.png".encode())
    given = [second, f"@{tmp_path / 'list.txt'}", str(tmp_path / "a"), second]
    totals = fill(answering(Asked(model=MODEL)), given, tmp_path / "a.csv", Local())
    assert lines(tmp_path / "a.csv") == [second, first, "./@missing.png"]
    assert (totals.rows, totals.twice, totals.refused) == (3, 4, 1)
    assert rows(tmp_path / "a.csv")[first]["answer"] != rows(tmp_path / "a.csv")[second]["answer"]
    for path, words in ((str(tmp_path / "none.txt"), "got"), (str(tmp_path), "got")):
        refused(survey, [f"@{path}/x"], b"", words=["@ must name a file with a path in each line", words])
    (tmp_path / "empty.txt").write_text("\n")
    refused(survey, [f"@{tmp_path / 'empty.txt'}"], b"", words=["@ must name a file with a path in each line", "without any"])


def test_pictures_that_move_meanwhile_are_told(photos, tmp_path):
    seen = survey([photos], b"")
    for change in (lambda folder: (folder / "0" / "003.png").unlink(), lambda folder: (folder / "2" / "zzz.png").write_text("")):
        change(tmp_path / "photos")
        refused(lambda: [*parts([photos], seen, 8)], words=["pictures must stay where they are meanwhile", "the same command"])
    shorter = survey([photos], b"")
    (tmp_path / "photos" / "2" / "zzz.png").unlink()
    refused(lambda: [*parts([photos], shorter, 8)], words=["got fewer at place 30"])


def test_parts_are_the_same_however_often_it_was_stopped():
    names = [f"{number:03}.png" for number in range(50)]
    keys = [jobs.key(name) for name in names]

    def left(done):
        found = parts(names, survey(names, b"".join(done)), 8)
        return [(tuple(each.name for each in part.pictures), part.skip) for part in found]

    whole = left([])
    assert [len(each) for each, _ in whole] == [8] * 6 + [2]
    for count in range(51):
        expected = [(each, max(0, count - 8 * n)) for n, (each, _) in enumerate(whole) if 8 * n + len(each) > count]
        assert left(keys[:count]) == expected
    assert left(keys[3:8] + keys[16:18]) == [(tuple(names[:3]), 0), (tuple(names[8:16]), 0), (tuple(names[16:24]), 2), *whole[3:]]


def test_pictures_that_wait_in_memory_are_few(monkeypatch, tmp_path, picture):
    """Those of a packed tar; always the same are decided together."""
    monkeypatch.setattr(jobs, "HELD", 2000)
    content = Path(picture(100)).read_bytes()
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        for number in range(20):
            member = tarfile.TarInfo(f"{number}.png")
            member.size = 900
            archive.addfile(member, io.BytesIO(content.ljust(900, b"\0")))
    path = [str(tmp_path / "a.tgz")]
    assert [len(each.pictures) for each in parts(path, survey(path, b""), 8)] == [3] * 6 + [2]


def test_what_takes_long_to_read_is_read_while_others_are_decided():
    """From the third on, when the time of the second is known."""
    asked, made = threading.Event(), []

    def items():
        for number in range(6):
            made.append(threading.current_thread() is threading.main_thread())
            asked.set() if number == 4 else None
            time.sleep(0.02)
            yield number

    ahead = prefetched(items())
    assert [next(ahead) for _ in range(4)] == [0, 1, 2, 3]
    assert asked.wait(5)  # the fifth, for which nobody has asked yet
    assert [*ahead] == [4, 5]
    assert made == [True] * 3 + [False] * 3


def test_what_is_read_quickly_needs_no_thread():
    made = []

    def items():
        for number in range(6):
            made.append(threading.current_thread() is threading.main_thread())
            yield number

    found = []
    for each in prefetched(items()):
        time.sleep(0.02)
        found.append(each)
    assert found == [*range(6)]
    assert made == [True] * 6


@pytest.mark.parametrize("pause", [0.0, 0.02], ids=["here", "in a thread"])
def test_a_mistake_while_reading_is_told(pause):
    def broken():
        for number in range(5):
            time.sleep(pause)
            yield number
        raise drq.InputError("x must be another, got this: change it")

    refused(lambda: [*prefetched(broken())], words=["x must be another"])


def test_of_pictures_that_have_passed_nothing_is_held(tmp_path):
    """But some bytes for each."""
    (tmp_path / "list.txt").write_text("".join(f"photos/of/some/year/{number:08}.jpg\n" for number in range(20_000)))
    path = [f"@{tmp_path / 'list.txt'}"]
    seen = survey(path, b"")
    assert seen.total == 20_000
    assert sum(each.nbytes for each in seen) <= 20 * 20_000
    for count, _ in enumerate(parts(path, seen, 8)):
        if count % 500 == 0:
            assert sum(type(each) is Picture for each in gc.get_objects()) <= 20
    assert count == 2499


def test_a_picture_that_the_model_is_lost_on_has_its_error(picture, tmp_path):
    paths = [picture(100, "a.png"), picture(250, "b.png"), picture(20, "c.png")]
    totals = fill(answering(Asked(model="python:testbed.brightness:fragile")), paths, tmp_path / "a.csv", Local())
    assert [row["answer"] for row in rows(tmp_path / "a.csv").values()] == ["class 1", "", "class 0"]
    assert "model must return finite logits" in rows(tmp_path / "a.csv")[paths[1]]["error"]
    assert totals.refused == 1


def test_large_pictures_are_decided_alone_and_small_ones_together():
    def size(side, device="cpu"):
        card = drq.models.Card("", view=drq.models.View(side, side))
        return jobs.together(SimpleNamespace(card=card, on_cpu=device == "cpu"))

    assert [size(side) for side in (8, 28, 32, 64, 96, 224)] == [8, 8, 8, 2, 1, 1]
    assert size(224, "cuda") == 32


def test_settings_are_those_on_which_answers_depend(real):
    settings = json.loads(json.dumps(real.settings))
    assert (settings["model"], settings["preset"], settings["threshold"]) == ("cifar10-tiny", "nature", 0.0)
    assert settings["model_sha256"] == real.model_sha256
    assert settings["gate"]["threshold"] == real.predictor.robust.gate.threshold
    assert settings["class_names"][0] == "airplane"
    assert not {"keep_points", "progress", "chunk"} & {*settings}
    assert answering(real.asked).settings == real.settings
    changes = ({"model": "cifar10-small"}, {"preset": "upright"}, {"abstain_below": 0.5}, {"preset": None, "norm": "l2"})
    others = [replace(REAL, **each) for each in changes]
    texts = {json.dumps({**answering(each).settings, "drq": ""}, sort_keys=True) for each in (REAL, *others)}
    assert len(texts) == 5


def test_another_process_makes_the_same_of_a_learnt_gate(photos, tmp_path):
    (tmp_path / "photos" / "1" / "broken.png").unlink()
    found = answering(Asked(model="cifar10-tiny", preset="upright", gate=photos))
    again = answering(found.asked)
    assert found.predictor.robust.gate is not None
    assert again.predictor.robust.gate == found.predictor.robust.gate
    assert again.settings == found.settings
    context = jobs.JobContext("another", found.asked, "0" * 64, 1)
    refused(context.answering, words=["model must have the sha256 000", "another one on the machine of this worker"])


STOPPED = """
import sys, time
from drq.commands.cli import main
from drq.serving.table import Table
put = Table.put
def slowly(self, row):
    put(self, row)
    print(self.totals.rows, flush=True, file=sys.__stdout__)
    time.sleep(0.05)
Table.put = slowly
sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_says_how_it_goes_on(photos, tmp_path):
    out, command = tmp_path / "a.csv", ["predict", photos, "--model", MODEL, "--out", str(tmp_path / "a.csv")]
    job = [sys.executable, "-c", STOPPED, *command]
    work = subprocess.Popen(job, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=reaching(ROOT, ROOT / "tests"))
    while work.stdout.readline() != "4\n":
        assert work.poll() is None
    work.send_signal(signal.SIGINT)
    errors = work.communicate(timeout=60)[1]
    assert work.returncode == 130
    assert errors == f"drq: {out} keeps all rows so far: the same command goes on\ndrq: interrupted\n"
    assert 4 <= len(lines(out)) < 29

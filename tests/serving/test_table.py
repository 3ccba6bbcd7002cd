"""The table that a job fills: rows come back as they were written, and whatever is cut off it is whole again."""

import csv
import errno
import io
import json
import os
import re
from types import SimpleNamespace

import pytest
from testbed.refusals import refused

from drq.serving import table
from drq.serving.formats import FORMATS
from drq.serving.rows import COLUMNS
from drq.serving.rows import refused as without_answer
from drq.serving.table import key, open_table, table_path, text

SETTINGS = {"model": "mine", "threshold": 0.1, "gate": {"threshold": 2.5, "mean": [0.1] * 30}, "views": None, "drq": "1"}
NAMES = [
    "plain.png",
    "comma, and.png",
    'quo"te.png',
    '"',
    "new\nline.png",
    "return\rhere.png",
    "é ☃.png",
    " x .png",
    'a\r\n"\r\n',
]
ENDINGS = pytest.mark.parametrize("ending", FORMATS)


def row(name, number):
    values = (name, "a, b", 0.1 + number, number % 2 == 0, 'the "other"', 1 / 3, None, 1e-9, "turned", 33 + number, 0.25, None)
    return dict(zip(COLUMNS, values, strict=True))


ROWS = [*(row(name, number) for number, name in enumerate(NAMES)), without_answer("broken, or\nworse.png", 'no "picture"')]


def filled(path, rows=ROWS, settings=SETTINGS, restart=False):
    """What was there before, after these rows were appended to it."""
    with open_table(path, settings, restart) as there:
        before = bytes(there.done)
        for each in rows:
            there.put(each)
    return before, there.totals


def keys(rows):
    return b"".join(key(each["file"]) for each in rows)


@ENDINGS
def test_rows_come_back(ending, tmp_path):
    path = tmp_path / "new" / f"answers{ending}"
    before, totals = filled(path)
    assert before == b""
    assert (totals.rows, totals.before, totals.abstained, totals.refused) == (10, 0, 5, 1)
    assert (totals.passes, totals.seconds) == (sum(33 + n for n in range(9)), 9 * 0.25)
    before, again = filled(path, [])
    assert before == keys(ROWS)
    assert again == table.Totals(**vars(totals) | {"before": 10})
    text = path.read_bytes().decode()
    if ending == ".csv":
        found = [*csv.DictReader(io.StringIO(text, newline=""))]
        assert [*found[0]] == [*COLUMNS]
        for each, expected in zip(found, ROWS, strict=True):
            for name, value in expected.items():
                assert each[name] == ("" if value is None else value if isinstance(value, str) else json.dumps(value))
    else:
        assert [json.loads(line) for line in text.splitlines()] == ROWS


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_it_goes_on_wherever_it_was_cut_off(ending, tmp_path, monkeypatch):
    """At every single byte."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the disk would take most of the time
    whole, path, rows = tmp_path / f"whole{ending}", tmp_path / f"cut{ending}", [ROWS[number] for number in (0, 2, 8, 9)]
    filled(whole, rows)
    data = whole.read_bytes()
    (tmp_path / f"cut{ending}{table.SETTINGS}").write_text(json.dumps(SETTINGS))
    kept = []
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        with open_table(path, SETTINGS) as there:
            kept.append(there.totals.before)
            assert bytes(there.done) == keys(rows[: kept[-1]])
            for each in rows[kept[-1] :]:
                there.put(each)
        assert path.read_bytes() == data
    assert kept == sorted(kept)
    assert {*kept} == {*range(5)}


@ENDINGS
def test_a_row_is_one_write(ending, tmp_path, monkeypatch):
    with open_table(tmp_path / f"a{ending}", SETTINGS) as there:
        written = []
        monkeypatch.setattr(there, "file", SimpleNamespace(write=lambda data: written.append(bytes(data)) or len(data)))
        for each in ROWS:
            there.put(each)
        monkeypatch.undo()
    assert written == [there.form.line(each) for each in ROWS]
    assert all(each.endswith(b"\n") for each in written)


def test_every_row_is_in_the_file_at_once(tmp_path):
    path = tmp_path / "a.csv"
    with open_table(path, SETTINGS) as there:
        for count, each in enumerate(ROWS, 1):
            there.put(each)
            assert len([*csv.reader(io.StringIO(path.read_bytes().decode(), newline=""))]) == count + 1


@ENDINGS
def test_names_that_are_no_text(ending, tmp_path):
    name = os.fsdecode(b"bad\xff.png")
    filled(tmp_path / f"a{ending}", [row(name, 1)])
    assert text(name) == "bad\\udcff.png"
    assert filled(tmp_path / f"a{ending}", [])[0] == key(name) == key(text(name))


def test_other_settings_are_named_in_one_line(tmp_path):
    path = tmp_path / "a.csv"
    filled(path)
    before = path.read_bytes()
    for changes, words in (
        ({"threshold": 0.2}, "with threshold 0.1, not 0.2: --restart begins anew"),
        ({"model": "other", "views": "Mirror()"}, 'with model "mine", not "other"; views null, not "Mirror()": --restart'),
        ({"gate": None}, 'with gate {"threshold": 2.5, "mean": [0...., not null: --restart'),
        ({"new": 1}, "with new null, not 1: --restart"),
        ({f"setting {n}": n for n in range(5)}, "setting 2 null, not 2 and 2 more: --restart"),
    ):
        rule = "--out must hold answers with the same settings, got"
        refused(filled, path, [], SETTINGS | changes, words=[f"{rule} {str(path)!r} {words}"[:120], words])
    assert path.read_bytes() == before
    filled(path, [], SETTINGS | {"drq": "2"})  # another version is noted, and may go on
    _, totals = filled(path, ROWS[:1], SETTINGS | {"threshold": 0.2}, restart=True)
    assert (totals.rows, totals.before) == (1, 0)
    refused(filled, path, [], words=["threshold 0.2, not 0.1"])


def test_a_table_without_rows_takes_other_settings(tmp_path):
    path = tmp_path / "a.csv"
    filled(path, [])
    filled(path, ROWS[:2], SETTINGS | {"model": "other"})
    refused(filled, path, [], words=['model "other", not "mine"'])


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_crash_while_it_begins(step, tmp_path, monkeypatch):
    """At any change of either file: the next call begins, and rows never stand beside other settings than theirs."""
    path, count = tmp_path / "a.csv", 0
    filled(path, ROWS[:3], SETTINGS | {"model": "other"})

    def crash(call):
        def stopped(*arguments):
            nonlocal count
            count += 1
            if count == step:
                raise KeyboardInterrupt
            return call(*arguments)

        return stopped

    with monkeypatch.context() as patch:
        patch.setattr(table.Table, "begin", crash(table.Table.begin))
        patch.setattr(os, "replace", crash(os.replace))
        patch.setattr(os, "fsync", crash(os.fsync))
        with pytest.raises(KeyboardInterrupt):
            filled(path, ROWS, restart=True)
    then = json.loads((tmp_path / f"a.csv{table.SETTINGS}").read_text())["model"]
    _, totals = filled(path, [], SETTINGS | {"model": then})
    assert totals.before == (3 if step == 1 else 0)


def test_files_of_others_stay(tmp_path):
    for name, content in (("a.csv", "name,price\nx,1\n"), ("a.jsonl", '{"a": 1}\n'), ("b.csv", "file,ans")):
        (tmp_path / name).write_text(content)
    for restart in (False, True):
        for name in ("a.csv", "a.jsonl"):
            words = [f"--out must have {name}.settings.json beside it", "name another file, or remove this one"]
            refused(filled, tmp_path / name, [], restart=restart, words=words)
    assert (tmp_path / "a.csv").read_text() == "name,price\nx,1\n"
    assert filled(tmp_path / "b.csv")[1].rows == 10  # the beginning of a header is no content


def test_a_table_that_was_damaged_is_told_and_stays(tmp_path):
    path = tmp_path / "a.csv"
    filled(path)
    whole = path.read_bytes()
    end = whole.index(b"\n") + 1
    for data, words in (
        (whole.replace(b"answer", b"reply", 1), "with something else before byte"),
        (whole.replace(b"plain.png,", b"", 1), "with something else before byte"),
        (whole[:end] + b'"' + whole[end:], "with something else before byte"),
        (whole[:end] + b'"' + 2**18 * b"1,2,3\n", "with a damaged one behind byte"),
        (whole + b"\0" * 2**21, "with a damaged one behind byte"),
    ):
        path.write_bytes(data)
        refused(filled, path, words=["--out must hold rows of drq predict", words, "--restart begins anew"])
        assert path.read_bytes() == data
    path.write_bytes(whole)
    (tmp_path / f"a.csv{table.SETTINGS}").write_text("[")
    refused(filled, path, words=["--out must have its settings beside it", "which cannot be read: --restart"])
    filled(path, restart=True)


def test_one_process_writes(tmp_path):
    path = tmp_path / "a.csv"
    with open_table(path, SETTINGS):
        refused(filled, path, words=["--out must not be in use", "another process writes", "name another file"])
    filled(path)


def test_a_full_disk_is_told_and_goes_on(tmp_path, monkeypatch):
    path, whole = tmp_path / "a.csv", tmp_path / "whole.csv"
    filled(whole)
    with open_table(path, SETTINGS) as there:
        file, left = there.file, 150

        class Full:
            def write(self, data):
                nonlocal left
                if not left:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                count = file.write(data[:left])
                left -= count
                return count

        monkeypatch.setattr(there, "file", Full())
        refused(lambda: [there.put(each) for each in ROWS], words=["--out must have room", "No space left", "goes on"])
        monkeypatch.undo()
    before, _ = filled(path, [])
    assert 0 < len(before) < len(keys(ROWS))
    filled(path, ROWS[len(before) // table.KEY_BYTES :])
    assert path.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("name", ["answers", "answers.txt", "-", ""])
def test_the_ending_says_how_it_is_written(name):
    refused(table_path, name, words=["--out must end in .csv, .jsonl, .ndjson", f"got {name!r}: for example answers.csv"])


@pytest.mark.parametrize("place", ["folder.csv", "file/answers.csv", "pipe.csv", f"{'x' * 300}.csv"])
def test_where_no_table_can_be_written(place, tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").write_text("in the way")
    os.mkfifo(tmp_path / "pipe.csv")

    def opened():
        with open_table(table_path(str(tmp_path / place)), SETTINGS):
            pass

    assert re.match(r"--out must name a file that can be written, got ", refused(opened))

"""TOML as it is written is read back as the same values, whatever they are; what is read may be anybody's."""

import math
import tomllib
from datetime import date, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testbed.refusals import refused

from drq.system import toml_text

SIMPLE = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=20)
LISTS = st.deferred(lambda: st.lists(VALUES, max_size=20) | st.dictionaries(st.text(max_size=10), VALUES, max_size=4))
VALUES = SIMPLE | LISTS


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=10), VALUES, max_size=5), st.text(max_size=300))
def test_what_is_written_is_read(table, comment):
    comment = "".join(each for each in comment if each.isprintable())
    written = toml_text.section("a-table", table, dict.fromkeys(table, comment), comment)
    assert tomllib.loads(written) == {"a-table": table}
    assert all(len(line) <= 130 for line in written.splitlines() if line.startswith("#") and " " in comment[:50])


@pytest.mark.parametrize("value", [0.1, 1e-300, 1e22, -0.0, math.inf, 5e-324, 1 / 3, np.float64(0.1), float(np.float32(0.1))])
def test_numbers_are_the_same_to_the_last_bit(value):
    (read,) = tomllib.loads(f"x = {toml_text.written(value)}").values()
    assert np.float64(read).tobytes() == np.float64(value).tobytes()


def test_long_lists_take_lines_that_people_can_read():
    written = toml_text.section("", {"mean": [1 / 3] * 50, "names": ["a name with spaces"] * 20}, {})
    assert max(map(len, written.splitlines())) <= toml_text.WIDTH
    assert tomllib.loads(written)["mean"] == [1 / 3] * 50


def test_words_that_toml_has_besides():
    assert tomllib.loads(f"x = {toml_text.written(math.nan)}")["x"] != 0
    for day in (date(2026, 1, 2), datetime(2026, 1, 2, 3, 4)):
        assert tomllib.loads(f"x = {toml_text.written(day)}") == {"x": day}
    assert tomllib.loads(f"x = {toml_text.written(chr(0xDC80))}") == {"x": r"\udc80"}  # as in a file's name that is no text
    refused(toml_text.written, {"a": object()}, words=["be text, a number, true or false, a list or a table, got object"])


HOSTILE = {
    "deep": b"x = " + b"[" * 100_000,
    "deep tables": b"[" + b"a." * 50_000 + b"a]",
    "no text": b"\xff\xfe\x00",
    "no TOML": b"radius = = 1",
    "twice": b"a = 1\na = 2",
    "a number without end": b"a = " + b"9" * 10_000,
    "too large": b"# " + b"x" * (toml_text.LONGEST + 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_may_be_anybodys(name, tmp_path):
    path = tmp_path / "theirs.toml"
    path.write_bytes(HOSTILE[name])
    assert len(refused(toml_text.read, path, "defence", "correct it", words=["theirs.toml"])) < 500


def test_a_file_must_be_one(tmp_path):
    refused(toml_text.read, tmp_path / "none.toml", "defence", "save it", words=["No such file", "none.toml", ": save it"])
    refused(toml_text.read, tmp_path, "defence", "save it", words=["Is a directory"])

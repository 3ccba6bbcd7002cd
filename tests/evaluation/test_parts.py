"""Parts of a run: rows that come back as they were written, and files that are damaged or of another version."""

import random
from pathlib import Path

import numpy as np
import pytest
from testbed.refusals import refused
from testbed.rows import made_up

import drq
from drq.evaluation.records import COLUMNS, DTYPES, NOTHING, as_frame, read_part, write_part


def in_plain_python(rows: dict[str, np.ndarray]) -> dict[str, list]:
    """The same rows as a data frame should have them."""
    found = {}
    for name, column in COLUMNS.items():
        nothing, values = NOTHING[column.kind], rows[name].tolist()
        if column.nullable:
            values = [None if each == nothing or (each != each and nothing != nothing) else each for each in values]
        found[name] = [each if each is None or column.kind != "bool" else bool(each) for each in values]
    return found


@pytest.mark.parametrize("count", [1, 2, 40])
def test_rows_come_back_from_a_part(count: int, tmp_path: Path) -> None:
    rows = made_up(count)
    write_part(tmp_path / "part.npz", rows)
    back = read_part(tmp_path / "part.npz")
    for name in COLUMNS:
        np.testing.assert_array_equal(back[name], rows[name])
        assert back[name].dtype.kind == np.dtype(DTYPES[COLUMNS[name].kind]).kind
    frame = as_frame([back, back])
    assert frame.to_dict(as_series=False) == {name: 2 * values for name, values in in_plain_python(rows).items()}
    assert any(frame[name].null_count() for name in COLUMNS) or count < 40


def test_what_a_part_leaves_out_is_nothing_and_constants_are_kept_once(tmp_path: Path) -> None:
    rows = {name: made_up(100)[name] for name, column in COLUMNS.items() if not column.nullable}
    write_part(tmp_path / "several.npz", rows)
    write_part(tmp_path / "one.npz", rows | {name: rows[name][:1] for name in rows if name not in ("index",)})
    frame = as_frame([read_part(tmp_path / "one.npz")])
    assert frame.height == 100
    assert {frame[name].null_count() for name, column in COLUMNS.items() if column.nullable} == {100}
    assert (tmp_path / "one.npz").stat().st_size < (tmp_path / "several.npz").stat().st_size


def test_no_rows_have_the_same_columns() -> None:
    full, empty = as_frame([made_up(3)]), as_frame([])
    assert empty.height == 0
    assert empty.schema == full.schema
    assert list(empty.columns) == list(COLUMNS)


def test_a_damaged_part_is_one_line_or_reads_the_same(tmp_path: Path) -> None:
    """Whatever bit is wrong, wherever it ends."""
    path, draws = tmp_path / "0000-0000000.npz", random.Random(0)
    write_part(path, made_up(5))
    whole, good = path.read_bytes(), {name: values.copy() for name, values in read_part(path).items()}
    damaged = [whole[:size] for size in range(0, len(whole), 211)]
    for place in draws.sample(range(len(whole)), 150):
        damaged.append(whole[:place] + bytes([whole[place] ^ 1 << draws.randrange(8)]) + whole[place + 1 :])
    told = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            found = read_part(path)
        except drq.InputError:
            refused(read_part, path, words=[str(path), "delete that file"])
            told += 1
        else:
            assert all(np.array_equal(found[name], good[name], equal_nan=found[name].dtype.kind == "f") for name in COLUMNS)
    assert told > len(damaged) / 2


def test_parts_of_another_version(tmp_path: Path) -> None:
    write_part(tmp_path / "part.npz", made_up(2) | {"schema_version": np.full(2, 99)})
    refused(read_part, tmp_path / "part.npz", words=["must have schema_version 1 or 2, got 99", "version of drq"])

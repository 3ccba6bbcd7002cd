"""Write rows as CSV or as JSON lines, and read whole ones back."""

from __future__ import annotations

import csv
import io
import json
from typing import Protocol

from drq.serving.rows import COLUMNS, Row

TEXTS = ("file", "answer", "model_answer", "runner_up", "view", "error")  # columns whose values are no numbers


class Format(Protocol):
    """How a row becomes bytes."""

    header: bytes  # of the file
    quotes: bool  # whether a line may end inside of quotes, which goes on in the next one

    def line(self, row: Row) -> bytes:
        """The row, to the end of its line."""

    def row(self, record: bytes) -> Row:
        """What was written, or a ValueError."""


class Csv:
    """Comma-separated values with the line ends of RFC 4180: names may hold any character."""

    quotes = True

    def __init__(self) -> None:
        self.header = self._line(COLUMNS)

    @staticmethod
    def _line(cells: tuple[str | None, ...]) -> bytes:
        text = io.StringIO(newline="")
        csv.writer(text).writerow(cells)
        return text.getvalue().encode(errors="backslashreplace")

    def line(self, row: Row) -> bytes:
        """The row, to the end of its line."""
        return self._line(tuple(map(_cell, map(row.__getitem__, COLUMNS))))

    def row(self, record: bytes) -> Row:
        """What was written, or a ValueError."""
        try:
            (cells,) = csv.reader(io.StringIO(record.decode(), newline=""), strict=True)
        except csv.Error as error:
            raise ValueError(str(error)) from error
        pairs = zip(COLUMNS, cells, strict=True)
        return {name: None if cell == "" else cell if name in TEXTS else json.loads(cell) for name, cell in pairs}


def _cell(value: str | float | None) -> str | None:
    """A value as JSON has it, but for texts, and empty where there is none."""
    return value if value is None or isinstance(value, str) else repr(value) if type(value) is float else json.dumps(value)


class JsonLines:
    """One object a line."""

    header, quotes = b"", False

    def line(self, row: Row) -> bytes:
        """The row, to the end of its line."""
        return json.dumps(row).encode() + b"\n"

    def row(self, record: bytes) -> Row:
        """What was written, or a ValueError."""
        row = json.loads(record)
        if not isinstance(row, dict) or row.keys() != {*COLUMNS}:
            raise ValueError("no row")
        return row


FORMATS: dict[str, type[Csv] | type[JsonLines]] = {".csv": Csv, ".jsonl": JsonLines, ".ndjson": JsonLines}  # by their ending

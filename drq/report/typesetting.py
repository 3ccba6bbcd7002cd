"""Format tables as Markdown, LaTeX and CSV, with escaped text and sensibly rounded numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from drq.errors import require
from drq.evaluation.records import require_polars
from drq.report.expressions import UNDEFENDED
from drq.report.statistics import wilson

if TYPE_CHECKING:
    import polars

PERCENT = ("accuracy", "low", "high", "reference_accuracy", "published")
POINTS = ("difference", "difference_low", "difference_high", "minus_paper")
CODE = ("expression", "reference_expression")
BREAKS = re.compile(r"[\s\x00-\x1f\x7f]+")  # a cell has one line
LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}
LATEX |= {"^": r"\textasciicircum{}", "|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}"}


def wide(table: polars.DataFrame, reference: str = UNDEFENDED) -> polars.DataFrame:
    """Return the table in the paper's layout: a row for each model, data set and threat, a column for each defence.

    The reference shows its accuracy and interval, as ``83.5 [81.1, 85.7]``; others their accuracy and the difference, as
    ``85.2 +1.7*``, where ``*`` marks p < 0.05. Where threats attacked the defence, the undefended model shows its static worst
    case. Suite and experiment have a column only where rows differ in nothing else, and the victim where there are several.
    """
    pl = require_polars()
    keys = _keys(table)
    lines: dict[tuple[Any, ...], dict[str, str]] = {}
    static: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in table.iter_rows(named=True):
        key = tuple(row[name] for name in keys)
        lines.setdefault(key, {})[row["defence"]] = _cell(row)
        if row["victim"] == "defence" and reference == UNDEFENDED and row["reference_accuracy"] is not None:
            static.setdefault(key, {})[reference] = _static(row)
    filled = {key: line | static.get(key, {}) for key, line in lines.items()}
    defences = sorted(dict.fromkeys(name for line in filled.values() for name in line), key=lambda name: name != reference)
    taken = [name for name in defences if name in keys]
    require(not taken, "defences", "have other names than columns", taken, "give them another name in the spec")
    rows = [[*key, *(line.get(name, "") for name in defences)] for key, line in filled.items()]
    schema = {name: table.schema[name] for name in keys} | dict.fromkeys(defences, pl.String)
    layout: polars.DataFrame = pl.DataFrame(rows, schema=schema, orient="row")
    return layout


def _keys(table: polars.DataFrame) -> list[str]:
    """Return the columns that identify rows of the wide layout; they stand before the first value."""
    keys = [name for name in table.columns[: table.columns.index("data_sets")] if name != "defence"]
    if table["victim"].n_unique() < 2:
        keys.remove("victim")
    for name in ("suite", "experiment"):
        others = [each for each in keys if each != name]
        if name in keys and not table.select(*others, "defence").is_duplicated().any():
            keys = others
    return keys


def _cell(row: Mapping[str, Any]) -> str:
    if row["accuracy"] is None:
        return ""
    if row["difference"] is None:
        return f"{row['accuracy']:.1f} [{row['low']:.1f}, {row['high']:.1f}]"
    return f"{row['accuracy']:.1f} {_signed(row['difference'], 1)}{'*' if row['p_value'] < 0.05 else ''}"


def _static(row: Mapping[str, Any]) -> str:
    images = row["compared"] / row["data_sets"]  # in a mean the same images count several times
    low, high = wilson(row["reference_accuracy"] / 100 * images, images)
    return f"{row['reference_accuracy']:.1f} [{low:.1f}, {high:.1f}]"


def markdown(table: polars.DataFrame) -> str:
    """Return a table as Markdown, numbers aligned right, without the columns of code."""
    shown = table.drop(CODE, strict=False)
    head, *rows = ([_markdown(text) for text in row] for row in _texts(shown))
    rule = ["---:" if kind.is_numeric() else "---" for kind in shown.dtypes]
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, rule, *rows))


def text_table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return cells that are already text as a table in Markdown.

    >>> print(text_table(("who", "what"), [("DRQ", 1)]))
    | who | what |
    | --- | --- |
    | DRQ | 1 |
    """
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join(f"| {' | '.join(' '.join(str(each).split()).replace('|', '/') for each in line)} |" for line in lines)


def latex(table: polars.DataFrame) -> str:
    """Return a table as LaTeX with the rules of the package booktabs, without the columns of code."""
    shown = table.drop(CODE, strict=False)
    head, *rows = (_latex_row(row) for row in _texts(shown))
    lines = "".join(f"  {line}\n" for line in (r"\toprule", head, r"\midrule", *rows, r"\bottomrule"))
    columns = "".join("r" if kind.is_numeric() else "l" for kind in shown.dtypes)
    return f"\\begin{{tabular}}{{{columns}}}\n{lines}\\end{{tabular}}\n"


def csv(table: polars.DataFrame) -> str:
    """Return a table as comma-separated values: all columns, numbers to eight digits."""
    pl = require_polars()
    return table.with_columns(pl.selectors.float().round_sig_figs(8)).write_csv()


def _texts(table: polars.DataFrame) -> Iterator[list[str]]:
    """Yield the column names, then the rows, as texts."""
    yield [BREAKS.sub(" ", name) for name in table.columns]
    for row in table.iter_rows():
        yield [BREAKS.sub(" ", number(name, value)) for name, value in zip(table.columns, row, strict=True)]


def number(column: str, value: Any) -> str:
    """Return a value of a table as text.

    >>> [number("accuracy", 83.456), number("difference", 1.5), number("p_value", 1e-9), number("seconds", 0.0123456)]
    ['83.46', '+1.50', '<0.001', '0.01235']
    """
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    if column in PERCENT:
        return f"{value:.2f}"
    if column in POINTS:
        return _signed(value, 2)
    if column == "p_value":
        return "<0.001" if value < 0.001 else f"{value:.3f}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _signed(value: float, digits: int) -> str:
    return f"{round(value, digits) + 0.0:+.{digits}f}"  # + 0.0: a zero has no minus


def _markdown(text: str) -> str:
    """Escape Markdown; brackets only where they could end the text of a link, so that intervals stay readable."""
    return re.sub(r"[\\`*_<|~&$]|\](?=[(\[:])", r"\\\g<0>", text)


def _latex_row(texts: Iterable[str]) -> str:
    escaped = ("".join(LATEX.get(each, each) for each in text) for text in texts)
    row = " & ".join(re.sub(r"(?<!\S)-(?=\d)", "$-$", text) for text in escaped)  # a minus, where a hyphen would be set
    return f"{'{}' if row.startswith(('[', '*')) else ''}{row} \\\\"  # a row break would take either for its own argument

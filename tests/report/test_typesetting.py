"""Tables as text: what a reader of the format gets back is what went in."""

import csv as standard_csv
import io
import re

import polars as pl
import pytest
from markdown_it import MarkdownIt
from testbed.refusals import refused
from testbed.synthetic import records as made_up

from drq.report.statistics import wilson
from drq.report.tables import GROUP, against_paper, cells, csv, latex, markdown, mean_over_data, wide, worst_case
from drq.report.typesetting import LATEX, number

NASTY = [
    "plain", "a|b", "back\\slash", "\\|", "_under_ __score__", "*star* **stars**", "`code`", "<b>bold</b>", "&amp; & &lt;",
    "50 % of $1$", "~~gone~~", "[link](x)", "[a][b]", "![i](x)", "# {x} ^2", "it's \"quoted\", with commas", "[first", "*first",
    "-5", "é 日本", "a--b",
]  # fmt: skip
BROKEN = ["two\nlines", "tab\tand\rreturn", "line\u2028separator"]


def frame(names):
    return pl.DataFrame({"name": names, "accuracy": [83.456] * len(names), names[0]: [1] * len(names)})


def read_markdown(text):
    """The cells, as a parser of Markdown shows them."""
    tokens = MarkdownIt("commonmark").enable("table").enable("strikethrough").parse(text)
    assert tokens[0].type == "table_open"
    assert tokens[-1].type == "table_close"
    rows = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        if token.type == "inline":
            assert {child.type for child in token.children} <= {"text", "text_special"}, token.content
            rows[-1].append("".join(child.content for child in token.children))
    return rows


def read_latex(text):
    """The cells, as LaTeX would show them."""
    commands = sorted([*LATEX.items(), ("-", "$-$")], key=lambda pair: -len(pair[1]))
    shown = {escaped: plain for plain, escaped in commands}
    pattern = re.compile("|".join(re.escape(escaped) for _, escaped in commands))
    lines = [line.strip() for line in text.splitlines()[1:-1]]
    assert [lines[0], lines[2], lines[-1]] == [r"\toprule", r"\midrule", r"\bottomrule"]
    rows = []
    for line in [lines[1], *lines[3:-1]]:
        assert line.endswith(r" \\")
        assert line[0] not in "[*"
        texts = re.split(r"(?<!\\) & ", line.removesuffix(r" \\").removeprefix("{}"))
        assert not any(re.search(r"[\\&%$#_{}~^|<>]", pattern.sub("", each)) for each in texts)
        rows.append([pattern.sub(lambda match: shown[match[0]], each) for each in texts])
    return rows


@pytest.mark.parametrize(("write", "read"), [(markdown, read_markdown), (latex, read_latex)])
def test_any_name_survives(write, read):
    head, *rows = read(write(frame(NASTY)))
    assert head == ["name", "accuracy", NASTY[0]]
    assert rows == [[name, "83.46", "1"] for name in NASTY]
    for name in NASTY:
        assert read(write(frame([name])))[0][2] == name  # as the head of a column


@pytest.mark.parametrize(("write", "read"), [(markdown, read_markdown), (latex, read_latex)])
def test_a_cell_has_one_line(write, read):
    rows = read(write(frame(BROKEN)))
    assert [row[0] for row in rows[1:]] == ["two lines", "tab and return", "line separator"]
    assert rows[0][2] == "two lines"


def test_csv_is_read_back_by_others():
    table = frame(NASTY + BROKEN)
    assert [*standard_csv.reader(io.StringIO(csv(table), newline=""))][1:] == [[name, "83.456", "1"] for name in NASTY + BROKEN]
    whole = cells(made_up())
    again = pl.read_csv(io.StringIO(csv(whole)))
    assert again.columns == whole.columns
    assert again["expression"].to_list() == whole["expression"].to_list()
    assert again["low"].to_list() == pytest.approx(whole["low"].to_list(), rel=1e-7)


def test_numbers_are_rounded_and_code_is_left_out():
    table = cells(made_up())
    for write, read in ((markdown, read_markdown), (latex, read_latex)):
        head, *rows = read(write(table))
        assert head == [name for name in table.columns if "expression" not in name]
        for texts, row in zip(rows, table.iter_rows(named=True), strict=True):
            shown = dict(zip(head, texts, strict=True))
            assert shown["accuracy"] == f"{row['accuracy']:.2f}"
            assert shown["difference"] == ("" if row["difference"] is None else f"{row['difference']:+.2f}")
            assert float(shown["seconds"]) == pytest.approx(row["seconds"], rel=1e-3)


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("p_value", 0.0312, "0.031"), ("p_value", 0.0, "<0.001"), ("difference", -0.001, "+0.00"), ("passes", 12345.6, "12346"),
        ("seconds", 1.5e-5, "1.5e-05"), ("images", 1000, "1000"), ("low", None, ""), ("minus_paper", -2.0, "-2.00"),
    ],
)  # fmt: skip
def test_numbers(column, value, text):
    assert number(column, value) == text


def test_markdown_and_latex_align_numbers_to_the_right():
    assert markdown(frame(["a"])).splitlines()[1] == "| --- | ---: | ---: |"
    assert r"\begin{tabular}{lrr}" in latex(frame(["a"]))


def test_the_wide_layout_has_a_column_for_each_defence():
    table = cells(made_up(defences=("DRQ linf", "standard")))
    layout = wide(table)
    assert layout.columns == ["model", "data", "threat", "standard", "DRQ linf"]
    assert len(layout) == 6
    by_key = {(row["model"], row["threat"], row["defence"]): row for row in table.to_dicts()}
    for row in layout.to_dicts():
        alone, drq = (by_key[row["model"], row["threat"], name] for name in ("standard", "DRQ linf"))
        assert row["standard"] == f"{alone['accuracy']:.1f} [{alone['low']:.1f}, {alone['high']:.1f}]"
        mark = "*" if drq["p_value"] < 0.05 else ""
        assert row["DRQ linf"] == f"{drq['accuracy']:.1f} {drq['difference'] + 0.0:+.1f}{mark}"


def test_a_difference_beyond_chance_is_marked():
    records = made_up(100, models=("a",), threats={"clean": "clean"})
    better = records.with_columns(prediction=pl.when(pl.col("defence") != "standard").then("label").otherwise("prediction"))
    (row,) = wide(cells(better)).to_dicts()
    assert re.fullmatch(r"100\.0 \+\d+\.\d\*", row["DRQ linf"])


def test_the_wide_layout_has_as_many_columns_as_it_needs():
    records = made_up()
    assert wide(worst_case(records)).columns[:3] == ["model", "data", "suite"]
    assert wide(cells(records.with_columns(experiment=pl.lit("x")), by=("experiment", *GROUP))).columns[:3] == [
        "model",
        "data",
        "threat",
    ]
    paper = pl.DataFrame(
        schema=dict.fromkeys(("experiment", "model", "data", "threat", "defence"), pl.String) | {"value": pl.Float64}
    )
    assert wide(against_paper(cells(records), paper)).columns == wide(cells(records)).columns
    both = pl.concat([records, records.with_columns(victim=pl.lit("defence"))])
    assert "victim" in wide(cells(both)).columns
    assert len(wide(cells(records.clear()))) == 0


@pytest.mark.parametrize("table", [worst_case, mean_over_data])
def test_attacked_defences_stand_beside_the_static_worst_case(table):
    records = made_up(models=("a",), data=("cifar10-c/fog/5", "cifar10-c/snow/5")).with_columns(victim=pl.lit("defence"))
    for present in (records, records.filter(pl.col("defence") != "standard")):
        found = table(present)
        rows = found.filter(pl.col("defence") != "standard").to_dicts()
        layout = wide(found).to_dicts()
        for row, shown in zip(rows, layout, strict=True):
            images = row["compared"] / row["data_sets"]
            low, high = wilson(row["reference_accuracy"] / 100 * images, images)
            assert shown["standard"] == f"{row['reference_accuracy']:.1f} [{low:.1f}, {high:.1f}]"


def test_a_defence_may_not_be_called_like_a_column():
    records = made_up(defences=("standard", "model"))
    refused(wide, cells(records), words=["defences", "model"])

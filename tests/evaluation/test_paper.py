"""The numbers that the paper prints: in their place, none missing, none mistyped."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from testbed.assets import needs_assets
from testbed.refusals import refused

from drq.evaluation import paper as paper

WONG = "robustbench:cifar10/Linf/Wong2020Fast"
MODELS = {
    ("cifar10", "Wong2020Fast"): WONG,
    ("cifar10", "Gowal2020Uncovering"): "robustbench:cifar10/Linf/Gowal2020Uncovering_28_10_extra",
    ("cifar10", "Rice2020Overfitting"): "robustbench:cifar10/L2/Rice2020Overfitting",
    ("cifar10", "hendrycks2021Faces"): "robustbench:cifar10/corruptions/Hendrycks2020AugMix_WRN",
    ("cifar100", "Rice2020Overfitting"): "robustbench:cifar100/Linf/Rice2020Overfitting",
    ("imagenet", "Wong2020Fast"): "robustbench:imagenet/Linf/Wong2020Fast",
    ("imagenet", "hendrycks2021Faces"): "robustbench:imagenet/corruptions/Hendrycks2020Many",
}
METHODS = ("standard", "DRQ linf", "DRQ l2")
CELLS = {  # numbers that the paper prints, for its own models
    "table1": 33,
    "table2": 6,
    "table3": 42,
    "table4": 15,
    "table5": 6,
    "table6": 18,
    "table7": 27,
    "table8": 8,
    "figure2": 12,
    "figure3": 14,  # 16 points, one of which both plots share
    "figure5": 36,  # six boxes of five numbers, and six outliers
    "section5": 2,
}


def cells(experiment: str) -> list[dict]:
    """All numbers of an experiment for the paper's own models, of whatever quantity."""
    return [cell for cell in paper._cells() if cell["experiment"] == experiment]


def test_counts():
    counts = Counter(cell["experiment"] for cell in paper._cells())
    assert counts == CELLS


def test_it_is_a_frame_with_every_number_once():
    frame = paper.published()
    assert frame.columns == ["experiment", "model", "data", "suite", "threat", "defence", "value"]
    assert frame.null_count().sum_horizontal().item() == 0
    assert frame.select(frame.columns[:-1]).is_unique().all()
    assert frame["value"].is_between(0, 100).all()


def test_a_single_experiment():
    frame = paper.published("table4")
    assert set(frame["experiment"]) == {"table4"}
    assert frame.height == 15 + 9 + 3  # three models have a stand-in, one of them two
    assert paper.published("figure4").height == 0


def test_other_quantities():
    gains = paper.published("table8", "difference").filter(model=WONG)
    assert gains["value"].sum() == pytest.approx(-0.1 - 0.5 - 0.25 + 2.03 - 0.75 - 0.27 - 0.35 + 5.85)
    quartiles = [paper.published("figure5", f"{each} quartile")["value"] for each in ("lower", "upper")]
    median = paper.published("figure5", "median")["value"]
    assert (quartiles[0] < median).all()
    assert (median < quartiles[1]).all()


def test_stand_ins_have_the_numbers_of_their_model():
    frame = paper.published()
    for name, model in paper.stand_ins().items():
        others = [frame.filter(model=each).drop("model") for each in (name, model)]
        assert others[0].equals(others[1])
        assert others[0].height > 0


def test_both_of_two_inconsistent_values_are_there():
    clean = paper.published().filter(model=WONG, data="cifar10", threat="clean")
    for defence, values in {"DRQ linf": {82.44, 81.16}, "DRQ l2": {83.11, 83.17}}.items():
        assert set(clean.filter(defence=defence)["value"]) == values
        for name in ("table6", "table7"):
            assert all(f"{value:.2f}" in paper.notes()[name] for value in values)


def test_mistakes():
    refused(paper.published, "tabel4", words=["experiment must be one of", "'tabel4'", "did you mean table4?"])
    refused(paper.published, quantity="acuracy", words=["quantity must be one of", "did you mean accuracy?"])


def test_a_broken_installation(monkeypatch, tmp_path):
    monkeypatch.setattr(paper, "PLACES", (tmp_path / "experiments",))
    refused(paper.experiments, words=["must come with the package", "install it anew"])


def test_a_wheel_has_its_own_copy(monkeypatch, tmp_path):
    """Which goes before a folder of that name beside the package."""
    for name in ("drq/experiments", "experiments"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "paper.toml").touch()
    (tmp_path / "drq/experiments/table1.toml").touch()
    monkeypatch.setattr(paper, "PLACES", (tmp_path / "drq/experiments", tmp_path / "experiments"))
    assert list(paper.experiments()) == ["table1"]


@pytest.fixture(scope="module")
def source() -> str:
    """The source of the paper."""
    return (Path(os.environ["DRQ_TEST_ASSETS"]) / "paper.tex").read_text()


@pytest.fixture(scope="module")
def tabulars(source: str) -> list[list[list[str]]]:
    """Of each table the rows, of each row the fields."""
    found = re.findall(r"\\begin\{tabular\}\{[^}]*\}(.*?)\\end\{tabular\}", source, re.DOTALL)
    assert len(found) == 8
    plain = [re.sub(r"\\(top|mid|bottom)rule", "", each) for each in found]
    return [[[field.strip() for field in row.split("&")] for row in each.split(r"\\")] for each in plain]


def numbers(fields: list[str]) -> list[float]:
    """Without the marks for the best; a field may have several."""
    marks = re.compile(r"\\(?:textbf|underline)\{([^}]*)\}")
    return [float(each) for field in fields for each in marks.sub(r"\1", field).split("/")]


def by_model(rows: list[list[str]]) -> Iterator[tuple[str, str, list[float]]]:
    """Section, model and numbers of each row in a table with one row a model."""
    section = ""
    for first, *rest in rows:
        if not rest and (title := re.search(r"\\textbf\{(.*?)\}", first)):
            section = title[1].lower()
        elif cited := re.search(r"\\citef\{(.*?)\}", first):
            yield section, MODELS[section.partition("-")[0], cited[1]], numbers(rest[1:])  # the first is the training


def ours(experiment: str) -> dict[tuple[str, ...], float]:
    """What we have, by model, data, threat and method: the name of a defence without its settings."""
    found = {}
    for cell in cells(experiment):
        method = cell["defence"].removesuffix(" top-10").removesuffix(" calibrated")
        found[cell["model"], cell["data"], cell["threat"], method] = cell["value"]
    return found


@needs_assets
@pytest.mark.parametrize(("number", "threat"), [(1, "clean"), (4, "worst case"), (6, "clean")])
def test_tables_with_a_column_for_each_method(tabulars, number, threat):
    expected = {}
    for section, model, values in by_model(tabulars[number - 1]):
        data = f"{section}/*/5" if section.endswith("-c") else section
        expected |= {(model, data, threat, method): each for method, each in zip(METHODS, values, strict=True)}
    assert ours(f"table{number}") == expected


@needs_assets
def test_table2(tabulars):
    expected = {}
    for row, model in zip(tabulars[1][1:3], (WONG, f"denoised:{WONG}"), strict=True):
        values = zip(METHODS, numbers(row[1:]), strict=True)
        expected |= {(model, "cifar10-c/*/5", "clean", method): each for method, each in values}
    assert ours("table2") == expected


@needs_assets
def test_table3(tabulars):
    expected = {}
    for section, model, values in by_model(tabulars[2]):
        places = [(model, section, shift, method) for shift in ("rotations", "translations") for method in METHODS]
        expected |= dict(zip(places, values, strict=True))
    assert ours("table3") == expected


@needs_assets
@pytest.mark.parametrize(
    ("number", "columns", "methods"),
    [
        (5, "clean, worst case", "standard, DRQ linf, DRQ linf + PGD-noise"),
        (
            7,
            "clean, FAB, Square, APGD-L2, APGD-CE, PGD-noise, PGD-attack, APGD-DLR, worst case",
            "standard, DRQ l2, DRQ linf",
        ),
    ],
)
def test_tables_with_a_row_for_each_method(tabulars, number, columns, methods):
    expected = {}
    for row, method in zip(tabulars[number - 1][1:4], methods.split(", "), strict=True):
        values = zip(columns.split(", "), numbers(row[1:]), strict=True)
        expected |= {(WONG, "cifar10", column, method): each for column, each in values}
    assert ours(f"table{number}") == expected


@needs_assets
def test_table8(tabulars):
    """A row is a quantification, random or searched; in it stand random and searched exploration, for two data sets."""
    places = [("cifar10-c/*/5", "clean"), ("cifar10", "worst case")]
    names = [["both random", "random quantification"], ["random exploration", ""]]
    expected = {}
    for row, variants in zip(tabulars[7][2:4], names, strict=True):
        methods = [f"DRQ linf, {each}" if each else "DRQ linf" for each in variants]
        keys = [(WONG, *place, method) for place in places for method in methods]
        expected |= dict(zip(keys, numbers(row[1:]), strict=True))
    assert ours("table8") == expected


@pytest.fixture(scope="module")
def curves(source: str) -> list[list[tuple[float, float]]]:
    """The points of every curve, in the order of the source: three in Figure 2, twice two in Figure 3."""
    found = re.findall(r"coordinates \{(.*?)\};", source, re.DOTALL)
    assert len(found) == 7
    return [[(float(x), float(y)) for x, y in re.findall(r"\(([\d.]+),\s*([\d.]+)\)", each)] for each in found]


@needs_assets
def test_figure2(curves):
    expected = {}
    for method, curve in zip(("standard", "DRQ l2", "DRQ linf"), curves[:3], strict=True):
        for radius, value in curve:
            expected[method, f"ensemble {round(255 * radius)}/255" if radius else "clean"] = value
    assert {(cell["defence"], cell["suite"]): cell["value"] for cell in cells("figure2")} == expected


@needs_assets
def test_figure3(curves):
    found, expected = ours("figure3"), {}
    plots = [("clean", "DRQ {}+20"), ("PGD", "DRQ {}+20"), ("clean", "DRQ 20+{}"), ("PGD", "DRQ 20+{}")]
    for (threat, name), curve in zip(plots, curves[3:], strict=True):
        assert len(curve) == 4
        expected |= {(WONG, "cifar10", threat, name.format(round(steps))): value for steps, value in curve}
    assert found == expected


@needs_assets
def test_figure5(source):
    attacks = ["FAB", "Square", "APGD-CE", "PGD-noise", "PGD-attack", "APGD-DLR"]
    expected, boxes = [], {}
    for name, path in zip(attacks, re.findall(r"\\path \[(.*?)cycle;", source, re.DOTALL), strict=True):
        heights = [float(each) for each in re.findall(r"axis cs:[-\d.]+,([-\d.]+)\)", path)]
        boxes[name] = min(heights), max(heights)
        expected += [(name, "lower quartile", boxes[name][0]), (name, "upper quartile", boxes[name][1])]
    for style, body in re.findall(r"\\addplot \[(.*?)\]\s*table \{%(.*?)\};", source, re.DOTALL):
        x, y = np.array([line.split() for line in body.strip().splitlines()], dtype=float).T
        name, width = attacks[round(x.mean())], np.ptp(x)
        if "only marks" in style:
            expected += [(name, "outlier", each) for each in y]
        elif width > 0.7:  # as wide as the box
            expected.append((name, "median", y[0]))
        elif width > 0.3:  # the end of a whisker
            expected.append((name, f"{'lower' if y[0] < boxes[name][0] else 'upper'} whisker", y[0]))
    found = [(cell["threat"], cell["quantity"], cell["value"]) for cell in cells("figure5")]
    for theirs, mine in zip(sorted(expected), sorted(found), strict=True):
        assert mine == (*theirs[:2], pytest.approx(theirs[2], abs=5.1e-5))  # four decimals


@needs_assets
def test_section5(source):
    text = re.search(r"For \$\\beta=2\$.*?\$\\beta=4\$", source)
    assert text
    values = [float(each) for each in re.findall(r"\$(\d+\.\d+)\\%\$", text[0])]
    assert values[0] == ours("table4")[WONG, "cifar10", "worst case", "DRQ linf"]
    assert [cell["value"] for cell in cells("section5")] == values[1:]

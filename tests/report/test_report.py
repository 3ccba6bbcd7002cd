"""The report: one well-formed page that loads nothing, escapes everything, and whose every accuracy can be recomputed."""

import base64
import io
import json
import re
import subprocess
import sys
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from PIL import Image
from testbed.page import Page
from testbed.refusals import refused
from testbed.repository import ROOT
from testbed.synthetic import records
from testbed.whole_runs import ABOUT, everything, pictures

from drq.report.html import report
from drq.report.verdict import UNTESTED, verdict

BENCHMARK = ROOT / "tools" / "benchmarks" / "report_time.py"


@pytest.fixture(scope="module")
def frames():
    return everything(), everything(80, seed=7)


@pytest.fixture(scope="module")
def full(frames):
    names = ["suite", "threat", "defence", "value"]
    cells = [
        ("clean", "clean", "standard", 83.34),
        ("ensemble", "FAB", "DRQ linf", 71.43),
        ("ensemble", "worst case", "DRQ linf", 48.52),
    ]
    published = pl.DataFrame(cells, schema=names, orient="row").with_columns(
        experiment=pl.lit("table4"), model=pl.lit("cifar10-linf"), data=pl.lit("cifar10")
    )
    return report(frames[0], about=ABOUT, examples=pictures(), published=published, compare=frames[1])


@pytest.fixture(scope="module")
def page(full):
    return Page(full)


def test_the_page_is_well_formed(page, full):
    assert full.startswith("<!doctype html>")
    assert len(page.ids) == len(set(page.ids))
    for tag in ("header", "nav", "main", "footer", "h1", "title"):
        assert sum(name == tag for name, _ in page.tags) == 1, tag
    headings = [name for name, _ in page.tags if re.fullmatch("h[1-6]", name)]
    assert all(int(after[1]) <= int(before[1]) + 1 for before, after in pairwise(headings))
    assert dict(page.tags)["html"]["lang"] == "en"


def test_whatever_is_referred_to_is_there(page, full):
    ids = set(page.ids)
    for name in ("aria-labelledby", "popovertarget"):
        assert set(page.attributes(name)) <= ids
    assert {each.removeprefix("#") for each in page.attributes("href")} <= ids
    assert set(re.findall(r"url\(#([^)]*)\)", full)) <= ids


def test_nothing_is_loaded(page, full):
    """Neither by an element nor by a style; and the browser is told to refuse it."""
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "embed", "base", "form"}
    assert all(each.startswith("data:image/png;base64,") for each in page.attributes("src"))
    assert all(each.startswith("#") for each in page.attributes("href"))
    assert not re.findall(r"url\((?!#)", full)
    assert "@import" not in full
    assert not [name for _, each in page.tags for name in each if name.startswith("on") or name == "srcset"]
    (policy,) = [each["content"] for tag, each in page.tags if tag == "meta" and "http-equiv" in each]
    assert policy.startswith("default-src 'none'")
    assert "script" not in policy


def test_every_accuracy_can_be_recomputed(page, frames):
    names = {"records": frames[0], "compare": frames[1], "pl": pl}
    assert len(page.shares) > 100
    values = {expression: eval(expression, names) for expression, _ in page.shares}
    for expression, text in page.shares:
        assert re.fullmatch(r"\d+\.\d{1,2}", text), text
        assert float(text) == pytest.approx(values[expression], abs=0.5 * 10.0 ** -len(text.partition(".")[2]) + 1e-9), expression
    assert any("base_withstood" in expression for expression in values)
    assert any(expression.startswith("compare.") for expression in values)


def test_every_accuracy_of_the_tables_is_there(page, frames):
    """Of every model, data set, threat and defence, counted in plain Python."""
    right = {}
    for row in frames[0].iter_rows(named=True):
        key = tuple(row[name] for name in ("model", "data", "threat", "defence"))
        right.setdefault(key, []).append(row["prediction"] == row["label"])
    shown = {text for expression, text in page.shares if "group_by" not in expression}
    assert {f"{100 * np.mean(each):.1f}" for each in right.values()} <= shown
    assert len({expression for expression, _ in page.shares if not expression.startswith("compare")}) >= len(right)


def test_expressions_can_be_read_and_copied(page):
    codes = [data for tag, data in page.texts if tag == "code"]
    for expression, _ in page.shares:
        assert expression in codes
    assert len(codes) < len(page.shares)  # each is kept once


def test_the_verdict_comes_first(page):
    order = [
        key for key in page.ids if key in {href.removeprefix("#") for href in page.attributes("href")} and "expression" not in key
    ]
    wanted = ["main", "verdict", "accuracy", "worst-case", "corruptions", "paper", "comparison", "figures", "examples"]
    assert [key for key in order if "-" not in key or key == "worst-case"][: len(wanted)] == wanted
    assert page.text.index("is better than standard in") < page.text.index("95 % interval")


def test_gains_and_losses_are_both_told(page):
    for words in (
        "Gains",
        "Losses",
        "No difference beyond chance:",
        "static worst case",
        "No gain survives.",
        "280 times the passes",
    ):
        assert words in page.text, words
    assert UNTESTED not in page.text


def test_what_is_missing_is_said(page):
    assert "Not measured: robustbench:cifar100/Linf/Rice2020Overfitting : its weights are not on this machine" in page.text


def test_how_to_repeat_it(page):
    for words in (ABOUT["command"], ABOUT["spec_hash"], ABOUT["created"], "1" * 64, "2" * 64, '"radius": "8/255"', "1,234"):
        assert words in page.text, words


def test_beside_the_paper(page):
    assert "83.34" in page.text
    assert "48.52" in page.text
    assert re.search(r"inside our 95 % interval in \d of 3 cases", page.text)
    assert "cifar10-linf stands in for robustbench:cifar10/Linf/Wong2020Fast." in page.text


def test_a_worst_case_of_the_paper_is_that_of_its_suite():
    frame = records(models=("a",), threats={"FAB": "one", "Square": "one", "PGD": "two", "noise": "two"})
    names = ["experiment", "model", "data", "suite", "threat", "defence", "value"]
    row = ("table4", "a", "cifar10", "two", "worst case", "standard", 48.52)
    published = pl.DataFrame([row], schema=names, orient="row")
    text = Page(report(frame, published=published)).text
    assert re.search(r"in [01] of 1 cases", text)
    right = {}
    for each in frame.filter(suite="two", defence="standard").rows(named=True):
        right[each["index"]] = right.get(each["index"], True) and each["prediction"] == each["label"]
    ours = 100 * np.mean([*right.values()])
    difference = re.escape(f"{ours - 48.52:+.2f}")
    assert re.search(rf"worst case of two standard 200 {ours:.2f} [\d.]+ to [\d.]+ 48\.52 {difference}", text)
    suiteless = Page(report(frame.filter(suite="two"), published=published.drop("suite"))).text
    assert "of 1 cases" in suiteless


def test_beside_another_run():
    """The difference is that on the samples in common."""
    mine = records(models=("a",))
    fewer = Page(report(mine, compare=mine.filter(pl.col("index") >= 50)))
    assert re.search(r"clean DRQ linf [\d.]+ [\d.]+ 150 \+0\.0 ", fewer.text)
    better = mine.with_columns(prediction=pl.when(pl.col("index") < 90).then("label").otherwise("prediction"))
    wrong = sum(
        row["prediction"] != row["label"] for row in mine.filter(threat="clean", defence="standard").head(90).rows(named=True)
    )
    assert wrong > 0
    assert re.search(rf"clean standard [\d.]+ [\d.]+ 200 -{wrong / 2:.1f} ", Page(report(mine, compare=better)).text)
    assert "checksums" not in fewer.text.partition("Figures")[0]
    changed = mine.with_columns(data_sha256=pl.lit("3" * 64))
    assert "The checksums of the two runs differ for cifar10:" in Page(report(mine, compare=changed)).text
    assert "have no cell in common" in Page(report(mine, compare=records(models=("x",)))).text


def test_images_are_in_the_page(page):
    given = [each["image"] for each in pictures()]
    sources = page.attributes("src")
    assert len(sources) == len(given)
    for source, pixels in zip(sources, given, strict=True):
        shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))))
        np.testing.assert_array_equal(shown, pixels.squeeze())
    assert page.attributes("alt")[0] == "horse 0. standard: deer, DRQ: horse"


def test_figures_fit_the_page(full):
    """Letters are letters, in the colours and the font of the page; nothing of matplotlib's own style is left."""
    figures = re.findall(r"<svg.*?</svg>", full, re.DOTALL)
    assert len(figures) >= 8
    for figure in figures:
        assert "<text" in figure
        assert "currentColor" in figure
        for word in ("#000000", "font-family", "<style", "<metadata", "xmlns", "<?xml"):
            assert word not in figure, word
        assert 'role="img"' in figure


HOSTILE = "<script>alert(1)</script>\"'&amp; onload=x ]]></style><!-- $x$ \u202e"


def test_names_cannot_break_out():
    """Names come from anywhere: in tables, figures, the verdict, the spec and the captions they are text."""
    named = records(60, (HOSTILE,), (HOSTILE,), {HOSTILE: HOSTILE, "b": HOSTILE}, ("standard", HOSTILE, f"{HOSTILE}2"))
    about = dict.fromkeys(("name", "title", "created", "command", "spec_hash"), HOSTILE)
    about |= {"spec": {HOSTILE: HOSTILE}, "missing": [{"what": HOSTILE, "why": HOSTILE}], "history": [{"started": HOSTILE}]}
    examples = [{"title": HOSTILE, "caption": HOSTILE, "image": np.zeros((2, 2, 3), np.uint8)}]
    text = report(named, about=about, examples=examples, compare=named)
    page = Page(text)
    assert "<script" not in text.lower()
    assert "\u202e" not in text
    assert not [name for _, each in page.tags for name in each if name.startswith("on")]
    assert sum(tag == "style" for tag, _ in page.tags) == 1
    assert "<script>alert(1)</script>" in page.text
    assert len(page.ids) == len(set(page.ids))
    for expression, shown in page.shares:
        assert float(shown) == pytest.approx(eval(expression, {"records": named, "compare": named, "pl": pl}), abs=0.051)


def test_records_alone_are_enough():
    text = Page(report(records(20))).text
    assert text.startswith("made-up")
    for absent in ("Examples", "Beside the paper", "Beside another run", "Mean over corruptions", "Not measured"):
        assert absent not in text
    assert UNTESTED in text


def test_a_loss_is_called_a_loss():
    frame = records(models=("a",)).with_columns(
        prediction=pl.when(pl.col("defence") == "DRQ linf").then(pl.col("label") + 1).otherwise(pl.col("label"))
    )
    text = Page(report(frame)).text
    assert "DRQ linf loses: worse than standard in 4 of 4 comparisons, better in none." in text
    assert "Gains None beyond chance." in text


def test_the_undefended_model_alone():
    text = Page(report(records(20, defences=("standard",)))).text
    assert "Only standard was evaluated" in text
    assert "Knowing when not to answer" not in text


def test_only_attacks_on_the_defence():
    """Without the undefended model among the defences there is still its static worst case."""
    frame = records(models=("a",), defences=("DRQ linf",)).with_columns(victim=pl.lit("defence"), threat_passes=pl.lit(9.0))
    text = Page(report(frame)).text
    assert "DRQ linf was measured only under attacks on itself." in text
    assert "static worst case" in text


def test_the_page_is_the_same_every_time():
    frame = records(30)
    assert report(frame) == report(frame)


def test_many_cells_stay_small():
    """Corruptions are told by their mean in figures, and every model has some."""
    kinds = ("fog", "frost", "snow", "contrast", "pixelate", "brightness")
    frame = records(
        20, ("a", "b", "c"), tuple(f"cifar10-c/{kind}/5" for kind in kinds), {str(each): "suite" for each in range(6)}
    )
    text = report(frame)
    assert len(text) < 3e6
    assert all(f"<b>Accuracy: {model}</b>" in text for model in "abc")
    assert text.count("<figure>") <= 20


def test_every_model_has_its_turn():
    frame = records(4, ("a", "b"), tuple(f"set {each}" for each in range(16)), {"clean": "clean", "PGD": "PGD"})
    text = report(frame)
    assert "<b>Accuracy: a, set 0</b>" in text
    assert "<b>Accuracy: b, set 0</b>" in text
    assert "These are the first 14; drq.report.plots draws the others." in text


def test_no_rows():
    refused(report, records().clear(), words=["records must have rows"])
    refused(report, records().drop("margin"), words=["all columns", "margin"])


@pytest.mark.slow
def test_a_million_rows():
    done = subprocess.run([sys.executable, BENCHMARK], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"] == 1_000_000
    assert found["peak_gib"] < 2e9 / 2**30
    assert found["tables_seconds"] + found["report_seconds"] < 20
    assert found["page_mb"] < 3


@pytest.mark.parametrize(("better", "kind"), [("margin", "gain"), ("confidence", "loss")])
def test_who_knows_its_errors_better_is_marked(better: str, kind: str) -> None:
    """An area below that of the undefended model is a gain: fewer of the answers that are given are wrong."""
    frame = records(300, models=("a",), threats={"clean": "clean"})
    right, base = pl.col("prediction") == pl.col("label"), pl.col("base_prediction") == pl.col("label")
    knows = {"margin": right.cast(pl.Float64), "confidence": 1 - base.cast(pl.Float64)}
    if better == "confidence":
        knows = {"margin": 1 - right.cast(pl.Float64), "confidence": base.cast(pl.Float64)}
    frame = frame.with_columns(
        margin=pl.when(pl.col("margin").is_not_null()).then(knows["margin"]), confidence=knows["confidence"]
    )
    table = report(frame).partition("Knowing when not to answer</h2>")[2].partition("</table>")[0]
    assert f'class="{kind}"' in table
    assert f'class="{"loss" if kind == "gain" else "gain"}"' not in table


def test_chance_is_told_for_so_many_comparisons() -> None:
    page = report(records(100, models=("a",)))
    found = verdict(records(100, models=("a",))).findings
    assert f"Of {len(found)} comparisons without any real difference, up to {0.05 * len(found):.3g} would" in page

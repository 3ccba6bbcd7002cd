"""Figures: what is drawn is compared with counts in plain Python, with scipy's intervals and matplotlib's own boxes."""

import io
import subprocess
import sys
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from matplotlib.cbook import boxplot_stats
from matplotlib.figure import Figure
from scipy.stats import binomtest
from testbed.figures import calibrated, stepped
from testbed.refusals import refused
from testbed.repository import ROOT, reaching
from testbed.synthetic import records

from drq.report import plot_style, plots

ONE = records(models=("a",))
RADII = {"FAB": 4 / 255, "Square": 4 / 255, "APGD-L2": 0.25, "FAB wide": 8 / 255, "Square wide": 8 / 255, "PGD": 8 / 255}


def shares(frame, *keys):
    """Accuracy in percent by these columns and the defence; a sample of several rows must be right in all of them."""
    right = {}
    for row in frame.iter_rows(named=True):
        samples = right.setdefault((*(row[key] for key in keys), row["defence"]), {})
        samples[row["index"]] = samples.get(row["index"], True) and row["prediction"] == row["label"]
    return {key: 100 * np.mean([*samples.values()]) for key, samples in right.items()}


def wide():
    """Two suites of a radius each, but for one threat in another norm; one threat more of the larger radius; and clean."""
    suites = {"clean": "clean", "FAB": "4", "Square": "4", "APGD-L2": "4", "FAB wide": "8", "Square wide": "8", "PGD": "PGD"}
    return records(models=("a",), threats=suites).with_columns(
        threat_radius=pl.col("threat").replace_strict(RADII, default=None, return_dtype=pl.Float64)
    )


def series(ax):
    """Lines by their name in the legend."""
    return {line.get_label(): line for line in ax.get_lines() if not line.get_label().startswith("_")}


def test_accuracy_by_threat():
    ax = plots.accuracy_by_threat(ONE)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["clean", "FAB", "Square", "worst of ensemble"]
    alone, worst = shares(ONE, "threat"), shares(ONE, "suite")
    for container, defence in zip(ax.containers, ("standard", "DRQ linf"), strict=True):
        assert container.get_label() == defence
        points, _, (bars,) = container
        expected = [alone[name, defence] for name in ("clean", "FAB", "Square")] + [worst["ensemble", defence]]
        np.testing.assert_allclose(points.get_xdata(), expected)
        assert [round(at) for at in points.get_ydata()] == [0, 1, 2, 3]
        for share, ((low, _), (high, _)) in zip(expected, bars.get_segments(), strict=True):
            interval = binomtest(round(share * 2), 200).proportion_ci(method="wilson")
            np.testing.assert_allclose([low, high], [100 * interval.low, 100 * interval.high])


def test_accuracy_by_threat_names_what_differs():
    several = pl.concat([records(data=("fog", "snow"), threats={"clean": "clean"}), ONE.with_columns(victim=pl.lit("defence"))])
    names = [label.get_text() for label in plots.accuracy_by_threat(several).get_yticklabels()]
    assert names[:2] == ["a, fog, clean", "a, snow, clean"]
    assert names[-1] == "a, cifar10, worst of ensemble, on the defence"


def test_worst_cases_follow_their_threats():
    several = records(models=("a",), threats={"FAB": "one", "Square": "one", "PGD": "two", "noise": "two"})
    names = [label.get_text() for label in plots.accuracy_by_threat(several).get_yticklabels()]
    assert names == ["FAB", "Square", "worst of one", "PGD", "noise", "worst of two"]


def test_accuracy_by_radius():
    frame = wide()
    ax = plots.accuracy_by_radius(frame)
    at = {"clean": 0.0, "4": 4 / 255, "8": 8 / 255, "PGD": 8 / 255}  # APGD-L2 stands beside the others of its suite
    expected = shares(frame.with_columns(place=pl.col("suite").replace_strict(at)), "place")
    lines = series(ax)
    assert [*lines] == ["standard", "DRQ linf"]
    for defence, line in lines.items():
        np.testing.assert_allclose(line.get_xdata(), [0, 4 / 255, 8 / 255])
        np.testing.assert_allclose(line.get_ydata(), [expected[place, defence] for place in (0, 4 / 255, 8 / 255)])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "4/255", "8/255"]
    low, high = (pick(ax.collections[0].get_paths()[0].vertices[:, 1]) for pick in (min, max))
    assert low < min(lines["standard"].get_ydata()) < max(lines["standard"].get_ydata()) < high


def test_a_suite_of_many_radii_is_taken_apart():
    radii = {"PGD 2": 2 / 255, "PGD 4": 4 / 255, "PGD 8": 8 / 255}
    frame = records(models=("a",), threats=dict.fromkeys(radii, "attacks"))
    frame = frame.with_columns(threat_radius=pl.col("threat").replace_strict(radii))
    expected = shares(frame, "threat")
    line = series(plots.accuracy_by_radius(frame))["DRQ linf"]
    np.testing.assert_allclose(line.get_xdata(), [*radii.values()])
    np.testing.assert_allclose(line.get_ydata(), [expected[name, "DRQ linf"] for name in radii])


@pytest.mark.parametrize(("of", "places"), [("explore", (1, 5, 20)), ("quantify", (5, 20))])
def test_accuracy_by_steps(of, places):
    frame = stepped()
    ax = plots.accuracy_by_steps(frame, of=of)
    expected = shares(frame.drop_nulls("explore_steps"), "threat", "explore_steps", "quantify_steps")
    expected = {key[:-1]: value for key, value in expected.items()}
    lines = series(ax)
    assert [*lines] == ["clean", "PGD"]
    for threat, line in lines.items():
        assert tuple(line.get_xdata()) == places
        pairs = [(step, 20) if of == "explore" else (20, step) for step in places]
        np.testing.assert_allclose(line.get_ydata(), [expected[threat, *pair] for pair in pairs])
    assert ax.get_xlabel() in ("steps of exploration (quantification: 20)", "steps of quantification (exploration: 20)")


def test_radius_by_threshold():
    frame = calibrated()
    ax = plots.radius_by_threshold(frame)
    (line,) = (each for each in ax.get_lines() if len(each.get_xdata()) > 1)
    assert tuple(line.get_xdata()) == (0.1, 0.5, 0.9, 0.999)
    for threshold, median in zip(line.get_xdata(), line.get_ydata(), strict=True):
        radii = frame.filter(threshold=threshold)["radius"].fill_null(np.inf)  # no radius is a large one
        assert median == np.quantile(radii, 0.5, method="lower")
    assert (ax.get_xscale(), ax.get_yscale()) == ("logit", "log")


def test_the_radius_has_a_plain_axis_where_that_is_enough():
    assert plots.radius_by_threshold(calibrated((0.3, 0.5), 1.5)).get_yscale() == "linear"
    assert plots.radius_by_threshold(calibrated((0.5, 1.0))).get_xscale() == "linear"


def test_cosine():
    ax = plots.cosine(ONE)
    put_right = ONE.filter(pl.col("prediction") == pl.col("label"), pl.col("base_prediction") != pl.col("label"))
    names = [label.get_text() for label in ax.get_yticklabels()]
    drawn = [np.ravel(line.get_xdata()) for line in ax.get_lines()]
    for number, threat in enumerate(("FAB", "Square")):
        values = put_right.filter(threat=threat)["cosine"].drop_nulls().to_numpy()
        (box,) = boxplot_stats(values)
        assert names[number] == f"{threat} ({len(values)})"
        for ends in ([box["q1"], box["q3"]], [box["med"], box["med"]], [box["whislo"], box["q1"]], [box["q3"], box["whishi"]]):
            assert any(np.allclose([min(line), max(line)], ends, rtol=0, atol=1e-12) for line in drawn), (threat, ends)


def test_ablation():
    frame = records(models=("a",), defences=("standard", "DRQ linf", "DRQ l2"), threats={"clean": "clean", "PGD": "PGD"})
    ax = plots.ablation(frame)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["DRQ linf", "DRQ l2"]
    expected = shares(frame, "threat")
    bars = [each for each in ax.containers if hasattr(each, "patches")]
    for container, threat in zip(bars, ("clean", "PGD"), strict=True):
        assert container.get_label() == threat
        for bar, defence in zip(container.patches, ("DRQ linf", "DRQ l2"), strict=True):
            np.testing.assert_allclose(bar.get_width(), expected[threat, defence] - expected[threat, "standard"])
        segments = container.errorbar[2][0].get_segments()
        for bar, ((low, _), (high, _)) in zip(container.patches, segments, strict=True):
            assert low <= bar.get_width() <= high
            assert high - low > 1  # points, on 200 samples


def test_risk_coverage():
    frame = ONE.filter(threat="FAB")
    lines = series(plots.risk_coverage(frame))
    drq = frame.filter(defence="DRQ linf")
    scores = {
        "undefended, by confidence": ("base_prediction", "confidence"),
        "undefended, by logit margin": ("base_prediction", "logit_margin"),
        "DRQ linf, by margin": ("prediction", "margin"),
    }
    assert set(lines) == set(scores)
    for name, (answer, score) in scores.items():
        coverage, risk = lines[name].get_data()
        wrong, trust = (drq[answer] != drq["label"]).to_numpy(), drq[score].to_numpy()
        for share, errors in zip(coverage, risk, strict=True):
            threshold = np.sort(trust)[::-1][round(share * 2) - 1]
            np.testing.assert_allclose(errors, 100 * wrong[trust >= threshold].mean())
        assert coverage[-1] == 100


def test_curves_of_many_samples_are_thinned():
    many = records(5000, models=("a",), threats={"clean": "clean"})
    assert all(len(line.get_xdata()) <= plots.MOST_POINTS for line in series(plots.risk_coverage(many)).values())


def test_axes_of_the_caller_are_used():
    first, second = Figure().subplots(1, 2)
    assert plots.accuracy_by_threat(ONE, first) is first
    assert plots.cosine(ONE, ax=second) is second
    assert first.has_data()
    assert second.has_data()


def test_no_figure_needs_a_display_or_pyplot():
    code = (
        "import sys\n"
        "from testbed.synthetic import records\nfrom drq.report import plots\n"
        "plots.accuracy_by_threat(records(20)).figure.savefig(sys.stdout.buffer, format='png')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, env=reaching(ROOT / "tests"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"\x89PNG")


def test_series_differ_without_colour():
    looks = [plot_style.line(number) for number in range(14)]
    for first, second in combinations(looks, 2):
        assert first != second
    for first, second in combinations(looks[:4], 2):  # in grey, too
        assert first["marker"] != second["marker"]
        assert first["linestyle"] != second["linestyle"]


def test_names_from_anywhere():
    """Dollars are no formulas, an underscore hides nothing, control characters do not reach the figure."""
    names = ("standard", "$\\frac$", "_hidden", "a$b", "line\nbreak\x07", "<b>", "x" * 100)
    frame = records(20, models=("a",), defences=names, threats={"clean": "clean", "$$": "_"})
    ax = plots.accuracy_by_threat(frame)
    ax.figure.savefig(io.BytesIO(), format="svg")
    shown = [text.get_text() for text in ax.get_legend().get_texts()]
    assert len(shown) == len(names)
    assert shown[2] == " _hidden"
    assert shown[4] == "line?break?"
    assert len(shown[-1]) == plot_style.LONGEST


ALL = {
    "accuracy_by_threat": ONE,
    "accuracy_by_radius": wide(),
    "accuracy_by_steps": stepped(),
    "radius_by_threshold": calibrated(),
    "cosine": ONE,
    "ablation": ONE,
    "risk_coverage": ONE.filter(threat="clean"),
}


@pytest.mark.parametrize("name", ALL)
def test_without_rows_there_is_one_clear_error(name):
    draw = getattr(plots, name)
    draw(ALL[name])
    refused(draw, ALL[name].clear(), words=["records must have rows"])
    refused(draw, ALL[name].drop("label"), words=["records must have all columns", "label"])


@pytest.mark.parametrize("name", ["accuracy_by_radius", "accuracy_by_steps", "radius_by_threshold", "risk_coverage"])
def test_figures_of_one_model_refuse_two(name):
    both = pl.concat([ALL[name], ALL[name].with_columns(model=pl.lit("other"))])
    refused(getattr(plots, name), both, words=["be about one model", "'a', 'other'", "filter them by model"])


def test_refusals_say_what_is_missing():
    refused(plots.accuracy_by_radius, ONE.filter(suite="ensemble"), words=["2 values of threat_radius, got 1"])
    refused(plots.accuracy_by_steps, ONE, words=["2 values of explore_steps, got 1"])
    refused(plots.accuracy_by_steps, stepped(), of="both", words=["of must be 'explore' or 'quantify', got 'both'"])
    refused(plots.radius_by_threshold, ONE, words=["2 values of threshold, got 0"])
    refused(plots.cosine, ONE.filter(threat="clean"), words=["cosine of a sample that DRQ puts right"])
    refused(plots.ablation, ONE.filter(defence="standard"), words=["hold a defence beside 'standard', got 'standard'"])
    refused(plots.risk_coverage, ONE.filter(threat="clean", defence="standard"), words=["hold margins"])


def test_a_line_never_mixes_defences():
    """Two defences of as many steps may differ in anything else."""
    twin = stepped().filter(defence="DRQ 5+20").with_columns(defence=pl.lit("DRQ l2 5+20"))
    refused(plots.accuracy_by_steps, pl.concat([stepped(), twin]), words=["one defence for each", "DRQ 5+20, DRQ l2 5+20"])

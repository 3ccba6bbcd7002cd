"""The figures of the paper as files: the same bytes in every process, and what they show."""

import subprocess
import sys
from xml.etree import ElementTree

import matplotlib
import polars as pl
import pytest
from testbed.figures import MADE, attacked
from testbed.refusals import refused
from testbed.repository import ROOT, reaching

import drq
from drq.reproduction import paper_figures


@pytest.fixture
def coarse(monkeypatch):
    """Figure 1 with fewer points."""
    draw = paper_figures.figure1
    monkeypatch.setattr(paper_figures, "figure1", lambda: draw(pixels=12))


def words(path):
    """All text of a figure."""
    return [node.text for node in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def test_names():
    assert paper_figures.FIGURES == ("figure1", "figure2", "figure3", "figure4", "figure5")
    refused(paper_figures.draw, "figure6", MADE["figure2"], ".", words=["name must be one of figure1, figure2", "'figure6'"])
    refused(paper_figures.draw, "figure2", None, ".", words=["records must hold those of figure2, got none"])
    refused(paper_figures.draw, "figure3", MADE["figure3"].clear(), ".", words=["records must hold those of figure3"])


SHOWN = {
    "figure2": ["radius of the threat", "16/255", "DRQ linf, paper"],
    "figure3": ["steps of exploration (quantification: 20)", "steps of quantification (exploration: 20)"],
    "figure4": ["confidence asked for in calibration", "0.999"],
    "figure5": ["cosine"],
}


@pytest.mark.parametrize("name", MADE)
def test_a_figure_of_records(name, tmp_path):
    """What a user has set for figures of their own changes nothing, and is left as it was."""
    path = paper_figures.draw(name, MADE[name], tmp_path / "new")
    assert path == tmp_path / "new" / f"{name}.svg"
    assert not set(SHOWN[name]) - set(words(path))
    with matplotlib.rc_context({"font.size": 23, "lines.linewidth": 9, "svg.fonttype": "path"}):
        assert paper_figures.draw(name, MADE[name], tmp_path).read_bytes() == path.read_bytes()
        assert matplotlib.rcParams["font.size"] == 23
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.usefixtures("coarse")
@pytest.mark.slow
def test_figures_are_the_same_in_another_process(tmp_path):
    code = (
        "import sys\n"
        "from testbed.figures import MADE\n"
        "from drq.reproduction import paper_figures\n"
        "draw = paper_figures.figure1; paper_figures.figure1 = lambda: draw(pixels=12)\n"
        "for name in paper_figures.FIGURES: paper_figures.draw(name, MADE.get(name), sys.argv[1])\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "other")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=reaching(ROOT / "tests")) as process:
        here = [paper_figures.draw(name, MADE.get(name), tmp_path) for name in paper_figures.FIGURES]
        assert process.wait(120) == 0, process.stderr.read()
    for path in here:
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes(), path.name
    titles = [each for each in words(tmp_path / "figure1.svg") if each.startswith("(")]
    assert titles == ["(a) Calibration", "(b) Exploration", "(c) Quantification", "(d) Decision boundary of DRQ"]


def test_the_example_is_the_first_that_fits():
    """By its rule, one point after the other."""
    robust = drq.DRQ(drq.load_model("gaussians-svm"), "l2", drq.Calibrated(paper_figures.CONFIDENCE))
    chosen, label = paper_figures.example_point(robust)
    x, y = drq.load_data("gaussians").batch(range(120))
    found = robust.decide(x)
    rows = zip(robust.model(x).argmax(1).tolist(), found.label.tolist(), found.radius.tolist(), y.tolist(), strict=True)
    fits = [base != truth and answer == truth and radius < float("inf") for base, answer, radius, truth in rows]
    assert chosen[0].tolist() == x[fits.index(True)].tolist()
    assert label == y[fits.index(True)]


def test_at_its_own_confidence_no_point_is_corrected():
    refused(
        paper_figures.example_point, drq.DRQ(drq.load_model("gaussians-svm"), "l2"), words=["leave a point that DRQ corrects"]
    )


def test_the_numbers_of_the_paper_stand_beside_those_of_the_records():
    ax = paper_figures.figure2(MADE["figure2"]).axes[0]
    lines = {line.get_label(): line for line in ax.get_lines()}
    paper = lines["DRQ linf, paper"]
    assert paper.get_linestyle() == ":"
    assert paper.get_color() == lines["DRQ linf"].get_color()
    assert paper.get_ydata().tolist() == [82.44, 48.52, 20.12]
    assert paper.get_xdata().tolist() == pytest.approx([0, 8 / 255, 16 / 255])


def test_one_model_is_drawn_the_first_stand_in(tmp_path):
    whole = attacked("other", "cifar10-l2", "cifar10-linf")
    alone = paper_figures.draw("figure2", whole.filter(model="cifar10-linf"), tmp_path / "alone").read_bytes()
    on_defence = whole.with_columns(victim=pl.lit("defence"), prediction=pl.lit(0, pl.Int64))
    assert paper_figures.draw("figure2", pl.concat([whole, on_defence]), tmp_path).read_bytes() == alone
    foreign = attacked("other", "another")
    first = paper_figures.draw("figure2", foreign.filter(model="other"), tmp_path / "first").read_bytes()
    assert paper_figures.draw("figure2", foreign, tmp_path).read_bytes() == first != alone

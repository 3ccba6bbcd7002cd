"""Draw the figures of the paper as SVG from the records of their experiments, with the same bytes in every run.

Figure 1 has no records: its classifier is fitted, and the figure computed, when it is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from drq import data, models
from drq.drq import DRQ
from drq.errors import imported, nearest, require
from drq.evaluation.paper import published, stand_ins
from drq.evaluation.records import require_polars
from drq.method.calibration import Calibrated
from drq.models.plane import NAME
from drq.report import plot_style, plots
from drq.system.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from polars import DataFrame

REMEDY = "pip install 'decision-region-quantification[report]'"
RC_PARAMS = {"svg.fonttype": "none", "figure.dpi": 72}  # letters as text, which takes a tenth of the size of paths
CONFIDENCE = 0.995  # that calibration asks for in Figure 1: radii are then large enough to correct answers


def draw(name: str, records: DataFrame | None, folder: Path) -> Path:
    """Write the named figure to ``folder``; ``records`` are those of its experiment, None for Figure 1."""
    require(name in FIGURES, "name", f"be one of {', '.join(FIGURES)}", repr(name), nearest(name, FIGURES, "choose one"))
    return save_figure(name, lambda: figure1() if name == "figure1" else FROM_RECORDS[name](_of_one_model(name, records)), folder)


def save_figure(name: str, make: Callable[[], Figure], folder: Path) -> Path:
    """Make a figure and write it to ``folder`` as SVG, always with the same bytes."""
    path = Path(folder) / f"{name}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    matplotlib = imported("matplotlib", "figures", REMEDY)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # so that settings of the user do not change the figure
        matplotlib.rcParams.update(RC_PARAMS | {"svg.hashsalt": name})
        figure = make()
        with atomic_write(path) as file:
            figure.savefig(file, format="svg", metadata={"Date": None})
    return path


def example_point(robust: DRQ) -> tuple[Tensor, int]:
    """Return the first test point (1, 2) that the classifier gets wrong and DRQ with a calibrated radius right, and its class.

    Figure 1 calibrates to :data:`CONFIDENCE` and not to the confidence of the point itself, so that there is such a point.
    """
    points = data.load("gaussians")
    x, y = points.batch(range(len(points)))
    decision = robust.decide(x)
    corrected = (decision.base_label != y) & (decision.label == y) & decision.found
    require(bool(corrected.any()), "confidence", "leave a point that DRQ corrects", "none", f"{CONFIDENCE} does")
    first = int(corrected.long().argmax())
    return x[first : first + 1], int(y[first])


def figure1(pixels: int = 300) -> Figure:
    """Draw the steps of DRQ at the example point, and its decision boundary."""
    robust = DRQ(models.load(NAME), "l2", Calibrated(CONFIDENCE))
    x, label = example_point(robust)
    training = data.load("gaussians", "train")
    return plots.figure1(robust.plane(x, pixels=pixels), training.batch(range(len(training))), label=label)


def figure2(records: DataFrame) -> Figure:
    """Draw the accuracy by the radius of the attacks, with the paper's as dotted lines."""
    pl = require_polars()
    ax = plots.accuracy_by_radius(records)
    radius = plots.radii(records).group_by("suite").agg(pl.col("threat_radius").max())
    paper = published("figure2").filter(model=records["model"][0]).join(radius, on="suite").sort("threat_radius")
    for number, defence in enumerate(plot_style.in_order(records, "standard")):
        rows = paper.filter(defence=defence)
        if len(rows):
            style = plot_style.line(number) | {"linestyle": ":", "markerfacecolor": "white"}
            ax.plot(rows["threat_radius"], rows["value"], label=plot_style.text(f"{defence}, paper"), **style)
    plot_style.legend(ax)
    return _figure_of(ax)


def figure3(records: DataFrame) -> Figure:
    """Draw the accuracy by the steps of exploration, and of quantification."""
    size = (2 * plot_style.WIDTH, 3.3)
    figure: Figure = imported("matplotlib.figure", "figures", REMEDY).Figure(figsize=size, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    plots.accuracy_by_steps(records, left, of="explore")
    plots.accuracy_by_steps(records, right, of="quantify")
    right.set_ylabel("")
    return figure


def figure4(records: DataFrame) -> Figure:
    """Draw the calibrated radius by the confidence that is asked for."""
    return _figure_of(plots.radius_by_threshold(records))


def figure5(records: DataFrame) -> Figure:
    """Draw the cosine between the direction of DRQ and that of the attack."""
    return _figure_of(plots.cosine(records))


def risk_coverage_panels(answers: Mapping[str, DataFrame]) -> Figure:
    """Draw risk against coverage, a panel for each named shift."""
    make = imported("matplotlib.figure", "figures", REMEDY).Figure
    columns = min(4, len(answers))
    lines = -(-len(answers) // columns)
    figure: Figure = make(figsize=(columns * 2.6, 2.4 * lines + 0.5), layout="constrained")
    panels = [*figure.subplots(lines, columns, squeeze=False).flat]
    for panel, (shift, rows) in zip(panels, answers.items(), strict=False):
        plots.risk_coverage(rows, panel).set_title("clean" if shift == "none" else shift, fontsize="medium")
        panel.get_legend().remove()
        panel.set(xlabel="", ylabel="")
    for panel in panels[len(answers) :]:
        panel.axis("off")
    first = figure.axes[0]
    figure.legend(*first.get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize="small", frameon=False)
    figure.supxlabel("samples answered, in %", fontsize="medium")
    figure.supylabel("errors among answers, in %", fontsize="medium")
    return figure


def _figure_of(ax: Axes) -> Figure:
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def _of_one_model(name: str, records: DataFrame | None) -> DataFrame:
    """Return the records, under threats to the undefended model, of the paper's first stand-in, or else of the first model."""
    available = records is not None and len(records) > 0
    require(available, "records", f"hold those of {name}", "none", f"evaluate the spec {name} first")
    assert records is not None
    present = records["model"].unique(maintain_order=True).to_list()
    model = next((each for each in stand_ins() if each in present), present[0])
    return records.filter(model=model, victim="base")


FROM_RECORDS: dict[str, Callable[[DataFrame], Figure]] = {
    "figure2": figure2,
    "figure3": figure3,
    "figure4": figure4,
    "figure5": figure5,
}
FIGURES = ("figure1", *FROM_RECORDS)

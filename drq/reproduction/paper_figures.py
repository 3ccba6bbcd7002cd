"""The figures of the paper as SVG, the same bytes in every run: drawn from the records of their experiments.

Figure 1 has no records: it is computed at once, from a machine that is fitted at once.
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
from drq.report import drawing, plots
from drq.system.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from polars import DataFrame

REMEDY = "pip install 'decision-region-quantification[report]'"
LOOK = {"svg.fonttype": "none", "figure.dpi": 72}  # letters as text: a tenth of the size
CONFIDENCE = 0.995  # of Figure 1: its radii are of the size of the pockets, and corrections can be seen


def draw(name: str, records: DataFrame | None, folder: Path) -> Path:
    """Write the figure of this name to ``folder``; ``records`` are those of its experiment, None for Figure 1."""
    require(name in FIGURES, "name", f"be one of {', '.join(FIGURES)}", repr(name), nearest(name, FIGURES, "choose one"))
    return saved(name, lambda: figure1() if name == "figure1" else FROM_RECORDS[name](_of_one_model(name, records)), folder)


def saved(name: str, make: Callable[[], Figure], folder: Path) -> Path:
    """Write a figure that is made now to ``folder``: as SVG, the same bytes always."""
    path = Path(folder) / f"{name}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    matplotlib = imported("matplotlib", "figures", REMEDY)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # what the reader has set for figures of their own does not count
        matplotlib.rcParams.update(LOOK | {"svg.hashsalt": name})
        figure = make()
        with atomic_write(path) as file:
            figure.savefig(file, format="svg", metadata={"Date": None})
    return path


def example(robust: DRQ) -> tuple[Tensor, int]:
    """The first test point (1, 2) that the machine gets wrong and DRQ right, with a radius of calibration; and its class.

    With the confidence of the point itself as threshold there is none: of the 132 test points that the machine gets wrong, 90
    get a radius, and DRQ corrects none of them. So Figure 1 asks for :data:`CONFIDENCE`.
    """
    points = data.load("gaussians")
    x, y = points.batch(range(len(points)))
    found = robust.decide(x)
    chosen = (found.base_label != y) & (found.label == y) & found.found
    require(bool(chosen.any()), "confidence", "leave a point that DRQ corrects", "none", f"{CONFIDENCE} does")
    first = int(chosen.long().argmax())
    return x[first : first + 1], int(y[first])


def figure1(pixels: int = 300) -> Figure:
    """The steps of DRQ at the example, and its decision boundary."""
    robust = DRQ(models.load(NAME), "l2", Calibrated(CONFIDENCE))
    x, label = example(robust)
    training = data.load("gaussians", "train")
    return plots.figure1(robust.plane(x, pixels=pixels), training.batch(range(len(training))), label=label)


def figure2(records: DataFrame) -> Figure:
    """Accuracy by the radius of the attacks; dotted, that of the paper."""
    pl = require_polars()
    ax = plots.accuracy_by_radius(records)
    radius = plots.radii(records).group_by("suite").agg(pl.col("threat_radius").max())
    paper = published("figure2").filter(model=records["model"][0]).join(radius, on="suite").sort("threat_radius")
    for number, defence in enumerate(drawing.in_order(records, "standard")):
        rows = paper.filter(defence=defence)
        if len(rows):
            look = drawing.line(number) | {"linestyle": ":", "markerfacecolor": "white"}
            ax.plot(rows["threat_radius"], rows["value"], label=drawing.text(f"{defence}, paper"), **look)
    drawing.legend(ax)
    return _whole(ax)


def figure3(records: DataFrame) -> Figure:
    """Accuracy by the steps of exploration, and of quantification."""
    size = (2 * drawing.WIDTH, 3.3)
    figure: Figure = imported("matplotlib.figure", "figures", REMEDY).Figure(figsize=size, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    plots.accuracy_by_steps(records, left, of="explore")
    plots.accuracy_by_steps(records, right, of="quantify")
    right.set_ylabel("")
    return figure


def figure4(records: DataFrame) -> Figure:
    """The calibrated radius by the confidence asked for."""
    return _whole(plots.radius_by_threshold(records))


def figure5(records: DataFrame) -> Figure:
    """The direction of DRQ beside that of the attack."""
    return _whole(plots.cosine(records))


def selective(answers: Mapping[str, DataFrame]) -> Figure:
    """Risk against coverage under each shift, by its name."""
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
    shown = figure.axes[0]
    figure.legend(*shown.get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize="small", frameon=False)
    figure.supxlabel("samples answered, in %", fontsize="medium")
    figure.supylabel("errors among answers, in %", fontsize="medium")
    return figure


def _whole(ax: Axes) -> Figure:
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def _of_one_model(name: str, records: DataFrame | None) -> DataFrame:
    """The records of the first stand-in for a model of the paper, or else of the first model, when it is attacked itself."""
    given = records is not None and len(records) > 0
    require(given, "records", f"hold those of {name}", "none", f"evaluate the spec {name} first")
    assert records is not None
    present = records["model"].unique(maintain_order=True).to_list()
    chosen = next((each for each in stand_ins() if each in present), present[0])
    return records.filter(model=chosen, victim="base")


FROM_RECORDS: dict[str, Callable[[DataFrame], Figure]] = {
    "figure2": figure2,
    "figure3": figure3,
    "figure4": figure4,
    "figure5": figure5,
}
FIGURES = ("figure1", *FROM_RECORDS)

"""Write the page on networks and pictures of others: what DRQ gains there, beside what the paper says and our own models.

Like the ledger, it is made from kept records alone, its verdicts too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drq.evaluation.records import require_polars
from drq.report import tables
from drq.report.typesetting import text_table
from drq.reproduction.cells import corruptions_as_data
from drq.reproduction.experiments import BEYOND
from drq.reproduction.kept_records import Record, read_record
from drq.reproduction.measures import MARGIN
from drq.reproduction.overview import ALONE, verdict_table
from drq.reproduction.provenance import provenance
from tools.benchmarks.imagenet_cpu import REFERENCE
from tools.pages import blocks

if TYPE_CHECKING:
    import polars

CIFAR10, PLAIN, MNIST, PICTURES, INSTANT, RED_TEAM = BEYOND["networks"]
CALIBRATED = "l2, calibrated"
ROBUST = {  # networks: how they were trained, and the DRQ that follows from it
    "published:resnet2b": ("adversarial, linf 2/255", "linf 4/255"),
    "published:resnet4b": ("adversarial, linf 2/255", "linf 4/255"),
    "published:cnn-a-mix": ("robust, radius not stated", CALIBRATED),
    "published:cnn-a-adv4": ("adversarial, radius not stated", CALIBRATED),
    "published:convex-mnist": ("certified, linf 0.1", "linf 0.2"),
    "published:lenet5-advtrained": ("adversarial, linf 0.3", "linf 0.6"),
}
PLAINLY = {
    "published:resnet20": ("plain", CALIBRATED),
    "published:resnet56": ("plain", CALIBRATED),
    "published:lenet5-clntrained": ("plain", CALIBRATED),
}
COLUMNS = ("clean", "corrupted", "rotated once", "moved once", "attack on the model alone")
THREATS = {"clean": "clean", "rotation": "rotated once", "translation": "moved once"}
WORST = "worst case of the ensemble"
OURS = {  # columns of the README, and those that they are compared with
    "clean": "clean",
    "15 corruptions": "corrupted",
    "rotated once": "rotated once",
    "moved once": "moved once",
    "attacks made for the model alone": "attack on the model alone",
}
STATEMENTS = (  # what the paper says, on which columns, of robust networks or of plain ones, and the sign of the gain
    ("Corrupted images of adversarially trained models are answered better (Table 1).", ("corrupted",), True, 1),
    ("Clean images are answered almost as before (Table 6).", ("clean",), True, 0),
    ("Rotated images are answered better (Table 3).", ("rotated once",), True, 1),
    ("Moved images are answered better (Table 3).", ("moved once",), True, 1),
    ("Images attacked for the model alone are answered better (Table 4).", ("attack on the model alone",), True, 1),
    ("Around plainly trained models nothing changes (Appendix D).", ("clean", "corrupted"), False, 0),
)
Cells = Mapping[tuple[str, str], Mapping[str, Any]]  # rows of tables, by network and column

HEAD = """\
# Real models and pictures

What does DRQ gain around networks that we did not train, and on photographs? Nine small
[networks of others](models.md#networks-of-others) and a classifier of [ImageNet](models.md#imagenet-without-a-download)
answered images on which nothing was chosen. `make pages` makes this page from the records in `results/paper`, which
`drq reproduce networks --keep results/paper` makes.

In short: around none of the nine networks a gain is shown, under any shift below. Around the two that were trained at 2/255
all differences are within chance, and most are above 0, by a point at most. Around the network of MNIST that was trained at
0.3, twice that radius is far too much, and most answers become wrong. Around plainly trained networks next to nothing
changes. Attacked itself, DRQ is not shown to withstand more than the network alone.
"""
SAID = """\
*Same* and *other*: the whole 95 % interval lies on the paper's side, or on the other one; for "no difference" within
{margin:g} points of 0, or outside of them. *Not shown*: neither. In brackets, points. Ours are the four models in the
[README](../README.md#what-it-gains-and-what-it-does-not), where the attack is the worst of an ensemble."""
GAINED = """\
Accuracy of the network alone in percent, and what the paper's DRQ adds, in points on the same images, with 95 % intervals.
Norm and radius of DRQ follow from the training: twice its radius where the source states one, else calibrated in l2.
*Corrupted* is the mean of so many corruptions at severity 5. Images are rotated by up to 20 degrees and moved by up to 4
pixels once each, at random. The attack is APGD in linf with 100 steps, at the radius of the training, at 2/255 where none
is stated: made for the network alone, it is no evidence of security. *Images* is their number in each column but
*corrupted*, where it is that of each corruption; what is blank was not measured."""
TABLE4 = """\
The question of the paper's [Table 4](ledger.md), on networks of MNIST: the share of images that withstand a whole ensemble
of attacks, each made for the network alone."""
DIGITS = """\
Around the certified network and the one trained at 0.3, twice the radius of the training is 0.2 and 0.6 of the range of
pixels: with 0.6, every pixel can be moved past the middle of its range, which is enough to paint another digit. The paper
has no such radius: its largest is 16/255."""
TEAM = """\
The [red team](threats.md#the-red-team) at its quick strength attacks DRQ itself. Few images: the intervals are wide."""
PHOTOS = """\
`imagenet-lite0`, plainly trained, on photographs of `nips2017`, and these corrupted at two severities. The likeliest
classes are searched, ten, or five with the preset `instant`; the radius is calibrated. *Changed* counts answers other than
those of the network alone."""
BESIDE = """\
The quicker settings beside the paper's 20 + 20 steps on the same pictures: how many labels are the same, how large the radius is
(the median of its ratio), and whether margins rank answers alike (Spearman's correlation)."""
COST = """\
What an answer costs on a CPU, at 224 x 224 pixels: CPU time of one thread in seconds; memory is the peak of the whole
process. `race` drops classes early, without which all 1000 would take up to 42,000 passes. *Same* compares labels with
those of the same images by `{reference}`. A fixed radius saves the calibration, but none is known that fits every
picture of a plainly trained network: here l2 0.5 is too far for some. `python -m tools.benchmarks.imagenet_cpu`
measures it."""
OFFERED = """\
What makes a single answer on a CPU quick, by name:

- `drq predict photo.jpg --preset instant`, or `drq.DRQ(model, **drq.preset("instant"))`: five classes, one step of each
  search, and a calibration of ten steps instead of a hundred, which finds a somewhat larger radius.
- `drq predict photo.jpg`, the preset `fast` with ten classes: one step of each search, with the paper's calibration.
- `precision="bfloat16"`, where the CPU multiplies it (avx512_bf16, amx_bf16): quicker, with more rounding in radii and
  margins.
"""


def page(folder: Path) -> str:
    """Return the whole page."""
    records = {name: read_record(folder, name) for name in BEYOND["networks"]}
    parts = [HEAD, "## What the paper says", *summary(folder), "## Networks of others", *_gained(network_cells(folder))]
    parts += [provenance(name, records[name]) for name in (CIFAR10, PLAIN, MNIST)]
    parts += ["## Attacked themselves", *_attacked(records[RED_TEAM]), provenance(RED_TEAM, records[RED_TEAM])]
    parts += ["## Photographs", *_photographs(records), *(provenance(name, records[name]) for name in (PICTURES, INSTANT))]
    parts += ["## What one answer costs on a CPU", OFFERED, COST.format(reference=REFERENCE)]
    parts += [blocks.script("imagenet-cpu")]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def summary(folder: Path) -> Iterator[str]:
    """Yield what the paper says beside what came out around networks of others, and around ours."""
    cells = network_cells(folder)
    ours = {(model, OURS[column]): row for (model, column), row in blocks.gain_cells(folder).items() if column in OURS}
    trained = [name for name, (training, _) in blocks.BEST.items() if training.startswith("adversarial")]
    yield SAID.format(margin=MARGIN)
    rows = []
    for says, columns, robust, sign in STATEMENTS:
        others = [*(ROBUST if robust else PLAINLY)]
        mine = trained if robust else [name for name in blocks.BEST if name not in trained]
        both = (_part(cells, others), _part(ours, mine))
        rows.append([says, *("; ".join(_sorted_by_verdict(each, columns, sign)) or "not measured" for each in both)])
    yield text_table(("the paper", "networks of others", "ours"), rows)


def _part(cells: Cells, models: list[str]) -> Cells:
    return {place: row for place, row in cells.items() if place[0] in models}


def _sorted_by_verdict(cells: Cells, columns: tuple[str, ...], sign: int) -> Iterator[str]:
    """Yield each verdict with the networks of which it is true."""
    found: dict[str, list[str]] = {"same": [], "other": [], "not shown": []}
    for (model, column), row in cells.items():
        if column in columns:
            where = f", {column}" if len(columns) > 1 else ""
            found[verdict(row, sign)].append(f"`{model.removeprefix('published:')}`{where} ({row['difference']:+.1f})")
    yield from (f"{name}: {', '.join(members)}" for name, members in found.items() if members)


def verdict(row: Mapping[str, Any], sign: int) -> str:
    """Return whether a gain is that of the paper: above 0, or no larger than what counts as marginal where ``sign`` is 0."""
    low, high = row["difference_low"], row["difference_high"]
    least, most = (0.0, float("inf")) if sign else (-MARGIN, MARGIN)
    if low > least and high < most:
        return "same"
    return "other" if high < least or low > most else "not shown"


def network_cells(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the gains of the paper's DRQ around networks of others, by network and column."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for name in (CIFAR10, PLAIN, MNIST):
        if (record := read_record(folder, name)) is not None:
            for row in _cells(record.rows).filter(defence="DRQ").iter_rows(named=True):
                if (column := _column(row)) is not None:
                    found[row["model"], column] = row
    return found


def _column(row: Mapping[str, Any]) -> str | None:
    if row["threat"] == tables.WORST_CASE:
        return WORST if row["suite"].startswith("ensemble") else None
    if "-c/" in row["data"]:
        return "corrupted" if row["data_sets"] > 1 else None
    return "attack on the model alone" if row["threat"].startswith("transferred") else THREATS.get(row["threat"])


def _cells(rows: polars.DataFrame) -> polars.DataFrame:
    """Return single threats, worst cases of suites, and means over corruptions, with corruptions as data sets of their own."""
    pl = require_polars()
    shifted = corruptions_as_data(rows)
    parts = [tables.cells(shifted), tables.worst_case(shifted), tables.mean_over_data(shifted)]
    table: polars.DataFrame = pl.concat([part.select(*tables.GROUP, "defence", *tables.VALUES) for part in parts])
    return table.with_columns(pl.selectors.categorical().cast(pl.String))


def _gained(cells: Cells) -> Iterator[str]:
    """Yield the table of gains by network, that of ensembles, and what to know of the largest balls."""
    if not cells:
        return
    yield GAINED
    rows, worst = [], []
    for model, (training, drq) in (ROBUST | PLAINLY).items():
        mine = {column: row for (name, column), row in cells.items() if name == model}
        place = [f"`{model}`", training, drq]
        if "clean" in mine:
            shown = [_with_count(column, mine[column]) if column in mine else "" for column in COLUMNS]
            rows.append([*place, f"{mine['clean']['images']:,}", *shown, f"{mine['clean']['passes']:,.0f}"])
        if WORST in mine:
            row = mine[WORST]
            worst.append([*place, f"{row['images']:,}", f"{row['threats']}", blocks.gain_text(row)])
    yield text_table(("network", "training", "DRQ", "images", *COLUMNS, "passes"), rows)
    if worst:
        yield TABLE4
        yield text_table(("network", "training", "DRQ", "images", "attacks", "withstood: gain"), worst)
        yield DIGITS


def _with_count(column: str, row: Mapping[str, Any]) -> str:
    """Return the gain; a mean over corruptions says over how many."""
    return f"{row['data_sets']} kinds, {blocks.gain_text(row)}" if column == "corrupted" else blocks.gain_text(row)


def _attacked(record: Record | None) -> Iterator[str]:
    """Yield the table of gains under attacks on DRQ itself."""
    if record is not None:
        yield TEAM
        yield verdict_table(record.rows)


def _photographs(records: Mapping[str, Record | None]) -> Iterator[str]:
    """Yield the table of photographs."""
    pl = require_polars()
    rows = []
    for record in (records[PICTURES], records[INSTANT]):
        if record is None:
            continue
        cells = _cells(record.rows)
        for name in [each for each in record.rows["defence"].unique(maintain_order=True) if each != ALONE]:
            answers, mine = record.rows.filter(defence=name), cells.filter(defence=name)
            clean = mine.filter(pl.col("data") == "nips2017", pl.col("threat") == "clean").row(0, named=True)
            means = [mine.filter(pl.col("data") == f"nips2017-c/*/{severity}", pl.col("data_sets") > 1) for severity in (3, 5)]
            shown = ["" if not len(mean) else _with_count("corrupted", mean.row(0, named=True)) for mean in means]
            changed = answers.filter(pl.col("prediction") != pl.col("base_prediction"))
            cost = f"{float(answers['passes'].mean()):,.0f}"  # type: ignore[arg-type]
            counts = f"{len(changed):,} of {len(answers):,}"
            rows.append([name, f"{clean['images']:,}", blocks.gain_text(clean), *shown, counts, cost])
    if rows:
        yield PHOTOS
        head = ("defence", "pictures", "clean", "corrupted, severity 3", "corrupted, severity 5", "changed", "passes")
        yield text_table(head, rows)
    if both := [record.rows for record in (records[PICTURES], records[INSTANT]) if record is not None]:
        yield BESIDE
        columns = ("defence", "answers", "same label", "radius", "correlation of margins")
        yield text_table(columns, _beside_the_paper(pl.concat(both)))


def _beside_the_paper(rows: polars.DataFrame) -> Iterator[list[str]]:
    """Yield a row for each setting but the paper's, on the pictures that both answered."""
    pl = require_polars()
    paper = rows.filter(defence="DRQ")
    for name in [each for each in rows["defence"].unique(maintain_order=True) if each not in (ALONE, "DRQ")]:
        pairs = rows.filter(defence=name).join(paper, on=("model", "data", "threat", "index"), suffix="_paper")
        if not len(pairs):
            continue
        same = len(pairs.filter(pl.col("prediction") == pl.col("prediction_paper")))
        ratio = (pairs["radius"] / pairs["radius_paper"]).median()
        alike = pairs.select(pl.corr("margin", "margin_paper", method="spearman")).item()
        yield [name, f"{len(pairs):,}", f"{same:,}", _rounded(ratio), _rounded(alike)]


def _rounded(value: Any) -> str:
    return "" if value is None else f"{value:.2f}"

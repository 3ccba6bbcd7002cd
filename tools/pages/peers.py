"""Write the page of peers: other defences at the same cost, gains that survive attacks, and how well margins predict errors.

Like the ledger, it is made from kept records alone, its conclusions in words too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drq.evaluation.records import require_polars
from drq.report import selective
from drq.report.typesetting import number, text_table
from drq.reproduction.kept_records import Record, read_record
from drq.reproduction.overview import (
    OURS,
    PEERS,
    PLACES,
    RED_TEAM,
    accuracies,
    better_and_worse,
    concatenated,
    needs,
    other_attacks,
    red_team_cells,
    split_by,
    verdict_table,
    with_interval,
    worst_case,
)
from drq.reproduction.provenance import provenance

if TYPE_CHECKING:
    import polars

FIRST = "cifar10-linf"
CORRUPTED = "all corruptions"
SHIFTS = {  # experiments and their threats for which margins are evaluated
    "table6": ("clean",),
    "table1": ("clean",),
    "table3": ("one rotation", "one translation", "rotations", "translations"),
    "table7": ("FAB", "Square", "APGD-L2", "APGD-CE", "APGD-DLR", "PGD-noise", "PGD-attack"),
}
CURVES = "risk-coverage"  # name of the figure
RESAMPLES = 1000  # for the interval of an area

HEAD = """\
# Peers and attackers

Is DRQ worth its cost, and does what it gains survive an attacker who knows of it? `make pages` makes this page from the
records in `results/paper`, which `drq reproduce peers redteam --keep results/paper` makes. Accuracies are in percent,
differences in points on the same images, with 95 % intervals; *passes* are evaluations of the model for one answer, a mean.
"""
OVERVIEW = """\
Around `{model}`. Corruptions are the mean of all fifteen at severity 5; images are rotated and moved once each, at random,
and both at once the worst of 15 times for the model alone; the transferred attack is the worst of APGD and targeted APGD at
8/255 in linf, made for the model alone; the adaptive worst case is that of the [red team](threats.md#the-red-team), for
`standard` what it finds against the model on its way to DRQ, and open where nobody looked. A pass with a backward pass counts as
one: *ms* is the time of an answer, in batches, on the first machine named below, in the column where it took least, since in
others it was shared, or compiled. *Needs* says what else an answer takes: a batch of samples at once, or weights that change.
Settings are in `experiments/peers.toml` and `experiments/peers-single.toml`."""
COMPARED = """\
Those that are at most as dear, beside {ours}: *better* and *worse* where the whole interval of the difference lies above or below
0, in points; elsewhere it is even. Of so many comparisons some are chance. A row with nothing under *worse* does the same or more
for its passes, as far as these images can tell."""
VERDICTS = """\
A gain *survives* where the whole interval of the defended minus the static worst case lies above 0. Both are upper bounds: a
better attack can lower them, and what survives quick attacks has to stand the full strength next (`drq redteam --strength full`).
*Transferred* is the defended accuracy under APGD made for the model alone. *Times* is what an answer costs, over one pass."""
EARLIER = """\
The rows of exploration in noise on 250 images are from an earlier chain of attacks, which was weaker: it followed shortened
searches, and it left points at which a defence was wrong by a hair. No gain survives it; a stronger attack on the defence leaves
less."""
OTHERS = "Other attacks on the defence itself, on the first images only, beside the red team on the same ones:"
SELECTIVE = """\
Whoever may abstain wants a score that knows when an answer is wrong. The area under the curve of risk against coverage is the
mean share of errors over all coverages: lower is better. *Margin* ranks the answers of DRQ by its margin; *confidence* ranks
the answers of the undefended model by their softmax confidence. Their difference below 0 speaks for DRQ's answers and margins
together. *Same answers* ranks DRQ's answers by that confidence instead: the second difference is that of the margin alone.
Intervals are from resampling images."""


def page(folder: Path) -> str:
    """Return the whole page."""
    records = {name: read_record(folder, name) for name in (*PEERS, *RED_TEAM, *SHIFTS)}
    peers, team = (concatenated(records[name] for name in names) for names in (PEERS, RED_TEAM))
    parts = [HEAD, "## At the same cost", *_overview(peers, team, _timed(records))]
    parts += [provenance(name, records[name]) for name in PEERS]
    parts += [
        "## Attacks on the defence itself",
        EARLIER,
        *verdicts(team),
        *(provenance(name, records[name]) for name in RED_TEAM),
    ]
    parts += ["## Does the margin know errors?", *_selective(records)]
    parts += [f"![Errors among answers against the share of samples that are answered](images/paper/{CURVES}.svg)"]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _timed(records: Mapping[str, Record | None]) -> set[str]:
    """Return the defences whose times were measured on the same machine as those of the first experiment."""
    known = [record for name in PEERS if (record := records[name]) is not None]
    return {name for each in known if each.about["devices"] == known[0].about["devices"] for name in each.rows["defence"]}


def _overview(peers: polars.DataFrame | None, team: polars.DataFrame | None, timed: set[str]) -> Iterator[str]:
    if peers is None:
        return
    model = peers["model"][0]
    table = accuracies(peers)
    worst = red_team_cells(team, model)
    rows = []
    for name, part in split_by(table, "defence"):
        values = {row["column"]: number("accuracy", row["accuracy"]) for row in part.iter_rows(named=True)}
        clean = part.filter(column="clean").row(0, named=True)
        time = f"{1000 * float(part['seconds'].min()):.2f}" if name in timed else ""  # type: ignore[arg-type]
        cost = [f"{clean['passes']:,.0f}", time]
        rows.append([name, *(values.get(column, "") for column in PLACES), worst_case(worst, name), *cost, needs(name)])
    yield OVERVIEW.format(model=model)
    yield text_table(("defence", *PLACES, "adaptive worst case", "passes", "ms", "needs"), rows)
    yield COMPARED.format(ours=OURS)
    yield text_table(("defence", "better", "worse", "passes", "needs"), better_and_worse(peers))


def verdicts(team: polars.DataFrame | None) -> Iterator[str]:
    """Yield what the table of surviving gains means, the table itself, and the table of other attacks."""
    if team is None:
        return
    yield VERDICTS
    yield verdict_table(team)
    if other := other_attacks(team):
        yield OTHERS
        yield other


def _selective(records: Mapping[str, Record | None]) -> Iterator[str]:
    rows: list[list[str]] = []
    for name, threats in SHIFTS.items():
        record = records[name]
        if record is None:
            continue
        answers = _shifted_answers(record, threats)
        for row in selective.compare(answers, bootstrap=RESAMPLES).iter_rows(named=True):
            areas = (f"{100 * row[each]:.2f}" for each in ("aurc", "base_aurc_by_confidence", "aurc_by_confidence"))
            scaled = {each: 100 * row[each] for each in ("difference", "difference_low", "difference_high")}
            better = "margin" if row["difference_high"] < 0 else "confidence" if row["difference_low"] > 0 else "even"
            margin_alone = _margin_gain(answers.filter(**{key: row[key] for key in selective.GROUP}), row)
            place = [row["model"], row["defence"], _shift(row)]
            rows.append([*place, *areas, with_interval(scaled), better, with_interval(margin_alone), f"{row['images']:,}"])
    models = [*dict.fromkeys(row[0] for row in rows)]
    rows.sort(key=lambda row: models.index(row[0]))
    yield SELECTIVE
    head = ("model", "defence", "shift", "margin", "confidence", "same answers", "margin minus confidence", "better")
    yield text_table((*head, "margin minus same answers", "answers"), rows)


def _margin_gain(answers: polars.DataFrame, row: Mapping[str, Any]) -> dict[str, float]:
    """Return what ranking by margin gains over ranking the same answers by confidence."""
    right = (answers["prediction"] == answers["label"]).to_numpy()
    ranked = [(right, answers[score].to_numpy()) for score in ("margin", "confidence")]
    low, high = selective.bootstrapped(ranked[0], ranked[1], RESAMPLES, 0, answers["index"].to_numpy())
    middle = row["aurc"] - row["aurc_by_confidence"]
    return {"difference": 100 * middle, "difference_low": 100 * low, "difference_high": 100 * high}


def _shifted_answers(record: Record, threats: Sequence[str]) -> polars.DataFrame:
    """Return the answers of DRQ under these threats; all corruptions count as one data set."""
    pl = require_polars()
    known = record.rows.filter(pl.col("threat").is_in(threats), pl.col("defence").str.starts_with("DRQ"))
    return known.with_columns(data=pl.when(pl.col("data").str.contains("-c/")).then(pl.lit(CORRUPTED)).otherwise("data"))


def curves(folder: Path) -> dict[str, polars.DataFrame]:
    """Return what the figure shows: the answers of DRQ on the first model, by shift."""
    answers = {}
    for name, threats in SHIFTS.items():
        if (record := read_record(folder, name)) is not None:
            rows = _shifted_answers(record, threats).filter(model=FIRST).sort("defence", descending=True, maintain_order=True)
            for part in rows.partition_by("threat", maintain_order=True):
                answers[_shift(part.row(0, named=True))] = part
    return answers


def _shift(row: Mapping[str, Any]) -> str:
    """Return the name of the shift."""
    if row["threat"] != "clean":
        return str(row["threat"])
    return CORRUPTED if row["data"] == CORRUPTED else "none"

"""The page of peers: what other defences do at the same cost, whether gains survive attacks, and whether margins know errors.

Made from kept records alone, as the ledger is. What it says in words follows from them, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drq.evaluation.records import require_polars
from drq.evaluation.sources import as_spec
from drq.report import selective, tables
from drq.report.typesetting import number
from drq.reproduction.catalogue import BEYOND
from drq.reproduction.keeping import Record, kept
from drq.reproduction.pages import made, table

if TYPE_CHECKING:
    import polars

PEERS, RED_TEAM = BEYOND["peers"], BEYOND["redteam"]
OURS, ALONE, FIRST = "DRQ linf", "standard", "cifar10-linf"
ATTACKED = "cifar10-tiny"  # around which every kind of defence is attacked
CORRUPTED = "all corruptions"
PLACES = {  # columns of the overview: a place in the records of peers
    "clean": {"data": "cifar10", "threat": "clean"},
    "corruptions": {"data": "cifar10-c/*/5", "threat": "clean"},
    "rotated": {"data": "cifar10", "threat": "rotation"},
    "moved": {"data": "cifar10", "threat": "translation"},
    "both, worst of 15": {"data": "cifar10", "threat": "rotations"},
    "transferred attack": {"data": "cifar10", "threat": tables.WORST_CASE, "suite": "transferred"},
}
SHIFTS = {  # whose margins are looked at: threats of experiments
    "table6": ("clean",),
    "table1": ("clean",),
    "table3": ("one rotation", "one translation", "rotations", "translations"),
    "table7": ("FAB", "Square", "APGD-L2", "APGD-CE", "APGD-DLR", "PGD-noise", "PGD-attack"),
}
SUMMARY = (  # rows of the short overview: others as published, or at 40 passes where no number of them was
    ALONE,
    OURS,
    "DRQ linf, 40 passes",
    "pNML",
    "augmentation, 40 passes",
    "smoothing, 40 passes",
    "Anti-Adversary",
    "Hedge",
    "MEMO",
    "batch norm, one sample",
    "batch norm",
    "TENT",
)
MOST = 420  # passes that DRQ takes at most, with ten classes
CURVES = "risk-coverage"  # the picture
RESAMPLED = 1000  # times, for an interval of an area

HEAD = """\
# Peers and attackers

Is DRQ worth its cost, and does what it gains survive an attacker who knows of it? `make ledger` makes this page from the
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
    """The whole page."""
    records = {name: kept(folder, name) for name in (*PEERS, *RED_TEAM, *SHIFTS)}
    peers, team = (together(records[name] for name in names) for names in (PEERS, RED_TEAM))
    parts = [HEAD, "## At the same cost", *_overview(peers, team, _timed(records))]
    parts += [made(name, records[name]) for name in PEERS]
    parts += ["## Attacks on the defence itself", EARLIER, *verdicts(team), *(made(name, records[name]) for name in RED_TEAM)]
    parts += ["## Does the margin know errors?", *_selective(records)]
    parts += [f"![Errors among answers against the share of samples that are answered](images/paper/{CURVES}.svg)"]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def together(records: Iterable[Record | None]) -> polars.DataFrame | None:
    """The rows of all experiments that were run; None where none was."""
    found = [record.rows for record in records if record is not None]
    return require_polars().concat(found) if found else None


def accuracies(peers: polars.DataFrame, reference: str = ALONE) -> polars.DataFrame:
    """A row for each column of the overview and each defence: accuracy, passes, and the difference to the reference."""
    pl = require_polars()
    parts = [tables.cells(peers, reference=reference), tables.worst_case(peers, reference=reference)]
    if peers["data"].cast(pl.String).str.contains("-c/").any():
        parts.append(tables.mean_over_data(peers, reference=reference))
    every = pl.concat([part.select(*tables.GROUP, "defence", *tables.VALUES) for part in parts])
    every = every.with_columns(pl.selectors.categorical().cast(pl.String))
    found: polars.DataFrame = pl.concat(
        [every.filter(**place).with_columns(column=pl.lit(name)) for name, place in PLACES.items()]
    )
    return found


def adaptive(team: polars.DataFrame) -> polars.DataFrame:
    """A row for each model, attack on defences and defence: the defended worst case beside the static one."""
    pl = require_polars()
    found = tables.cells(team.filter(pl.col("victim") == "defence"))
    found = found.with_columns(pl.selectors.categorical().cast(pl.String), survives=pl.col("difference_low") > 0)
    return found.filter(pl.col("defence") != ALONE)  # where the model alone was attacked as well, that is in the static numbers


def _timed(records: Mapping[str, Record | None]) -> set[str]:
    """Defences whose times were measured on the same machine as those of the first experiment."""
    known = [record for name in PEERS if (record := records[name]) is not None]
    return {name for each in known if each.about["devices"] == known[0].about["devices"] for name in each.rows["defence"]}


def _overview(peers: polars.DataFrame | None, team: polars.DataFrame | None, timed: set[str]) -> Iterator[str]:
    if peers is None:
        return
    model = peers["model"][0]
    found = accuracies(peers)
    worst = _attacked_on(team, model)
    rows = []
    for name, part in _by(found, "defence"):
        values = {row["column"]: number("accuracy", row["accuracy"]) for row in part.iter_rows(named=True)}
        clean = part.filter(column="clean").row(0, named=True)
        time = f"{1000 * float(part['seconds'].min()):.2f}" if name in timed else ""  # type: ignore[arg-type]
        cost = [f"{clean['passes']:,.0f}", time]
        rows.append([name, *(values.get(column, "") for column in PLACES), _worst(worst, name), *cost, _needs(name)])
    yield OVERVIEW.format(model=model)
    yield table(("defence", *PLACES, "adaptive worst case", "passes", "ms", "needs"), rows)
    yield COMPARED.format(ours=OURS)
    yield table(("defence", "better", "worse", "passes", "needs"), _compared(peers))


def summary(peers: polars.DataFrame, team: polars.DataFrame | None) -> str:
    """One table that is read in a minute: a row for each kind of defence; rotated and moved images are one column."""
    found, worst, elsewhere = accuracies(peers), *(_attacked_on(team, model) for model in (peers["model"][0], ATTACKED))
    head = ("defence", "clean", "15 corruptions", "spatial", "transferred attack", "adaptive worst case")
    columns = (("clean",), ("corruptions",), ("rotated", "moved"), ("transferred attack",))
    rows = []
    for name in (each for each in SUMMARY if len(found.filter(defence=each))):
        values = dict(found.filter(defence=name).select("column", "accuracy").iter_rows())
        known = [[values[each] for each in places if each in values] for places in columns]
        means = [number("accuracy", sum(each) / len(each)) if each else "" for each in known]
        adaptively = _worst(worst, name) or (f"at most {means[-1]}" if means[-1] else "")  # whoever knows more does as much
        cost = float(found.filter(defence=name, column="clean")["passes"][0])
        rows.append([name, *means, adaptively, _worst(elsewhere, name), f"{cost:,.0f}", _needs(name)])
    return table((*head, f"adaptive, `{ATTACKED}`", "passes", "needs"), rows)


def _compared(peers: polars.DataFrame) -> Iterator[list[str]]:
    """Where each defence that is at most as dear does better and worse than ours."""
    pl = require_polars()
    ends = (pl.col("difference_low") > 0, pl.col("difference_high") < 0)
    for name, part in _by(accuracies(peers, reference=OURS).filter(pl.col("defence") != OURS), "defence"):
        dearest = float(part["passes"].max())  # type: ignore[arg-type]
        if dearest <= MOST:
            found = (part.filter(end).iter_rows(named=True) for end in ends)
            better, worse = ([f"{row['column']} {_difference(row)}" for row in rows] for rows in found)
            unknown = [f"not measured: {column}" for column in PLACES if column not in part["column"]]
            yield [name, "; ".join(better), "; ".join(worse + unknown), f"{dearest:,.0f}", _needs(name)]


def _attacked_on(team: polars.DataFrame | None, model: str) -> polars.DataFrame | None:
    """What the red team found around one model."""
    return None if team is None else adaptive(team).filter(threat="red team", model=model)


def _worst(worst: polars.DataFrame | None, defence: str) -> str:
    """The adaptive worst case of a defence; for the model alone, what was found against it in the attack on DRQ."""
    if worst is None or not len(worst):
        return ""
    row = worst.filter(defence=OURS if defence == ALONE else defence)
    return number("accuracy", row["reference_accuracy" if defence == ALONE else "accuracy"][0]) if len(row) else ""


def _needs(defence: str) -> str:
    """What an answer takes besides the sample."""
    known = next(found for name in PEERS if (found := as_spec(name).defences.get(defence)))
    what = {"a batch": "needs_batch", "other weights": "changes_weights"}
    return ", ".join(text for text, name in what.items() if getattr(known, name, False))


def _difference(row: Mapping[str, Any], prefix: str = "difference") -> str:
    middle, low, high = (number("difference", row[each]) for each in (prefix, f"{prefix}_low", f"{prefix}_high"))
    return f"{middle} [{low}, {high}]"


def verdicts(team: polars.DataFrame | None) -> Iterator[str]:
    """Whether gains survive: what the table means, the table, and what others found."""
    if team is None:
        return
    yield VERDICTS
    yield verdict_table(team)
    if len(others := adaptive(team.filter(~_main()))):
        yield OTHERS
        head = ("model", "defence", "attack", "right", "right under the red team", "static worst", "images")
        yield table(head, _beside(others, team))


def verdict_table(team: polars.DataFrame) -> str:
    """A row for each model and defence."""
    pl = require_polars()
    plain = tables.cells(team.filter(pl.col("victim") == "base")).with_columns(pl.selectors.categorical().cast(pl.String))
    rows = []
    for row in adaptive(team.filter(_main())).iter_rows(named=True):
        same = plain.filter(model=row["model"], defence=row["defence"])
        clean, carried = (same.filter(pl.col("threat").str.starts_with(name)) for name in ("clean", "transferred"))
        verdict = "survives" if row["survives"] else "vanishes" if row["difference_high"] >= 0 else "worse than none"
        before = [number("accuracy", part["accuracy"][0]) if len(part) else "" for part in (clean, carried)]
        worst = [number("accuracy", row[name]) for name in ("reference_accuracy", "accuracy")]
        place = [row["model"], row["defence"]]
        rows.append([*place, *before, *worst, _difference(row), verdict, f"{row['images']:,}", f"{row['passes']:,.0f}"])
    head = ("model", "defence", "clean", "transferred", "static worst", "defended worst", "difference", "gain")
    return table((*head, "images", "times"), rows)


def _main() -> polars.Expr:
    """Attacks whose verdict counts."""
    main: polars.Expr = require_polars().col("threat").str.starts_with("red team")
    return main


def _beside(others: polars.DataFrame, team: polars.DataFrame) -> Iterator[list[str]]:
    """Attacks on few images, and the red team on the same ones."""
    pl = require_polars()
    right, static = 100 * (pl.col("prediction") == pl.col("label")).mean(), 100 * pl.col("base_withstood").mean()
    for row in others.iter_rows(named=True):
        same = team.filter(model=row["model"], defence=row["defence"], victim="defence")
        asked = same.filter(threat=row["threat"])["index"].to_list()
        red = same.filter(_main(), pl.col("index").is_in(asked))
        beside = [number("accuracy", red.select(each).item()) if len(red) else "" for each in (right, static)]
        yield [row["model"], row["defence"], row["threat"], number("accuracy", row["accuracy"]), *beside, f"{row['images']:,}"]


def _selective(records: Mapping[str, Record | None]) -> Iterator[str]:
    rows: list[list[str]] = []
    for name, threats in SHIFTS.items():
        record = records[name]
        if record is None:
            continue
        shown = _shifted(record, threats)
        for row in selective.compare(shown, bootstrap=RESAMPLED).iter_rows(named=True):
            areas = (f"{100 * row[each]:.2f}" for each in ("aurc", "base_aurc_by_confidence", "aurc_by_confidence"))
            scaled = {each: 100 * row[each] for each in ("difference", "difference_low", "difference_high")}
            better = "margin" if row["difference_high"] < 0 else "confidence" if row["difference_low"] > 0 else "even"
            alone = _alone(shown.filter(**{key: row[key] for key in selective.GROUP}), row)
            place = [row["model"], row["defence"], _shift(row)]
            rows.append([*place, *areas, _difference(scaled), better, _difference(alone), f"{row['images']:,}"])
    models = [*dict.fromkeys(row[0] for row in rows)]
    rows.sort(key=lambda row: models.index(row[0]))
    yield SELECTIVE
    head = ("model", "defence", "shift", "margin", "confidence", "same answers", "margin minus confidence", "better")
    yield table((*head, "margin minus same answers", "answers"), rows)


def _alone(answers: polars.DataFrame, row: Mapping[str, Any]) -> dict[str, float]:
    """What the margin adds to the same answers, ranked by confidence."""
    right = (answers["prediction"] == answers["label"]).to_numpy()
    ranked = [(right, answers[score].to_numpy()) for score in ("margin", "confidence")]
    low, high = selective.bootstrapped(ranked[0], ranked[1], RESAMPLED, 0, answers["index"].to_numpy())
    middle = row["aurc"] - row["aurc_by_confidence"]
    return {"difference": 100 * middle, "difference_low": 100 * low, "difference_high": 100 * high}


def _shifted(record: Record, threats: Sequence[str]) -> polars.DataFrame:
    """The answers of DRQ under these threats; all corruptions are one data set."""
    pl = require_polars()
    known = record.rows.filter(pl.col("threat").is_in(threats), pl.col("defence").str.starts_with("DRQ"))
    return known.with_columns(data=pl.when(pl.col("data").str.contains("-c/")).then(pl.lit(CORRUPTED)).otherwise("data"))


def curves(folder: Path) -> dict[str, polars.DataFrame]:
    """What the picture shows: by shift, the answers of DRQ around the first model."""
    found = {}
    for name, threats in SHIFTS.items():
        if (record := kept(folder, name)) is not None:
            rows = _shifted(record, threats).filter(model=FIRST).sort("defence", descending=True, maintain_order=True)
            for part in rows.partition_by("threat", maintain_order=True):
                found[_shift(part.row(0, named=True))] = part
    return found


def _shift(row: Mapping[str, Any]) -> str:
    """What was done to the images, in a word."""
    if row["threat"] != "clean":
        return str(row["threat"])
    return CORRUPTED if row["data"] == CORRUPTED else "none"


def _by(frame: polars.DataFrame, column: str) -> Iterable[tuple[str, polars.DataFrame]]:
    """Parts of a table, in its order."""
    return ((part[column][0], part) for part in frame.partition_by(column, maintain_order=True))

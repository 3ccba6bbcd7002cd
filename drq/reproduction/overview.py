"""Compare defences with each other: accuracy under every shift, cost, and gains that survive attacks on the defence itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from drq.evaluation.records import require_polars
from drq.evaluation.sources import as_spec
from drq.report import tables
from drq.report.typesetting import number, text_table
from drq.reproduction.experiments import BEYOND
from drq.reproduction.kept_records import Record

if TYPE_CHECKING:
    import polars

PEERS, RED_TEAM = BEYOND["peers"], BEYOND["redteam"]
OURS, ALONE = "DRQ linf", "standard"
ATTACKED = "cifar10-tiny"  # the model with which every kind of defence is attacked
PLACES = {  # columns of the overview, and the cells of the records that they show
    "clean": {"data": "cifar10", "threat": "clean"},
    "corruptions": {"data": "cifar10-c/*/5", "threat": "clean"},
    "rotated": {"data": "cifar10", "threat": "rotation"},
    "moved": {"data": "cifar10", "threat": "translation"},
    "both, worst of 15": {"data": "cifar10", "threat": "rotations"},
    "transferred attack": {"data": "cifar10", "threat": tables.WORST_CASE, "suite": "transferred"},
}
SUMMARY = (  # rows of the short overview: peers as published, or at 40 passes where they were not published with a number
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
MOST_PASSES = 420  # that DRQ takes with ten classes


def concatenated(records: Iterable[Record | None]) -> polars.DataFrame | None:
    """Return the rows of all experiments that were run; None where none was."""
    rows = [record.rows for record in records if record is not None]
    return require_polars().concat(rows) if rows else None


def accuracies(peers: polars.DataFrame, reference: str = ALONE) -> polars.DataFrame:
    """Return accuracy, passes and difference to the reference, a row for each column of the overview and each defence."""
    pl = require_polars()
    parts = [tables.cells(peers, reference=reference), tables.worst_case(peers, reference=reference)]
    if peers["data"].cast(pl.String).str.contains("-c/").any():
        parts.append(tables.mean_over_data(peers, reference=reference))
    every = pl.concat([part.select(*tables.GROUP, "defence", *tables.VALUES) for part in parts])
    every = every.with_columns(pl.selectors.categorical().cast(pl.String))
    table: polars.DataFrame = pl.concat(
        [every.filter(**place).with_columns(column=pl.lit(name)) for name, place in PLACES.items()]
    )
    return table


def adaptive(team: polars.DataFrame) -> polars.DataFrame:
    """Return the defended worst case beside the static one, a row for each model, attack on defences, and defence."""
    pl = require_polars()
    cells = tables.cells(team.filter(pl.col("victim") == "defence"))
    cells = cells.with_columns(pl.selectors.categorical().cast(pl.String), survives=pl.col("difference_low") > 0)
    return cells.filter(pl.col("defence") != ALONE)  # attacks on the model alone count in the static worst case


def summary(peers: polars.DataFrame, team: polars.DataFrame | None) -> str:
    """Return the short overview, a row for each kind of defence; rotated and moved images share a column."""
    table, worst, elsewhere = accuracies(peers), *(red_team_cells(team, model) for model in (peers["model"][0], ATTACKED))
    head = ("defence", "clean", "15 corruptions", "spatial", "transferred attack", "adaptive worst case")
    columns = (("clean",), ("corruptions",), ("rotated", "moved"), ("transferred attack",))
    rows = []
    for name in (each for each in SUMMARY if len(table.filter(defence=each))):
        values = dict(table.filter(defence=name).select("column", "accuracy").iter_rows())
        known = [[values[each] for each in places if each in values] for places in columns]
        means = [number("accuracy", sum(each) / len(each)) if each else "" for each in known]
        # An adaptive attacker can at least transfer attacks, so the transferred number is an upper bound.
        adaptively = worst_case(worst, name) or (f"at most {means[-1]}" if means[-1] else "")
        cost = float(table.filter(defence=name, column="clean")["passes"][0])
        rows.append([name, *means, adaptively, worst_case(elsewhere, name), f"{cost:,.0f}", needs(name)])
    return text_table((*head, f"adaptive, `{ATTACKED}`", "passes", "needs"), rows)


def better_and_worse(peers: polars.DataFrame) -> Iterator[list[str]]:
    """Yield where each defence that costs no more than DRQ is better, and where it is worse."""
    pl = require_polars()
    ends = (pl.col("difference_low") > 0, pl.col("difference_high") < 0)
    for name, part in split_by(accuracies(peers, reference=OURS).filter(pl.col("defence") != OURS), "defence"):
        dearest = float(part["passes"].max())  # type: ignore[arg-type]
        if dearest <= MOST_PASSES:
            selected = (part.filter(end).iter_rows(named=True) for end in ends)
            better, worse = ([f"{row['column']} {with_interval(row)}" for row in rows] for rows in selected)
            unknown = [f"not measured: {column}" for column in PLACES if column not in part["column"]]
            yield [name, "; ".join(better), "; ".join(worse + unknown), f"{dearest:,.0f}", needs(name)]


def red_team_cells(team: polars.DataFrame | None, model: str) -> polars.DataFrame | None:
    """Return the cells of the red team on one model."""
    return None if team is None else adaptive(team).filter(threat="red team", model=model)


def worst_case(worst: polars.DataFrame | None, defence: str) -> str:
    """Return the adaptive worst case of a defence; for the model alone, its accuracy under the attack on DRQ."""
    if worst is None or not len(worst):
        return ""
    row = worst.filter(defence=OURS if defence == ALONE else defence)
    return number("accuracy", row["reference_accuracy" if defence == ALONE else "accuracy"][0]) if len(row) else ""


def needs(defence: str) -> str:
    """Say what an answer of the defence needs besides the sample."""
    settings = next(found for name in PEERS if (found := as_spec(name).defences.get(defence)))
    attributes = {"a batch": "needs_batch", "other weights": "changes_weights"}
    return ", ".join(text for text, name in attributes.items() if getattr(settings, name, False))


def with_interval(row: Mapping[str, Any], prefix: str = "difference") -> str:
    """Format a difference with its interval."""
    middle, low, high = (number("difference", row[each]) for each in (prefix, f"{prefix}_low", f"{prefix}_high"))
    return f"{middle} [{low}, {high}]"


def verdicts(team: polars.DataFrame) -> Iterator[str]:
    """Yield the table of gains that survive the red team, and that of other attacks."""
    yield verdict_table(team)
    if other := other_attacks(team):
        yield other


def other_attacks(team: polars.DataFrame) -> str:
    """Return a table of other attacks on defences, beside the red team on the same images; empty where there are none."""
    others = adaptive(team.filter(~is_red_team()))
    head = ("model", "defence", "attack", "right", "right under the red team", "static worst", "images")
    return text_table(head, _on_the_same_images(others, team)) if len(others) else ""


def verdict_table(team: polars.DataFrame) -> str:
    """Return the table of gains that survive the red team, a row for each model and defence."""
    pl = require_polars()
    plain = tables.cells(team.filter(pl.col("victim") == "base")).with_columns(pl.selectors.categorical().cast(pl.String))
    rows = []
    for row in adaptive(team.filter(is_red_team())).iter_rows(named=True):
        same = plain.filter(model=row["model"], defence=row["defence"])
        clean, transferred = (same.filter(pl.col("threat").str.starts_with(name)) for name in ("clean", "transferred"))
        verdict = "survives" if row["survives"] else "vanishes" if row["difference_high"] >= 0 else "worse than none"
        before = [number("accuracy", part["accuracy"][0]) if len(part) else "" for part in (clean, transferred)]
        worst = [number("accuracy", row[name]) for name in ("reference_accuracy", "accuracy")]
        place = [row["model"], row["defence"]]
        rows.append([*place, *before, *worst, with_interval(row), verdict, f"{row['images']:,}", f"{row['passes']:,.0f}"])
    head = ("model", "defence", "clean", "transferred", "static worst", "defended worst", "difference", "gain")
    return text_table((*head, "images", "times"), rows)


def is_red_team() -> polars.Expr:
    """Return an expression: whether the threat is the red team, whose verdict counts."""
    main: polars.Expr = require_polars().col("threat").str.starts_with("red team")
    return main


def _on_the_same_images(others: polars.DataFrame, team: polars.DataFrame) -> Iterator[list[str]]:
    """Yield rows of other attacks, which were run on few images, with the red team on the same images."""
    pl = require_polars()
    right, static = 100 * (pl.col("prediction") == pl.col("label")).mean(), 100 * pl.col("base_withstood").mean()
    for row in others.iter_rows(named=True):
        same = team.filter(model=row["model"], defence=row["defence"], victim="defence")
        images = same.filter(threat=row["threat"])["index"].to_list()
        red = same.filter(is_red_team(), pl.col("index").is_in(images))
        beside = [number("accuracy", red.select(each).item()) if len(red) else "" for each in (right, static)]
        yield [row["model"], row["defence"], row["threat"], number("accuracy", row["accuracy"]), *beside, f"{row['images']:,}"]


def split_by(frame: polars.DataFrame, column: str) -> Iterable[tuple[str, polars.DataFrame]]:
    """Split a table by the values of a column, in the table's order."""
    return ((part[column][0], part) for part in frame.partition_by(column, maintain_order=True))

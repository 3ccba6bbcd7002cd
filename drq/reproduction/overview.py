"""Defences beside each other: accuracy under every shift, cost, and what attacks on the defences themselves leave of gains."""

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
ATTACKED = "cifar10-tiny"  # around which every kind of defence is attacked
PLACES = {  # columns of the overview: a place in the records of peers
    "clean": {"data": "cifar10", "threat": "clean"},
    "corruptions": {"data": "cifar10-c/*/5", "threat": "clean"},
    "rotated": {"data": "cifar10", "threat": "rotation"},
    "moved": {"data": "cifar10", "threat": "translation"},
    "both, worst of 15": {"data": "cifar10", "threat": "rotations"},
    "transferred attack": {"data": "cifar10", "threat": tables.WORST_CASE, "suite": "transferred"},
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


def summary(peers: polars.DataFrame, team: polars.DataFrame | None) -> str:
    """One table that is read in a minute: a row for each kind of defence; rotated and moved images are one column."""
    found, worst, elsewhere = accuracies(peers), *(attacked_on(team, model) for model in (peers["model"][0], ATTACKED))
    head = ("defence", "clean", "15 corruptions", "spatial", "transferred attack", "adaptive worst case")
    columns = (("clean",), ("corruptions",), ("rotated", "moved"), ("transferred attack",))
    rows = []
    for name in (each for each in SUMMARY if len(found.filter(defence=each))):
        values = dict(found.filter(defence=name).select("column", "accuracy").iter_rows())
        known = [[values[each] for each in places if each in values] for places in columns]
        means = [number("accuracy", sum(each) / len(each)) if each else "" for each in known]
        adaptively = worst_of(worst, name) or (f"at most {means[-1]}" if means[-1] else "")  # whoever knows more does as much
        cost = float(found.filter(defence=name, column="clean")["passes"][0])
        rows.append([name, *means, adaptively, worst_of(elsewhere, name), f"{cost:,.0f}", needs(name)])
    return text_table((*head, f"adaptive, `{ATTACKED}`", "passes", "needs"), rows)


def compared(peers: polars.DataFrame) -> Iterator[list[str]]:
    """Where each defence that is at most as dear does better and worse than ours."""
    pl = require_polars()
    ends = (pl.col("difference_low") > 0, pl.col("difference_high") < 0)
    for name, part in parts_by(accuracies(peers, reference=OURS).filter(pl.col("defence") != OURS), "defence"):
        dearest = float(part["passes"].max())  # type: ignore[arg-type]
        if dearest <= MOST:
            found = (part.filter(end).iter_rows(named=True) for end in ends)
            better, worse = ([f"{row['column']} {change(row)}" for row in rows] for rows in found)
            unknown = [f"not measured: {column}" for column in PLACES if column not in part["column"]]
            yield [name, "; ".join(better), "; ".join(worse + unknown), f"{dearest:,.0f}", needs(name)]


def attacked_on(team: polars.DataFrame | None, model: str) -> polars.DataFrame | None:
    """What the red team found around one model."""
    return None if team is None else adaptive(team).filter(threat="red team", model=model)


def worst_of(worst: polars.DataFrame | None, defence: str) -> str:
    """The adaptive worst case of a defence; for the model alone, what was found against it in the attack on DRQ."""
    if worst is None or not len(worst):
        return ""
    row = worst.filter(defence=OURS if defence == ALONE else defence)
    return number("accuracy", row["reference_accuracy" if defence == ALONE else "accuracy"][0]) if len(row) else ""


def needs(defence: str) -> str:
    """What an answer takes besides the sample."""
    known = next(found for name in PEERS if (found := as_spec(name).defences.get(defence)))
    what = {"a batch": "needs_batch", "other weights": "changes_weights"}
    return ", ".join(text for text, name in what.items() if getattr(known, name, False))


def change(row: Mapping[str, Any], prefix: str = "difference") -> str:
    """A difference with its interval."""
    middle, low, high = (number("difference", row[each]) for each in (prefix, f"{prefix}_low", f"{prefix}_high"))
    return f"{middle} [{low}, {high}]"


def verdicts(team: polars.DataFrame) -> Iterator[str]:
    """Whether gains survive, and what other attacks leave."""
    yield verdict_table(team)
    if other := other_attacks(team):
        yield other


def other_attacks(team: polars.DataFrame) -> str:
    """A row for each attack on a defence that is no red team, beside the red team on the same images; nothing without one."""
    others = adaptive(team.filter(~of_the_red_team()))
    head = ("model", "defence", "attack", "right", "right under the red team", "static worst", "images")
    return text_table(head, _on_the_same_images(others, team)) if len(others) else ""


def verdict_table(team: polars.DataFrame) -> str:
    """A row for each model and defence."""
    pl = require_polars()
    plain = tables.cells(team.filter(pl.col("victim") == "base")).with_columns(pl.selectors.categorical().cast(pl.String))
    rows = []
    for row in adaptive(team.filter(of_the_red_team())).iter_rows(named=True):
        same = plain.filter(model=row["model"], defence=row["defence"])
        clean, carried = (same.filter(pl.col("threat").str.starts_with(name)) for name in ("clean", "transferred"))
        verdict = "survives" if row["survives"] else "vanishes" if row["difference_high"] >= 0 else "worse than none"
        before = [number("accuracy", part["accuracy"][0]) if len(part) else "" for part in (clean, carried)]
        worst = [number("accuracy", row[name]) for name in ("reference_accuracy", "accuracy")]
        place = [row["model"], row["defence"]]
        rows.append([*place, *before, *worst, change(row), verdict, f"{row['images']:,}", f"{row['passes']:,.0f}"])
    head = ("model", "defence", "clean", "transferred", "static worst", "defended worst", "difference", "gain")
    return text_table((*head, "images", "times"), rows)


def of_the_red_team() -> polars.Expr:
    """Attacks whose verdict counts."""
    main: polars.Expr = require_polars().col("threat").str.starts_with("red team")
    return main


def _on_the_same_images(others: polars.DataFrame, team: polars.DataFrame) -> Iterator[list[str]]:
    """Attacks on few images, and the red team on the same ones."""
    pl = require_polars()
    right, static = 100 * (pl.col("prediction") == pl.col("label")).mean(), 100 * pl.col("base_withstood").mean()
    for row in others.iter_rows(named=True):
        same = team.filter(model=row["model"], defence=row["defence"], victim="defence")
        asked = same.filter(threat=row["threat"])["index"].to_list()
        red = same.filter(of_the_red_team(), pl.col("index").is_in(asked))
        beside = [number("accuracy", red.select(each).item()) if len(red) else "" for each in (right, static)]
        yield [row["model"], row["defence"], row["threat"], number("accuracy", row["accuracy"]), *beside, f"{row['images']:,}"]


def parts_by(frame: polars.DataFrame, column: str) -> Iterable[tuple[str, polars.DataFrame]]:
    """Parts of a table, in its order."""
    return ((part[column][0], part) for part in frame.partition_by(column, maintain_order=True))

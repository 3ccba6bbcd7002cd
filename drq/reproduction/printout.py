"""Format what ``drq reproduce`` prints: the numbers of a run beside the paper's, and the verdicts on its claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from drq.evaluation.paper import notes
from drq.evaluation.records import require_polars
from drq.report.tables import WORST_CASE
from drq.report.typesetting import number, text_table
from drq.reproduction import cells, gains, overview, view_gains
from drq.reproduction.claims import claims, judge
from drq.reproduction.experiments import BEYOND, Entry, entries
from drq.reproduction.kept_records import Record
from drq.reproduction.paper_figures import FIGURES
from drq.reproduction.provenance import provenance, short_name
from drq.reproduction.verdicts import Finding

if TYPE_CHECKING:
    import polars

COLUMNS = ("model", "data", "threat", "defence", "paper", "ours", "gain there", "gain here", "p", "sign", "images", "passes")
IMPROVE, AUGMENT, FRONT, SHIFT, *ATTACKED = BEYOND["improve"]
*NETWORKS, ATTACKED_NETWORKS = BEYOND["networks"]
FIRST_VIEWS, GATES, BALL = BEYOND["views-first"]
BEYOND_THE_PAPER: Mapping[str, Callable[[polars.DataFrame], Iterable[str]]] = {  # how each experiment's rows are formatted
    **dict.fromkeys(BEYOND["peers"], lambda rows: [overview.summary(rows, None)]),
    **dict.fromkeys((*BEYOND["redteam"], *ATTACKED, ATTACKED_NETWORKS), overview.verdicts),
    **dict.fromkeys((*NETWORKS, BALL), lambda rows: [_ours_alone(cells.our_cells(rows))]),
    **dict.fromkeys((IMPROVE, AUGMENT), lambda rows: [gains.table(rows), gains.findings(rows)]),
    FRONT: lambda rows: [gains.table(rows, overview.ALONE)],
    **dict.fromkeys(
        (*BEYOND["views"], FIRST_VIEWS), lambda rows: [view_gains.LEGEND, view_gains.table(rows), view_gains.findings(rows)]
    ),
    GATES: lambda rows: [view_gains.gates(rows)],
    SHIFT: lambda rows: [gains.table(rows, gains.RESTORED)],
}
Reason = Callable[[str, Mapping[str, Any]], str | None]  # gives a reason for an experiment's cell


def format_record(record: Record) -> str:
    """Format a table or figure beside the paper, or an experiment beyond the paper; empty for other experiments."""
    entry, sections = entries().get(record.name), BEYOND_THE_PAPER.get(record.name)
    if sections is not None:
        parts = [f"### {record.about['title']}", *sections(record.rows), provenance(record.name, record)]
    else:
        parts = [] if entry is None else [*format_entry(entry, record, compare_with_paper(record.name, record))]
    return "\n\n".join(part for part in parts if part and not part.startswith("!"))


def findings(records: Mapping[str, Record | None]) -> dict[str, Finding | None]:
    """Judge all claims for which the records suffice; None where the records lack something."""
    pl = require_polars()
    rows = {name: each.rows for name, each in records.items() if each is not None}
    possible = {name: each for name, each in claims().items() if rows.keys() >= {*each.experiments}}
    return {name: judge(each, pl.concat(rows[experiment] for experiment in each.experiments)) for name, each in possible.items()}


def format_claims(records: Mapping[str, Record | None]) -> str:
    """Format the verdict on each claim that these records can judge; empty where there is none."""
    judged = findings(records)
    return format_verdicts({name: judged[name] for name in claims() if name in judged}) if judged else ""


def compare_with_paper(name: str, record: Record | None) -> polars.DataFrame:
    """Return the paper's cells of an experiment beside ours, where it was run."""
    return cells.compare_cells(name, None if record is None else record.rows)


def format_entry(entry: Entry, record: Record | None, shown: polars.DataFrame, reason: Reason | None = None) -> Iterator[str]:
    """Yield the paragraphs on a table or figure: our numbers beside the paper's.

    Args:
        entry: the table or figure.
        record: our record of it; None where it was not run.
        shown: its cells, from :func:`compare_with_paper`.
        reason: gives the known reason why a gain has another sign than in the paper.
    """
    numbered = f"{entry.name[:-1].capitalize()} {entry.name[-1]}: " if entry.name[-1].isdigit() else ""
    yield f"### {numbered}{entry.title}"
    if entry.name in notes():
        yield f"Of the paper: {notes()[entry.name]}"
    if len(shown):
        yield text_table(COLUMNS, map(_row, shown.iter_rows(named=True)))
        yield "\n".join(_other_signs(entry.name, shown, record, reason))
        yield _beyond(shown, record)
    if entry.name == "figure5" and record is not None:
        yield _cosines(record)
    if entry.name in FIGURES and record is not None:
        yield f"![{entry.title}](images/paper/{entry.name}.svg)"
    yield provenance(entry.name, record)


def _row(row: Mapping[str, Any]) -> list[str]:
    """Return the row of the table for a cell."""

    def with_interval(column: str, low: str, high: str) -> str:
        value, ends = number(column, row[column]), (number(column, row[each]) for each in (low, high))
        return "" if row[column] is None else f"{value} [{', '.join(ends)}]"

    threat = f"worst of {row['suite']}" if row["threat"] == WORST_CASE else row["threat"]
    place = [short_name(row["model"]), row["data"], threat, row["defence"], number("published", row["value"])]
    gains = [number("difference", row["gain"]), with_interval("difference", "difference_low", "difference_high")]
    if row["accuracy"] is None:
        return [*place, "not run", *gains, "", "", "", ""]
    ours = with_interval("accuracy", "low", "high")
    return [
        *place,
        ours,
        *gains,
        number("p_value", row["p_value"]),
        row["sign"],
        f"{row['images']:,.0f}",
        f"{row['passes']:,.0f}",
    ]


def _beyond(shown: polars.DataFrame, record: Record | None) -> str:
    """Return a table of what was measured under threats for which the paper has no numbers."""
    pl = require_polars()
    if record is None:
        return ""
    ours = cells.our_cells(record.rows).filter(pl.col("victim") == "base", ~pl.col("threat").is_in(shown["threat"].to_list()))
    ours = ours.filter(~pl.col("suite").is_in(shown["suite"].to_list()), pl.col("threat") != WORST_CASE)
    return f"Beyond the paper:\n\n{_ours_alone(ours)}" if len(ours) else ""


def _ours_alone(ours: polars.DataFrame) -> str:
    """Return a table of our cells for which the paper has no numbers."""
    lines = [
        dict(zip(COLUMNS, _row(row | dict.fromkeys(("value", "gain", "sign"))), strict=True))
        for row in ours.iter_rows(named=True)
    ]
    names = ("model", "data", "threat", "defence", "ours", "gain here", "p", "images", "passes")
    return text_table(names, ([line[name] for name in names] for line in lines))


def _other_signs(name: str, shown: polars.DataFrame, record: Record | None, reason: Reason | None) -> Iterator[str]:
    """Yield a line for each gain with another sign than the paper's: what DRQ changed there, and the reason if known."""
    other = shown.filter(shown["sign"].is_in([cells.OPPOSITE, cells.UNCLEAR, cells.NEITHER]))
    for row in other.iter_rows(named=True):
        changes = "" if record is None else cells.describe_changes(record.rows, row)
        why = "" if reason is None else reason(name, row) or "no reason is known"
        place = f"{row['sign']}: {row['model']}, {row['data']}, {row['threat']}, {row['defence']}"
        yield f"- {place}: {'; '.join(each for each in (changes, why) if each)}"


def _cosines(record: Record) -> str:
    """Return the numbers of Figure 5 as a table."""
    names, rows = ("lower quartile", "median", "upper quartile"), []
    for row in cells.cosines(record.name, record.rows).iter_rows(named=True):
        theirs, ours = (" / ".join(f"{row[prefix + each]:+.2f}" for each in names) for prefix in ("paper ", ""))
        rows.append([row["model"], row["threat"], theirs, ours, f"{row['images']:,}"])
    return text_table(
        ("model", "attack", "paper: quartile / median / quartile", "ours", "images put right that it had moved"), rows
    )


def format_verdicts(judged: Mapping[str, Finding | None], reasons: Mapping[str, str] | None = None) -> str:
    """Format the verdict on each claim, and the numbers behind it.

    Args:
        judged: the finding for each claim; None where it was not measured.
        reasons: why claims do not hold here, by name; None leaves out that column.
    """
    rows, numbers = [], []
    for name, finding in judged.items():
        claim = claims()[name]
        verdict, measured = ("not measured", f"`drq reproduce {name}`") if finding is None else finding
        why = [] if reasons is None else [reasons.get(name, "") if verdict in ("does not hold", "undecided") else ""]
        rows.append([f"`{name}`", claim.where, claim.says, verdict, *why])
        numbers.append(f"- `{name}`: {measured}")
    head = ("claim", "where", "the paper says", "here it", *(() if reasons is None else ("why",)))
    return f"{text_table(head, rows)}\n\n{chr(10).join(numbers)}"

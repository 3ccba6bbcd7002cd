"""The ledger: every number and claim of the paper beside what came out here, made from kept records alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING, Any

from drq.evaluation.published import notes, reasons, stand_ins
from drq.evaluation.records import require_polars
from drq.report.tables import WORST_CASE
from drq.report.typesetting import number
from drq.reproduction import cells, improvements, peers
from drq.reproduction.catalogue import Entry, entries, gaps
from drq.reproduction.claims import claims, find
from drq.reproduction.keeping import Record, kept
from drq.reproduction.measures import Finding
from drq.reproduction.pages import made, short, table
from drq.reproduction.pictures import FIGURES, draw, saved, selective
from drq.system.files import in_one_piece

if TYPE_CHECKING:
    import polars

HEAD = """\
# Ledger

Every table, figure and claim of the paper beside what came out here. `make ledger` makes this page from the records in
`results/paper`, which `drq reproduce NAME --keep results/paper` makes. Nothing on it is typed by hand but reasons and gaps.

The weights of the paper are not at hand, so models of the same kind stand in for them: {models}. What was not run stays in
the tables; the command below a table runs it wherever weights and data are.

Accuracies are in percent with 95 % intervals. A gain is the difference to the undefended model on the same images, in points,
with its interval and the p-value of McNemar's exact test (for means over corruptions, of his score test on as many answers as
are independent). *Sign* compares the paper's gain with ours: it is "same" or "opposite" where our interval leaves 0 out,
"within noise" where it does not. *Passes* are evaluations of the model for one answer, a mean. The attacks of the paper look
at the undefended model, as far as it lets one guess: a gain under them is no evidence of security, see [threats](threats.md).
Rotations and translations, too, were chosen against it where they are the worst of several. Points on the very border of two
classes, where FAB stops, may fall to either side in another process: Tables 4 and 7 have such.

Experiments that run in one process share what was attacked and answered, and processes may share a GPU: the times below the
tables are what each of them took, not what it would take alone.
"""
COLUMNS = ("model", "data", "threat", "defence", "paper", "ours", "gain there", "gain here", "p", "sign", "images", "passes")
PRINTED = ("table", "figure")  # what of the entries the paper has numbers of
SIGNS = {
    cells.SAME: "gains of the same sign",
    cells.LIKELY: "gains of the same sign, within noise",
    cells.UNCLEAR: "gains of another sign, within noise",
    cells.OPPOSITE: "gains of the opposite sign",
    cells.NEITHER: "differences in the paper, and none here",
}

BEYOND_THE_PAPER: Mapping[str, Callable[[polars.DataFrame], Iterable[str]]] = {  # what each experiment alone tells
    **dict.fromkeys(peers.PEERS, lambda rows: [peers.summary(rows, None)]),
    **dict.fromkeys(peers.RED_TEAM, peers.verdicts),
    **improvements.SHOWN,
}


def write(records: Path, page: Path) -> list[Path]:
    """Write the ledger, and beside it its pictures and the pages beyond the paper; return their paths. Figure 1 is a picture."""
    pages = {page: ledger, page.with_name("peers.md"): peers.page, page.with_name("presets.md"): improvements.page}
    paths, folder = [*pages], page.parent / "images" / "paper"
    for path, text in pages.items():
        with in_one_piece(path) as file:
            file.write(text(records).encode())
    for name in FIGURES:
        if (records / f"{name}.svg").exists():
            folder.mkdir(parents=True, exist_ok=True)
            paths.append(Path(copyfile(records / f"{name}.svg", folder / f"{name}.svg")))
        elif (record := kept(records, name)) is not None:
            paths.append(draw(name, record.rows, folder))
    answers = peers.curves(records)
    return [*paths, *([saved(peers.CURVES, lambda: selective(answers), folder)] if answers else [])]


def ledger(folder: Path) -> str:
    """The whole page."""
    known = entries().values()
    records = {name: kept(folder, name) for name in dict.fromkeys(each for entry in known for each in entry.experiments)}
    shown = {entry.name: _beside(entry.name, records[entry.name]) for entry in known if entry.kind in PRINTED}
    models = ", ".join(f"`{mine}` for {short(theirs)}" for mine, theirs in stand_ins().items() if ":" not in mine)
    parts = [HEAD.format(models=models), _summary(shown.values()), "## Tables and figures"]
    for entry in known:
        if entry.kind in PRINTED:
            parts += _section(entry, records[entry.name], shown[entry.name])
    parts += ["## Claims", _claims(dict.fromkeys(claims()) | findings(records))]
    alone = dict.fromkeys(each for entry in known if entry.kind == "claim" for each in entry.experiments if each not in shown)
    parts += ["Measured for claims alone:", "\n".join(f"- {made(name, records[name])}" for name in alone)]
    parts += ["## Gaps and slips of the paper", _gaps()]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def shown(record: Record) -> str:
    """What came out of a table or figure, beside the paper, or of an experiment beyond it; nothing for what is neither."""
    entry, tell = entries().get(record.name), BEYOND_THE_PAPER.get(record.name)
    if tell is not None:
        parts = [f"### {record.about['title']}", *tell(record.rows), made(record.name, record)]
    else:
        parts = [] if entry is None else [*_section(entry, record, _beside(record.name, record))]
    return "\n\n".join(part for part in parts if part and not part.startswith("!"))


def findings(records: Mapping[str, Record | None]) -> dict[str, Finding | None]:
    """What came out of the claims that need no other records; None where these lack something."""
    pl = require_polars()
    rows = {name: each.rows for name, each in records.items() if each is not None}
    asked = {name: each for name, each in claims().items() if rows.keys() >= {*each.experiments}}
    return {name: find(each, pl.concat(rows[experiment] for experiment in each.experiments)) for name, each in asked.items()}


def claimed(records: Mapping[str, Record | None]) -> str:
    """A line for each claim that these records tell something of."""
    found = findings(records)
    return _claims({name: found[name] for name in claims() if name in found}) if found else ""


def _beside(name: str, record: Record | None) -> polars.DataFrame:
    return cells.beside(name, None if record is None else record.rows)


def _summary(shown: Iterable[polars.DataFrame]) -> str:
    """How many cells there are, were run, and agree in sign."""
    pl = require_polars()
    every = pl.concat([each.select("accuracy", "sign", "value", "low", "high", "stand_in") for each in shown])
    run = every.filter(pl.col("accuracy").is_not_null())
    signs = Counter(run["sign"].to_list())
    rows = [
        ["cells of the paper", len(every.filter(~pl.col("stand_in")))],
        ["cells that were run; two models may stand in for one", len(run)],
        *([text, signs[sign]] for sign, text in SIGNS.items()),
        ["accuracies of the paper inside our interval", len(run.filter(pl.col("value").is_between("low", "high")))],
    ]
    return table(("what", "how many"), rows)


def _section(entry: Entry, record: Record | None, shown: polars.DataFrame) -> Iterator[str]:
    """A table or figure."""
    numbered = f"{entry.name[:-1].capitalize()} {entry.name[-1]}: " if entry.name[-1].isdigit() else ""
    yield f"### {numbered}{entry.title}"
    if entry.name in notes():
        yield f"Of the paper: {notes()[entry.name]}"
    if len(shown):
        yield table(COLUMNS, map(_row, shown.iter_rows(named=True)))
        yield "\n".join(_why(entry.name, shown, record))
        yield _beyond(shown, record)
    if entry.name == "figure5" and record is not None:
        yield _cosines(record)
    if entry.name in FIGURES and record is not None:
        yield f"![{entry.title}](images/paper/{entry.name}.svg)"
    yield made(entry.name, record)


def _row(row: Mapping[str, Any]) -> list[str]:
    """A cell of the paper as a line."""

    def within(column: str, low: str, high: str) -> str:
        value, ends = number(column, row[column]), (number(column, row[each]) for each in (low, high))
        return "" if row[column] is None else f"{value} [{', '.join(ends)}]"

    threat = f"worst of {row['suite']}" if row["threat"] == WORST_CASE else row["threat"]
    place = [short(row["model"]), row["data"], threat, row["defence"], number("published", row["value"])]
    gains = [number("difference", row["gain"]), within("difference", "difference_low", "difference_high")]
    if row["accuracy"] is None:
        return [*place, "not run", *gains, "", "", "", ""]
    ours = within("accuracy", "low", "high")
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
    """What was measured under threats of which the paper has no numbers."""
    pl = require_polars()
    if record is None:
        return ""
    ours = cells.counted(record.rows).filter(pl.col("victim") == "base", ~pl.col("threat").is_in(shown["threat"].to_list()))
    ours = ours.filter(~pl.col("suite").is_in(shown["suite"].to_list()), pl.col("threat") != WORST_CASE)
    lines = [
        dict(zip(COLUMNS, _row(row | dict.fromkeys(("value", "gain", "sign"))), strict=True))
        for row in ours.iter_rows(named=True)
    ]
    names = ("model", "data", "threat", "defence", "ours", "gain here", "p", "images", "passes")
    return f"Beyond the paper:\n\n{table(names, ([line[name] for name in names] for line in lines))}" if lines else ""


def _why(name: str, shown: polars.DataFrame, record: Record | None) -> Iterator[str]:
    """Reasons for gains that are not of the paper's sign, after what DRQ changed there."""
    other = shown.filter(shown["sign"].is_in([cells.OPPOSITE, cells.UNCLEAR, cells.NEITHER]))
    for row in other.iter_rows(named=True):
        why = reasons(name, row) or "no reason is known"
        changed = "" if record is None else cells.changed(record.rows, row)
        yield f"- {row['sign']}: {row['model']}, {row['data']}, {row['threat']}, {row['defence']}: {changed}{why}"


def _cosines(record: Record) -> str:
    """Figure 5 in numbers."""
    names, rows = ("lower quartile", "median", "upper quartile"), []
    for row in cells.cosines(record.name, record.rows).iter_rows(named=True):
        theirs, ours = (" / ".join(f"{row[prefix + each]:+.2f}" for each in names) for prefix in ("paper ", ""))
        rows.append([row["model"], row["threat"], theirs, ours, f"{row['images']:,}"])
    return table(("model", "attack", "paper: quartile / median / quartile", "ours", "images put right that it had moved"), rows)


def _claims(found: Mapping[str, Finding | None]) -> str:
    """A line for each claim, and what was measured."""
    rows, numbers = [], []
    for name, finding in found.items():
        claim = claims()[name]
        verdict, measured = ("not measured", f"`drq reproduce {name}`") if finding is None else finding
        why = claim.why if verdict in ("does not hold", "undecided") else ""
        rows.append([f"`{name}`", claim.where, claim.says, verdict, why])
        numbers.append(f"- `{name}`: {measured}")
    return f"{table(('claim', 'where', 'the paper says', 'here it', 'why'), rows)}\n\n{chr(10).join(numbers)}"


def _gaps() -> str:
    return table(("where", "the paper", "here"), ([each.where, each.paper, each.ours] for each in gaps()))

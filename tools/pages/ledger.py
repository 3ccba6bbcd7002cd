"""Write the ledger, every number and claim of the paper beside ours, from kept records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING

from drq.evaluation.paper import stand_ins
from drq.evaluation.records import require_polars
from drq.report.typesetting import text_table
from drq.reproduction import cells
from drq.reproduction.claims import claims
from drq.reproduction.experiments import entries, gaps
from drq.reproduction.kept_records import read_record
from drq.reproduction.paper_figures import FIGURES, draw, risk_coverage_panels, save_figure
from drq.reproduction.printout import compare_with_paper, findings, format_entry, format_verdicts
from drq.reproduction.provenance import provenance, short_name
from drq.system.files import atomic_write
from tools.pages import peers, presets, real
from tools.pages.reasons import for_claims, for_sign

if TYPE_CHECKING:
    import polars

HEAD = """\
# Ledger

Every table, figure and claim of the paper beside what came out here. `make pages` makes this page from the records in
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
BESIDE = {"peers": peers.page, "presets": presets.page, "real": real.page}  # pages that are made of the same records
OTHERS = """\
Do the main claims hold around networks that others trained? [All numbers](real.md), with intervals and counts."""
PRINTED = ("table", "figure")  # kinds of entries for which the paper has numbers
SIGNS = {
    cells.SAME: "gains of the same sign",
    cells.LIKELY: "gains of the same sign, within noise",
    cells.UNCLEAR: "gains of another sign, within noise",
    cells.OPPOSITE: "gains of the opposite sign",
    cells.NEITHER: "differences in the paper, and none here",
}


def write(records: Path, page: Path) -> list[Path]:
    """Write the ledger, its figures, and the pages beside it; return all paths. Figure 1 is copied as an SVG."""
    pages = {page: ledger} | {page.with_name(f"{name}.md"): write for name, write in BESIDE.items()}
    paths, folder = [*pages], page.parent / "images" / "paper"
    for path, text in pages.items():
        with atomic_write(path) as file:
            file.write(text(records).encode())
    for name in FIGURES:
        if (records / f"{name}.svg").exists():
            folder.mkdir(parents=True, exist_ok=True)
            paths.append(Path(copyfile(records / f"{name}.svg", folder / f"{name}.svg")))
        elif (record := read_record(records, name)) is not None:
            paths.append(draw(name, record.rows, folder))
    answers = peers.curves(records)
    return [*paths, *([save_figure(peers.CURVES, lambda: risk_coverage_panels(answers), folder)] if answers else [])]


def ledger(folder: Path) -> str:
    """Return the whole page."""
    all_entries = entries().values()
    names = dict.fromkeys(each for entry in all_entries for each in entry.experiments)
    records = {name: read_record(folder, name) for name in names}
    cells_of = {each.name: compare_with_paper(each.name, records[each.name]) for each in all_entries if each.kind in PRINTED}
    models = ", ".join(f"`{mine}` for {short_name(theirs)}" for mine, theirs in stand_ins().items() if ":" not in mine)
    parts = [HEAD.format(models=models), _summary(cells_of.values()), "## Tables and figures"]
    for entry in all_entries:
        if entry.kind in PRINTED:
            parts += format_entry(entry, records[entry.name], cells_of[entry.name], for_sign)
    parts += ["## Claims", format_verdicts(dict.fromkeys(claims()) | findings(records), for_claims())]
    of_claims = (each for entry in all_entries if entry.kind == "claim" for each in entry.experiments)
    alone = dict.fromkeys(each for each in of_claims if each not in cells_of)
    parts += ["Measured for claims alone:", "\n".join(f"- {provenance(name, records[name])}" for name in alone)]
    parts += ["## Networks of others", OTHERS, *real.summary(folder)]
    parts += ["## Gaps and slips of the paper", _gaps()]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _summary(shown: Iterable[polars.DataFrame]) -> str:
    """Return a table of how many cells there are, were run, and agree in sign."""
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
    return text_table(("what", "how many"), rows)


def _gaps() -> str:
    return text_table(("where", "the paper", "here"), ([each.where, each.paper, each.ours] for each in gaps()))

"""Print the results of commands on a terminal, a function for each kind of result."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from drq import data, models, threats
from drq.errors import InputError, require
from drq.models.digits import Track
from drq.serving.prediction import Prediction
from drq.system.files import atomic_write
from drq.system.progress import ProgressOption

if TYPE_CHECKING:
    from drq.serving.table import Totals

SHOWN = 5  # classes that are shown of a picture
FEW = 3  # up to so many pictures are shown in full
MOST_VALUES = 20  # a sequence with more is shortened
LONGEST = 60  # characters of a picture's name that the column is at most wide
COLUMNS = (
    *("picture", "answer", "standard", "changed", "robustness", "margin", "abstained"),
    *("radius", "norm", "view", "kept", "gate_margin", "passes", "forward_passes", "seconds", "error"),
)  # of a CSV file; cells without a value are empty


@contextmanager
def progress(quiet: bool) -> Iterator[Track]:
    """Show a bar with the time left on standard error; nothing where that is not a terminal."""
    with _bar(quiet) as bar:

        def track(items: Sequence[Any], description: str) -> Iterable[Any]:
            return bar.track(items, description=description)

        yield track


@contextmanager
def picture_progress(pictures: int, quiet: bool) -> Iterator[tuple[Callable[[float], None] | None, ProgressOption]]:
    """Show a bar for pictures, and one for the regions of a slice while they are looked for.

    It yields two functions, or None and False without bars: one takes how many pictures are done, fractions included, the other
    takes passes of the model for a slice, done and in all.
    """
    with _bar(quiet) as bar:
        task, slices = bar.add_task("pictures", total=pictures), bar.add_task("regions", visible=False)

        def draw(done: int, total: int) -> None:
            bar.update(slices, completed=done, total=total, visible=done < total)

        yield (None, False) if bar.disable else (lambda done: bar.update(task, completed=done), draw)


@contextmanager
def _bar(quiet: bool) -> Iterator[Progress]:
    columns = (TextColumn("{task.description:9}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    hidden = quiet or not sys.stderr.isatty()
    above = sys.stdout.isatty()  # what is shown meanwhile goes above the bar
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=above, disable=hidden) as bar:
        yield bar


def plain_table(*columns: str) -> Table:
    """Return a table with these headings, whose first column is never wrapped."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        shown.add_column(column, no_wrap=number == 0)
    return shown


def show(*parts: Table | str) -> None:
    """Print texts and tables; text is wrapped only on a terminal."""
    console = Console(highlight=False)
    with console.capture() as captured:
        for part in parts:
            if isinstance(part, str):
                console.print(safe(part), markup=False, soft_wrap=not console.is_terminal)
            else:
                console.print(part)
    sys.stdout.write(captured.get())  # not by the console itself, which would write into a progress bar


def safe(text: str) -> str:
    """Replace control characters, which a terminal would obey: names may come from untrusted files."""
    return "".join(each if each.isprintable() else "?" for each in text)


def show_threats(entries: Sequence[threats.Entry]) -> None:
    """Print the threats by family."""
    shown = plain_table("drq.threats.", "What it does")
    family = None
    for entry in entries:
        if entry.family != family:
            family = entry.family
            shown.add_section()
            shown.add_row(f"[bold]{family}[/bold]", "")
        shown.add_row(entry.name, entry.summary)
    show(shown)


def show_entries(call: str, entries: Sequence[models.Entry] | Sequence[data.Entry]) -> None:
    """Print what can be loaded by name, each name in its own line, since names are long."""
    show(f"{call}(name); + is on this machine, - has to be downloaded or made first:", "")
    for entry in entries:
        show(f"{'+' if entry.present else '-'} {entry.name}", f"    {entry.summary}")


def show_facts(values: Mapping[str, Any]) -> None:
    """Print names and values in two columns; long sequences are shortened."""
    width = max(map(len, values))
    show(*(f"{name:{width}}  {_shorten(value)}" for name, value in values.items() if value not in (None, "", [])))


def _shorten(value: object) -> object:
    """Shorten a long sequence to its first values, since 1000 names of classes would fill the terminal.

    >>> _shorten(tuple("abcdefghijklmnopqrstuvwxyz"))
    'a, b, c and 23 more'
    """
    if not isinstance(value, tuple | list) or len(value) <= MOST_VALUES:
        return value
    return f"{', '.join(map(str, value[:3]))} and {len(value) - 3} more"


def prediction_printer(pictures: Sequence[str]) -> Callable[[Prediction, float], None]:
    """Return a function that prints an answer, given the margin below which to abstain: in full, or in one line if many."""
    if len(pictures) <= FEW:
        return show_prediction
    width = min(LONGEST, max(map(len, pictures)))
    show(f"Margin  Robustness  {'Picture':{width}}  Answer")
    return partial(show_prediction_line, width)


def show_prediction_line(width: int, found: Prediction, abstain_below: float) -> None:
    """Print the answer for a picture in one line."""
    answer = f"{found.answer}, where the model alone says {found.standard}" if found.changed else found.answer
    if found.radius is None:
        answer = f"{found.standard}, by the model alone: no region to explore was found"
    if found.abstains(abstain_below):
        answer = f"none, the best guess is {found.answer}"
    show(f"{found.margin:6.3f}  {found.robustness:10.3f}  {found.picture:{width}}  {answer}")


def show_totals(pictures: int, counts: Counter[str], seconds: float, place: str | None, views: bool = False) -> None:
    """Print totals, where pictures are many or answers were written to a file, and the legend for answers that were printed.

    Args:
        pictures: how many there were.
        counts: of what became of them, and of passes of the model.
        seconds: that the answers took.
        place: the file that they were written to.
        views: whether they come from views of the pictures.
    """
    if place or pictures > FEW:
        texts = {
            "changed": "answered otherwise than by the model alone",
            "abstained": "left without an answer",
            "error": "refused",
        }
        parts = [
            f"{pictures} picture{'s' if pictures > 1 else ''}",
            *(f"{counts[name]} {words}" for name, words in texts.items()),
        ]
        show(f"{f'{place}: ' if place else ''}{', '.join(parts)}.", cost(counts["passes"], seconds))
    if not place and not counts["error"]:
        show_legend(views)


def show_rows(place: str, totals: Totals) -> None:
    """Print what a table holds."""
    texts = {"before": "there before", "abstained": "below the threshold", "refused": "without an answer, see the column error"}
    parts = [f"{count:,} {words}" for name, words in texts.items() if (count := getattr(totals, name))]
    were = "was" if totals.twice == 1 else "were"
    twice = f" {totals.twice:,} {were} named more than once, which is answered once." if totals.twice else ""
    show(f"{place}: {', '.join([f'{totals.rows:,} rows', *parts])}.{twice}", cost(totals.passes, totals.seconds))


def show_prediction(found: Prediction, abstain_below: float) -> None:
    """Print the answer for a picture, the evidence for it, and its cost."""
    table = plain_table(f"Class ({min(SHOWN, len(found.classes))} of {len(found.classes)})", "Confidence", "Robustness")
    for each in found.classes[:SHOWN]:
        robustness = "not searched" if each.robustness is None else f"{'' if each.exact else 'below '}{each.robustness:.3f}"
        table.add_row(escape(safe(each.name)), f"{each.confidence:.3f}", robustness)
    show(f"{found.picture}, seen by {found.model}", table, *sentences(found, abstain_below), "")


def show_legend(views: bool) -> None:
    """Print what the columns mean, and how far to trust them; ``views`` tells that views were looked at, and no ball searched."""
    show(
        "Confidence: of the model, at the picture. Robustness: "
        + (
            "at the best view of a class; behind a gate, beyond what is usual there."
            if views
            else "what remains of it in the worst place near a class's best point."
        ),
        "The margin ranks answers and is no probability: choose a threshold on pictures of your own.",
        "Whatever a picture shows, the answer is one of the classes that the model knows.",
    )


def sentences(found: Prediction, abstain_below: float) -> list[str]:
    """Return the answer, its evidence and its cost in words."""
    agrees = "as the model alone" if not found.changed else f"where the model alone says {found.standard}"
    answer = f"DRQ: {found.answer}, {agrees}. Margin over the second class: {found.margin:.3f}."
    if found.radius is None:
        answer = f"No region to explore was found, so the model alone answers: {found.standard}."
    if found.abstains(abstain_below):
        answer = f"No answer: the margin {found.margin:.3f} is below {abstain_below:g}. The best guess is {found.answer}."
    region = "" if found.radius is None or found.norm is None else f" Explored: {found.norm} within {found.radius:.3g}."
    forward = " forward" if found.passes and found.passes == found.forward_passes else ""
    looked = f" Views: {found.views}; {_spoken(found)}." if found.views else ""
    return [answer, f"{cost(found.passes, found.seconds, forward)}{region}{looked}"]


def cost(passes: int, seconds: float, kind: str = "") -> str:
    """Return what answers cost in words.

    >>> cost(1260, 39.9)
    'Cost: 1,260 passes of the model, 39.9 s.'
    """
    return f"Cost: {passes:,}{kind} passes of the model, {seconds:.1f} s."


def _spoken(found: Prediction) -> str:
    """Say which view the answer comes from, or that a gate kept the model's own."""
    return "the gate keeps the model's answer" if found.kept else f"the answer comes from {found.view}"


@contextmanager
def csv_writer(path: str | None) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield a function that writes an answer's ``as_json`` as a row of a CSV file with the columns :data:`COLUMNS`.

    The file appears when it is complete; until then an old one stays. ``-`` writes each row at once to standard output; None
    writes nothing.
    """
    if path is None:
        yield lambda _: None
        return
    with _open_output(path) as file:
        # File names may hold bytes that are not text. newline="" keeps csv's own line ends, those of RFC 4180.
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="", write_through=True)
        rows = csv.DictWriter(text, COLUMNS)
        try:
            rows.writeheader()
            yield lambda row: _write_row(rows, row, file)
        finally:
            text.detach()  # otherwise it would close the file


def _write_row(rows: csv.DictWriter[str], row: Mapping[str, Any], file: IO[bytes]) -> None:
    cells = ((name, row.get(name)) for name in COLUMNS)
    rows.writerow({name: value if value is None or isinstance(value, str) else json.dumps(value) for name, value in cells})
    file.flush()


@contextmanager
def _open_output(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdout.buffer
        return
    rule, remedy = "name a file that can be written", "- is standard output"
    try:
        usable = path != "" and (Path(path).is_file() or not Path(path).exists())  # a folder or a device must not be replaced
        require(usable, "--csv", rule, repr(path), remedy)
        with atomic_write(Path(path)) as file:
            yield file
    except BrokenPipeError:  # of standard output
        raise
    except OSError as error:
        raise InputError(f"--csv must {rule}, got {path!r} ({error.strerror}): {remedy}") from error

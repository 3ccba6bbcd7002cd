"""What the commands show on a terminal. Each function prints one kind of result."""

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
from typing import IO, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from drq import data, models, threats
from drq.errors import InputError, require
from drq.models.digits import Track
from drq.serving.predict import Prediction
from drq.system.files import atomic_write

SHOWN = 5  # classes of a picture
FEW = 3  # pictures that are shown in full
LONGEST = 60  # name of a picture that others are lined up with
MANY = 20  # values of a fact, beyond which it is told how they begin
COLUMNS = (
    *("picture", "answer", "standard", "changed", "robustness", "margin", "abstained"),
    *("radius", "norm", "passes", "seconds", "error"),
)  # of a CSV file; empty where there is nothing to say


@contextmanager
def progress(quiet: bool) -> Iterator[Track]:
    """A bar with the time left on standard error; nothing where that is not a terminal."""
    with _bar(quiet) as bar:

        def track(items: Sequence[Any], description: str) -> Iterable[Any]:
            return bar.track(items, description=description)

        yield track


@contextmanager
def answering(pictures: int, quiet: bool) -> Iterator[Callable[[float], None] | None]:
    """The same for so many pictures: what it yields is told how many are answered, in parts; None where nothing is shown."""
    with _bar(quiet) as bar:
        task = bar.add_task("pictures", total=pictures)
        yield None if bar.disable else lambda done: bar.update(task, completed=done)


@contextmanager
def _bar(quiet: bool) -> Iterator[Progress]:
    columns = (TextColumn("{task.description:9}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    hidden = quiet or not sys.stderr.isatty()
    above = sys.stdout.isatty()  # what is shown meanwhile goes above the bar
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=above, disable=hidden) as bar:
        yield bar


def plain_table(*columns: str) -> Table:
    """A table with these heads; the first column is never broken."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        shown.add_column(column, no_wrap=number == 0)
    return shown


def show(*parts: Table | str) -> None:
    """Print them; lines of text are broken only on a terminal."""
    console = Console(highlight=False)
    with console.capture() as captured:
        for part in parts:
            if isinstance(part, str):
                console.print(safe(part), markup=False, soft_wrap=not console.is_terminal)
            else:
                console.print(part)
    sys.stdout.write(captured.get())  # by way of the bar, where one is shown: a console of its own would write into it


def safe(text: str) -> str:
    """Names come from anywhere: without what a terminal would obey."""
    return "".join(each if each.isprintable() else "?" for each in text)


def families(entries: Sequence[threats.Entry]) -> None:
    """Threats by family."""
    shown = plain_table("drq.threats.", "What it does")
    family = None
    for entry in entries:
        if entry.family != family:
            family = entry.family
            shown.add_section()
            shown.add_row(f"[bold]{family}[/bold]", "")
        shown.add_row(entry.name, entry.summary)
    show(shown)


def presence(call: str, entries: Sequence[models.Entry] | Sequence[data.Entry]) -> None:
    """What can be loaded by name; names are long, so each has a line of its own."""
    show(f"{call}(name), here now (+) or to be fetched or made first (-):", "")
    for entry in entries:
        show(f"{'+' if entry.present else '-'} {entry.name}", f"    {entry.summary}")


def facts(known: Mapping[str, Any]) -> None:
    """Names and values; of a long row of values how it begins."""
    width = max(map(len, known))
    show(*(f"{name:{width}}  {_in_short(value)}" for name, value in known.items() if value not in (None, "")))


def _in_short(value: object) -> object:
    """As 1000 names of classes would fill the terminal.

    >>> _in_short(tuple("abcdefghijklmnopqrstuvwxyz"))
    'a, b, c and 23 more'
    """
    if not isinstance(value, tuple | list) or len(value) <= MANY:
        return value
    return f"{', '.join(map(str, value[:3]))} and {len(value) - 3} more"


def answers(pictures: Sequence[str]) -> Callable[[Prediction, float], None]:
    """What shows an answer, and abstains below a margin: a few pictures are shown in full, many in one line each."""
    if len(pictures) <= FEW:
        return prediction
    width = min(LONGEST, max(map(len, pictures)))
    show(f"Margin  Robustness  {'Picture':{width}}  Answer")
    return partial(line, width)


def line(width: int, found: Prediction, abstain_below: float) -> None:
    """A picture in one line."""
    answer = f"{found.answer}, where the model alone says {found.standard}" if found.changed else found.answer
    if found.radius is None:
        answer = f"{found.standard}, by the model alone: no region to explore was found"
    if found.abstains(abstain_below):
        answer = f"none, the best guess is {found.answer}"
    show(f"{found.margin:6.3f}  {found.robustness:10.3f}  {found.picture:{width}}  {answer}")


def closing(pictures: int, counts: Counter[str], place: str | None) -> None:
    """What became of the pictures, where they are many or answers are in a file; and how far to trust what is shown."""
    if place or pictures > FEW:
        met = {
            "changed": "answered otherwise than by the model alone",
            "abstained": "left without an answer",
            "error": "refused",
        }
        parts = [f"{pictures} picture{'s' if pictures > 1 else ''}", *(f"{counts[name]} {words}" for name, words in met.items())]
        show(f"{f'{place}: ' if place else ''}{', '.join(parts)}.")
    if not place and not counts["error"]:
        legend()


def prediction(found: Prediction, abstain_below: float) -> None:
    """A picture: the answer, its reasons, its cost."""
    shown = plain_table(f"Class ({min(SHOWN, len(found.classes))} of {len(found.classes)})", "Confidence", "Robustness")
    for line in found.classes[:SHOWN]:
        robustness = "not searched" if line.robustness is None else f"{'' if line.exact else 'below '}{line.robustness:.3f}"
        shown.add_row(escape(safe(line.name)), f"{line.confidence:.3f}", robustness)
    show(f"{found.picture}, seen by {found.model}", shown, *reasons(found, abstain_below), "")


def legend() -> None:
    """What the columns mean, and how far to trust them."""
    show(
        "Confidence: of the model, at the picture. Robustness: what remains of it in the worst place near a class's best point.",
        "The margin ranks answers and is no probability: choose a threshold on pictures of your own.",
        "Whatever a picture shows, the answer is one of the classes that the model knows.",
    )


def reasons(found: Prediction, abstain_below: float) -> list[str]:
    """The answer in words."""
    agrees = "as the model alone" if not found.changed else f"where the model alone says {found.standard}"
    answer = f"DRQ: {found.answer}, {agrees}. Margin over the second class: {found.margin:.3f}."
    if found.radius is None:
        answer = f"No region to explore was found, so the model alone answers: {found.standard}."
    if found.abstains(abstain_below):
        answer = f"No answer: the margin {found.margin:.3f} is below {abstain_below:g}. The best guess is {found.answer}."
    region = "" if found.radius is None else f" Explored: {found.norm} within {found.radius:.3g}."
    return [answer, f"Cost: {found.passes} passes of the model, {found.seconds:.1f} s.{region}"]


@contextmanager
def sheet(path: str | None) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that writes a row: what ``as_json`` made of an answer becomes a line of a CSV file with these :data:`COLUMNS`.

    Whoever reads the file meanwhile sees the old one, if any. Standard output, ``-``, has each row at once; None is nowhere.
    """
    if path is None:
        yield lambda _: None
        return
    with _opened(path) as file:
        # Names of files may hold bytes that are no text; line ends of RFC 4180, so that both of their characters are quoted
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="", write_through=True)
        rows = csv.DictWriter(text, COLUMNS)
        try:
            rows.writeheader()
            yield lambda row: _put(rows, row, file)
        finally:
            text.detach()  # or it would close the file


def _put(rows: csv.DictWriter[str], row: Mapping[str, Any], file: IO[bytes]) -> None:
    cells = ((name, row.get(name)) for name in COLUMNS)
    rows.writerow({name: value if value is None or isinstance(value, str) else json.dumps(value) for name, value in cells})
    file.flush()


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
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

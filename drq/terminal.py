"""What the commands show on a terminal. Each function prints one kind of result."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from drq import data, models, threats
from drq.demo import METHODS, Outcome, Tally
from drq.models.digits import Track
from drq.predict import Prediction

SHOWN = 5  # classes of a picture


@contextmanager
def progress(quiet: bool) -> Iterator[Track]:
    """A bar with the time left on standard error; nothing where that is not a terminal."""
    columns = (TextColumn("{task.description:9}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    hidden = quiet or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bar:

        def track(items: Sequence[Any], description: str) -> Iterable[Any]:
            return bar.track(items, description=description)

        yield track


def plain_table(*columns: str) -> Table:
    """A table with these heads; the first column is never broken."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        shown.add_column(column, no_wrap=number == 0)
    return shown


def show(*parts: Table | str) -> None:
    """Print them; lines of text are broken only on a terminal."""
    console = Console(highlight=False)
    for part in parts:
        if isinstance(part, str):
            console.print(safe(part), markup=False, soft_wrap=not console.is_terminal)
        else:
            console.print(part)


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
    """Names and values."""
    width = max(map(len, known))
    show(*(f"{name:{width}}  {value}" for name, value in known.items() if value not in (None, "")))


def prediction(found: Prediction, abstain: float) -> None:
    """A picture: the answer, its reasons, its cost."""
    shown = plain_table(f"Class ({min(SHOWN, len(found.classes))} of {len(found.classes)})", "Confidence", "Robustness")
    for line in found.classes[:SHOWN]:
        robustness = "not searched" if line.robustness is None else f"{'' if line.exact else 'below '}{line.robustness:.3f}"
        shown.add_row(escape(safe(line.name)), f"{line.confidence:.3f}", robustness)
    show(f"{found.picture}, seen by {found.model}", shown, *reasons(found, abstain), "")


def legend() -> None:
    """What the columns mean, and how far to trust them."""
    show(
        "Confidence: of the model, at the picture. Robustness: what remains of it in the worst place near a class's best point.",
        "The margin ranks answers and is no probability: choose a threshold on pictures of your own.",
        "Whatever a picture shows, the answer is one of the classes that the model knows.",
    )


def reasons(found: Prediction, abstain: float) -> list[str]:
    """The answer in words."""
    agrees = "as the model alone" if not found.changed else f"where the model alone says {found.standard}"
    answer = f"DRQ: {found.answer}, {agrees}. Margin over the second class: {found.margin:.3f}."
    if found.radius is None:
        answer = f"No region to explore was found, so the model alone answers: {found.standard}."
    if found.abstains(abstain):
        answer = f"No answer: the margin {found.margin:.3f} is below {abstain:g}. The best guess is {found.answer}."
    region = "" if found.radius is None else f" Explored: {found.norm} within {found.radius:.3g}."
    return [answer, f"Cost: {found.passes} passes of the model, {found.seconds:.1f} s.{region}"]


def demonstration(outcome: Outcome) -> None:
    """The table of the demonstration and what to know about it."""
    show(table(outcome), *remarks(outcome))


def table(outcome: Outcome) -> Table:
    """Accuracy by shift and method."""
    radii = ", ".join(f"{METHODS[norm]} {radius:.2f}" for norm, radius in outcome.radii.items())
    title = f"Accuracy in % on {outcome.images} digits of 8 x 8 pixels, seed {outcome.seed}. Radius: {radii}"
    shown = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    shown.add_column("Shift", no_wrap=True)
    for method in METHODS.values():
        shown.add_column(method, justify="right")
    for shift, row in outcome.tallies.items():
        alone, *others = row.values()
        low, high = alone.interval
        shown.add_row(shift, f"{alone.accuracy:.1f} \\[{low:.1f}, {high:.1f}]", *map(cell, others))
    return shown


def cell(tally: Tally) -> str:
    """Accuracy, difference, and how many images made it; coloured and starred only where it is more than chance."""
    beyond_chance = tally.p_value < 0.05
    text = f"{tally.accuracy:.1f} {tally.difference:+.1f}{'*' if beyond_chance else ' '} (+{tally.fixed} -{tally.spoiled})"
    if not beyond_chance:
        return text
    return f"[green]{text}[/]" if tally.difference > 0 else f"[red]{text}[/]"


def remarks(outcome: Outcome) -> list[str]:
    """What to know before believing the table."""
    half = ", ".join(f"{METHODS[name]} {share:.1f} %" for name, share in outcome.trusted_half.items())
    cost = ", ".join(f"{METHODS[name]} {passes:.0f}" for name, passes in outcome.passes.items())
    return [
        "[a, b]: 95 % interval. (+a -b): images put right and spoiled by DRQ. *: more than chance (sign test, p < 0.05).",
        f"Cost: mean passes of the model for an image: {cost}; nearly all of DRQ's run backward too.",
        f"Abstention: accuracy on the half of all answers that each method trusts most (margin; Standard: confidence): {half}.",
        "Warning: PGD attacks the model alone and is transferred to DRQ. Attacks that adapt to DRQ can undo its gain.",
    ]

"""Compare rules, gates and views on images that no report touches: ``python -m tools.view_search.choose``, after ``record``.

It prints what each form adds to the model alone around every model, in points: on clean images, as a mean over 15 corruptions,
and on images turned by a random angle of up to 90 degrees. Then it builds sets of tones view by view, by what each adds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from drq.presets import NATURE_VIEWS, SHIFT_VIEWS, UPRIGHT_VIEWS
from drq.registry import CORRUPTIONS
from drq.report.typesetting import text_table
from drq.views import Views, parse
from drq.views.contest import table
from drq.views.fitting import Leads
from tools.view_search import record, rules

FIRST = (  # what was measured before there was a search
    "Mirror() * Detail()",
    "Mirror() * Detail() + Denoise() * Detail() + Blur() * Contrast() + Contrast() * Sharpen() + Gamma(0.6, 1.6)",
    "Rotation(90, 13)",
)
LATER = (  # what came close
    "Mirror() * Detail() + Rotation(80, 9)",
    f"{SHIFT_VIEWS} + Rotation(90, 13)",
    f"{SHIFT_VIEWS} + Rotation(90, 19) + Scale(2, 9)",
)
CANDIDATES = (*FIRST, str(SHIFT_VIEWS), str(NATURE_VIEWS), str(UPRIGHT_VIEWS), *LATER)
SHARES = (0.04, 0.05, 0.06)
HARM, PRICE = 0.2, 3.0  # points that clean images may lose for nothing, and what each further one counts
HEAD = ("views", "passes", "rule", "leads", "changes")


class Heard(NamedTuple):
    """What a model said about images at all views, and what they are."""

    odds: Tensor  # (N, V, C)
    y: Tensor  # (N,)


Models = dict[str, dict[str, Heard]]  # by model and shift


def read(folder: Path, models: Sequence[str]) -> tuple[Models, Views]:
    """Return all recordings, and the views that they have."""
    found: Models = {}
    texts = set()
    for model in models:
        for shift in record.SHIFTS:
            seen = record.read(record.place(folder, model, shift.name))
            texts.add(seen.about["views"])
            found.setdefault(model, {})[shift.name] = Heard(table(seen.logits.float(), None), seen.y)
    assert len(texts) == 1
    return found, parse(texts.pop())


def added(heard: dict[str, Heard], places: Sequence[int], rule: str, leads: Leads, changes: float, views: Views) -> list[float]:
    """Return what a form adds on clean images, on corrupted ones and on turned ones, in points."""
    combine = rules.RULES[rule]
    gate = rules.learnt(heard["gate"].odds[:, places], combine, leads, changes, views.term_of)

    def points(shift: str) -> float:
        odds, y = heard[shift]
        found = rules.answers(odds[:, places], combine, gate)
        return 100 * float((found == y).double().mean() - (odds[:, 0].argmax(1) == y).double().mean())

    corrupted = [points(name) for name in CORRUPTIONS]
    return [points("clean"), sum(corrupted) / len(corrupted), points("rotation90")]


def compared(models: Models, known: Views) -> Iterator[list[str]]:
    """Yield a row for every form."""
    place = {view.effect: number for number, view in enumerate(known)}
    for text in CANDIDATES:
        views = parse(text)
        places = [place[view.effect] for view in views]
        for rule in rules.RULES:
            for leads in ("handicapped", "standardised", "plain") if rule == "class maximum" else ("plain",):
                for changes in SHARES if leads == "handicapped" else (0.05,):
                    cells = (added(heard, places, rule, leads, changes, views) for heard in models.values())
                    shown = (" ".join(f"{each:+.1f}" for each in cell) for cell in cells)
                    yield [text, f"{len(views)}", rule, leads, f"{changes:g}", *shown]


def greedy(models: Models, known: Views, most: int) -> Iterator[list[str]]:
    """Yield sets of tones, each the one before and the view that adds most: corruptions count, and harm to clean images."""
    place = {view.effect: number for number, view in enumerate(known)}
    tones = parse(f"Mirror() * ({record.TONES})")
    places, chosen = [place[view.effect] for view in tones], [0]
    while len(chosen) < most:
        trials = []
        for number in range(1, len(places)):
            if number not in chosen:
                seen = [places[each] for each in (*chosen, number)]
                cells = [added(heard, seen, "class maximum", "plain", 0.05, tones)[:2] for heard in models.values()]
                trials.append((sum(corrupted + PRICE * min(0, clean + HARM) for clean, corrupted in cells), number, cells))
        _, number, cells = max(trials)
        chosen.append(number)
        yield [
            f"{len(chosen)}",
            " @ ".join(str(family) for family, _ in tones[number].steps),
            *(f"{clean:+.1f} {corrupted:+.1f}" for clean, corrupted in cells),
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=record.MODELS)
    parser.add_argument("--records", type=Path, default=Path("runs/view-search"), help="folder of the records")
    parser.add_argument("--most", type=int, default=8, help="views of the largest set that is built")
    chosen = parser.parse_args()
    models, known = read(chosen.records, chosen.models)
    print("Points over the model alone: clean, 15 corruptions, turned\n")
    print(text_table((*HEAD, *models), compared(models, known)))
    print("\nPoints over the model alone: clean, 15 corruptions\n")
    print(text_table(("passes", "the view added", *models), greedy(models, known, chosen.most)))


if __name__ == "__main__":
    main()

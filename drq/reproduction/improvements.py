"""The page of presets: what they gain over the paper's DRQ where they were not chosen, and everything that was tried.

Made from kept records alone, as the ledger is. What it says in words follows from them, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from drq.errors import InputError
from drq.evaluation.records import require_polars
from drq.presets import PRESETS
from drq.reporting.typesetting import number
from drq.reproduction.catalogue import BEYOND
from drq.reproduction.keeping import Record, kept
from drq.reproduction.pages import made, table
from drq.reproduction.peers import adaptive, together, verdicts
from drq.statistics import Z

if TYPE_CHECKING:
    import polars

IMPROVE, AUGMENT, SHIFT, SEARCH, ATTACKED, DIGITS = BEYOND["improve"]
TRIED = "tried.json"
PAPER, GUARDED, RESTORED, CHOSEN_ON = "DRQ", "DRQ guarded", "restored", "cifar10-linf"
SHIFTS = 17  # fifteen corruptions, a rotation, a translation
COLUMNS = {"clean": "clean", "corruptions": "corrupted", "rotated": "rotation", "moved": "translation"}
HEADINGS = ("model", "defence", *COLUMNS, "all shifts", "gain", "passes", "images")
IDEAS = 3  # rules that are shown of each idea
FEW = 40  # passes

HEAD = """\
# Presets

`drq.DRQ(model, **drq.preset("fast"))` has settings by name; `drq predict --preset fast` and `preset = "fast"` in a spec take
the same; `drq.preset("guarded", model)` also takes norm and radius from the card of a model, `shift` has its own. The paper's are
the default. Others are chosen on the CIFAR-10 test images below 5000, around `cifar10-linf` and `cifar10-tiny`, by `python
benchmarks/variants.py` and `drq reproduce improve-shift`, and on digits, by `drq reproduce improve-search`; this page reports on
later images and on other models. `make ledger` makes it from records.
"""
HELD_OUT = """\
On images from {first} on. Accuracies in percent; *all shifts* is the mean over the fifteen corruptions at severity 5, one random
rotation and one random translation. *Gain* is over the paper's DRQ on the same images, in points, with a 95 % interval over
images; *passes* are evaluations of the model for one answer. `restored` is the model alone behind the front of `shift`, `batch
norm, one sample` a [peer](peers.md#at-the-same-cost). Where a radius is given, DRQ ran in bfloat16, with near ties in float32."""
COUNTS = "`{name}` counts as better: its interval on `{model}` lies above 0, and its gain has the same sign on every other model."
COUNTS_NOT = "`{name}` does not count as better than the paper's: {why}."
WIDELY = """\
{rules} rules on {images} images from {first} on under each shift, around `{model}`: the best of each idea, by the mean over all
shifts. *Gain* is over the paper's DRQ. The best of so many is partly chance, which is why it is measured anew above."""
BEST = "The best {where}: {idea}, {rule}, with {shifts} % over all shifts for {passes} passes, {gain} over the paper's DRQ."
BEST_HELD = "At {few} passes or less, the best around `{model}` is `{name}`, with {shifts} % over all shifts for {passes} passes."
BEHIND = """\
Behind the front of `shift`, on images {first} to {last}: with two classes and one step of each search, unless more is said.
*Gain* is over the front alone."""
SMALL = """\
At full strength, on images {first} to {last}; the radius was chosen on earlier ones, around `digits`. The other models have
another seed, or were trained for longer."""
TRAINED = """\
To train for longer is the other way: `{longer}` alone withstands {after} %, where `digits` alone withstands {before} %, and with
`{defence}` {defended} %, at {passes} passes an answer."""
WHY = """\
That a gain survives here is no contradiction to what is known of such defences. A model alone falls to one point of another
class in reach of the attacker, however thin the region around it. DRQ falls where that region is firmer than that of the true
class; and as long as it explores as far as the attacker can go, the sample itself is among the points that speak for its class.
Where it explores further, so do regions of other classes that no attacker could have brought the sample to."""
SETTINGS = "Radius and alpha are chosen here, on the first digits, and reported above on others."


class Gain(NamedTuple):
    """Of a defence over the paper's DRQ, in points."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{number('difference', self.middle)} [{number('difference', self.low)}, {number('difference', self.high)}]"


def page(folder: Path) -> str:
    """The whole page."""
    record, augment, shift, search, attacked, digits = (kept(folder, name) for name in BEYOND["improve"])
    presets = [[f"`{name}`", each.summary, f"`drq reproduce {each.experiment}`"] for name, each in PRESETS.items()]
    parts = [HEAD, table(("preset", "for", "rests on"), presets), "## Where they were not chosen"]
    parts += [*_held_out(together((record, augment))), made(IMPROVE, record), made(AUGMENT, augment)]
    parts += ["## What was tried", *_tried(folder / TRIED), *_behind(shift), made(SHIFT, shift)]
    parts += ["## Attacked themselves", *verdicts(_rows(attacked)), made(ATTACKED, attacked)]
    parts += ["## The same on digits, without a GPU", *_small(digits), made(DIGITS, digits)]
    parts += ["## Settings that were attacked", SETTINGS, *verdicts(_rows(search)), made(SEARCH, search)]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def shifted(rows: polars.DataFrame) -> polars.DataFrame:
    """The rows with a column ``shift``: clean, corrupted, rotation or translation."""
    pl = require_polars()
    corrupted = pl.col("data").cast(pl.String).str.contains("-c/")
    return rows.with_columns(shift=pl.when(corrupted).then(pl.lit("corrupted")).otherwise(pl.col("threat").cast(pl.String)))


def gain(rows: polars.DataFrame, defence: str, reference: str = PAPER) -> Gain | None:
    """Mean difference over all shifts; answers to one image depend on each other, so images are what is counted."""
    pl = require_polars()
    right = 100.0 * (pl.col("prediction") == pl.col("label"))
    key = ["data", "threat", "index"]
    first, second = (
        rows.filter(pl.col("shift") != "clean", pl.col("defence").cast(pl.String) == name).select(*key, right=right)
        for name in (defence, reference)
    )
    both = first.join(second, on=key, suffix="_paper")
    images = both.group_by("index").agg(gain=(pl.col("right") - pl.col("right_paper")).mean())["gain"]
    if len(images) < 2:
        return None
    middle, half = float(images.mean()), Z * float(images.std()) / len(images) ** 0.5  # type: ignore[arg-type]
    return Gain(middle, middle - half, middle + half)


def _small(record: Record | None) -> Iterator[str]:
    """What survives on digits, and whether training does the same."""
    if record is None:
        return
    pl = require_polars()
    yield SMALL.format(first=record.rows["index"].min(), last=record.rows["index"].max())
    yield from verdicts(record.rows)
    rows = adaptive(record.rows).filter(defence=GUARDED)
    usual, longer = (rows.filter(pick) for pick in (pl.col("model") == "digits", pl.col("model").str.contains("epochs")))
    if len(usual) and len(longer):
        shown = {"before": usual["reference_accuracy"], "defended": usual["accuracy"], "after": longer["reference_accuracy"]}
        values = {key: number("accuracy", each[0]) for key, each in shown.items()}
        yield TRAINED.format(**values, longer=longer["model"][0], defence=GUARDED, passes=f"{usual['passes'][0]:,.0f}")
    if rows["survives"].any():
        yield WHY


def _rows(record: Record | None) -> polars.DataFrame | None:
    return None if record is None else record.rows


def _held_out(rows: polars.DataFrame | None) -> Iterator[str]:
    """A row for each model and defence, and what follows from all that saw every shift."""
    if rows is None:
        return
    yield HELD_OUT.format(first=rows["index"].min())
    found = [*_answered(shifted(rows))]
    yield table(HEADINGS, (each.line for each in found))
    gains, cheap = dict[str, dict[str, Gain]](), dict[str, list[Answered]]()
    for each in (one for one in found if one.whole):
        if each.gain is not None:
            gains.setdefault(each.defence, {})[each.model] = each.gain
        if each.passes <= FEW:
            cheap.setdefault(each.model, []).append(each)
    best = [max(each, key=lambda one: one.shifts) for each in cheap.values()]
    told = [verdict(name, each) for name, each in gains.items()] + [each.told for each in best]
    yield "\n".join(f"- {each}" for each in told)


def _behind(record: Record | None) -> Iterator[str]:
    """What goes behind the front."""
    if record is not None:
        yield BEHIND.format(first=record.rows["index"].min(), last=record.rows["index"].max())
        yield table(HEADINGS, (each.line for each in _answered(shifted(record.rows), RESTORED)))


class Answered(NamedTuple):
    """What a defence answered around a model."""

    model: str
    defence: str
    known: dict[str, float]  # accuracy by shift
    shifts: float  # mean accuracy over all
    whole: bool  # whether they are all there
    gain: Gain | None
    passes: float
    images: int

    @property
    def line(self) -> list[object]:
        """Of the table."""
        values = [number("accuracy", self.known[each]) if each in self.known else "" for each in COLUMNS.values()]
        shifts, cost = number("accuracy", self.shifts), (f"{self.passes:,.0f}", f"{self.images:,}")
        return [self.model, self.defence, *values, shifts, self.gain or "", *cost]

    @property
    def told(self) -> str:
        """In words, where it is the best of few passes."""
        values = {"shifts": number("accuracy", self.shifts), "passes": f"{self.passes:,.0f}"}
        return BEST_HELD.format(few=FEW, model=self.model, name=self.defence, **values)


def _answered(rows: polars.DataFrame, reference: str = PAPER) -> Iterator[Answered]:
    """A row for each model and defence, with gains over the reference."""
    pl = require_polars()
    right = 100 * (pl.col("prediction") == pl.col("label")).mean()
    for (model, name), part in rows.group_by("model", "defence", maintain_order=True):
        places = part.group_by("data", "threat", "shift", maintain_order=True).agg(right=right)
        known = {str(shift): _mean(group) for (shift,), group in places.group_by("shift")}
        every = places.filter(pl.col("shift") != "clean")
        found = None if name == reference else gain(rows.filter(model=model), str(name), reference)
        passes = float(part.select(pl.col("passes").mean()).item())
        shown = (known, _mean(every), len(every) == SHIFTS, found, passes, part["index"].n_unique())
        yield Answered(str(model), str(name), *shown)


def _mean(places: polars.DataFrame) -> float:
    return float(places.select(require_polars().col("right").mean()).item())


def verdict(name: str, gains: dict[str, Gain]) -> str:
    """Whether a defence counts as better: where it was chosen, on other images; and everywhere by sign."""
    here = gains.get(CHOSEN_ON)
    if here is None or len(gains) < 2:
        return COUNTS_NOT.format(name=name, why="it was not measured on several models")
    if here.low <= 0:
        reach = "reaches" if here.high >= 0 else "lies below"
        return COUNTS_NOT.format(name=name, why=f"on `{CHOSEN_ON}` its interval {reach} 0")
    worse = [f"`{model}`" for model, each in gains.items() if each.middle <= 0]
    if worse:
        return COUNTS_NOT.format(name=name, why=f"it gains nothing on {', '.join(worse)}")
    return COUNTS.format(name=name, model=CHOSEN_ON)


def _tried(path: Path) -> Iterator[str]:
    if not path.exists():
        yield f"Not run yet: `python benchmarks/variants.py try seen.npz --out results/paper/{TRIED}`, see the text of that file."
        return
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        rules: list[dict[str, Any]] = told["rules"]
        yield WIDELY.format(rules=len(rules), images=told["images"], first=told["first"], model=told["model"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} must say what was tried, got '{error}': benchmarks/variants.py makes it") from error
    shown = [rule for idea in dict.fromkeys(each["idea"] for each in rules) for rule in _best(rules, idea)]
    names = ("shifts", "clean", "corrupted", "turned", "moved", "PGD")
    lines = [
        [each["idea"], each["rule"], *(number("accuracy", each[name]) for name in names), _gained(each), f"{each['passes']:,.0f}"]
        for each in shown
    ]
    yield table(("idea", "rule", "all shifts", *names[1:], "gain", "passes"), lines)
    choices = {
        f"at {FEW} passes or less": [each for each in rules if each["passes"] <= FEW],
        "without a front": [each for each in rules if each["rule"].startswith("none")],
    }
    yield "\n".join(f"- {_told(where, each)}" for where, each in choices.items() if each)


def _told(where: str, rules: list[dict[str, Any]]) -> str:
    """The best of some rules in words."""
    best = max(rules, key=lambda each: each["shifts"])
    values = {"shifts": number("accuracy", best["shifts"]), "passes": f"{best['passes']:,.0f}", "gain": _gained(best)}
    return BEST.format(where=where, idea=best["idea"], rule=best["rule"], **values)


def _best(rules: list[dict[str, Any]], idea: str) -> list[dict[str, Any]]:
    """Rules of one idea, the best first."""
    return sorted((each for each in rules if each["idea"] == idea), key=lambda each: -each["shifts"])[:IDEAS]


def _gained(rule: dict[str, Any]) -> Gain:
    return Gain(rule["gain"], rule["low"], rule["high"])

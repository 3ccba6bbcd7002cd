"""Write the page of presets: their gain over the paper's DRQ on data they were not chosen on, and all that was tried.

Like the ledger, it is made from kept records alone, its conclusions in words too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drq.errors import InputError
from drq.evaluation.records import require_polars
from drq.presets import PRESETS
from drq.report.typesetting import number, text_table
from drq.reproduction.experiments import BEYOND
from drq.reproduction.gains import CHOSEN_ON, FEW, RESTORED, Gain, findings, table
from drq.reproduction.kept_records import Record, read_record
from drq.reproduction.overview import ALONE, adaptive, concatenated
from drq.reproduction.provenance import provenance
from tools import gates
from tools.pages.peers import verdicts

if TYPE_CHECKING:
    import polars

IMPROVE, AUGMENT, FRONT, SHIFT, SEARCH, ATTACKED, DIGITS = BEYOND["improve"]
TRIED, GATES = "tried.json", "view-gates.json"
GUARDED = "DRQ guarded"
SHOWN_RULES = 3  # rules that are shown of each idea

HEAD = """\
# Presets

`drq.DRQ(model, **drq.preset("fast"))` has settings by name; `drq predict --preset fast` and `preset = "fast"` in a spec take
the same; `drq.preset("guarded", model)` also takes norm and radius from a model's card, `instant` has its own. The paper's are
the default. `instant` is about cost, and reported [elsewhere](real.md#photographs); `shift`, `nature` and `upright` look at
views instead of a ball, which [a page of its own](views.md) measures. Others are chosen on CIFAR-10 test images below 5000, by
`python -m tools.benchmarks.variants` around `cifar10-tiny` and `drq reproduce improve-shift` around `cifar10-linf`, and on
digits; this page reports on later images and on other models. `make pages` makes it from records.
"""
VIEWS = """\
## Views instead of a ball

`shift`, `nature` and `upright` search no ball. They look at a declared set of [views](views.md) of a picture, one forward pass
each, and every class counts by its best view: `shift` at 4, which restore contrast and detail or take noise out, `nature` at
12, with angles from -80 to 80 degrees beside these, `upright` at 16, mostly angles. The model needs no gradients. As a mean
over seven networks that is [9 points on corrupted pictures for `shift`, 8 for `nature`, and 15 to 18 on turned
ones](views.md#what-it-gains).

A *gate* keeps the model's own answer unless the evidence for another exceeds what clean pictures have shown. Cards of models in
the package, of those that DRQ_MODELS holds and of the published ones carry one for each of the three:

```python
import torch
import drq

model = drq.load_model("cifar10-small")
robust = drq.DRQ(model, **drq.preset("nature"))  # gated; robust.gate is None where the card has no gate for these views
print(robust.gate)  # 50 of 1000 answers change (5.0%); of new inputs of this kind at most 6.3%, with 95 % confidence
decision = robust.decide(torch.rand(4, 3, 32, 32))
decision.kept  # (N,) the gate kept the model's answer
decision.view  # (N,) the view that the answer comes from, an index into robust.views.names
```

- **What it promises**: of pictures *of the kind it was learnt from*, at most that share gets another answer than the model alone
  gives, with 95 % confidence, whatever the model is. It says nothing of shifted pictures, where answers ought to change, nor of
  whether a change is right. How often answers changed on clean pictures that no gate was learnt from stands in the
  table below, beside each bound: a share of as many new pictures as the gate was learnt from lies above the bound in one of eight
  cases, by chance alone.
- **What it was learnt from**: unlabelled CIFAR-10 test images from 3000 on, MNIST's for networks of digits, and the first 200
  pictures of NIPS 2017 for photographs; 5 % of their answers could change with `shift` and `nature`, 6 % with `upright`.
  `python -m tools.gates` in a clone of the project learns all of them anew, into the one file that the package ships.
- **What it belongs to**: the weights, the normalisation and the views. A model that was trained further, another front, a radius
  or other views have no gate. `digits` has none, since every machine trains its own.
- **Any other model**: `robust.gated(x, changes=0.05)` learns one from some hundred inputs on which the model does well, and
  `drq predict photo.jpg --model NAME --preset nature --gate FOLDER` from a folder of pictures. Without one, `drq predict` says
  that answers are ungated, and they then change more clean answers than they should.
- **Sizes**: the card says how large pictures are, and the view that restores detail restores as much as pictures of that size
  have. Around a model without a card, `robust.views.like(x)` measures it on clear pictures.

`drq predict photo.jpg --preset nature --explain card.png` draws all views, the one that spoke, what the model says at each, and
how far the evidence was from the gate. None of them is for enemies: who knows the views attacks the best of them.
"""
COUNTED = """\
Clean pictures whose answer is not that of the model alone, with 95 % intervals where no gate was learnt (`python -m tools.gates
--held-out`):"""
BROKEN = """\
- The gate of `{model}` for `{preset}` does not keep what it promises here: {share:.1%} of answers change, more than chance
  explains beside a bound of {bound:.1%}."""
WIDELY = """\
{rules} rules on {images} images from {first} on under each shift, around `{model}`: the best of each idea, by the mean over all
shifts. What stands before a colon is done to the image first: *mirrored* is restored and mirrored. *Gain* is over the paper's
DRQ. The best of so many is partly chance, which is why it is measured anew above."""
BEST = "The best {where}: {idea}, {rule}, with {shifts} % over all shifts for {passes} passes, {gain} over the paper's DRQ."
GONE = "No gain survives here: what `guarded` keeps on digits, below, does not carry over to these pictures."
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
SETTINGS = "Radius and alpha beside each other on the first digits; those of `guarded` are reported above on others."
HELD_OUT = """\
On images from {first} on. Accuracies in percent; *all shifts* is the mean over the fifteen corruptions at severity 5, one
random rotation and one random translation. *Gain* is over the paper's DRQ on the same images, in points, with a 95 % interval
over images; *passes* are evaluations of the model for one answer. `restored` is the model alone behind `drq.Restoration()`, and
`DRQ shift` a ball of 2/255 behind that front, which the preset `shift` was until views took its place. `batch norm, one sample`
is a [peer](peers.md#at-the-same-cost). Around the models with adversarial training, DRQ ran in bfloat16, with near ties in
float32. A first report, on images 5000 to 5199, had it search as far as the paper, at 16/255: that was nowhere better than the
paper's beyond chance, and around two of four models worse than its front alone. So the radius was chosen anew, on earlier
images; those from {first} on nobody had looked at."""
ON_MORE = """\
Around `{model}` the paper's DRQ changes hardly an answer ([Table 1](ledger.md)), so that the model alone can stand for it on
more images, {first} to {last}. *Gain* is over the model alone, and goes before what fewer images said:"""
BEHIND = """\
Behind `drq.Restoration()`, on images {first} to {last}: with two classes and one step of each search, unless more is said.
*Gain* is over the front alone, and nothing is shown to add to it; the radius whose interval starts highest around `{model}` was
taken, 2/255, as the one that harms least."""


def page(folder: Path) -> str:
    """Return the whole page."""
    record, augment, front, shift, search, attacked, digits = (read_record(folder, name) for name in BEYOND["improve"])
    presets = [[f"`{name}`", each.summary, f"`drq reproduce {each.experiment}`"] for name, each in PRESETS.items()]
    parts = [
        HEAD,
        text_table(("preset", "for", "rests on"), presets),
        VIEWS,
        *_gates(folder.parent / GATES),
        "## Where they were not chosen",
    ]
    held_out = concatenated((record, augment))
    parts += [] if held_out is None else _report(held_out, _rows(front))
    parts += [provenance(IMPROVE, record), provenance(AUGMENT, augment), provenance(FRONT, front)]
    parts += ["## What was tried", *_tried(folder / TRIED), *_behind(shift), provenance(SHIFT, shift)]
    parts += ["## Attacked themselves", *_attacked(attacked), provenance(ATTACKED, attacked)]
    parts += ["## The same on digits, without a GPU", *_small(digits), provenance(DIGITS, digits)]
    parts += ["## Settings that were attacked", SETTINGS, *verdicts(_rows(search)), provenance(SEARCH, search)]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _gates(path: Path) -> Iterator[str]:
    """Yield how often gated answers change on clean pictures that their gates have not seen."""
    if path.is_file():
        rows = json.loads(path.read_text())["found"]
        yield COUNTED
        yield gates.table(rows)
        yield "\n".join(BROKEN.format(share=row["changed"] / row["inputs"], **row) for row in rows if row["low"] > row["bound"])


def _report(rows: polars.DataFrame, more: polars.DataFrame | None) -> Iterator[str]:
    """Yield the table on data that nothing was chosen on, that on more images of one model, and what follows from both."""
    yield HELD_OUT.format(first=rows["index"].min())
    yield table(rows)
    if more is not None:
        yield ON_MORE.format(model=more["model"][0], first=more["index"].min(), last=more["index"].max())
        yield table(more, ALONE)
    yield findings(rows, more)


def _behind(record: Record | None) -> Iterator[str]:
    """Yield the table by which the DRQ behind the front was chosen."""
    if record is not None:
        rows = record.rows
        yield BEHIND.format(first=rows["index"].min(), last=rows["index"].max(), model=CHOSEN_ON)
        yield table(rows, RESTORED)


def _attacked(record: Record | None) -> Iterator[str]:
    """Yield the gains that survive attacks on data they were not chosen on."""
    if record is not None:
        yield from verdicts(record.rows)
        if not adaptive(record.rows)["survives"].any():
            yield GONE


def _small(record: Record | None) -> Iterator[str]:
    """Yield the gains that survive attacks on digits, and what longer training achieves instead."""
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


def _tried(path: Path) -> Iterator[str]:
    if not path.exists():
        command = f"python -m tools.benchmarks.variants try seen.npz --out results/paper/{TRIED}"
        yield f"Not run yet: `{command}`, see the text of that file."
        return
    try:
        tried = json.loads(path.read_text(encoding="utf-8"))
        rules: list[dict[str, Any]] = tried["rules"]
        yield WIDELY.format(rules=len(rules), images=tried["images"], first=tried["first"], model=tried["model"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} must say what was tried, got '{error}': tools/benchmarks/variants.py makes it") from error
    shown = [rule for idea in dict.fromkeys(each["idea"] for each in rules) for rule in _best_rules(rules, idea)]
    names = ("shifts", "clean", "corrupted", "turned", "moved", "PGD")
    lines = [
        [
            each["idea"],
            each["rule"],
            *(number("accuracy", each[name]) for name in names),
            _gain_of(each),
            f"{each['passes']:,.0f}",
        ]
        for each in shown
    ]
    yield text_table(("idea", "rule", "all shifts", *names[1:], "gain", "passes"), lines)
    choices = {
        f"at {FEW} passes or less": [each for each in rules if each["passes"] <= FEW],
        "without a front": [each for each in rules if each["rule"].startswith("none")],
    }
    yield "\n".join(f"- {_best_in_words(where, each)}" for where, each in choices.items() if each)


def _best_in_words(where: str, rules: list[dict[str, Any]]) -> str:
    """Return the best of some rules in words."""
    best = max(rules, key=lambda each: each["shifts"])
    values = {"shifts": number("accuracy", best["shifts"]), "passes": f"{best['passes']:,.0f}", "gain": _gain_of(best)}
    return BEST.format(where=where, idea=best["idea"], rule=best["rule"], **values)


def _best_rules(rules: list[dict[str, Any]], idea: str) -> list[dict[str, Any]]:
    """Return the best rules of one idea, the best first."""
    return sorted((each for each in rules if each["idea"] == idea), key=lambda each: -each["shifts"])[:SHOWN_RULES]


def _gain_of(rule: dict[str, Any]) -> Gain:
    return Gain(rule["gain"], rule["low"], rule["high"])

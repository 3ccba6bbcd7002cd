"""Every family of views, what it is tried on, and DRQ over views as a plain loop, to compare with."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from drq import views
from drq.views import Gate, Views
from testbed.classifiers import inputs, network

PICTURES = {
    "Rotation": views.Rotation(90, 7),
    "Rotation all around": views.Rotation(180, 5),
    "Scale": views.Scale(2, 5),
    "Shift": views.Shift(2, 9),
    "Mirror": views.Mirror(),
    "Contrast": views.Contrast(),
    "Detail": views.Detail(0.3),
    "Gamma": views.Gamma(0.5, 2),
    "Denoise": views.Denoise(),
    "Blur": views.Blur(),
    "Sharpen": views.Sharpen(1.5),
    "united": views.Rotation(30, 3) + views.Mirror() + views.Blur(),
    "combined": (views.Mirror() + views.Denoise()) * views.Contrast() * views.Shift(1),
    "one's own": views.Mirror() * (lambda x: 1 - x),
}
SOUND = {
    "Gain": views.Gain(4, 5),
    "TimeShift": views.TimeShift(2, 5),
    "NoiseFloor": views.NoiseFloor(0.1, 0.3),
    "sound, combined": views.Gain(2, 3) * views.TimeShift(1, 3),
}
TABLES = {"Monotone": views.Monotone(0.5, 3)}
SHAPES = {name: shape for each, shape in ((PICTURES, (3, 8, 8)), (SOUND, (2, 12)), (TABLES, (6,))) for name in each}
EVERY: dict[str, Views] = PICTURES | SOUND | TABLES
each_set = pytest.mark.parametrize("name", EVERY)


def flat(shape: tuple[int, ...], classes: int = 5, gain: float = 6.0) -> nn.Module:
    """A network with curved regions, for inputs of any shape."""
    return nn.Sequential(nn.Flatten(), network(sum(shape), torch.Size(shape).numel(), classes, gain=gain)).eval()


def batch(shape: tuple[int, ...], count: int = 12, seed: int = 1) -> Tensor:
    """Inputs in [0, 1], each with a level and a contrast of its own."""
    spread = inputs(seed + 1, count, *[1] * len(shape))
    return spread * inputs(seed, count, *shape) + (1 - spread) * inputs(seed + 2, count, *[1] * len(shape))


@dataclass
class Told:
    """What a plain loop says of one sample."""

    label: int
    base: int
    odds: list[float]  # by which classes are compared
    view: int
    evidence: float
    kept: bool


def log_odds(logits: Tensor) -> list[float]:
    """Of every class, one after the other, in float64."""
    others = [torch.cat([logits[:each], logits[each + 1 :]]) for each in range(len(logits))]
    return [float(logit.double() - rest.double().logsumexp(0)) for logit, rest in zip(logits, others, strict=True)]


def plain_loop(
    model: nn.Module,
    x: Tensor,
    looks: Views,
    gate: Gate | None = None,
    classes: int | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    near: list[list[int]] | None = None,
) -> Told:
    """DRQ over the views of one sample ``x`` (1, ...), as the method is told; ``near`` are the neighbours of each view."""
    seen = [each(x).clamp(*bounds) for each in looks]
    with torch.no_grad():
        odds = [log_odds(model(each)[0]) for each in seen]
        logits = model(x)[0]
    base = int(logits.argmax())
    taking_part = logits.argsort(descending=True, stable=True)[: classes or len(logits)].tolist()
    own = odds[0][base]
    if gate is not None and gate.mean:
        for number, (mean, deviation) in enumerate(zip(gate.mean, gate.deviation, strict=True), 1):
            odds[number] = [own + (each - own - mean) / deviation for each in odds[number]]
    counts, at = [-float("inf")] * len(logits), [0] * len(logits)
    for each in taking_part:
        heights = [row[each] for row in odds]
        at[each] = max(range(len(heights)), key=lambda view: (heights[view], -view))
        counts[each] = min(heights[view] for view in (near[at[each]] if near else [at[each]]))
    best = max(counts)
    label = base if counts[base] == best else counts.index(best)
    kept = gate is not None and best - own <= gate.threshold
    if kept:
        return Told(base, base, log_odds(logits), 0, best - own, True)
    return Told(label, base, counts, at[label], best - own, False)

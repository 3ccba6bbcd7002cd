"""Whether contestants give the labels of float32 without pruning: on clean, on corrupted and on attacked images."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from drq.bench.contestants import REFERENCE, Contestant
from drq.bench.naive import Answer
from drq.bench.subject import THREATS
from drq.bench.workshop import Task, Workshop

UNREACHED = -1e4  # log-odds of a class without a point, as in DRQ's scores: a finite gap


def tasks(shop: Workshop) -> list[Task]:
    """For each condition the reference first, then one for each contestant; the naive loop on clean images alone."""
    found = []
    for threat in THREATS:
        for each in sorted(shop.contestants, key=lambda each: each.name != REFERENCE):
            if each.naive and threat != "clean":
                continue
            known = threat == "clean" and "speed" in shop.settings.parts
            weight = each.share * (0.1 if known else shop.samples(each))
            found.append(Task(f"labels of {each.name}, {threat}", weight, partial(_compare, shop, each, threat)))
    return found


def _compare(shop: Workshop, contestant: Contestant, threat: str) -> None:
    answer = _answer(shop, contestant, threat)
    if contestant.name == REFERENCE:
        shop.answers[f"{REFERENCE}, {threat}"] = answer
    reference = shop.answers[f"{REFERENCE}, {threat}"]
    labels, count = shop.subject.y, len(answer.label)
    equal = answer.label == reference.label[:count]
    shop.rows("agreement").append(
        {
            "contestant": contestant.name,
            "threat": threat,
            "images": count,
            "equal": int(equal.sum()),
            "share": float(equal.double().mean()),
            "largest_gap": largest_gap(reference.log_odds[:count], ~equal),
            "accuracy": float((answer.label == labels[:count]).double().mean()),
        }
    )


def _answer(shop: Workshop, contestant: Contestant, threat: str) -> Answer:
    """As timed, where it was timed on enough of the same images; else decided now."""
    count = shop.samples(contestant)
    known = shop.answers.get(contestant.name) if threat == "clean" else None
    if known is not None and len(known.label) >= count:
        return Answer(*(each[:count] for each in known))
    return shop.decider(contestant)(shop.under(threat)[:count])


def largest_gap(log_odds: Tensor, differs: Tensor) -> float | None:
    """How far apart the two best log-odds (N, C) are at most, among the rows that differ; None where none does."""
    if not bool(differs.any()):
        return None
    best = torch.clamp(log_odds[differs], min=UNREACHED).topk(2).values
    return float((best[:, 0] - best[:, 1]).max())

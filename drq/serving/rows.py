"""The answers about pictures as rows of a table, made of a decision on many at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from drq.decision import Decision

Row = dict[str, Any]
COLUMNS = (
    "file",  # the path; of a member of an archive, behind that of the archive
    "answer",  # DRQ's, also where it abstains
    "score",  # robustness of that class
    "abstains",  # whether the margin is below the threshold
    "model_answer",  # the model's own
    "model_confidence",
    "runner_up",  # the class with the second-highest robustness
    "margin",
    "view",  # at which the answer was found
    "passes",
    "seconds",  # of deciding, shared among the pictures of a batch
    "error",  # why there is no answer
)


def refused(name: str, error: str) -> Row:
    """The row of a picture without an answer."""
    return dict.fromkeys(COLUMNS) | {"file": name, "error": error}


def rows(
    names: Sequence[str],
    decision: Decision,
    confidence: Tensor,
    classes: Sequence[str],
    views: Sequence[str] | None,
    below: float,
    began: float,
) -> list[Row]:
    """One row a picture.

    Args:
        names: of the pictures.
        decision: on them.
        confidence: (N, C) of the model itself.
        classes: their names.
        views: their names, where it looks at views.
        below: it abstains where the margin is smaller.
        began: when deciding did.
    """
    own = confidence.max(1)
    score = decision.robustness.gather(1, decision.label[:, None])[:, 0]
    label, second, mine, view, passes = torch.stack(
        [decision.label, decision.runner_up, own.indices, decision.view, decision.passes]
    ).tolist()
    scores, margins, confidences = torch.stack([score, decision.margin, own.values]).tolist()
    seconds = round((time.monotonic() - began) / len(names), 6)
    return [
        {
            "file": name,
            "answer": classes[label[n]],
            "score": scores[n],
            "abstains": margins[n] < below,
            "model_answer": classes[mine[n]],
            "model_confidence": confidences[n],
            "runner_up": classes[second[n]] if second[n] >= 0 else None,
            "margin": margins[n],
            "view": None if views is None else views[view[n]],
            "passes": passes[n],
            "seconds": seconds,
            "error": None,
        }
        for n, name in enumerate(names)
    ]

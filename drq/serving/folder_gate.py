"""Learn a gate from a folder of pictures, which need no labels."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from drq.drq import DRQ
from drq.errors import require
from drq.serving.listing import listed
from drq.serving.picture import is_folder
from drq.views.gate import FEW

MOST = 1000  # pictures that are looked at; more would promise little more


def learn_gate(robust: DRQ, folder: str, read: Callable[[str], Tensor], changes: float, progress: bool) -> tuple[DRQ, str]:
    """The same DRQ behind a gate, and what that was learnt from, in words.

    Args:
        robust: without a gate, or with one that is replaced.
        folder: of pictures on which the model's own answers should stand.
        read: makes an input (C, H, W) of a picture.
        changes: the share of answers on them that may change, at most.
        progress: whether it is shown how far learning is.
    """
    remedy = "some hundred pictures on which the model does well teach it"
    require(is_folder(folder), "gate", "be a folder of pictures", repr(folder), remedy)
    paths = listed([folder])
    some = [paths[len(paths) * number // MOST] for number in range(MOST)] if len(paths) > MOST else paths
    x = torch.stack([read(each) for each in some])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "drq: a gate learnt from", UserWarning)  # told below
        gated = robust.variant(progress=progress).gated(x, changes).variant(progress=False)
    few = f" ({FEW} would promise more)" if len(some) < FEW else ""
    count = f"{len(some)} of {len(paths)}" if len(some) < len(paths) else f"{len(some)}"
    return gated, f"{count} pictures in {folder}{few}"

"""Implement the 15 common corruptions of CIFAR-10-C and ImageNet-C with torch alone, for images of any size."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from drq.errors import require
from drq.objectives import Model
from drq.registry import CORRUPTIONS
from drq.threats.corruptions import constants
from drq.threats.corruptions.constants import KINDS, SEVERITIES, TABLE
from drq.threats.corruptions.draws import Draws
from drq.threats.corruptions.ice import check_photographs, digest, drawn, photographed
from drq.threats.threat import Shifted, Threat

__all__ = ["DESCRIPTIONS", "KINDS", "Corruption"]

DESCRIPTIONS = {kind: entry.description for kind, entry in TABLE.items()}
PIECE = {"cpu": 2**18, "cuda": 2**24}  # values corrupted at once, to fit a CPU's caches or a GPU's memory


@dataclass(frozen=True)
class Corruption(Threat):
    """A common corruption of images (N, 1 or 3, H, W) in [0, 1]; it looks at neither model nor labels.

    Args:
        kind: one of ``KINDS``.
        severity: from 1, the mildest, to 5.
        seed: random numbers belong to it and to the sample's index, not to the severity.
        photographs: folder with the six photographs of frost; None draws the ice.

    >>> fog = Corruption("fog", severity=3)
    >>> fog(None, torch.rand(2, 3, 32, 32), None).shape
    torch.Size([2, 3, 32, 32])
    """

    kind: str
    severity: int = 5
    seed: int = field(default=0, kw_only=True)
    photographs: str | Path | None = field(default=None, kw_only=True)
    bounds = (0.0, 1.0)  # not a setting: the constants are for images in this range

    def __post_init__(self) -> None:
        near = get_close_matches(str(self.kind), CORRUPTIONS, 1, 0.0)[0]
        rule = f"be one of {', '.join(CORRUPTIONS)}"
        require(self.kind in CORRUPTIONS, "kind", rule, repr(self.kind), f"the nearest is {near!r}")
        whole = isinstance(self.severity, int) and not isinstance(self.severity, bool) and self.severity in SEVERITIES
        require(whole, "severity", "be a whole number from 1 to 5", repr(self.severity), "1 is the mildest, 5 the strongest")
        whole = isinstance(self.seed, int) and not isinstance(self.seed, bool)
        require(whole, "seed", "be a whole number", repr(self.seed), "0 is the default")
        if self.photographs is not None:
            named = isinstance(self.photographs, str | Path)
            require(named, "photographs", "be a folder or None", repr(self.photographs), "None draws the ice")
            check_photographs(Path(self.photographs))

    def shift(self, model: nn.Module | Model | None, x: Tensor, y: Tensor | None, index: Tensor) -> Shifted:
        """Corrupt a batch, piece by piece."""
        image = x.dim() == 4 and x.shape[1] in (1, 3) and min(x.shape[2:]) > 0
        remedy = "corruptions know grey and RGB images, channels first"
        require(image, "x", "be images of shape (N, 1 or 3, height, width)", f"shape {tuple(x.shape)}", remedy)
        count = max(PIECE.get(x.device.type, PIECE["cuda"]) // x[0].numel(), 1)
        pieces = [slice(start, start + count) for start in range(0, len(x), count)]
        parts = [self._corrupted(x[piece], index[piece]).clamp(0, 1) for piece in pieces]
        return Shifted(torch.cat(parts), torch.zeros(len(x), dtype=torch.long, device=x.device))

    def _corrupted(self, x: Tensor, index: Tensor) -> Tensor:
        settings = constants.constants(self.kind, self.severity, min(x.shape[-2:]))
        change: Callable[..., Tensor] = CORRUPTIONS[self.kind]
        if not is_random(self.kind):
            return change(x, **settings)
        draws = Draws(self.seed, index, [*CORRUPTIONS].index(self.kind), x)
        if self.kind == "frost":
            return change(x, draws, drawn() if self.photographs is None else photographed(Path(self.photographs)), **settings)
        return change(x, draws, **settings)

    @property
    def record(self) -> dict[str, Any]:
        """The name and every setting as values that JSON can hold; of photographs their digest, not their path."""
        settings = super().record | {"photographs": None if self.photographs is None else digest(Path(self.photographs))}
        texture = "procedural" if self.photographs is None else "photographs"
        return settings | ({"texture": texture} if self.kind == "frost" else {})


def is_random(kind: str) -> bool:
    """Return whether a corruption draws random numbers."""
    return "draws" in inspect.signature(CORRUPTIONS[kind]).parameters

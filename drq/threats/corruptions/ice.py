"""Implement frost: ice laid over an image, from photographs or drawn."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from math import cos, pi, sin, tan, tau
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from drq.errors import require
from drq.images import read
from drq.threats.corruptions.blur import gaussian_filter
from drq.threats.corruptions.draws import Draws
from drq.threats.corruptions.resample import on_lattice
from drq.threats.corruptions.weather import grey, plasma

PHOTOGRAPHS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg", "frost6.jpg")
SIDE = 512  # side of a drawn texture in pixels, a power of 2
# The mean and the spread of red, green and blue in each photograph; the drawn textures have the same.
COLOURS = (
    ((0.305, 0.585, 0.650), (0.106, 0.065, 0.060)),
    ((0.787, 0.805, 0.841), (0.084, 0.087, 0.089)),
    ((0.787, 0.805, 0.841), (0.084, 0.087, 0.089)),
    ((0.540, 0.599, 0.648), (0.112, 0.112, 0.117)),
    ((0.441, 0.484, 0.528), (0.174, 0.170, 0.163)),
    ((0.280, 0.374, 0.410), (0.138, 0.168, 0.186)),
)
FERN_LENGTHS = (90, 60, 75, 35, 45, 120)  # pixels, by texture


def frost(x: Tensor, draws: Draws, sheets: tuple[Tensor, ...], *, kept: float, added: float, scale: float) -> Tensor:
    """Add a random piece of one of the ``sheets`` of ice, at ``scale`` or larger if the image needs it."""
    pieces = [_piece(sheets[int(len(sheets) * which)], (down, right), x, scale) for which, down, right in draws.numbers(3)]
    return kept * x + added * torch.stack(pieces).to(x)


def _piece(sheet: Tensor, place: tuple[float, float], x: Tensor, scale: float) -> Tensor:
    """Return a piece of a sheet with the channels and size of the images ``x``; ``place``, from 0 to 1, is its position."""
    sizes, full = x.shape[-2:], sheet.shape[-2:]
    scale = max(scale, sizes[0] / full[0], sizes[1] / full[1])
    first = [int(share * (whole * scale - size)) + 0.5 for share, whole, size in zip(place, full, sizes, strict=True)]
    rows, columns = ((start + torch.arange(size)) / scale - 0.5 for start, size in zip(first, sizes, strict=True))
    piece = on_lattice(sheet, rows, columns)
    return grey(piece) if x.shape[1] == 1 else piece


def check_photographs(folder: Path) -> None:
    """Require a folder with all six photographs."""
    remedy = "they are in ImageNet-C/create_c of github.com/hendrycks/robustness; None draws the ice instead"
    require(folder.is_dir(), "photographs", "be a folder", f"{str(folder)!r}, which is none", remedy)
    missing = [name for name in PHOTOGRAPHS if not (folder / name).is_file()]
    require(not missing, "photographs", f"hold {', '.join(PHOTOGRAPHS)}", f"a folder without {', '.join(missing)}", remedy)


def digest(folder: Path) -> str:
    """Return the sha256 of all six photographs."""
    return sha256(b"".join((folder / name).read_bytes() for name in PHOTOGRAPHS)).hexdigest()


@lru_cache(maxsize=2)
def photographed(folder: Path) -> tuple[Tensor, ...]:
    """Read the six photographs of a folder, each (3, H, W) in [0, 1]."""
    photographs = (torch.tensor(np.asarray(read(folder / name))) for name in PHOTOGRAPHS)
    return tuple(each.permute(2, 0, 1).double() / 255 for each in photographs)


@lru_cache(maxsize=1)
def drawn() -> tuple[Tensor, ...]:
    """Draw six textures of ice crystals, with the colours of the photographs and a fixed seed."""
    return tuple(_texture(number) for number in range(len(COLOURS)))


def _texture(number: int) -> Tensor:
    """Draw ferns of ice that grow from nuclei over a cloudy ground, (3, SIDE, SIDE)."""
    draws = Draws(0, torch.tensor([number]), 0, torch.empty(0, dtype=torch.float64))
    ground, ice = plasma(draws, SIDE, 1.5)[0], torch.zeros(SIDE, SIDE)
    length = FERN_LENGTHS[number]
    for _ in range(2 * SIDE**2 // length**2):
        ((down, right, turn),) = draws.numbers(3)
        for arm in range(5):
            ((bend, size, gain),) = draws.numbers(3)
            angle = tau * (turn + (arm + 0.6 * bend) / 5)
            _grow(ice, SIDE * down, SIDE * right, angle, length * (0.4 + size), 0.3 + 0.7 * gain)
    grain = draws.normal(SIDE, SIDE)[0]
    pattern = gaussian_filter(ice + 0.8 * ground + 0.15 * grain, 0.7)
    pattern = (pattern - pattern.mean()) / pattern.std()
    mean, spread = (torch.tensor(each, dtype=torch.float64)[:, None, None] for each in COLOURS[number])
    return (mean + spread * pattern).clamp(0, 1)


def _grow(ice: Tensor, down: float, right: float, angle: float, length: float, gain: float) -> None:
    """Draw one fern: a stem, and barbs on both of its sides that lean forward by 60 degrees and get shorter."""
    down_span, right_span = _span(down, length, sin(angle)), _span(right, length, cos(angle))
    box = ice[down_span, right_span]
    rows, columns = torch.arange(SIDE)[down_span, None] - down, torch.arange(SIDE)[right_span] - right
    along, across = columns * cos(angle) + rows * sin(angle), (rows * cos(angle) - columns * sin(angle)).abs()
    reach = (0.3 * (length - along).clamp(min=0) * (along / length).clamp(min=0) ** 0.3).clamp(min=1e-9)
    phase = (along - across / tan(pi / 3)) / 5
    ragged = reach * (0.6 + 0.4 * (7 * phase.floor()).sin())  # no two barbs are of one length
    barbs = (1 - (2 * (phase % 1) - 1).abs()) * (1 - across / ragged).clamp(min=0) ** 0.5
    stem = (-(across**2)).exp() * (across < reach)
    torch.maximum(box, gain * torch.maximum(barbs, 0.7 * stem), out=box)


def _span(start: float, length: float, direction: float) -> slice:
    """Return the pixels of one axis that a fern may touch: its stem and its barbs."""
    end, aside = start + length * direction, 0.3 * length
    return slice(max(int(min(start, end) - aside), 0), max(int(max(start, end) + aside) + 1, 0))

"""Hold the constants of all corruptions, for images of 32 and of 224 pixels, and interpolate between them.

The numbers are those of Hendrycks & Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations"
(ICLR 2019), in the scripts that made the published files, https://github.com/hendrycks/robustness, folder ImageNet-C/create_c:
``make_cifar_c.py`` for 32 pixels, ``make_imagenet_c.py`` for 224. One entry differs: the elastic transform at 224 pixels follows
the library imagecorruptions, which leaves out the script's random affine map. The names of the constants are ours.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

SMALL, LARGE = 32, 224  # pixels a side, for which there are published constants
SEVERITIES = (1, 2, 3, 4, 5)

Row = tuple[float, ...]


class Kind(NamedTuple):
    """One kind of corruption: its constants, one row a severity. A constant written as a whole number stays whole."""

    description: str
    names: tuple[str, ...]
    small: tuple[Row, ...]  # 32 pixels
    large: tuple[Row, ...]  # 224 pixels


TABLE: dict[str, Kind] = {
    "gaussian_noise": Kind(
        "normal noise on every value, as in low light",
        ("scale",),
        small=((0.04,), (0.06,), (0.08,), (0.09,), (0.10,)),
        large=((0.08,), (0.12,), (0.18,), (0.26,), (0.38,)),
    ),
    "shot_noise": Kind(
        "Poisson noise: light is counted in photons",
        ("photons",),  # that a value of 1 stands for
        small=((500,), (250,), (100,), (75,), (50,)),
        large=((60,), (25,), (12,), (5,), (3,)),
    ),
    "impulse_noise": Kind(
        "salt and pepper: some values become 0 or 1",
        ("amount",),
        small=((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
        large=((0.03,), (0.06,), (0.09,), (0.17,), (0.27,)),
    ),
    "defocus_blur": Kind(
        "the average over a disk, as out of focus",
        ("radius", "smoothing"),  # of the disk, and of its rim
        small=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1)),
        large=((3.0, 0.1), (4.0, 0.5), (6.0, 0.5), (8.0, 0.5), (10.0, 0.5)),
    ),
    "glass_blur": Kind(
        "pixels displaced at random, as through frosted glass",
        ("sigma", "reach", "rounds"),
        small=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        large=((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    ),
    "motion_blur": Kind(
        "a blur along a random direction, as from a moving camera",
        ("radius", "sigma"),
        small=((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5)),
        large=((10, 3.0), (15, 5.0), (15, 8.0), (15, 12.0), (20, 15.0)),
    ),
    "zoom_blur": Kind(
        "the average over magnifications, as from approaching fast",
        ("stop", "step"),  # factors 1, 1 + step, ... below stop
        small=((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        large=((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    ),
    "snow": Kind(
        "a paler image behind falling flakes",
        ("mean", "spread", "zoom", "threshold", "radius", "sigma", "kept"),
        small=(
            (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
            (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
        ),
        large=(
            (0.1, 0.3, 3.0, 0.5, 10, 4.0, 0.8),
            (0.2, 0.3, 2.0, 0.5, 12, 4.0, 0.7),
            (0.55, 0.3, 4.0, 0.9, 12, 8.0, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8.0, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12.0, 0.55),
        ),
    ),
    "frost": Kind(
        "ice crystals laid over the image",
        ("kept", "added", "scale"),  # weights of image and ice, and the size at which the ice is seen
        small=((1.0, 0.2, 0.2), (1.0, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)),
        large=((1.0, 0.4, 1.0), (0.8, 0.6, 1.0), (0.7, 0.7, 1.0), (0.65, 0.7, 1.0), (0.6, 0.75, 1.0)),
    ),
    "fog": Kind(
        "a fractal haze over the image",
        ("strength", "decay"),
        small=((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75)),
        large=((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4)),
    ),
    "brightness": Kind(
        "more light: the value of every colour rises",
        ("rise",),
        small=((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
        large=((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
    ),
    "contrast": Kind(
        "values drawn towards the image's mean",
        ("kept",),
        small=((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
        large=((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
    ),
    "elastic_transform": Kind(
        "the image stretched and pulled locally",
        ("amplitude", "sigma", "corner"),  # all as fractions of the side
        small=((0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        large=((0.0625, 0.01, 0.0), (0.08125, 0.01, 0.0), (0.10625, 0.01, 0.0), (0.125, 0.01, 0.0), (0.15, 0.01, 0.0)),
    ),
    "pixelate": Kind(
        "fewer, larger pixels",
        ("fraction",),  # of the side that is kept
        small=((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
        large=((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),
    ),
    "jpeg_compression": Kind(
        "the artefacts of a low JPEG quality",
        ("quality",),
        small=((80,), (65,), (58,), (50,), (40,)),
        large=((25,), (18,), (15,), (10,), (7,)),
    ),
}
KINDS = tuple(TABLE)


def constants(kind: str, severity: int, side: int) -> dict[str, float]:
    """Return the constants by name for images whose shorter side has ``side`` pixels.

    Between 32 and 224 they are linear in the logarithm of the side, whole numbers rounded; beyond, those of the nearer end.

    >>> constants("motion_blur", 5, 32)
    {'radius': 9, 'sigma': 2.5}
    >>> constants("jpeg_compression", 5, 85)  # about halfway on a logarithmic scale, from 40 to 7
    {'quality': 23}
    """
    _, names, *ends = TABLE[kind]
    small, large = (rows[severity - 1] for rows in ends)
    share = min(max(log(side / SMALL) / log(LARGE / SMALL), 0.0), 1.0)
    return {name: _between(low, high, share) for name, low, high in zip(names, small, large, strict=True)}


def _between(small: float, large: float, share: float) -> float:
    if share in (0.0, 1.0):  # exactly as published, without rounding errors
        return large if share else small
    value = (1 - share) * small + share * large
    return round(value) if isinstance(small, int) and isinstance(large, int) else value

"""Where DRQ looks besides a ball: a declared set of views of the input, and a gate that keeps the model's own answer."""

from drq.views.expression import as_views, parse
from drq.views.gate import Gate
from drq.views.signals import Gain, Monotone, NoiseFloor, TimeShift
from drq.views.spatial import Mirror, Rotation, Scale, Shift
from drq.views.tones import Blur, Contrast, Denoise, Detail, Gamma, Sharpen
from drq.views.view import View, Views

__all__ = [
    "Blur",
    "Contrast",
    "Denoise",
    "Detail",
    "Gain",
    "Gamma",
    "Gate",
    "Mirror",
    "Monotone",
    "NoiseFloor",
    "Rotation",
    "Scale",
    "Sharpen",
    "Shift",
    "TimeShift",
    "View",
    "Views",
    "as_views",
    "parse",
]

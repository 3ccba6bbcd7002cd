"""What a caller hands in, checked before anything is searched, with errors that name the remedy."""

from __future__ import annotations

from numbers import Real

import torch
from torch import Tensor

from drq.errors import require
from drq.norms import Ball, Bounds

TOLERANCE = 1e-6  # by which an input may leave its bounds, as images do after a round trip through other formats


def checked(x: Tensor, bounds: Bounds | None, frozen: Tensor | None) -> Tensor:
    """A copy of the batch ``x`` inside the bounds, or an error that says what is wrong with it."""
    require(isinstance(x, Tensor), "x", "be a tensor", type(x).__name__, "convert with torch.as_tensor; torch.stack for a list")
    floating = x.dtype in (torch.float32, torch.float64)
    remedy = "convert with x.float(), and divide 8-bit images by 255; for half precision see DRQ(precision=...)"
    require(floating, "x", "be float32 or float64", x.dtype, remedy)
    require(x.dim() >= 2, "x", "be a batch of shape (N, ...)", f"shape {tuple(x.shape)}", "add a dimension with x[None]")
    finite = bool(x.isfinite().all())
    require(finite, "x", "be finite", "NaN or infinity", "clean the input before it is classified")
    _check_features(x, bounds, frozen)
    inside = Ball(x, 0.0, "linf", bounds).clip(x)
    outside = (x - inside).abs()
    if x.numel() and outside.max() > TOLERANCE:
        row, *feature = (int(each) for each in torch.unravel_index(outside.argmax(), x.shape))
        worst = f"{x[row, *feature].item():.6g} in sample {row} at feature {feature[0] if len(feature) == 1 else tuple(feature)}"
        limits = f"bounds={bounds}" if bounds and not isinstance(bounds[0], Tensor) else "its bounds"
        remedy = "scale x (8-bit images by 1/255), normalise inside the model, or pass other bounds; None for no limit"
        require(False, "x", f"lie within {limits}", worst, remedy)
    return inside.clone()


def check_bounds(bounds: Bounds | None) -> None:
    """The bounds are a pair, lowest first."""
    if bounds is None:
        return
    pair = isinstance(bounds, tuple | list) and len(bounds) == 2
    require(pair, "bounds", "be a pair (lowest, highest) or None", bounds, "images use (0.0, 1.0)")
    ordered = bool((torch.as_tensor(bounds[0]) <= torch.as_tensor(bounds[1])).all())
    require(ordered, "bounds", "have lowest <= highest", bounds, "swap them")


def _check_features(x: Tensor, bounds: Bounds | None, frozen: Tensor | None) -> None:
    """Per-feature arguments broadcast over the features of ``x``."""
    named = {"frozen": frozen, "bounds": None, "bounds[1]": None}
    if bounds is not None:
        named["bounds"], named["bounds[1]"] = (torch.as_tensor(each) for each in bounds)
    if frozen is not None:
        remedy = "True where a feature must not change; a mask, not a list of positions"
        require(frozen.dtype == torch.bool, "frozen", "be a boolean mask", frozen.dtype, remedy)
    for name, value in named.items():
        if value is None:
            continue
        features = tuple(x.shape[1:])
        trailing = features[len(features) - value.dim() :]
        fits = value.dim() <= len(features) and all(size in (1, full) for size, full in zip(value.shape, trailing, strict=True))
        require(
            fits,
            name,
            f"broadcast over the features {features}",
            f"shape {tuple(value.shape)}",
            "give one value per feature, without the batch",
        )


def check_radius(radius: float | Tensor, x: Tensor | None = None) -> Tensor:
    """The radius of every row of ``x`` (N,); without ``x`` only the values are checked."""
    number = isinstance(radius, Real | Tensor) and not isinstance(radius, bool)
    require(number, "radius", "be a number, one per sample, or drq.Calibrated()", repr(radius), "drq.Calibrated() is the default")
    given = torch.as_tensor(radius, dtype=torch.float64)  # a Python float would become float32
    valid = bool((given.isfinite() & (given >= 0)).all())
    remedy = "0 is the undefended classifier, twice the training radius suits adversarially trained models"
    require(valid, "radius", "be finite and at least 0", radius, remedy)
    if x is None:
        return given
    fits = given.dim() == 0 or given.shape == x.shape[:1]
    require(fits, "radius", f"be a number or have shape ({len(x)},)", f"shape {tuple(given.shape)}", "give one per sample")
    return given.detach().to(x.device, x.dtype).expand(len(x))

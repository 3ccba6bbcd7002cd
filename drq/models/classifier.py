"""A classifier of pictures with all that it needs: normalisation inside, and a card that says what it expects."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from drq.errors import require
from drq.images import View
from drq.method.adapters import Wrapper
from drq.method.tracing import traced_by
from drq.models.gates import gate_for, gates_of
from drq.objectives import Model
from drq.presets import PAPER_REACH
from drq.registry import NORMS
from drq.views.fitted import for_side
from drq.views.gate import Gate
from drq.views.view import Views


@dataclass(frozen=True)
class Card:
    """What is known of a model besides its weights."""

    name: str  # under which it was loaded
    summary: str = ""
    classes: tuple[str, ...] | None = None  # what each logit stands for, where that is known
    view: View | None = None  # how a picture becomes an input
    norm: str | None = None  # of the adversarial training, where there was one
    radius: float | None = None
    sha256: str | None = None  # of the file of its weights, where there is one
    source: str | None = None  # where weights that are not ours come from
    licence: str | None = None  # of these

    def __post_init__(self) -> None:
        known, names = self.norm is None or self.norm in NORMS, ", ".join(NORMS)
        require(known, "norm", f"be None or one of {names}", repr(self.norm), "None for a model without adversarial training")
        above = self.radius is None or (isinstance(self.radius, int | float) and 0 < self.radius < math.inf)
        require(above, "radius", "be None or a number above 0", repr(self.radius), "None where there was no attack in training")
        seen = self.view is None or isinstance(self.view, View)
        require(seen, "view", "be None or a View", repr(self.view), "drq.models.View(224, 224) is usual for ImageNet")

    @property
    def explored(self) -> dict[str, Any]:
        """The arguments of DRQ for this model: twice its training radius in its norm, else a calibrated radius in l2."""
        return self.region()

    def region(self, norm: str | None = None, radius: object = None, reach: float = PAPER_REACH) -> dict[str, Any]:
        """The same where a norm or a radius is given: a given norm has no use for the radius of another.

        Args:
            norm: None for that of the training.
            radius: None for ``reach`` times that of the training.
            reach: another multiple than the paper's says nothing about a radius that is given, or about other norms.
        """
        trained = self.norm is not None and self.radius is not None and norm in (None, self.norm)
        rule, remedy = "be for the norm and the radius of a model's adversarial training", "leave out norm, radius or preset"
        fits = reach == PAPER_REACH or (trained and radius is None)
        require(fits, "preset", rule, f"norm {norm}, radius {radius} for {self.name or 'a model'}", remedy)
        suggested = {"norm": self.norm, "radius": reach * (self.radius or 0.0)} if trained else {}
        given = {"norm": norm, "radius": radius}
        return suggested | {name: value for name, value in given.items() if value is not None}

    def fitted(self, views: Views, model: nn.Module) -> tuple[Views, Gate | None]:
        """Views for pictures of its size, and the gate that was learnt for them with the weights that ``model`` has."""
        if self.view is not None:
            views = for_side(views, min(self.view.height, self.view.width))
        return views, gate_for(self.name, self.sha256, model, str(views))

    @property
    def gates(self) -> dict[str, Gate]:
        """Its gates, by the preset whose views they are for."""
        return gates_of(self.name, self.sha256)

    def as_json(self) -> dict[str, Any]:
        """Made of what JSON knows."""
        return asdict(self) | {"gates": [f"{preset}: {gate}" for preset, gate in self.gates.items()]}


class WrongRange(UserWarning):
    """The images that a model was given cannot be in [0, 1]."""


class Classifier(Wrapper):
    """A model of images in [0, 1]: normalises them as its training did, and warns where they cannot be in that range.

    Args:
        model: takes normalised images (N, C, H, W).
        card: what is known of it.
        mean, std: one value a channel; None leaves images as they are.

    >>> model = Classifier(nn.Flatten(), Card("flat"), mean=[0.5], std=[0.25])
    >>> model(torch.tensor([[[[0.5, 1.0]]]]))
    tensor([[0., 2.]])
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, model: nn.Module | Model, card: Card, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
    ) -> None:
        super().__init__(model)
        self.card = card
        self.channels = None if mean is None else len(mean)
        self.calls = 0
        _check_normalisation(mean, std)
        for name, values in {"mean": mean or [0.0], "std": std or [1.0]}.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        self._check_shape(x)
        if not _recorded(x):
            self.calls += 1
            rare = self.calls & (self.calls - 1) == 0  # call 1, 2, 4, 8, ...: to look at every batch would make a GPU wait
            if rare or not x.is_cuda:
                self._check_values(x)
        logits: Tensor = self.model((x - self.mean.to(x)) / self.std.to(x))
        return logits

    def _check_shape(self, x: Tensor) -> None:
        fits = x.dim() == 4 and x.shape[1] == (self.channels or x.shape[1])
        remedy = "x[None] adds the batch to a single image"
        if x.dim() == 4:
            remedy = f"mean and std have {self.channels} values, one a channel"
        if x.dim() == 4 and x.shape[3] == self.channels:
            remedy = "x.permute(0, 3, 1, 2) puts the channels first"
        require(fits, "x", f"be images (N, {self.channels or 'C'}, H, W)", f"shape {tuple(x.shape)}", remedy)
        require(x.is_floating_point(), "x", "be floats in [0, 1]", x.dtype, "x.float() / 255 for 8-bit values")

    def _check_values(self, x: Tensor) -> None:
        if mistake := likely_mistake(x):
            warnings.warn(f"{self.card.name} takes images in [0, 1], {mistake}", WrongRange, stacklevel=5)


def _check_normalisation(mean: Sequence[float] | None, std: Sequence[float] | None) -> None:
    given = f"mean {mean}, std {std}"
    rule, remedy = "be given together, with one number a channel, std above 0", "as in mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5]"
    fits = (mean is None) == (std is None) and len(mean or ()) == len(std or ())
    fits = fits and all(map(math.isfinite, [*(mean or ()), *(std or ())])) and all(each > 0 for each in std or ())
    require(fits, "mean and std", rule, given, remedy)


def _recorded(x: Tensor) -> bool:
    """Whether the call is traced, compiled or captured in a graph, which a look at values would break."""
    return traced_by() is not None or (x.is_cuda and torch.cuda.is_current_stream_capturing())


def likely_mistake(x: Tensor) -> str | None:
    """What went wrong where images cannot be in [0, 1]; None where they can.

    >>> likely_mistake(torch.tensor([0.0, 255.0]))
    'and these reach from 0 to 255: divide them by 255'
    """
    if not x.numel():
        return None
    low, high = (float(each) for each in torch.aminmax(x.detach()))
    found = f"and these reach from {low:.4g} to {high:.4g}"
    if low < -1e-3:
        return f"{found}: they look normalised already, which the model does itself; leave that step out"
    if high > 2:
        return f"{found}: divide them by 255"
    if high > 1 + 1e-3:
        return f"{found}: clip them, as after a resize that overshoots"
    if 0 < high <= 1 / 255 + 1e-6 and len(torch.unique(x.detach())) > 2:  # the darkest pictures have 0 and 1/255 only
        return f"{found}: they look divided by 255 twice"
    return None

"""Any torch Dataset, taken as it is, with every item checked."""

from __future__ import annotations

import sys
from collections.abc import Sized
from dataclasses import dataclass
from operator import index
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from drq.data.dataset import Data, as_floats, check_view
from drq.errors import require
from drq.images import View, pixels
from drq.method.execution import TOLERANCE


@dataclass(frozen=True, eq=False)
class AnyDataset:
    """A reader of a Dataset with items (x, y)."""

    dataset: Dataset[Any]
    size: int
    view: View | None

    def __len__(self) -> int:
        return self.size

    def read(self, positions: list[int]) -> tuple[Tensor, Tensor]:
        """Item by item; images of one batch must agree in shape."""
        items = [self._item(each) for each in positions]
        shapes = sorted({tuple(x.shape) for x, _ in items})
        require(
            len(shapes) == 1, "data", "have images of one shape", shapes, "resize them, or pass view= where they are pictures"
        )
        return torch.stack([x for x, _ in items]), torch.tensor([y for _, y in items])

    def _item(self, position: int) -> tuple[Tensor, int]:
        item, where = self.dataset[position], f"item {position} of the data"
        pair = isinstance(item, tuple | list) and len(item) == 2
        require(pair, where, "be a pair (image, label)", type(item).__name__, "wrap the Dataset so that it returns two values")
        return image(item[0], where, self.view), label(item[1], where)

    @property
    def sha256(self) -> None:
        """Unknown."""
        return


def image(x: object, where: str, view: View | None = None) -> Tensor:
    """An image as float32 in [0, 1]: of a PIL image, of bytes, or of floats that are in that range."""
    if "PIL.Image" in sys.modules and isinstance(x, sys.modules["PIL.Image"].Image):
        return pixels(x) if view is None else view(x)
    remedy = "torchvision.transforms.ToTensor or torch.as_tensor makes one"
    require(isinstance(x, Tensor), where, "have a tensor or a PIL image", type(x).__name__, remedy)
    assert isinstance(x, Tensor)
    known = x.dtype == torch.uint8 or x.is_floating_point()
    require(known, where, "have an image of floats in [0, 1] or of 8-bit values", x.dtype, "x.float() / 255 for 8-bit values")
    backwards = x.dim() == 3 and x.shape[-1] in (1, 3) and x.shape[0] not in (1, 3)
    shape = f"shape {tuple(x.shape)}"
    fits = x.dim() > 0 and not backwards
    require(fits, where, "have an image (C, H, W), channels first", shape, "x.permute(2, 0, 1) puts the channels first")
    check_view(view, tuple(x.shape))
    x = as_floats(x.detach()).float()
    require(bool(x.isfinite().all()), where, "have a finite image", "NaN or infinity", "clean it first")
    low, high = (float(each) for each in x.aminmax()) if x.numel() else (0.0, 1.0)
    inside = low >= -TOLERANCE and high <= 1 + TOLERANCE
    remedy = "divide 8-bit values by 255, and leave the normalisation to the model"
    require(inside, where, "have an image in [0, 1]", f"values from {low:.4g} to {high:.4g}", remedy)
    return x.clamp(0, 1)


def label(y: object, where: str) -> int:
    """A label as a whole number."""
    try:
        value = -1 if isinstance(y, bool) else index(y)  # type: ignore[arg-type]  # what is no whole number raises
    except TypeError:
        value = -1
    require(value >= 0, where, "have a label that is a whole number of at least 0", repr(y), "give one label an image, as int(y)")
    return value


def load_given(dataset: Dataset[Any], view: View | None) -> Data:
    """Any Dataset as :class:`Data`; one that is Data already stays itself."""
    if isinstance(dataset, Data):
        require(view is None, "view", "be None for data that was loaded already", view, "give it where the data is loaded")
        return dataset
    remedy = "torch.utils.data.TensorDataset(x, y) has both"
    sized = isinstance(dataset, Sized) and not isinstance(dataset, IterableDataset)
    require(sized, "data", "have a length and items by position", type(dataset).__name__, remedy)
    assert isinstance(dataset, Sized)
    size = len(dataset)
    require(size > 0, "data", "have at least one item", "none", "check where it reads from")
    classes = getattr(dataset, "classes", None)  # as torchvision's have them
    named = isinstance(classes, list | tuple) and all(isinstance(each, str) for each in classes)
    return Data(type(dataset).__name__, AnyDataset(dataset, size, view), tuple(classes) if named and classes else None)

"""What a batch is: dimension 0 counts rows, and rows are independent of each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self, TypeVar

import torch
from torch import Tensor


def per_row(values: Tensor, like: Tensor) -> Tensor:
    """Shape the (N,) ``values`` so that they broadcast over the features of ``like`` (N, ...)."""
    return values.reshape(-1, *[1] * (like.dim() - 1))


@dataclass(frozen=True)
class Rows:
    """A bundle of tensors (or None) with one entry a row. Indexing selects rows in all of them."""

    def __getitem__(self, rows: Tensor | slice) -> Self:
        return self._map(lambda columns: columns[0][rows])

    def joined(self, others: Sequence[Self]) -> Self:
        """This bundle with the rows of ``others`` behind its own."""
        return self._map(torch.cat, *others)

    def _map(self, function: Callable[[list[Tensor]], Tensor], *others: Self) -> Self:
        columns = {
            field.name: function([getattr(each, field.name) for each in (self, *others)])
            for field in fields(self)
            if getattr(self, field.name) is not None
        }
        return replace(self, **columns)


T = TypeVar("T", bound=Rows)


def in_order(places: Sequence[Tensor], parts: Sequence[T]) -> T:
    """One bundle from ``parts``; the rows of each belong at its ``places``."""
    return parts[0].joined(parts[1:])[torch.cat(list(places)).argsort()]

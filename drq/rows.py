"""Bundles of tensors whose dimension 0 counts rows: rows are independent of each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor


def per_row(values: Tensor, like: Tensor) -> Tensor:
    """Shape the (N,) ``values`` so that they broadcast over the features of ``like`` (N, ...)."""
    return values.reshape(-1, *[1] * (like.dim() - 1))


@dataclass(frozen=True)
class Rows:
    """A bundle of tensors, tuples of them or other bundles, with one entry a row. Indexing selects rows in all of them.

    Whatever else it holds, as None, is the same for all rows, and so is what ``shared`` names.
    """

    shared: ClassVar[tuple[str, ...]] = ()  # fields whose tensors have no entry a row

    def __getitem__(self, rows: Tensor | slice) -> Self:
        return self._map(lambda columns: columns[0][rows])

    def joined(self, others: Sequence[Self]) -> Self:
        """This bundle with the rows of ``others`` after its own."""
        return self._map(torch.cat, *others)

    def copy(self) -> Self:
        """The same in memory of its own."""
        return self._map(lambda columns: columns[0].clone())

    def tensors(self) -> Iterator[Tensor]:
        """All tensors, always in the same order."""
        for name in self._columns():
            value = getattr(self, name)
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, Rows | Tensor):
                    yield from each.tensors() if isinstance(each, Rows) else (each,)

    def _map(self, function: Callable[[list[Tensor]], Tensor], *others: Self) -> Self:
        bundles = (self, *others)
        return replace(self, **{name: _mapped(function, [getattr(each, name) for each in bundles]) for name in self._columns()})

    def _columns(self) -> list[str]:
        """The fields that may have one entry a row."""
        return [each.name for each in fields(self) if each.name not in self.shared]


def _mapped(function: Callable[[list[Tensor]], Tensor], columns: list[Any]) -> Any:
    first, *others = columns
    if isinstance(first, Rows):
        return first._map(function, *others)
    if isinstance(first, tuple):
        return tuple(_mapped(function, list(each)) for each in zip(*columns, strict=True))
    return function(columns) if isinstance(first, Tensor) else first


T = TypeVar("T", bound=Rows)


def in_order(places: Sequence[Tensor], parts: Sequence[T]) -> T:
    """One bundle from ``parts``; the rows of each belong at its ``places``."""
    return parts[0].joined(parts[1:])[torch.cat(list(places)).argsort()]

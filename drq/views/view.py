"""Define views: a declared, finite set of changes of an input, united with +, combined with * and @, the input itself first."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cached_property, lru_cache
from itertools import product
from numbers import Integral
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from drq.errors import require
from drq.norms import Ball, Bounds, Linf

MOST_VIEWS = 1000  # in one set; a product grows quickly
SLACK = 1e-9  # by which rounding may move a neighbour away

Own = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class View:
    """One view of an input: changes that are made one after the other, none for the input itself."""

    steps: tuple[tuple[Family, float], ...] = ()

    def __call__(self, x: Tensor) -> Tensor:
        """The view of every sample of a batch (N, ...)."""
        for family, amount in self.steps:
            x = family.changed(x, amount)
        return x

    def inside(self, x: Tensor, bounds: Bounds | None) -> Tensor:
        """The same, inside the bounds of inputs."""
        seen = self(x)
        alike = bounds is None or not any(isinstance(each, Tensor) and each.dim() for each in bounds)  # for all features
        if alike and all(family.stays for family, _ in self.steps):
            return seen
        return Ball(seen, 0.0, Linf(), bounds).clip(seen)

    def __add__(self, other: View) -> View:
        """This view first, then the other."""
        return View(self.steps + other.steps)

    @property
    def name(self) -> str:
        """What it is called: its changes in the order in which they are made."""
        return ", ".join(family.described(amount) for family, amount in self.steps) or "the input"

    @property
    def effect(self) -> tuple[tuple[object, float], ...]:
        """What tells it from views that change something else; families may reach the same one in different steps."""
        return tuple((type(family) if family.told_by_amount else family, amount) for family, amount in self.steps)

    def is_near(self, other: View, share: float) -> bool:
        """Whether both differ by amounts alone, and by none of more than a share of what its family reaches."""
        (here, kinds), (there, others) = self._amounts, other._amounts
        if kinds != others:
            return False
        pairs = (
            (axis[0], here.get(axis, axis[0].neutral), there.get(axis, axis[0].neutral)) for axis in here.keys() | there.keys()
        )
        return all(family.apart(first, second) <= share + SLACK for family, first, second in pairs)

    @cached_property
    def _amounts(self) -> tuple[dict[tuple[Family, int], float], list[tuple[Family, float]]]:
        """Its amounts where they can be compared, by family and how often that came before; and all other changes."""
        graded: dict[tuple[Family, int], float] = {}
        for family, amount in self.steps:
            if family.graded:
                graded[family, sum(each is family or each == family for each, _ in graded)] = amount
        return graded, [step for step in self.steps if not step[0].graded]


class Views(ABC):
    """A set of views in a fixed order, the input itself first. ``str()`` gives the text that :func:`parse` reads.

    >>> from drq.views import Mirror, Rotation
    >>> views = Rotation(90, 3) + Mirror()
    >>> views.names
    ('the input', 'rotated by -90 degrees', 'rotated by 90 degrees', 'mirrored')
    >>> len(Rotation(90, 3) * Mirror()), str(views)
    (6, 'Rotation(90, 3) + Mirror()')
    >>> (Rotation(90, 3) @ Mirror()).names
    ('the input', 'rotated by -90 degrees, mirrored', 'rotated by 90 degrees, mirrored')
    """

    @property
    @abstractmethod
    def others(self) -> Iterator[View]:
        """All views but the input itself, perhaps some of them twice."""

    @abstractmethod
    def like(self, x: Tensor) -> Views:
        """The same views, with what depends on the kind and size of inputs measured on clear ones (N, ...)."""

    @property
    @abstractmethod
    def families(self) -> tuple[Family, ...]:
        """The kinds of change in it."""

    @property
    def terms(self) -> tuple[Views, ...]:
        """The sets that it unites."""
        return (self,)

    @cached_property
    def term_of(self) -> tuple[int, ...]:
        """The number of the term that every view but the input comes from, the first one where several have it."""
        first = dict[object, int]()
        for number, term in enumerate(self.terms):
            for view in term.others:
                first.setdefault(view.effect, number)
        return tuple(first[view.effect] for view in self.members[1:])

    @cached_property
    def members(self) -> tuple[View, ...]:
        """Every view, once."""
        found = dict[object, View]()
        for each in (View(), *self.others):
            found.setdefault(each.effect, each)
        _check_most(len(found))
        return tuple(found.values())

    @property
    def names(self) -> tuple[str, ...]:
        """What each view is called."""
        return tuple(each.name for each in self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[View]:
        return iter(self.members)

    def __getitem__(self, number: int) -> View:
        return self.members[number]

    def __add__(self, other: Views | Own) -> Views:
        """The views of both; those that both have count once."""
        return Union(*_parts(Union, self), *_parts(Union, combined(other)))

    def __radd__(self, other: Own) -> Views:
        return combined(other) + self

    def __mul__(self, other: Views | Own) -> Views:
        """Every view of this set, and every view of the other set of that: the left one is made first."""
        return Product(*_parts(Product, self), *_parts(Product, combined(other)))

    def __rmul__(self, other: Own) -> Views:
        return combined(other) * self

    def __matmul__(self, other: Views | Own) -> Views:
        """Every view of the other set of every view of this set, both changed: besides these, the input alone."""
        return Chain(*_parts(Chain, self), *_parts(Chain, combined(other)))

    def __rmatmul__(self, other: Own) -> Views:
        return combined(other) @ self

    def check(self, x: Tensor) -> None:
        """Every family takes inputs of this kind."""
        for family in self.families:
            family.check(x)

    def of(self, x: Tensor, number: Tensor, bounds: Bounds | None = None) -> Tensor:
        """(N, ...) of every sample of ``x`` (N, ...) the view with its ``number`` (N,), inside bounds; differentiable in x."""
        if not len(x):
            return x
        wanted = sorted(set(number.tolist()))
        places = [(number == each).nonzero()[:, 0] for each in wanted]
        seen = [self[each].inside(x[rows], bounds) for each, rows in zip(wanted, places, strict=True)]
        return torch.cat(seen)[torch.cat(places).argsort()]


@dataclass(frozen=True)
class Family(Views):
    """One kind of change, by several amounts. Its fields are its settings."""

    graded: ClassVar[bool] = False  # whether amounts can be compared, so that views have neighbours
    neutral: ClassVar[float] = 0.0  # the amount that changes nothing
    rule: ClassVar[str] = "be a batch (N, ...)"  # what it takes, for errors
    told_by_amount: ClassVar[bool] = False  # whether a change by some amount is the same whatever the other settings are
    unit_range: ClassVar[bool] = False  # whether inputs have to lie in [0, 1]
    stays: ClassVar[bool] = True  # whether what it makes of inputs inside their bounds lies inside them

    @property
    @abstractmethod
    def amounts(self) -> tuple[float, ...]:
        """By how much; that of the input itself is left out."""

    @abstractmethod
    def changed(self, x: Tensor, amount: float) -> Tensor:
        """A batch (N, ...) changed by this amount. Every row by itself."""

    @abstractmethod
    def described(self, amount: float) -> str:
        """What a change by this amount is called."""

    def apart(self, first: float, second: float) -> float:
        """How far two amounts are apart, as a share of how far the largest one is from the input."""
        raise NotImplementedError

    def takes(self, x: Tensor) -> bool:
        """Whether inputs of this shape have such views."""
        return True

    def like(self, x: Tensor) -> Self:
        """Nothing depends on the size of inputs, unless a family says so."""
        return self

    def check(self, x: Tensor) -> None:
        """Inputs of this shape have such views."""
        remedy = f"leave {type(self).__name__} out of the views"
        require(self.takes(x), "x", f"{self.rule} for {self}", f"shape {tuple(x.shape)}", remedy)

    @property
    def others(self) -> Iterator[View]:
        return (View(((self, amount),)) for amount in self.amounts)

    @property
    def families(self) -> tuple[Family, ...]:
        return (self,)

    def __str__(self) -> str:
        """The text that makes it; settings that are left at their defaults are left out."""
        given = [(each, getattr(self, each.name)) for each in fields(self)]
        while given and given[-1][1] == given[-1][0].default and given[-1][0].default is not MISSING:
            given.pop()
        values = [each for _, value in given for each in (value if isinstance(value, tuple) else (value,))]
        return f"{type(self).__name__}({', '.join(map(_written, values))})"


@dataclass(frozen=True, init=False)
class Combined(Views):
    """Several sets of views as one."""

    parts: tuple[Views, ...]

    def __init__(self, *parts: Views) -> None:
        object.__setattr__(self, "parts", parts)

    def like(self, x: Tensor) -> Self:
        return type(self)(*(each.like(x) for each in self.parts))

    @property
    def families(self) -> tuple[Family, ...]:
        return tuple(dict.fromkeys(family for each in self.parts for family in each.families))


class Union(Combined):
    """The views of all parts."""

    @property
    def terms(self) -> tuple[Views, ...]:
        return self.parts

    @property
    def others(self) -> Iterator[View]:
        return (view for each in self.parts for view in each.others)

    def __str__(self) -> str:
        return " + ".join(map(str, self.parts))


class Product(Combined):
    """All views of the first part, and of each of them all views of the next."""

    @property
    def others(self) -> Iterator[View]:
        combined = _one_after_the_other([part.members for part in self.parts])
        next(combined)  # the input itself
        return combined

    def __str__(self) -> str:
        return " * ".join(map(_in_brackets, self.parts))


class Chain(Combined):
    """All views that every part changes, the first part first."""

    @property
    def others(self) -> Iterator[View]:
        return _one_after_the_other([part.members[1:] for part in self.parts])

    def __str__(self) -> str:
        return " @ ".join(map(_in_brackets, self.parts))


def _one_after_the_other(sets: Sequence[Sequence[View]]) -> Iterator[View]:
    """Every view of the first set, then every view of the next one of that."""
    _check_most(math.prod(map(len, sets)))
    return (sum(reversed(each), View()) for each in product(*reversed(sets)))


def _check_most(count: int) -> None:
    """No more views than a set may have."""
    remedy = "leave some out: every view costs a pass of the model"
    require(count <= MOST_VIEWS, "views", f"be at most {MOST_VIEWS}", count, remedy)


def _in_brackets(part: Views) -> str:
    """A part of a product or of a chain as text."""
    return f"({part})" if isinstance(part, Combined) else str(part)


@dataclass(frozen=True)
class Given(Family):
    """A view of your own.

    Args:
        function: what it makes of a batch (N, ...): as many samples of the same shape, each by itself.
        text: the name by which files find it, ``python:package.module:function``.
    """

    stays: ClassVar[bool] = False

    function: Own
    text: str | None = None

    @property
    def amounts(self) -> tuple[float, ...]:
        return (1.0,)

    def changed(self, x: Tensor, amount: float) -> Tensor:
        seen: Any = self.function(x)
        fits = isinstance(seen, Tensor) and seen.shape == x.shape and seen.dtype == x.dtype
        got = f"{tuple(seen.shape)} of {seen.dtype}" if isinstance(seen, Tensor) else type(seen).__name__
        require(fits, self.described(amount), f"return inputs like its own, {tuple(x.shape)} of {x.dtype}", got, "correct it")
        assert isinstance(seen, Tensor)
        return seen

    def described(self, amount: float) -> str:
        return getattr(self.function, "__name__", None) or type(self.function).__name__

    def __str__(self) -> str:
        return self.text or self.described(1.0)


@lru_cache(64)  # of numbers: a tensor that was made inside of a trace has no values to keep
def neighbourhoods(views: Views, alpha: float) -> tuple[list[int], ...]:
    """Of every view those that differ from it by amounts alone, and by at most that share of what their families reach."""
    return tuple([number for number, other in enumerate(views) if each.is_near(other, alpha)] for each in views)


def neighbours(views: Views, alpha: float) -> Tensor:
    """(V, V) bool: which views are neighbours of which."""
    near = torch.zeros(len(views), len(views), dtype=torch.bool)
    for number, others in enumerate(neighbourhoods(views, alpha)):
        near[number, others] = True
    return near


def combined(given: Views | Own) -> Views:
    """Views as they are; a function of a batch makes one view of it."""
    if isinstance(given, Views):
        return given
    remedy = "as in drq.views.Rotation(90, 13) + drq.views.Mirror()"
    family = isinstance(given, type) and issubclass(given, Views)
    require(callable(given) and not family, "views", "be views, text or a function", repr(given), remedy)
    return Given(given)


def _written(value: float) -> str:
    """A number as short as it may be, so that reading it gives the same again.

    >>> _written(90.0), _written(0.1), _written(1 / 3)
    ('90', '0.1', '0.3333333333333333')
    """
    if isinstance(value, Integral):
        return str(int(value))
    short = f"{float(value):.12g}"
    return short if float(short) == value else repr(float(value))


def _parts(kind: type[Combined], views: Views) -> tuple[Views, ...]:
    return views.parts if isinstance(views, kind) else (views,)

"""Keep the defences from files that the image tab offers, under the names of their files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch

from drq.drq import DRQ
from drq.errors import require
from drq.images import View
from drq.models.classifier import Card
from drq.objectives import Model
from drq.serving.stored_defence import StoredDefence


@dataclass(frozen=True, eq=False)
class OfferedDefence:
    """A defence of a model that says what pictures it takes."""

    stored: StoredDefence

    def __post_init__(self) -> None:
        card = getattr(self.stored.model, "card", None)
        known = isinstance(card, Card) and card.view is not None
        remedy = "use drq.load_defence in Python, where you make its inputs yourself"
        require(known, "--defence", "have a model that says what pictures it takes", self.stored.about.model, remedy)

    @property
    def card(self) -> Card:
        """The card of its model."""
        card = self.stored.model.card
        assert isinstance(card, Card)
        return card

    @property
    def view(self) -> View:
        """How pictures become inputs."""
        assert self.card.view is not None
        return self.card.view

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of its classes; numbers where nothing says them."""
        if named := self.stored.about.classes or self.card.classes:
            return named
        with torch.no_grad():
            count = self.stored.model(torch.zeros(1, self.view.channels, self.view.height, self.view.width)).shape[1]
        return tuple(f"class {number}" for number in range(count))

    def around(self, model: Model) -> DRQ:
        """Return the same defence around another form of its model; decisions hold what their cards show."""
        settings = self.stored.settings | {"keep_points": self.stored.ball_searched, "compile": False}
        return DRQ(model, **settings)


DEFENCES: dict[str, OfferedDefence] = {}  # by the name of the file


@contextmanager
def offer(name: str, stored: StoredDefence) -> Iterator[None]:
    """Offer a defence under this name inside the context."""
    DEFENCES[name] = OfferedDefence(stored)
    try:
        yield
    finally:
        del DEFENCES[name]

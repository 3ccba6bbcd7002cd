"""Define gates that are learnt anew for every model, from unlabelled inputs of a data set, and learnt once a process."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from drq.data.loading import load
from drq.drq import DRQ
from drq.errors import require
from drq.models import weights
from drq.models.classifier import Card
from drq.search.loop import check_count
from drq.threats.threat import plain
from drq.views.gate import Gate

LEARNT: dict[tuple[str, ...], Gate] = {}  # by the weights of the model, its modules, and what was asked


@dataclass(frozen=True)
class LearntGate:
    """A gate for whatever model is defended, see :meth:`drq.DRQ.gated`.

    Args:
        data: the data set whose inputs it is learnt from; their labels are not read.
        first: position of the first of them.
        count: how many.
        changes: the share of answers on them that may change, at most.
        standardised: whether the leads of views are measured by what they are there.
    """

    data: str
    first: int = 0
    count: int = 500
    changes: float = 0.05
    standardised: bool = True

    def __post_init__(self) -> None:
        require(isinstance(self.data, str), "data", "be the name of a data set", repr(self.data), "drq.data.list() has the names")
        check_count("first", self.first, "0 is the first")
        check_count("count", self.count, "500 promise something", least=1)

    @property
    def record(self) -> dict[str, Any]:
        """The settings, as values that JSON can hold."""
        return asdict(self)

    def around(self, robust: DRQ) -> DRQ:
        """Return the same DRQ with the gate for its model."""
        model = robust.model
        assert isinstance(model, nn.Module)
        settings = {name: plain(value) for name, value in robust.settings.items()}
        held = {name: each.detach().cpu() for name, each in model.state_dict().items() if isinstance(each, torch.Tensor)}
        key = weights.contents(held), f"{type(model)} {model}", repr((self, settings))
        gate = LEARNT.get(key) if held else None  # what holds no weights cannot be told from others like it
        if gate is None:
            gate = robust.gated(self.inputs(model), self.changes, standardised=self.standardised).gate
            assert gate is not None
            LEARNT[key] = gate
        return robust.variant(gate=gate)

    def inputs(self, model: nn.Module) -> torch.Tensor:
        """Return the inputs that it is learnt from, as the model sees them."""
        card = getattr(model, "card", None)
        data = load(self.data, view=card.view if isinstance(card, Card) else None)
        last = self.first + self.count
        require(last <= len(data), "count", f"end within the {len(data)} inputs of {self.data}", last, "ask for fewer")
        device = next((each.device for each in model.parameters()), torch.device("cpu"))
        x: torch.Tensor = data.batch(range(self.first, last))[0].to(device)
        return x

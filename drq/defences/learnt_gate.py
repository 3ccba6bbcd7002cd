"""Define gates that are learnt anew for every model, from unlabelled inputs of a data set, and learnt once a process."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from torch import nn

from drq.data.loading import load
from drq.drq import DRQ
from drq.errors import require
from drq.models import weights
from drq.models.classifier import Card
from drq.search.loop import check_count
from drq.threats.threat import plain
from drq.views.fitting import Leads, check_leads, check_share
from drq.views.gate import Gate

NEWEST, OLDER = "handicapped", "standardised"  # records that were kept before there were three ways to compare leads name them so
LEARNT: WeakKeyDictionary[nn.Module, dict[Hashable, Gate]] = WeakKeyDictionary()  # of models, by weights and what was asked


@dataclass(frozen=True)
class LearntGate:
    """A gate for whatever model is defended, see :meth:`drq.DRQ.gated`.

    Args:
        data: the data set whose inputs it is learnt from; their labels are not read.
        first: position of the first of them.
        count: how many.
        changes: the share of answers on them that may change, at most.
        leads: how those of views are compared.
    """

    data: str
    first: int = 0
    count: int = 500
    changes: float = 0.05
    leads: Leads = "handicapped"

    def __post_init__(self) -> None:
        require(isinstance(self.data, str), "data", "be the name of a data set", repr(self.data), "drq.data.list() has the names")
        check_count("first", self.first, "0 is the first")
        check_count("count", self.count, "500 promise something", least=1)
        check_share("changes", self.changes)
        check_leads(self.leads)

    @property
    def record(self) -> dict[str, Any]:
        """The settings, as values that JSON can hold."""
        values = asdict(self)
        if self.leads != NEWEST:
            values[OLDER] = values.pop("leads") == OLDER
        return values

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Self:
        """The gate of these settings, such as its ``record``."""
        values = dict(record)
        if OLDER in values:
            values["leads"] = {True: OLDER, False: "plain"}.get(values.pop(OLDER), "")
        return cls(**values)

    def around(self, robust: DRQ) -> DRQ:
        """Return the same DRQ with the gate for its model."""
        model = robust.model
        assert isinstance(model, nn.Module)
        learnt, key = LEARNT.setdefault(model, {}), self._key(robust, model)
        if key not in learnt:
            gate = robust.gated(self.inputs(model), self.changes, leads=self.leads).gate
            assert gate is not None
            learnt[key] = gate
        return robust.variant(gate=learnt[key])

    def _key(self, robust: DRQ, model: nn.Module) -> Hashable:
        """What tells this gate from others of the model: its weights now, and all that was asked."""
        settings = {name: plain(value) for name, value in robust.settings.items()}
        front = robust.front if isinstance(robust.front, Hashable) else None  # functions of one name differ
        return weights.checksum(model), repr(settings), self, robust.views, front

    def inputs(self, model: nn.Module) -> torch.Tensor:
        """Return the inputs that it is learnt from, as the model sees them."""
        card = getattr(model, "card", None)
        data = load(self.data, view=card.view if isinstance(card, Card) else None)
        last = self.first + self.count
        require(last <= len(data), "count", f"end within the {len(data)} inputs of {self.data}", last, "ask for fewer")
        device = next((each.device for each in model.parameters()), torch.device("cpu"))
        x: torch.Tensor = data.batch(range(self.first, last))[0].to(device)
        return x

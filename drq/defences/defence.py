"""Define what a defence is: given a model, it makes a module that answers in the model's place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from torch import Tensor, nn

from drq.defences.learnt_gate import LearntGate
from drq.drq import DRQ
from drq.errors import require
from drq.method.adapters import Behind
from drq.models.classifier import Card
from drq.models.libraries import load_python
from drq.presets import PAPER_REACH, has_ball
from drq.system.code import PYTHON
from drq.threats.threat import plain


class Defence(ABC):
    """A way to answer with a given model. The model alone is one, too."""

    @abstractmethod
    def around(self, model: nn.Module) -> nn.Module:
        """Return the defended model: its answer is ``decide(x).label``, or else the highest of its scores."""

    @property
    @abstractmethod
    def record(self) -> dict[str, Any]:
        """The name and every setting, as values that JSON can hold."""


@dataclass(frozen=True)
class Standard(Defence):
    """No defence: the model itself.

    Args:
        front: what is applied to the input before the model, such as :class:`drq.Restoration`; None for nothing.
    """

    front: Callable[[Tensor], Tensor] | None = None

    def around(self, model: nn.Module) -> nn.Module:
        """Return the model, behind its front."""
        return model if self.front is None else Behind(self.front, model)

    @property
    def record(self) -> dict[str, Any]:
        """The name, and the front where there is one."""
        return {"defence": "standard"} | ({} if self.front is None else {"front": plain(self.front)})


@dataclass(frozen=True)
class Peer(Defence):
    """A test-time defence by other authors. Its fields are its settings."""

    name: ClassVar[str]  # name in specs
    summary: ClassVar[str]
    changes_weights: ClassVar[bool] = False  # whether it trains a copy of the model at test time

    @property
    def needs_batch(self) -> bool:
        """Whether the answer to a sample depends on the other samples of its batch."""
        return False

    @property
    def record(self) -> dict[str, Any]:
        """The name and all settings."""
        return {"defence": self.name} | {each.name: plain(getattr(self, each.name)) for each in fields(self)}


@dataclass(frozen=True)
class Quantified(Defence):
    """Decision Region Quantification.

    Args:
        settings: arguments of :class:`drq.DRQ`; norm and radius, where they are left out, follow the model's training.
        reach: the radius in that case, as a multiple of that of the training.
        gate: how a gate is learnt for the model, where the settings have none.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    reach: float = PAPER_REACH
    gate: LearntGate | None = None

    def __post_init__(self) -> None:
        DRQ(nn.Identity(), **self.settings)  # checks the settings before any model is loaded

    def around(self, model: nn.Module) -> DRQ:
        """Return DRQ around the model, with the points of its searches kept for the record."""
        if not has_ball(self.settings):
            return self._gated(DRQ(model, **self.settings))
        card = getattr(model, "card", None)
        given = (self.settings.get("norm"), self.settings.get("radius"))
        region = (card if isinstance(card, Card) else Card("")).region(*given, self.reach)
        return self._gated(DRQ(model, **(dict(self.settings) | region | {"keep_points": True})))

    def _gated(self, robust: DRQ) -> DRQ:
        return robust if self.gate is None else self.gate.around(robust)

    @property
    def record(self) -> dict[str, Any]:
        """The settings that differ from the defaults."""
        reach = {} if self.reach == PAPER_REACH else {"reach": self.reach}
        gate = {} if self.gate is None else {"gate": self.gate.record}
        return {"defence": "drq"} | reach | gate | {name: plain(value) for name, value in self.settings.items()}


@dataclass(frozen=True)
class Custom(Defence):
    """A defence of your own.

    Args:
        make: takes the model and the options, and returns the defended module; or where to import such a function, as
            ``package.module:function``.
        options: arguments of that function.
    """

    make: str | Callable[..., nn.Module]
    options: Mapping[str, Any] = field(default_factory=dict)

    def around(self, model: nn.Module) -> nn.Module:
        """Return what the function makes of the model."""
        make, options = self.make, dict(self.options)
        made: Any = load_python(make, model=model, **options) if isinstance(make, str) else make(model, **options)
        remedy = "return one around the model"
        require(isinstance(made, nn.Module), "defence", "be a torch.nn.Module", type(made).__name__, remedy)
        defended: nn.Module = made.eval()
        return defended

    @property
    def record(self) -> dict[str, Any]:
        """The name of the function, and the options."""
        name = f"{PYTHON}{self.make}" if isinstance(self.make, str) else plain(self.make)
        return {"defence": name} | {key: plain(value) for key, value in self.options.items()}

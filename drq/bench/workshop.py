"""What the parts of a run share: its settings, its subject, its contestants, and the record that they fill."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor

from drq.bench.contestants import Contestant, Decide, contestants, quickest
from drq.bench.naive import Answer
from drq.bench.settings import Settings
from drq.bench.subject import Subject, load
from drq.errors import require

LARGEST_BATCH = {"cpu": 16, "cuda": 4096}


class Task(NamedTuple):
    """A piece of a part, after which the record is written."""

    title: str
    weight: float  # images that the naive loop would decide on meanwhile, roughly
    work: Callable[[], None]


class Workshop:
    """The state of one run."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self.settings, self.say = settings, say
        self.record: dict[str, Any] = {"settings": settings.as_json(), "notes": []}
        self.answers: dict[str, Answer] = {}  # of contestants on clean images
        self._deciders: dict[str, Decide] = {}
        self._images: dict[str, Tensor] = {}

    @property
    def device(self) -> str:
        """Where it runs."""
        return self.settings.device

    @cached_property
    def subject(self) -> Subject:
        """The model and as many images as any part asks for."""
        chosen = self.settings
        most = LARGEST_BATCH[chosen.device] if "batch" in chosen.parts else 1
        found = load(chosen.model, max(chosen.images, chosen.naive_images, chosen.samples, most), chosen.device, self.note)
        kept = self.record.get("subject", {}).get("model", found.name)
        remedy = "name another file for the record, or leave --add out"
        require(kept == found.name, "model", f"be {kept}, as in the record that is added to", repr(found.name), remedy)
        self.record["subject"] = found.as_json()
        return found

    @property
    def contestants(self) -> list[Contestant]:
        """All that run here."""
        return contestants(self.device)

    def images(self, contestant: Contestant) -> int:
        """How many it is timed on: on a GPU only the quickest on all, since they need many to fill it."""
        if contestant.naive:
            return self.settings.naive_images
        slow = self.device == "cuda" and contestant.name not in {each.name for each in quickest(self.device)}
        return min(self.settings.images, 2 * self.settings.naive_images) if slow else self.settings.images

    def samples(self, contestant: Contestant) -> int:
        """On how many of each condition its labels are compared."""
        return min(self.settings.samples, self.settings.naive_images) if contestant.naive else self.settings.samples

    def decider(self, contestant: Contestant) -> Decide:
        """The contestant around the subject: made once, so that what is compiled is compiled once."""
        if contestant.name not in self._deciders:
            subject, chunk = self.subject, self.settings.chunk if contestant.compiled else None
            self._deciders[contestant.name] = contestant.around(subject.model, subject.norm, subject.radius, chunk)
        return self._deciders[contestant.name]

    def under(self, threat: str) -> Tensor:
        """The images whose labels are compared, made once."""
        if threat not in self._images:
            self._images[threat] = self.subject.under(threat, self.settings.samples)
        return self._images[threat]

    def rows(self, part: str) -> list[dict[str, Any]]:
        """The rows of a part, to be added to."""
        found: list[dict[str, Any]] = self.record.setdefault(part, [])
        return found

    def note(self, line: str) -> None:
        """What a reader of the record should know, said once."""
        if line not in self.record["notes"]:
            self.record["notes"].append(line)
            self.say(line)

"""Hold what all parts of a benchmark run share: settings, inputs, contestants and the record being filled."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor

from drq.bench.contestants import Contestant, Decide, contestants, fastest
from drq.bench.inputs import BenchInputs, load_inputs
from drq.bench.naive import Answer
from drq.bench.settings import BenchSettings
from drq.errors import require

LARGEST_BATCH = {"cpu": 16, "cuda": 4096}


class Task(NamedTuple):
    """A unit of work, after which the record is written."""

    title: str
    weight: float  # expected time, in images of the naive loop; for the progress bar
    work: Callable[[], None]


class BenchRun:
    """The state of one benchmark run."""

    def __init__(self, settings: BenchSettings, notify: Callable[[str], None]) -> None:
        self.settings, self.notify = settings, notify
        self.record: dict[str, Any] = {"settings": settings.as_json(), "notes": []}
        self.answers: dict[str, Answer] = {}  # answers of each contestant on clean images
        self._deciders: dict[str, Decide] = {}
        self._images: dict[str, Tensor] = {}

    @property
    def device(self) -> str:
        """The device that contestants run on."""
        return self.settings.device

    @cached_property
    def inputs(self) -> BenchInputs:
        """The model, and as many images as the parts need."""
        settings = self.settings
        largest = LARGEST_BATCH[settings.device] if "batch" in settings.parts else 1
        count = max(settings.images, settings.naive_images, settings.samples, largest)
        loaded = load_inputs(settings.model, count, settings.device, self.note)
        recorded = self.record.get("subject", {}).get("model", loaded.name)
        remedy = "name another file for the record, or leave --add out"
        rule = f"be {recorded}, as in the record that is added to"
        require(recorded == loaded.name, "model", rule, repr(loaded.name), remedy)
        self.record["subject"] = loaded.as_json()
        return loaded

    @property
    def contestants(self) -> list[Contestant]:
        """All contestants for this machine."""
        return contestants(self.device)

    def images(self, contestant: Contestant) -> int:
        """Return how many images a contestant is timed on: on a GPU only the fastest get all, since they need many to fill it."""
        if contestant.naive:
            return self.settings.naive_images
        slow = self.device == "cuda" and contestant.name not in {each.name for each in fastest(self.device)}
        return min(self.settings.images, 2 * self.settings.naive_images) if slow else self.settings.images

    def samples(self, contestant: Contestant) -> int:
        """Return on how many images of each condition a contestant's labels are compared."""
        return min(self.settings.samples, self.settings.naive_images) if contestant.naive else self.settings.samples

    def decider(self, contestant: Contestant) -> Decide:
        """Return the contestant's function for the benchmark's model, built once so that it is compiled once."""
        if contestant.name not in self._deciders:
            inputs, chunk = self.inputs, self.settings.chunk if contestant.compiled else None
            self._deciders[contestant.name] = contestant.build(inputs.model, inputs.norm, inputs.radius, chunk)
        return self._deciders[contestant.name]

    def images_under(self, threat: str) -> Tensor:
        """Return the images whose labels are compared, computed once."""
        if threat not in self._images:
            self._images[threat] = self.inputs.under(threat, self.settings.samples)
        return self._images[threat]

    def rows(self, part: str) -> list[dict[str, Any]]:
        """Return the recorded rows of a part, to which more are appended."""
        rows: list[dict[str, Any]] = self.record.setdefault(part, [])
        return rows

    def note(self, line: str) -> None:
        """Record and print a line that readers of the record should know, once."""
        if line not in self.record["notes"]:
            self.record["notes"].append(line)
            self.notify(line)

"""What ``drq predict`` answers about pictures: the class, why, how far to trust it, and what that cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from drq.decision import Decision
from drq.drq import DRQ
from drq.errors import InputError, imported, require
from drq.models.classifier import Card
from drq.models.loading import load
from drq.presets import has_ball, named
from drq.serving.folder_gate import learn_gate
from drq.serving.picture import Picture
from drq.serving.prediction import Prediction, Refusal, predicted
from drq.serving.rows import Row, refused, rows
from drq.system.files import atomic_write
from drq.system.progress import ProgressOption
from drq.views.gate import Gate
from drq.views.seen import Seen, seen

UNGATED = "{model} has no gate for {views}, so that its answers are ungated: --gate FOLDER learns one from pictures of yours"
BATCH = 32  # pictures decided at once on a GPU, which one alone leaves idle; on a CPU it gains little and delays what is shown
T = TypeVar("T")
Decide = Callable[[Sequence[Picture], Sequence[Tensor]], list[T]]


class Inputs(NamedTuple):
    """Pictures that were read, by their place among those that were asked for."""

    x: dict[int, Tensor]
    refused: dict[int, str]  # why


class Predictor:
    """A model and DRQ around it, ready for pictures. Where the margin is smaller than ``below``, it abstains.

    Args:
        name: of the model, see :func:`drq.load_model`.
        norm, radius: of the region to explore; None takes those of the preset, else what the training of the model suggests:
            twice its radius, else a radius calibrated for each picture.
        classes: see :class:`drq.DRQ`; None for those of the preset.
        device: where to run.
        preset: settings of DRQ by name, see :data:`drq.presets.PRESETS`.
        keep_points: whether answers can be explained.
        views: where to look in place of what the preset says, as text; functions that it names run.
        gate: a folder of pictures from which a gate is learnt, or a gate; None for that of the model's card, where the preset
            asks for it.
        progress: whether it is shown how far learning is.
        options: of the loader.
    """

    below = 0.0

    def __init__(
        self,
        name: str,
        norm: str | None = None,
        radius: float | None = None,
        classes: int | None = None,
        device: str = "cpu",
        keep_points: bool = False,
        preset: str = "paper",
        *,
        views: str | None = None,
        gate: str | Gate | None = None,
        progress: bool = False,
        **options: Any,
    ) -> None:
        chosen = named(preset)
        several = classes is None or classes >= 2
        require(several, "classes", "be at least 2", classes, "one class alone has no margin to trust it by")
        model = load(name, **options)
        card = getattr(model, "card", None)
        shown = isinstance(card, Card) and card.view is not None
        remedy = "use drq.DRQ in Python, where you make its inputs yourself"
        require(shown, "model", "say what pictures it takes", f"{name}, which does not", remedy)
        assert isinstance(card, Card)
        self.card, self.model = card, _moved(model, device)
        asked = {"norm": norm, "radius": radius, "classes": classes, "views": views}
        settings = chosen.around(card, {name: value for name, value in asked.items() if value is not None})
        settings |= {} if views is None else {"gate": None}  # views that are given are taken as they are
        ball, looks = has_ball(settings), settings.get("views") is not None
        remedy = "give a radius too, or leave it out"
        require(ball or norm is None, "norm", "be left out where views are looked at, not balls", repr(norm), remedy)
        most, wanted = len(card.classes or ()), settings.get("classes") or 0
        fits, remedy = not most or wanted <= most, "leave it out, or another preset"
        require(fits, "classes", f"be at most {most}, the model's classes", wanted, remedy)
        self.keep_points, self.device = keep_points, device
        self.robust = DRQ(self.model, keep_points=keep_points and ball, **settings)
        self.promise = ""  # of the gate, or that there is none
        if isinstance(gate, Gate):
            self.robust = self.robust.variant(gate=gate)
        elif gate is not None:
            self.robust, learnt = learn_gate(self.robust, gate, self._input, chosen.changes, progress)
            self.promise = f"a gate learnt from {learnt}: {self.robust.gate}"
        elif self.robust.gate is not None:
            self.promise = f"the gate of {card.name}: {self.robust.gate}"
        elif looks:
            self.promise = UNGATED.format(model=card.name, views="these views" if views else f"preset {preset}")

    def __call__(self, path: str | Path) -> Prediction:
        """The answer about the picture in a file."""
        picture = Picture(str(path), str(path))
        (answer,) = self._decide([picture], [self._input(picture)])
        return answer

    def stream(
        self, pictures: Iterable[str | Picture], batch: int | None = None, tell: Callable[[float], None] | None = None
    ) -> Iterator[Prediction | Refusal]:
        """The answers about pictures, in order. Those of a batch are decided at once, which changes only the time it takes.

        Args:
            pictures: their paths, or :class:`drq.serving.picture.Picture`.
            batch: how many are decided at once; None for what suits the device.
            tell: is told how many are answered, again and again; those at work count in part.
        """
        waiting, size, done = iter(pictures), batch or (1 if self.on_cpu else BATCH), 0
        while some := [Picture(each, each) if isinstance(each, str) else each for each in islice(waiting, size)]:
            yield from self._answers(some, False if tell is None else partial(_told, tell, done, len(some)))
            done += len(some)
            if tell is not None:
                tell(done)

    @property
    def on_cpu(self) -> bool:
        """Whether it answers on a CPU."""
        return torch.device(self.device).type == "cpu"

    def inputs(self, pictures: Sequence[Picture]) -> Inputs:
        """Pictures as the model takes them: one that cannot be read stops no other."""
        read = Inputs({}, {})
        for place, picture in enumerate(pictures):
            try:
                read.x[place] = self._input(picture)
            except InputError as error:
                read.refused[place] = str(error)
        return read

    def rows(self, pictures: Sequence[Picture], read: Inputs, below: float) -> list[Row]:
        """The answers about pictures that were read, as rows of a table; it abstains where the margin is ``below`` that."""
        decided = self._each([pictures[place] for place in read.x], [*read.x.values()], partial(self._rows, below))
        found = dict(zip(read.x, decided, strict=True))
        return [
            each if isinstance(each := found.get(place), dict) else refused(name, each.error if each else read.refused[place])
            for place, (name, _) in enumerate(pictures)
        ]

    def _answers(self, pictures: Sequence[Picture], progress: ProgressOption) -> Iterator[Prediction | Refusal]:
        """About a batch."""
        read = self.inputs(pictures)
        count = len(read.x)  # whose progress is shown: of pictures that are looked at once more it would go back

        def decide(some: Sequence[Picture], x: Sequence[Tensor]) -> list[Prediction]:
            return self._decide(some, x, progress if len(some) == count else False)

        decided = self._each([pictures[place] for place in read.x], [*read.x.values()], decide)
        answers: dict[int, Prediction | Refusal] = dict(zip(read.x, decided, strict=True))
        answers |= {place: Refusal(pictures[place].name, error) for place, error in read.refused.items()}
        return (answers[place] for place in range(len(pictures)))

    def _each(self, pictures: Sequence[Picture], inputs: Sequence[Tensor], decide: Decide[T]) -> list[T | Refusal]:
        """What is decided about inputs. Where one of them is refused, each is looked at alone."""
        if not inputs:
            return []
        try:
            return [*decide(pictures, inputs)]
        except InputError as error:
            if len(pictures) == 1:
                return [Refusal(pictures[0].name, str(error))]
        return [answer for each, x in zip(pictures, inputs, strict=True) for answer in self._each([each], [x], decide)]

    def _input(self, picture: str | Picture) -> Tensor:
        """The picture as the model takes it."""
        assert self.card.view is not None
        picture = Picture(picture, picture) if isinstance(picture, str) else picture
        return self.card.view(picture.image()).to(self.device)

    def _decide(
        self, pictures: Sequence[Picture], inputs: Sequence[Tensor], progress: ProgressOption = False
    ) -> list[Prediction]:
        x = torch.stack([*inputs])
        began = time.monotonic()
        decision = self.robust.decide(x, progress)
        seconds = (time.monotonic() - began) / len(pictures)
        confidence = self._confidence(x, decision)
        classes = self._classes(confidence.shape[1])
        alone = [decision[place : place + 1] for place in range(len(pictures))]
        facts = zip(pictures, alone, confidence.tolist(), strict=True)
        found = [predicted(self.robust, self.card.name, classes, *each, seconds) for each in facts]
        return found if self.keep_points else [replace(each, decision=None) for each in found]

    def _rows(self, below: float, pictures: Sequence[Picture], inputs: Sequence[Tensor]) -> list[Row]:
        x = torch.stack([*inputs])
        began = time.monotonic()
        decision = self.robust.decide(x, progress=False)
        confidence = self._confidence(x, decision)
        classes = self._classes(confidence.shape[1])
        views = None if self.robust.views is None else self.robust.views.names
        return rows([each.name for each in pictures], decision, confidence, classes, views, below, began)

    def _confidence(self, x: Tensor, decision: Decision) -> Tensor:
        """(N, C) confidence of the model itself, without a front: where there is none, the decision has it."""
        if self.robust.front is None:
            return decision.base_confidence
        with torch.no_grad():
            confidence: Tensor = self.model(x).softmax(1)
        return confidence

    def _classes(self, count: int) -> Sequence[str]:
        """The names of so many classes."""
        names = self.card.classes or [f"class {number}" for number in range(count)]
        require(
            len(names) == count, "model", f"have a name for each of {count} classes", f"{len(names)} names", "correct its card"
        )
        return names

    def explain(self, found: Prediction, path: Path, pixels: int | None = None, progress: ProgressOption = False) -> None:
        """Draw the card of an answer to a file, with a slice of so many points a side; see :func:`drq.report.plots.card`."""
        from drq.report import plots

        assert found.decision is not None
        if self.robust.ball_searched:
            sliced = pixels is not None and bool(found.decision.found)  # without a radius there is nothing to go through
            plane = self.robust.slice(found.decision, pixels, progress) if sliced and pixels else None
            figure = plots.card(found.decision, plane, names=self.card.classes)
        else:
            figure = plots.views_card(found.decision, self._seen(found), names=self.card.classes)
        with atomic_write(path) as file:
            figure.savefig(file, format=path.suffix[1:].lower(), dpi=200)

    def _seen(self, found: Prediction) -> Seen:
        """What the model says about every view of a picture, which is looked at once more: answers do not keep their views."""
        assert self.robust.views is not None
        assert found.decision is not None
        with torch.no_grad():
            x = self.robust.after_front(self._input(found.source or found.picture)[None])
        return seen(self.model, self.robust.views, self.robust.gate, x, self.robust.bounds, found.decision.classes)


def _told(tell: Callable[[float], None], before: int, size: int, done: int, total: int) -> None:
    """Passes of the model as pictures: some were answered before, and this share of a batch is now."""
    tell(before + size * done / total)


def card_files(path: str | None, count: int) -> list[Path]:
    """Where the cards of so many pictures go: to the file of this name, numbered where there are several. None go nowhere."""
    if path is None:
        return []
    suffixes, remedy = ".png, .pdf or .svg", "for example card.png"
    require(Path(path).suffix.lower() in (".png", ".pdf", ".svg"), "--explain", f"end in {suffixes}", repr(path), remedy)
    place = Path(path)
    usable = not place.exists() or place.is_file()  # a folder or a device must not be replaced
    require(usable, "--explain", "name a file that can be written", repr(path), remedy)
    imported("matplotlib", "--explain", "pip install 'decision-region-quantification[report]'")
    return [place] if count == 1 else [place.with_stem(f"{place.stem}-{number + 1}") for number in range(count)]


def _moved(model: nn.Module, device: str) -> nn.Module:
    try:
        require(torch.device(device).type != "meta", "device", "be one that computes", repr(device), "cpu always works")
        return model.to(device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(f"device must be one that this machine has, got {device!r} ({reason}): cpu always works") from error

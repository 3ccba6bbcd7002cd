"""What ``drq predict`` answers about pictures: the class, why, how far to trust it, and what that cost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, starmap
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from drq import images
from drq.data.folders import ENDINGS
from drq.decision import Decision
from drq.drq import DRQ
from drq.errors import InputError, imported, require
from drq.models.classifier import Card
from drq.models.loading import load
from drq.presets import has_ball, named
from drq.serving.folder_gate import learn_gate
from drq.serving.listing import is_folder
from drq.serving.prediction import Class, Prediction, Refusal
from drq.system.files import atomic_write
from drq.system.progress import ProgressOption
from drq.views.seen import Seen, seen

UNGATED = "{model} has no gate for {views}, so that its answers are ungated: --gate FOLDER learns one from pictures of yours"
BATCH = 32  # pictures decided at once on a GPU, which one alone leaves idle; on a CPU it gains little and delays what is shown


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
        gate: a folder of pictures from which a gate is learnt; None for that of the model's card, where the preset asks for it.
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
        gate: str | None = None,
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
        self.keep_points, self.device = keep_points, device
        self.robust = DRQ(self.model, keep_points=keep_points and ball, **settings)
        self.promise = ""  # of the gate, or that there is none
        if gate is not None:
            self.robust, learnt = learn_gate(self.robust, gate, self._input, chosen.changes, progress)
            self.promise = f"a gate learnt from {learnt}: {self.robust.gate}"
        elif self.robust.gate is not None:
            self.promise = f"the gate of {card.name}: {self.robust.gate}"
        elif looks:
            self.promise = UNGATED.format(model=card.name, views="these views" if views else f"preset {preset}")

    def __call__(self, path: str | Path) -> Prediction:
        """The answer about the picture in a file."""
        (answer,) = self._decide([str(path)], [self._input(str(path))])
        return answer

    def stream(
        self, paths: Iterable[str], batch: int | None = None, tell: Callable[[float], None] | None = None
    ) -> Iterator[Prediction | Refusal]:
        """The answers about pictures, in order. Those of a batch are decided at once, which changes only the time it takes.

        Args:
            paths: of the pictures.
            batch: how many are decided at once; None for what suits the device.
            tell: is told how many are answered, again and again; those at work count in part.
        """
        waiting, size, done = iter(paths), batch or (1 if torch.device(self.device).type == "cpu" else BATCH), 0
        while some := [*islice(waiting, size)]:
            yield from self._answers(some, False if tell is None else partial(_told, tell, done, len(some)))
            done += len(some)
            if tell is not None:
                tell(done)

    def _answers(self, paths: Sequence[str], progress: ProgressOption) -> Iterator[Prediction | Refusal]:
        """About a batch: a picture that cannot be read stops no other."""
        inputs, refusals = {}, {}
        for place, path in enumerate(paths):  # a path may be given twice
            try:
                inputs[place] = self._input(path)
            except InputError as error:
                refusals[place] = Refusal(path, str(error))
        decided = self._decided([paths[place] for place in inputs], [*inputs.values()], progress)
        answers = refusals | dict(zip(inputs, decided, strict=True))
        return (answers[place] for place in range(len(paths)))

    def _decided(
        self, paths: Sequence[str], inputs: Sequence[Tensor], progress: ProgressOption = False
    ) -> list[Prediction | Refusal]:
        """About inputs. Where one of them is refused, each is looked at alone."""
        if not inputs:
            return []
        try:
            return [*self._decide(paths, inputs, progress)]
        except InputError as error:
            if len(paths) == 1:
                return [Refusal(paths[0], str(error))]
        return [answer for path, x in zip(paths, inputs, strict=True) for answer in self._decided([path], [x])]

    def _input(self, path: str) -> Tensor:
        """The picture as the model takes it."""
        assert self.card.view is not None
        if is_folder(path):
            readable = os.access(path, os.R_OK | os.X_OK)
            require(readable, "a folder", "be one that can be read", repr(path), "check its rights")
            remedy = f"those that end in {', '.join(sorted(ENDINGS))} and are not hidden are found, others must be named"
            raise InputError(f"a folder must have pictures in it, got none in {path!r}: {remedy}")
        return self.card.view(images.read(path)).to(self.device)

    def _decide(self, paths: Sequence[str], inputs: Sequence[Tensor], progress: ProgressOption = False) -> list[Prediction]:
        x = torch.stack([*inputs])
        began = time.monotonic()
        decision = self.robust.decide(x, progress)
        seconds = (time.monotonic() - began) / len(paths)
        with torch.no_grad():
            confidence = self.model(x).softmax(1)
        return [
            self._prediction(path, decision[place : place + 1], confidence[place].tolist(), seconds)
            for place, path in enumerate(paths)
        ]

    def _prediction(self, path: str, decision: Decision, confidence: list[float], seconds: float) -> Prediction:
        """What a decision about a single input says."""
        names = self.card.classes or [f"class {number}" for number in range(len(confidence))]
        rule = f"have a name for each of {len(confidence)} classes"
        require(len(names) == len(confidence), "model", rule, f"{len(names)} names", "correct its card")
        standard = confidence.index(max(confidence))  # of the model itself, without a front
        views = self.robust.views
        columns = zip(names, confidence, _robustness(decision), decision.exact[0].tolist(), strict=True)
        return Prediction(
            picture=path,
            model=self.card.name,
            answer=names[int(decision.label)],
            standard=names[standard],
            changed=int(decision.label) != standard,
            robustness=float(decision.robustness[0, decision.label]),
            margin=float(decision.margin),
            radius=float(decision.radius) if decision.found else None,
            norm=type(self.robust.norm).__name__.lower() if self.robust.ball_searched else None,
            passes=int(decision.passes),
            seconds=round(seconds, 3),
            classes=tuple(sorted(starmap(Class, columns), key=_rank)),
            views=0 if views is None else len(views),
            view=None if views is None else views.names[int(decision.view)],
            kept=bool(decision.kept),
            gate_margin=float(decision.gate_margin) if decision.gate_margin.isfinite() else None,
            forward_passes=int(decision.forward_passes),
            decision=decision if self.keep_points else None,
        )

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
            x = self.robust.after_front(self._input(found.picture)[None])
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


def _rank(each: Class) -> tuple[float, bool, float]:
    """The highest robustness first, what was not searched last; among equals the model's own order."""
    return (1.0 if each.robustness is None else -each.robustness, not each.exact, -each.confidence)


def _robustness(decision: Decision) -> list[float | None]:
    """Of every class; None where it was not searched. What was pruned lies below the second, whatever its own bound is."""
    second = int(decision.runner_up)
    bound = decision.robustness[0, second] if second >= 0 else decision.robustness.max()
    values = torch.where(decision.exact[0], decision.robustness[0], decision.robustness[0].clamp(max=bound)).tolist()
    searched = {int(decision.label), int(decision.base_label), *decision.classes[0].tolist()}
    return [value if number in searched else None for number, value in enumerate(values)]


def _moved(model: nn.Module, device: str) -> nn.Module:
    try:
        require(torch.device(device).type != "meta", "device", "be one that computes", repr(device), "cpu always works")
        return model.to(device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(f"device must be one that this machine has, got {device!r} ({reason}): cpu always works") from error

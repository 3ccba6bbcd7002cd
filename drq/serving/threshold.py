"""Fit the threshold below which a defence abstains to a folder of labelled pictures, with a promise about new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from drq.data.folders import class_folders
from drq.drq import DRQ
from drq.errors import InputError, nearest, require
from drq.images import View, read
from drq.models.classifier import Card
from drq.report.selective import check_promise, threshold_for
from drq.serving.defence_file import write
from drq.serving.defence_text import with_threshold
from drq.serving.stored_defence import Fitted, StoredDefence, Threshold
from drq.system.progress import Tell, silent

BATCH = 32  # pictures decided at once


@dataclass(frozen=True, eq=False)
class Labelled:
    """Pictures in files, and the class of each."""

    folder: str
    paths: tuple[str, ...]
    labels: Tensor  # (N,)


def labelled(folder: str, classes: Sequence[str] | None) -> Labelled:
    """The pictures in a folder with one folder a class, called as the class is, or by the number of its logit.

    Args:
        folder: with these folders.
        classes: the names of all classes; None where only numbers tell them.
    """
    try:
        require(Path(folder).is_dir(), "FOLDER", "be a folder of labelled pictures", repr(folder), "with one folder a class")
        found = class_folders(Path(folder))
    except OSError as error:
        rule = "FOLDER must be a folder that can be read"
        raise InputError(f"{rule}, got {folder[:80]!r} ({error.strerror}): check its name and rights") from error
    numbers = {name: class_number(name, classes) for name in found}
    paths = tuple(str(Path(folder, name, each)) for name, pictures in found.items() for each in pictures)
    return Labelled(folder, paths, torch.tensor([numbers[name] for name, pictures in found.items() for _ in pictures]))


def class_number(name: str, classes: Sequence[str] | None) -> int:
    """The logit that the name of a folder stands for.

    >>> class_number("dog", ["cat", "dog"]), class_number("1", ["cat", "dog"])
    (1, 1)
    """
    names = list(classes or ())
    same = names.count(name)
    require(same < 2, "FOLDER", "have folders called as one class", f"{name!r}, as {same} are", "use the numbers of the classes")
    number = int(name) if name.isascii() and name.isdecimal() and len(name) < 10 else -1
    known = same == 1 or (number >= 0 and (classes is None or number < len(names)))
    remedy = nearest(name, names, "the defence file lists them, or the number of a class will do")
    require(known, "FOLDER", "have folders called as the classes of the model", repr(name), remedy)
    return names.index(name) if same else number


def decided(robust: DRQ, view: View, pictures: Labelled, tell: Tell = silent) -> tuple[Tensor, Tensor]:
    """(N,) whether the answer about every picture is right, and its margin, on the CPU."""
    device = next((each.device for each in robust.parameters()), torch.device("cpu"))
    right, margins = [], []
    for rows in torch.split(torch.arange(len(pictures.paths)), BATCH):
        x = torch.stack([view(read(pictures.paths[each])) for each in rows]).to(device)
        decision = robust.decide(x, progress=False)
        known = int(pictures.labels[rows].max()) < decision.robustness.shape[1]
        rule = f"have folders called as the {decision.robustness.shape[1]} classes of the model"
        require(known, "FOLDER", rule, int(pictures.labels[rows].max()), "the first is number 0")
        right.append(decision.label.cpu() == pictures.labels[rows])
        margins.append(decision.margin.cpu())
        tell((int(rows[-1]) + 1) / len(pictures.paths), f"{int(rows[-1]) + 1} of {len(pictures.paths)} pictures")
    return torch.cat(right), torch.cat(margins)


def fit(right: Tensor, margin: Tensor, risk: float, confidence: float, data: str, defence: str) -> Threshold:
    """The lowest threshold that promises a risk, see :func:`drq.report.selective.threshold_for`.

    With probability ``confidence`` over the choice of these samples, at most a share ``risk`` of the answers that are given about
    new ones of the same kind is wrong.

    Args:
        right: (N,) whether the answer to each sample is right.
        margin: (N,) of the decisions.
        risk: the share.
        confidence: the probability.
        data: where the samples come from, in words.
        defence: what tells the defence from others, :attr:`StoredDefence.identity`.
    """
    found = threshold_for(right.numpy(), margin.numpy(), risk, confidence)
    wrong = int((~right).sum())
    rule = f"be one that {len(right)} pictures, {wrong} of them answered wrong, can promise with probability {confidence:g}"
    require(found.value is not None, "risk", rule, f"{risk:g}", "ask for a higher risk, or give more pictures")
    assert found.value is not None
    assert found.risk is not None
    value = max(0.0, found.value)
    rounded = {"answered": round(found.coverage, 4), "wrong": round(found.risk, 4)}
    return Threshold(value, Fitted(value, risk, confidence, len(right), **rounded, data=data, defence=defence))


def fit_in_file(
    path: Path, stored: StoredDefence, folder: str, risk: float, confidence: float = 0.95, tell: Tell = silent
) -> Threshold:
    """Fit the threshold of a defence to the labelled pictures in a folder, and write it into the file of the defence."""
    check_promise(risk, confidence)  # before pictures are looked at
    card = getattr(stored.model, "card", None)
    view = card.view if isinstance(card, Card) else None
    remedy = "use drq.report.selective.threshold_for in Python, where you make its inputs yourself"
    require(view is not None, "defence", "have a model that says what pictures it takes", stored.about.model, remedy)
    assert view is not None
    pictures = labelled(folder, stored.about.classes)
    where = folder if folder.isprintable() else ascii(folder)
    found = fit(*decided(stored, view, pictures, tell), risk, confidence, where, stored.identity)
    write(path, with_threshold(path.read_text(encoding="utf-8"), found))
    return found

r"""Decision Region Quantification, in the order and the symbols of the paper.

Calibrate a radius :math:`\epsilon_p` around the input x (Eq. 1), explore the most confident point :math:`\tilde{x}_i` of
every class inside it (Eq. 2 and 4), quantify how far the confidence of each class can be pushed down around its point (Eq. 3
and 5), and answer with the class that stays highest.

Reference: Schwinn et al., Improving Robustness against Real-World and Worst-Case Distribution Shifts through Decision Region
Quantification, ICML 2022.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from drq.adapters import InPrecision, Wrapper
from drq.decision import Block, Candidates, Decision, conclude
from drq.errors import require
from drq.inputs import check_bounds, check_radius
from drq.minimum_norm import MinimumNorm
from drq.norms import Ball, Bounds, Norm, as_norm
from drq.objectives import Model, away_from, confident_elsewhere, elsewhere_at, log_odds, toward
from drq.rows import in_order
from drq.scores import log_robustness
from drq.search import Found, Gradient, Search, check_steps, search
from drq.setting import Setting, prepare

logger = logging.getLogger("drq")

COSTLY = 100_000  # passes of a call from which on its cost is logged
PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Calibrated:
    """Choose the radius for every sample: the distance to the nearest point of another class with this confidence (Eq. 1).

    Args:
        confidence: threshold c in [0, 1); None for the confidence of the sample itself, as in the paper.
        steps: steps of the Fast Minimum-Norm search.
    """

    confidence: float | None = None
    steps: int = 100

    def __post_init__(self) -> None:
        known = self.confidence is None or (isinstance(self.confidence, int | float) and 0 <= self.confidence < 1)
        require(known, "confidence", "lie in [0, 1) or be None", repr(self.confidence), "None takes the sample's own confidence")
        check_steps("steps", self.steps)

    def search(self, setting: Setting, x: Tensor, logits: Tensor) -> Found:
        """The nearest confident point of another class; its ``merit`` is the radius, infinite where there is none."""
        label = logits.argmax(1)
        if self.confidence is None:
            objective = elsewhere_at(setting.model, label, log_odds(logits, label))
        else:
            objective = confident_elsewhere(setting.model, label, self.confidence)
        unlimited = setting.ball(x, torch.full_like(logits[:, 0], torch.inf))
        return setting.search(MinimumNorm(self.steps), objective, unlimited)  # Eq. 1


def calibrate(
    model: nn.Module | Model,
    x: Tensor,
    norm: str | Norm,
    confidence: float | None = None,
    steps: int = 100,
    bounds: Bounds | None = (0.0, 1.0),
    frozen: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Distance of every sample to the nearest point of another class with at least this confidence (Eq. 1).

    Returns:
        radius: (N,), infinite where no such point was found.
        found: (N,) bool.

    >>> model = torch.nn.Linear(2, 2, bias=False).eval()
    >>> _ = model.weight.data.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> calibrate(model, torch.tensor([[0.8, 0.2]]), "l2", confidence=0.5)
    (tensor([0.4243]), tensor([True]))
    """
    calibrated = Calibrated(confidence, steps)
    check_bounds(bounds)
    with torch.inference_mode(False), torch.no_grad():
        x, setting = prepare(model, x, as_norm(norm), bounds, frozen)
        radius = calibrated.search(setting, x, setting.logits(x)).merit
    return radius, radius < torch.inf


class DRQ(Wrapper):
    """Wraps a classifier so that it answers with the most robust class around its input.

    ``robust(x)`` returns (N, C) log-robustness, a drop-in for logits whose argmax is the DRQ label; ``robust.decide(x)``
    returns a :class:`Decision` with everything that was measured. A call changes nothing, in the model or elsewhere.

    Args:
        model: differentiable classifier in evaluation mode, (N, ...) -> (N, C) logits.
        norm: "linf", "l2", "l1" or a :class:`Norm`.
        radius: of exploration: a number, one per sample (N,), or how it is calibrated. For adversarially trained models twice the
            training radius needs no calibration.
        alpha: radius of quantification, as a share of the radius of exploration.
        explore: search for the most confident point of a class.
        quantify: search for the least confident point around it.
        classes: None for all, or k for the k largest logits: cheaper, and not safe under attack, since an attacker can push the
            true class out of the k.
        bounds: lowest and highest value of the input, as numbers or per feature; None for no limit.
        frozen: boolean mask of features that must not change.
        explore_base: whether the base label is explored like every class. False reads its confidence off at x itself, which the
            paper warns against: an attacker then only has to move x towards a boundary. An ablation.
        prune: "exact" stops searching classes that provably cannot win or come second; "none" finishes all.
        precision: in which the model runs; losses, steps and comparisons stay in the precision of x.
        chunk: rows (sample times class) searched at once; None chooses by memory.
        keep_points: whether decisions carry the explored and quantified points.

    >>> model = torch.nn.Linear(2, 3).eval()
    >>> robust = DRQ(model, norm="linf", radius=0.1)
    >>> robust(torch.rand(5, 2)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        model: nn.Module | Model,
        norm: str | Norm = "l2",
        radius: float | Tensor | Calibrated = Calibrated(),
        *,
        alpha: float = 0.5,
        explore: Search = Gradient(steps=20),
        quantify: Search = Gradient(steps=20),
        classes: int | None = None,
        bounds: Bounds | None = (0.0, 1.0),
        frozen: Tensor | None = None,
        explore_base: bool = True,
        prune: Literal["none", "exact"] = "exact",
        precision: Literal["float32", "bfloat16", "float16"] = "float32",
        chunk: int | None = None,
        keep_points: bool = False,
    ) -> None:
        super().__init__(model)
        require(callable(model), "model", "be callable", type(model).__name__, "pass a torch.nn.Module")
        self.norm = as_norm(norm)  # before the radius, so that swapped arguments are told apart
        if not isinstance(radius, Calibrated):
            check_radius(radius)
        share = isinstance(alpha, int | float) and 0 <= alpha <= 1
        require(share, "alpha", "lie in [0, 1]", repr(alpha), "the paper uses 0.5")
        for name, method in (("explore", explore), ("quantify", quantify)):
            stays = isinstance(method, Search) and method.stays_in_ball
            require(stays, name, "be a search within a ball", repr(method), "drq.Gradient(20) is the paper's")
        if classes is not None:
            check_steps("classes", classes, "None searches all classes")
        check_bounds(bounds)
        require(prune in ("none", "exact"), "prune", "be 'none' or 'exact'", repr(prune), "'exact' is the default")
        known = ", ".join(map(repr, PRECISIONS))
        require(precision in PRECISIONS, "precision", f"be one of {known}", repr(precision), "'float32' is the default")
        require(chunk is None or chunk >= 1, "chunk", "be None or at least 1", chunk, "None chooses by memory")
        self.radius, self.alpha = radius, alpha
        self.explore, self.quantify = explore, quantify
        self.classes, self.bounds, self.explore_base = classes, bounds, explore_base
        self.frozen = None if frozen is None else torch.as_tensor(frozen)
        self.prune, self.precision, self.chunk, self.keep_points = prune, precision, chunk, keep_points
        self._cost_was_logged = False

    def extra_repr(self) -> str:
        """The settings, as they show in the printed module."""
        names = ("norm", "radius", "alpha", "explore", "quantify", "classes", "explore_base", "prune", "precision")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def variant(self, **changes: Any) -> DRQ:
        """The same model with other settings."""
        settings = {name: getattr(self, name) for name in inspect.signature(DRQ).parameters if name != "model"}
        other = DRQ(self.model, **(settings | changes))
        other._cost_was_logged = self._cost_was_logged
        return other

    def shortened(self, steps: int) -> DRQ:
        """The same defence with searches of at most so many steps, whose scores can all be read: what an attacker follows."""
        return self.variant(explore=self.explore.shortened(steps), quantify=self.quantify.shortened(steps), prune="none")

    def most_passes(self, classes: int) -> int:
        """Evaluations of a model with so many classes that deciding on one sample takes, at most."""
        calibration = MinimumNorm(self.radius.steps).passes if isinstance(self.radius, Calibrated) else 0
        return 1 + calibration + (self.classes or classes) * (self.explore.passes + self.quantify.passes)

    @property
    def classifier(self) -> Model:
        """The model in the precision in which it is searched."""
        return InPrecision(self.model, PRECISIONS[self.precision])

    def ball(self, center: Tensor, radius: Tensor) -> Ball:
        """Balls in the space in which it searches."""
        return Ball(center, radius, self.norm, self.bounds, self.frozen)

    def decide(self, x: Tensor) -> Decision:
        """Calibrate, explore, quantify and decide for every sample of ``x`` (N, ...)."""
        with torch.inference_mode(False), torch.no_grad():
            parts = [conclude(block, self.keep_points) for _, block in self._blocks(x)]
        return parts[0].joined(parts[1:])

    def forward(self, x: Tensor) -> Tensor:
        """Log-robustness (N, C) of every class; its argmax is the label.

        Differentiable in x: log f_i at the quantified point of class i, whose offset from x is held constant (the envelope rule)
        unless the searches are unrolled. A class that pruning dropped is put at the runner-up or its explored confidence,
        whichever is lower.
        """
        differentiated = torch.is_grad_enabled() and isinstance(x, Tensor) and x.requires_grad
        with torch.inference_mode(False), torch.set_grad_enabled(differentiated):
            return torch.cat([log_robustness(setting, block, len(x)) for setting, block in self._blocks(x)])

    def _blocks(self, x: Tensor) -> Iterator[tuple[Setting, Block]]:
        """Check the batch, then search it block by block."""
        dtype = PRECISIONS[self.precision]
        x, setting = prepare(self.model, x, self.norm, self.bounds, self.frozen, self.chunk, dtype)
        fits = self.classes is None or self.classes <= setting.classes
        require(fits, "classes", f"be at most {setting.classes}, the model's classes", self.classes, "None searches all")
        radius = None if isinstance(self.radius, Calibrated) else check_radius(self.radius, x)
        self._log_cost(len(x) * self.most_passes(setting.classes))
        for rows in setting.pieces(len(x), size=self.classes or setting.classes):
            yield setting, self._search(setting, x[rows], None if radius is None else radius[rows])

    def _search(self, setting: Setting, x: Tensor, radius: Tensor | None) -> Block:
        """Calibration, exploration and quantification for a block of samples."""
        with torch.no_grad():
            logits = setting.logits(x)
        if self.classes is None:
            classes = torch.arange(setting.classes, device=x.device).expand(len(x), -1)
        else:
            classes = logits.argsort(dim=1, descending=True, stable=True)[:, : self.classes]  # ties as for the base label
        passes, stalled = torch.ones_like(classes[:, 0]), torch.zeros_like(classes[:, 0])

        if radius is None:
            assert isinstance(self.radius, Calibrated)
            calibration = self.radius.search(setting, x.detach(), logits)  # Eq. 1
            passes, stalled, radius = passes + calibration.passes, stalled + calibration.stalled, calibration.merit

        sample, rank = (radius < torch.inf)[:, None].expand(classes.shape).nonzero(as_tuple=True)
        label = classes[sample, rank]
        parts = []
        for rows in setting.pieces(len(sample)):  # points of classes that are not reached are let go piece by piece
            owner, target = sample[rows], label[rows]
            at_x = (target == logits.argmax(1)[owner]) & (not self.explore_base)
            ball = setting.ball(x[owner], torch.where(at_x, 0, radius[owner]))
            explored = search(self.explore, toward(setting.model, target), ball)  # Eq. 2 and 4
            passes = passes.index_add(0, owner, explored.passes)
            stalled = stalled.index_add(0, owner, explored.stalled)
            parts.append(Candidates(owner, target, explored.point, -explored.value.detach())[explored.admitted])
        candidates = parts[0].joined(parts[1:])

        quantified, complete = self._quantify(setting, candidates, radius)
        passes = passes.index_add(0, candidates.sample, quantified.passes)
        stalled = stalled.index_add(0, candidates.sample, quantified.stalled)
        return Block(x, logits, classes, radius, passes, stalled, candidates, quantified, complete)

    def _quantify(self, setting: Setting, candidates: Candidates, radius: Tensor) -> tuple[Found, Tensor]:
        """The least confident point around every candidate, and whether its search was finished rather than pruned."""
        objective = away_from(setting.model, candidates.label)
        ball = setting.ball(candidates.point, self.alpha * radius[candidates.sample])

        def least(rows: Tensor, enough: Tensor | None = None) -> Found:
            found = setting.search(self.quantify, objective[rows], ball[rows], enough)  # Eq. 3 and 5
            # The start was scored before, perhaps in another batch: rounding must not lift robustness above that.
            return replace(found, value=torch.minimum(found.value, candidates.log_odds[rows]))

        if self.prune == "none":
            everything = torch.ones_like(candidates.label, dtype=torch.bool)
            return least(everything), everything

        # Finish the two classes with the highest explored confidence: what is, or falls, below both can neither win nor come
        # second.
        blank = candidates.log_odds.new_full((len(radius), setting.classes), -torch.inf)
        explored = candidates.table(candidates.log_odds, blank)
        two_highest = explored.argsort(dim=1, descending=True, stable=True)[:, :2]
        leads = (two_highest[candidates.sample] == candidates.label[:, None]).any(1)
        leaders = least(leads)
        bar = candidates[leads].table(leaders.value.detach(), blank).topk(2).values[:, 1][candidates.sample]
        rivals = ~leads & (candidates.log_odds >= bar)
        dropped = ~leads & ~rivals
        parts = [leaders, least(rivals, enough=bar[rivals]), Found.nothing(candidates.point[dropped])]
        found = in_order([rows.nonzero()[:, 0] for rows in (leads, rivals, dropped)], parts)
        return found, leads | (rivals & (found.value >= bar))

    def _log_cost(self, passes: int) -> None:
        if passes > COSTLY and not self._cost_was_logged:
            self._cost_was_logged = True
            advice = "classes=k searches only the k likeliest classes (not safe under attack)"
            logger.warning("drq: this call takes up to %.2g passes of the model; %s", passes, advice)

"""The decision of DRQ: the class that stays highest, its margin, and everything that was measured for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from drq.errors import imported, require
from drq.norms import Norm
from drq.objectives import log_odds
from drq.rows import Rows, per_row
from drq.search.loop import SearchResult, envelope

if TYPE_CHECKING:
    import polars
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Decision(Rows):
    """What DRQ found for a batch of N samples and C classes, K of which were searched. Indexing selects samples."""

    label: Tensor  # (N,) the class that stays highest
    base_label: Tensor  # (N,) the label of the undefended classifier, behind the front where there is one
    robustness: Tensor  # (N, C) confidence that remains after quantification; 0 where a class was not reached
    reached: Tensor  # (N, C) bool: exploration found a point that the model assigns to the class
    radius: Tensor  # (N,) radius of exploration, infinite where calibration found none
    classes: Tensor  # (N, K) the classes that were searched
    exact: Tensor  # (N, C) bool: False where pruning left an upper bound, the explored confidence
    found: Tensor  # (N,) bool: False where calibration found no radius: base label, robustness f(x), margin 0
    passes: Tensor  # (N,) evaluations of the model, with a gradient or without
    forward_passes: Tensor  # (N,) those of them that asked for no gradient, as the last of every search and all views
    margin: Tensor  # (N,) best minus second-best robustness: the score to abstain by
    log_odds: Tensor  # (N, C) log-odds of the robustness, in which classes are compared; -inf where not reached
    explored_log_odds: Tensor  # (N, C) log-odds at the explored points; -inf where not reached
    base_log_odds: Tensor  # (N, C) log-odds of the undefended classifier, at x itself
    stalled: Tensor  # (N,) steps whose gradient was zero, which moved nothing
    view: Tensor  # (N,) the view at which the answer was found, an index into the names of the views; 0 is the input itself
    kept: Tensor  # (N,) bool: a gate keeps the answer of the undefended classifier, and its scores are those at x itself
    gate_margin: Tensor  # (N,) how far the evidence was above the threshold of the gate; NaN without one
    nonfinite: Tensor | None = None  # (N,) views whose logits were not finite, which were left out
    explored: Tensor | None = None  # (N, K, ...) explored points, NaN where not reached; with keep_points=True
    quantified: Tensor | None = None  # (N, K, ...) quantified points, NaN where not reached or not exact
    x: Tensor | None = None  # (N, ...) the samples, as they are behind a front; with keep_points=True
    norm: Norm | None = None  # in which they were searched; with keep_points=True

    def __len__(self) -> int:
        return len(self.label)

    def __repr__(self) -> str:
        """How many samples, and what came out."""
        label, count, changed = self.label, self.label.numel(), int((self.label != self.base_label).sum())
        facts = [f"{changed} of {count} labels changed"]
        if count == 1:
            facts = [f"label {int(label)}" + (f" in place of {int(self.base_label)}" if changed else "")]
        if count:
            low, high = (f"{float(each):.3g}" for each in torch.aminmax(self.margin))
            facts += [f"margin {low}" if low == high else f"margins {low} to {high}", f"{int(self.passes.sum()):,} passes"]
        told = {"kept by the gate": self.kept, "without a radius": ~self.found}
        facts += [f"{int(which.sum())} {what}" for what, which in told.items() if which.any()]
        return f"Decision({count} sample{'' if count == 1 else 's'} of {self.robustness.shape[-1]} classes: {', '.join(facts)})"

    def to(self, device: torch.device | str | int) -> Decision:
        """The same on another device."""
        fits = isinstance(device, torch.device | str | int)
        require(fits, "device", "name a device", repr(device), 'as in "cuda"; precision follows x, see DRQ(precision=...)')
        return self._map(lambda columns: columns[0].to(device))

    def cpu(self) -> Decision:
        """The same in the memory of the machine."""
        return self.to("cpu")

    def numpy(self) -> dict[str, NDArray[Any]]:
        """Every tensor as an array, by its name, on whatever device it is."""
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {name: value.cpu().numpy() for name, value in values if isinstance(value, Tensor)}

    def to_polars(self) -> polars.DataFrame:
        """A row for each sample, without points: what has one value a class is an array of them.

        As in the records of an evaluation there is nothing (null) for a radius that was not found, and for the margin of a gate
        that there is not.
        """
        pl = imported("polars", "decision.to_polars()", "pip install 'decision-region-quantification[report]'")
        points = ("x", "explored", "quantified")
        frame: polars.DataFrame = pl.DataFrame({name: value for name, value in self.numpy().items() if name not in points})
        found = pl.when(pl.col("found")).then(pl.col("radius"))
        return frame.with_columns(found.alias("radius"), pl.col("gate_margin").fill_nan(None))

    @property
    def base_confidence(self) -> Tensor:
        """(N, C) confidence of the undefended classifier at x itself."""
        return self.base_log_odds.sigmoid()

    @property
    def explored_confidence(self) -> Tensor:
        """(N, C) confidence at the explored points: never below ``robustness``; 0 where a class was not reached."""
        return self.explored_log_odds.sigmoid()

    def points_of(self, label: Tensor) -> tuple[Tensor, Tensor]:
        """(N, ...) the explored and the quantified point of the class ``label`` (N,) of every sample, NaN where there is none."""
        remedy = "decide with keep_points=True, as robust.variant(keep_points=True).decide(x)"
        require(self.explored is not None, "decision", "hold the points that were found", "none", remedy)
        assert self.explored is not None
        assert self.quantified is not None
        match = self.classes == label[:, None]
        rows, rank = torch.arange(len(self), device=match.device), match.long().argmax(1)
        explored, quantified = (
            torch.where(per_row(match.any(1), each[:, 0]), each[rows, rank], torch.nan)
            for each in (self.explored, self.quantified)
        )
        return explored, quantified

    @property
    def runner_up(self) -> Tensor:
        """(N,) the class with the second-highest robustness, -1 where no other class was reached."""
        others = torch.where(self.exact & self.reached, self.log_odds, -torch.inf)
        second = others.scatter(1, self.label[:, None], -torch.inf).max(1)
        return torch.where(second.values > -torch.inf, second.indices, -1)


@dataclass(frozen=True)
class Candidates(Rows):
    """One row for each (sample, class) that exploration reached."""

    sample: Tensor  # (R,) position in the block
    label: Tensor  # (R,) class
    point: Tensor  # (R, ...) the explored point
    log_odds: Tensor  # (R,) of the class at that point
    view: Tensor | None = None  # (R,) the view of the sample around which it was found; None for the sample itself

    def ranks(self, blank: Tensor) -> Tensor:
        """(R,) how many classes of the same sample have a higher explored confidence."""
        order = self.table(self.log_odds, blank).argsort(dim=1, descending=True, stable=True)
        return order.argsort(dim=1)[self.sample, self.label]

    def table(self, values: Tensor, blank: Tensor) -> Tensor:
        """``blank`` (N, C) with these ``values`` (R,) at their sample and class."""
        return blank.index_put((self.sample, self.label), values)


@dataclass(frozen=True)
class Block:
    """A block of samples between the searches and the decision."""

    x: Tensor  # (N, ...)
    logits: Tensor  # (N, C)
    classes: Tensor  # (N, K)
    radius: Tensor  # (N,) infinite where calibration found none
    passes: Tensor  # (N,)
    forward_passes: Tensor  # (N,)
    stalled: Tensor  # (N,)
    candidates: Candidates
    quantified: SearchResult  # (R,)
    complete: Tensor  # (R,) bool: False where quantification was pruned
    dropped: Tensor  # (N, C) bool: classes that lost a race before they were explored
    norm: Norm

    def attached(self, x: Tensor, at_view: Callable[[Tensor, Tensor], Tensor] | None = None) -> Block:
        """The same, its points differentiable in the samples ``x``, without the graph of any search.

        ``at_view`` makes of samples the views with these numbers.
        """
        origin = x[self.candidates.sample]
        if self.candidates.view is not None and at_view is not None:
            origin = at_view(origin, self.candidates.view)
        candidates = replace(self.candidates, point=envelope(self.candidates.point, origin))
        quantified = replace(self.quantified, point=envelope(self.quantified.point, origin))
        return replace(self, x=envelope(self.x, x), candidates=candidates, quantified=quantified)

    def without_points(self) -> Block:
        """The same, without what takes memory and only some callers want."""
        none = self.x.new_empty(len(self.complete), 0)
        return replace(self, candidates=replace(self.candidates, point=none), quantified=replace(self.quantified, point=none))

    @property
    def log_odds(self) -> Tensor:
        """(R,) log-odds of the robustness of every candidate: an upper bound where it was pruned."""
        return torch.where(self.complete, self.quantified.value, self.candidates.log_odds)


def conclude(block: Block, keep_points: bool = False) -> Decision:
    """Answer with the most robust class (Eq. 3). Ties go to the base label, then to the lower index."""
    candidates, base, found = block.candidates, block.logits.argmax(1), block.radius < torch.inf
    unreached = torch.full_like(block.logits, -torch.inf)
    explored = candidates.table(candidates.log_odds, unreached)
    odds = candidates.table(block.log_odds, unreached)
    exact = candidates.table(block.complete, ~block.dropped)

    label, margin = winner(torch.where(exact, odds, -torch.inf), base)

    # Where calibration found no radius there are no regions to compare: the base classifier answers.
    compared, base_odds = found[:, None], log_odds(block.logits)
    is_base = base[:, None] == torch.arange(odds.shape[1], device=odds.device)
    return Decision(
        label=torch.where(found, label, base),
        base_label=base,
        robustness=torch.where(compared, odds, base_odds).sigmoid(),
        reached=torch.where(compared, explored > -torch.inf, is_base),
        radius=block.radius,
        classes=block.classes,
        exact=exact,
        found=found,
        passes=block.passes,
        forward_passes=block.forward_passes,
        margin=margin,  # 0 where nothing was compared
        log_odds=torch.where(compared, odds, base_odds),
        explored_log_odds=torch.where(compared, explored, base_odds),
        base_log_odds=base_odds,
        stalled=block.stalled,
        view=_view_of(candidates, label, base),
        kept=torch.zeros_like(found),
        gate_margin=torch.full_like(margin, torch.nan),
        nonfinite=torch.zeros_like(base),
        explored=_by_class(block, candidates.point) if keep_points else None,
        quantified=_by_class(block, _finished_points(block)) if keep_points else None,
        x=block.x if keep_points else None,
        norm=block.norm if keep_points else None,
    )


def winner(contest: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
    """The class with the highest log-odds (N, C), and its margin, best minus second-best confidence.

    Ties go to the ``base`` label (N,), then to the lower index.
    """
    best = contest.amax(1)
    tied = contest == best[:, None]
    label = torch.where(tied.gather(1, base[:, None])[:, 0], base, tied.long().argmax(1))
    return label, _gap(best, contest.scatter(1, label[:, None], -torch.inf).amax(1))


def _view_of(candidates: Candidates, label: Tensor, base: Tensor) -> Tensor:
    """(N,) the view around which each label was found."""
    if candidates.view is None:
        return torch.zeros_like(base)
    chosen = candidates.label == label[candidates.sample]
    return torch.zeros_like(base).index_put((candidates.sample[chosen],), candidates.view[chosen])


def _gap(higher: Tensor, lower: Tensor) -> Tensor:
    """sigmoid(higher) - sigmoid(lower), without the cancellation that two confidences near 1 would suffer."""
    return torch.where(lower > 0, (-lower).sigmoid() - (-higher).sigmoid(), higher.sigmoid() - lower.sigmoid())


def _finished_points(block: Block) -> Tensor:
    points = block.quantified.point
    return points.masked_fill(per_row(~block.complete, points), torch.nan)


def _by_class(block: Block, points: Tensor) -> Tensor:
    """(N, K, ...) the (R, ...) ``points`` by sample and searched class, NaN where there is none."""
    candidates = block.candidates
    blank = block.x.new_full((*block.classes.shape, *block.x.shape[1:]), torch.nan)
    rank = (block.classes[candidates.sample] == candidates.label[:, None]).long().argmax(1)
    return blank.index_put((candidates.sample, rank), points)

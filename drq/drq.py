r"""Decision Region Quantification, in the order and the symbols of the paper.

Calibrate a radius :math:`\epsilon_p` around the input x (Eq. 1), explore the most confident point :math:`\tilde{x}_i` of
every class inside it (Eq. 2 and 4), quantify how far the confidence of each class can be pushed down around its point (Eq. 3
and 5), and answer with the class that stays highest.

Reference: Schwinn et al., Improving Robustness against Real-World and Worst-Case Distribution Shifts through Decision Region
Quantification, ICML 2022.
"""

from __future__ import annotations

import copy
import inspect
import logging
import math
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from drq.decision import Block, Decision, conclude
from drq.engine.drive import Engine
from drq.errors import require
from drq.method.calibration import Calibrated
from drq.method.execution import Execution, Facts, InPrecision, check_mode, check_radius, checked, prepare
from drq.method.mistakes import warn_of_radius
from drq.method.regions import Regions, one_by_one
from drq.method.scores import log_robustness
from drq.method.settings import PRECISIONS, check_running, check_searches, described
from drq.method.tracing import Searched, refuse_ball, traced_by
from drq.norms import Ball, Bounds, Norm, as_norm, check_bounds
from drq.objectives import Model
from drq.planes.plane import Extent, Plane, through
from drq.planes.slices import sliced
from drq.search.gradient import Gradient
from drq.search.loop import Search, envelope
from drq.search.minimum_norm import MinimumNorm
from drq.system.progress import Listener, ProgressOption
from drq.views.exportable import ViewScores
from drq.views.expression import as_views
from drq.views.fitted import fitted
from drq.views.fitting import Fit, Leads, check_leads, over_ball, over_views
from drq.views.gate import Gate, gated_decision
from drq.views.looking import Looking, check_views
from drq.views.view import Views

if TYPE_CHECKING:
    from drq.serving.stored_defence import Threshold

logger = logging.getLogger("drq")

CALIBRATED = Calibrated()  # the radius where none is given
COSTLY = 100_000  # passes of a call from which on its cost is logged


class DRQ(Searched):
    """Wraps a classifier so that it answers with the most robust class around its input.

    ``robust(x)`` returns (N, C) log-robustness, a drop-in for logits whose argmax is the DRQ label; ``robust.decide(x)``
    returns a :class:`Decision` with everything that was measured. A call changes nothing, in the model or elsewhere.

    Args:
        model: differentiable classifier in evaluation mode, (N, ...) -> (N, C) logits.
        norm: "linf", "l2", "l1" or a :class:`Norm`.
        radius: of exploration: a number, one per sample (N,), or how it is calibrated. For adversarially trained models twice the
            training radius needs no calibration.
        views: where it looks besides: a declared set of views of the input, :mod:`drq.views`, such as
            ``drq.views.Rotation(90, 13)``. Every class then counts by its best view. Without a radius there is no ball: one
            forward pass a view, so that the model needs no gradients. With one, there is a ball around every view.
        gate: which own answers of the model stand: :meth:`gated` learns one. "card" for that of the model's card, if it has one
            for these views alone, with views for pictures of the size that it names.
        alpha: radius of quantification, as a share of the radius of exploration; None for the paper's 0.5. Of views alone, the
            share of the angle, factor or shift by which neighbouring views may differ; None for 0: more was measured to harm.
        explore: search for the most confident point of a class.
        quantify: search for the least confident point around it.
        classes: None for all, or k for the k largest logits: cheaper, and not safe under attack, since an attacker can push the
            true class out of the k.
        bounds: lowest and highest value of the input, as numbers or per feature; None for no limit.
        frozen: boolean mask of features that must not change.
        explore_base: whether the base label is explored like every class. False reads its confidence off at x itself, which the
            paper warns against: an attacker then only has to move x towards a boundary. An ablation.
        prune: "exact" stops searching classes that provably cannot win or come second; "none" finishes all; "race" also drops
            classes that fall behind early in exploration: faster, and without proof that the label is the same.
        precision: in which the model runs; losses, steps and comparisons stay in the precision of x, and where the two best
            classes are within its rounding of each other, both are searched again in the precision of x.
        compile: whether the model is compiled and searched on slots of a fixed number, with CUDA graphs on a GPU. The first call
            takes half a minute longer, whatever its batch; calls that are differentiated do without.
        chunk: rows (sample times class) searched at once; None chooses by memory.
        keep_points: whether decisions carry the explored and quantified points.
        front: what is made of x before all else, such as :class:`drq.Restoration`; balls are around what it returns, and bounds
            are those of that. Attackers differentiate through it.
        progress: whether calls that take some seconds show how far they are and the time left, on standard error; or a function
            that is told passes of the model, ``progress(done, total)``. The total falls as classes are pruned.

    >>> model = torch.nn.Linear(2, 3).eval()
    >>> robust = DRQ(model, norm="linf", radius=0.1)
    >>> robust(torch.rand(5, 2)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        model: nn.Module | Model,
        norm: str | Norm = "l2",
        radius: float | Tensor | Calibrated = CALIBRATED,
        *,
        views: Views | Callable[[Tensor], Tensor] | str | None = None,
        gate: Gate | Mapping[str, Any] | Literal["card"] | None = None,
        alpha: float | None = None,
        explore: Search = Gradient(steps=20),
        quantify: Search = Gradient(steps=20),
        classes: int | None = None,
        bounds: Bounds | None = (0.0, 1.0),
        frozen: Tensor | None = None,
        explore_base: bool = True,
        prune: Literal["none", "exact", "race"] = "exact",
        precision: Literal["float32", "bfloat16", "float16"] = "float32",
        compile: bool = False,
        chunk: int | None = None,
        keep_points: bool = False,
        front: Callable[[Tensor], Tensor] | None = None,
        progress: ProgressOption = False,
    ) -> None:
        super().__init__(model)
        require(callable(model), "model", "be callable", type(model).__name__, "pass a torch.nn.Module")
        self.norm = as_norm(norm)  # before the radius, so that swapped arguments are told apart
        self._given = {"alpha": alpha} if radius is CALIBRATED else {"radius": radius, "alpha": alpha}
        self.views = None if views is None else as_views(views)
        self.ball_searched = self.views is None or radius is not CALIBRATED
        self.views, gate = fitted(model, self.views, gate, self.ball_searched or front is not None)
        if not self.ball_searched:
            radius = 0.0
        alpha = (0.5 if self.ball_searched else 0.0) if alpha is None else alpha
        if not isinstance(radius, Calibrated):
            check_radius(radius)
        check_searches(alpha, explore, quantify, classes)
        check_bounds(bounds)
        check_running(prune, precision, compile, chunk, front)
        self.radius, self.alpha, self.front = radius, alpha, front
        self.gate = Gate.read(gate) if isinstance(gate, Mapping) else gate
        check_views(self.views, self.gate, bounds, frozen, self.ball_searched, precision != "float32")
        self.explore, self.quantify = explore, quantify
        self.classes, self.bounds, self.explore_base = classes, bounds, explore_base
        self.frozen = None if frozen is None else torch.as_tensor(frozen)
        self.prune, self.precision, self.chunk, self.keep_points = prune, precision, chunk, keep_points
        self.compile_model = compile  # nn.Module has a method compile
        self._listener = Listener(progress)
        self._cost_was_logged = False
        self._facts: dict[object, Facts] = {}
        self._engine = Engine()

    def extra_repr(self) -> str:
        """Where it looks, and the settings that differ from the paper's."""
        region = {"norm", "radius"}
        settings = {name: value for name, value in self.settings.items() if self.ball_searched or name not in region}
        settings |= {"views": self.views and str(self.views), "gate": None}
        shown = described(settings, inspect.signature(DRQ).parameters, always=region)
        return ", ".join([*shown, *([] if self.gate is None else [f"gate: {self.gate}"])])

    def __getstate__(self) -> dict[str, Any]:
        """All but what models that were seen have shown, which are known by where they are in memory."""
        return self.__dict__ | {"_facts": {}}

    @property
    def progress(self) -> ProgressOption:
        """Whether calls show how far they are, or the function that they tell."""
        return self._listener.progress

    @property
    def settings(self) -> dict[str, Any]:
        """All arguments but the model."""
        names = [name for name in inspect.signature(DRQ).parameters if name not in ("model", "compile")]
        given = {"radius": CALIBRATED} | self._given  # the very one, which tells that none was given
        return {name: getattr(self, name) for name in names} | given | {"compile": self.compile_model}

    def variant(self, **changes: Any) -> DRQ:
        """The same model with other settings. What is compiled is compiled once for both."""
        other = DRQ(self.model, **(self.settings | changes))
        other._cost_was_logged = self._cost_was_logged
        other._engine = self._engine
        return other

    def replica(self) -> DRQ:
        """The same around a copy of the model with the same weights, for another thread: modules may keep notes in themselves."""
        other = copy.deepcopy(self, {id(each): each for each in (*self.parameters(), *self.buffers())})
        other._cost_was_logged = True  # the original says what it costs
        return other

    def shortened(self, steps: int) -> DRQ:
        """The same defence with searches of at most so many steps, whose scores can all be read: what an attacker follows.

        Its gate is open: the scores of an answer that a gate keeps say nothing of how near another one is.
        """
        shorter = {name: getattr(self, name).shortened(steps) for name in ("explore", "quantify")}
        gate = None if self.gate is None else replace(self.gate, threshold=-math.inf)
        return self.variant(gate=gate, prune="none", **shorter)

    def most_passes(self, classes: int) -> int:
        """Evaluations of a model with so many classes that deciding on one sample takes, at most."""
        looks = 1 if self.views is None else len(self.views)
        if not self.ball_searched:
            return looks
        calibration = MinimumNorm(self.radius.steps).passes if isinstance(self.radius, Calibrated) else 0
        return looks + calibration + (self.classes or classes) * (looks * self.explore.passes + self.quantify.passes)

    @property
    def classifier(self) -> Model:
        """The model in the precision in which it is searched, compiled where searches are."""
        eager = InPrecision(self.model, PRECISIONS[self.precision])
        return self._engine.compiled(eager) if self.compile_model else eager

    def after_front(self, x: Tensor) -> Tensor:
        """What is searched in place of x: the output of the front, where there is one."""
        if self.front is None:
            return x
        if isinstance(self.front, nn.Module):
            check_mode(self.front, "front")
        return self.front(x)

    def ball(self, center: Tensor, radius: Tensor) -> Ball:
        """Balls in the space in which it searches."""
        return Ball(center, radius, self.norm, self.bounds, self.frozen)

    def decide(self, x: Tensor, progress: ProgressOption | None = None) -> Decision:
        """Calibrate, explore, quantify and decide for every sample of ``x`` (N, ...).

        Args:
            x: a batch.
            progress: for this call; None for what DRQ was made with.
        """
        if torch.compiler.is_dynamo_compiling():
            return self.uncompiled(self.decide)(x, progress)
        listener = self._listener if progress is None else Listener(progress)
        with torch.inference_mode(False), torch.no_grad():
            if not self.ball_searched:
                x, execution = self._prepared(x, listener)
                parts = list(self._looking(execution, len(x), self.keep_points).decisions(x))
                return parts[0].joined(parts[1:])
            with closing(self._blocks(x, self.keep_points, listener)) as blocks:
                parts = [conclude(block, self.keep_points) for _, block in blocks]
            if self.gate is not None:
                parts = [gated_decision(each, self.gate) for each in parts]
        return parts[0].joined(parts[1:])

    def gated(
        self,
        x: Tensor,
        changes: float = 0.05,
        *,
        leads: Leads = "handicapped",
        labels: Tensor | None = None,
        risk: float | None = None,
    ) -> DRQ:
        """The same DRQ with a gate: the model's own answer stands unless the evidence exceeds what these inputs show.

        So at most a share ``changes`` of the answers on them changes, whatever the model is; ``str(robust.gate)`` says how many
        did, and bounds the share on new inputs of the same kind with 95 % confidence. For views, evidence is the lead of the best
        class at its best view over the own answer at the input, in log-odds; for a ball it is the margin. Labels are not needed.

        Args:
            x: inputs (N, ...) on which the model does well, such as clean ones; some hundreds of them.
            changes: the share of answers that may change on them, at most; 0 is the model itself.
            leads: how those of views are compared. "handicapped": every term of the sum of views has to lead by more than, alone,
                would change that share of answers here. "standardised": every view by what it does here, in deviations from its
                mean. "plain": as they are.
            labels: (N,) true classes, where the gate shall be fitted to a risk instead.
            risk: the share of inputs whose right answer is changed, at most.
        """
        fit = Fit(changes, labels, risk)
        fit.check(x)
        check_leads(leads)
        if self.ball_searched:
            return self.variant(gate=over_ball([self.variant(gate=None, keep_points=False).decide(x)], fit))
        ungated = self.variant(gate=None, prune="exact")
        with torch.inference_mode(False), torch.no_grad():
            x, execution = ungated._prepared(x, self._listener)
            execution = replace(execution, model=execution.exact, searched=execution.exact, rounding=0.0)
            gate = over_views(ungated._looking(execution, len(x), points=False), x, fit, leads)
        return self.variant(gate=gate)

    def plane(
        self,
        x: Tensor,
        u: Tensor | None = None,
        v: Tensor | None = None,
        extent: Extent | None = None,
        pixels: int = 300,
        *,
        everywhere: bool = False,
    ) -> Plane:
        """The answers all over a plane through x (1, ...), and what was done at x: all that :func:`drq.report.plots.plane` draws.

        The radius of the whole plane is that of x, calibrated once: calibrating at every point would cost more than all else.
        Where there is a front, the plane lies behind it, through what it makes of x.

        Args:
            x: one sample.
            u: direction of the first coordinate, of the shape of a sample; x itself is at (0, 0), and lengths of u count as 1.
                Without u and v, inputs of two features have their features as coordinates.
            v: direction of the second coordinate; it need not be orthogonal to u.
            extent: lowest and highest of the first and of the second coordinate; None for the input box where there are no u and
                v, and for -1 to 1 where there are.
            pixels: points along each side of the grid; those that leave the input box are left out.
            everywhere: whether to calibrate at every point instead.
        """
        return through(self.variant(front=None, progress=False), self.after_front(x), u, v, extent, pixels, everywhere)

    def slice(self, decision: Decision, pixels: int = 60, progress: ProgressOption = False) -> Plane:
        """The plane through a sample and the explored points of its winner and its runner-up, for :func:`drq.report.plots.card`.

        The first coordinate is the Euclidean distance from the sample towards the winner's point, the second that towards what
        the runner-up's adds. Points that leave the input box are answered for at the nearest point of it: next to a picture with
        black or white pixels there would be no others. Where a direction adds nothing, a random one stands in, always the same.

        Args:
            decision: of one sample, with its points.
            pixels: points along each side of the grid. Each is decided on, with the radius of the sample.
            progress: whether that is shown, where it takes some seconds, as :meth:`decide` does.
        """
        return sliced(self.variant(front=None, progress=False), decision, pixels, progress)

    def save(
        self,
        path: str | Path,
        model: str | None = None,
        *,
        threshold: float | Threshold | None = None,
        measured: Mapping[str, Any] | None = None,
    ) -> None:
        """Write this defence to a file that people read and edit, and that :func:`drq.load_defence` reads.

        It holds the name of the model, a checksum of its weights, and all settings but how progress is shown; no weights. What
        text cannot say, such as a radius for every sample of a batch, is refused.

        Args:
            path: such as ``defence.toml``.
            model: the name by which it is found again; None for a model of :func:`drq.load_model`, which has one. Any other needs
                ``python:package.module:factory`` or ``file:weights.safetensors?arch=...``.
            threshold: the margin below which it abstains, from 0 to 1, or that of another :func:`drq.load_defence`; None for
                what this one has.
            measured: how it was measured, for people: any names and values that TOML has.
        """
        from drq.serving.defence_file import save  # far above: a file is a matter of models, specs and people

        save(self, path, model, threshold, measured)

    def forward(self, x: Tensor) -> Tensor:
        """Log-robustness (N, C) of every class; its argmax is the label.

        Differentiable in x: log f_i at the quantified point of class i, whose offset from x is held constant (the envelope rule)
        unless the searches are unrolled. A class that pruning dropped is put at the runner-up or its explored confidence,
        whichever is lower.
        """
        return self.scored(x)[0] if traced_by() is None else self.without_trace(x)

    def exportable(self) -> nn.Module:
        """What ``robust(x)`` does around views as a module of tensor operations alone, for torch.export, ONNX and torch.compile.

        It looks at all views, in the precision of x, and checks nothing: let inputs lie within their bounds.
        """
        refuse_ball(self.ball_searched)
        assert self.views is not None
        for name, part in {"model": self.model, "front": self.front}.items():
            if isinstance(part, nn.Module):
                check_mode(part, name)
        return ViewScores(self.model, self.views, self.gate, self.alpha, self.classes, self.front, self.bounds)

    def scored(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What a call returns (N, C), and the passes of the model that it took (N,)."""
        differentiated = torch.is_grad_enabled() and isinstance(x, Tensor) and x.requires_grad
        if not self.ball_searched:
            return self._scored_views(x, differentiated)
        unrolled = differentiated and (self.explore.unroll or self.quantify.unroll)
        apart = differentiated and not unrolled  # searches that need no graph
        blocks = self._blocks(x.detach() if apart else x, differentiated, self._listener)
        done, parts = 0, list[tuple[Tensor, Tensor]]()
        with torch.inference_mode(False), torch.set_grad_enabled(unrolled), closing(blocks):
            for execution, block in blocks:
                rows = slice(done, done := done + len(block.x))
                with torch.set_grad_enabled(differentiated):
                    at_view = None if self.views is None else partial(self.views.of, bounds=self.bounds)
                    block = block.attached(self.after_front(x[rows]), at_view) if apart else block
                    gated = None if self.gate is None else partial(gated_decision, gate=self.gate)
                    parts.append(log_robustness(execution, block, len(x), gated))
        scores, passes = zip(*parts, strict=True)
        return torch.cat(scores), torch.cat(passes)

    def _scored_views(self, x: Tensor, differentiated: bool) -> tuple[Tensor, Tensor]:
        """The same without a ball."""
        with torch.inference_mode(False), torch.no_grad():
            inside, execution = self._prepared(x.detach() if differentiated else x, self._listener)
            with torch.set_grad_enabled(differentiated):
                source = envelope(inside, self.after_front(x)) if differentiated else inside
                scores, passes = zip(*self._looking(execution, len(x), False).scores(source), strict=True)
        return torch.cat(scores), torch.cat(passes)

    def _looking(self, execution: Execution, samples: int, points: bool) -> Looking:
        """How it looks at views of so many samples without a ball."""
        assert self.views is not None
        self._log_cost(samples, execution.classes)
        return Looking(execution, self.views, self.alpha, self.gate, self.classes, self.prune == "race", points)

    def _prepared(self, x: Tensor, listener: Listener) -> tuple[Tensor, Execution]:
        """The batch as it is searched, and how the model is run on it; both are checked."""
        dtype = PRECISIONS[self.precision]
        if self.front is not None:
            checked(x, self.bounds, None)  # as strictly as without one
        first = not self._facts
        x, execution = prepare(
            *(self.model, self.after_front(x), self.norm, self.bounds, self.frozen, self.chunk, dtype, self._facts),
            gradients=self.ball_searched,
        )
        if first:
            warn_of_radius(self.radius, execution.space, x)
        fits = self.classes is None or self.classes <= execution.classes
        require(fits, "classes", f"be at most {execution.classes}, the model's classes", self.classes, "None searches all")
        if self.compile_model and not x.requires_grad:
            execution = self._engine.prepare(execution, self.chunk, x.is_cuda)
        if listener.progress is not False:
            meter = listener.meter("deciding", len(x) * self.most_passes(execution.classes))
            execution = replace(execution, meter=meter)
        return x, execution

    def _blocks(self, x: Tensor, points: bool, listener: Listener) -> Generator[tuple[Execution, Block]]:
        """Search a batch block by block; ``points`` tells whether what was found is wanted itself."""
        x, execution = self._prepared(x, listener)
        radius = self.radius if isinstance(self.radius, Calibrated) else check_radius(self.radius, x)
        compiled = self.compile_model and not x.requires_grad
        carried_out = partial(self._engine.drive, execution) if compiled else partial(one_by_one, execution.solve)
        self._log_cost(len(x), execution.classes)
        views = None
        if self.views is not None:
            self.views.check(x)
            views = self.views.members

        settings = (self.alpha, self.explore, self.quantify, self.classes, self.explore_base, self.prune, points, views)
        with closing(Regions(execution, radius, *settings).blocks(x, carried_out)) as blocks:
            for block in blocks:
                yield execution, block
        if execution.meter is not None:
            execution.meter.end()

    def _log_cost(self, samples: int, classes: int) -> None:
        passes = samples * self.most_passes(classes)
        if passes > COSTLY and not self._cost_was_logged:
            self._cost_was_logged = True
            advice = "classes=k searches only the k likeliest classes (not safe under attack)"
            logger.warning("drq: this call takes up to %s passes of the model; %s", f"{passes:,}", advice)

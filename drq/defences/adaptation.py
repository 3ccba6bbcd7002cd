"""Test-time adaptation of other authors: it fits batch norm or weights to what is asked, and the model stays as it was.

Nothing is copied. The model itself is called, with other tensors for its weights, and with hooks on its batch norm that leave
when the call ends. So whoever counts the evaluations of the model counts these, too. Gradients follow a point through the last
look at it; what was adapted is held constant, save the statistics of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import pad
from torch.nn.modules.batchnorm import _BatchNorm

from drq.defences.defence import Peer
from drq.defences.defended import Defended, check_amount, is_number
from drq.errors import require
from drq.search import check_count, check_steps
from drq.seeds import generator

GROUPED = "it needs as many samples at once as its answers shall be fitted to"


@dataclass(frozen=True)
class NormAdaptation(Peer):
    """Batch norm by the statistics of the test batch (Li et al. 2017), mixed with those of training (Schneider et al. 2020).

    Mean and variance are (source * those of training + n * those of the batch) / (source + n) in a batch of n samples, layer by
    layer. The variance of the batch is the biased one, as in training. One pass a sample.

    Args:
        source: for how many samples the statistics of training count; 0 for the batch alone, infinity for the model as it is.
        batch: samples of one batch at most, in the order given; 1 fits every sample to itself, whatever it comes with.
    """

    name: ClassVar[str] = "bn-adapt"
    summary: ClassVar[str] = "batch-norm statistics of the test batch, mixed with those of training (Schneider et al. 2020)"

    source: float = 16.0
    batch: int = 200

    def __post_init__(self) -> None:
        _check_source(self.source)
        check_count("batch", self.batch, GROUPED, least=1)

    @property
    def needs_batch(self) -> bool:
        """Unless every sample is fitted to itself."""
        return self.batch > 1

    def around(self, model: nn.Module) -> nn.Module:
        """The model with other statistics."""
        check_norms(model, self.name)
        return NormAdapted(model, self)


@dataclass(frozen=True)
class Tent(Peer):
    """Entropy minimisation over batches (Wang et al. 2021).

    Batch norm uses the statistics of the batch alone. Its weights and biases follow Adam down the mean entropy of the answers,
    from batch to batch of one call. The answer to a batch is that of its last pass, before the update that this pass leads to:
    with one step, the first batch is answered with the weights of training, and later ones profit from those before.

    Every call starts from the weights of training: an answer depends on the samples of the call, and on nothing before. The
    authors go on through a whole stream instead, so a call should have several batches, or this more than one step. They also
    leave dropout on, which is off here. It costs ``steps`` passes a sample, each with a backward pass.

    Args:
        steps: passes over every batch.
        rate: of Adam.
        batch: samples of one batch at most, in the order given.
    """

    name: ClassVar[str] = "tent"
    summary: ClassVar[str] = "batch norm trained on the entropy of the answers, batch by batch (Wang et al. 2021)"
    changes_weights: ClassVar[bool] = True

    steps: int = 1
    rate: float = 1e-3
    batch: int = 200

    def __post_init__(self) -> None:
        check_steps("steps", self.steps, "every step is a pass over the batch; bn-adapt is what updates nothing")
        check_amount("rate", self.rate, "0 changes nothing")
        check_count("batch", self.batch, GROUPED, least=1)

    @property
    def needs_batch(self) -> bool:
        """It learns from all of them."""
        return True

    def around(self, model: nn.Module) -> nn.Module:
        """The model, adapted anew in every call."""
        check_norms(model, self.name)
        affine = len(_affine(model)) > 0
        require(affine, "model", "have weights in its batch norm for tent", "none", "bn-adapt trains nothing")
        return TentAdapted(model, self)


@dataclass(frozen=True)
class Memo(Peer):
    """Marginal entropy minimisation with one test point (Zhang et al. 2021).

    Views of a sample are made, all weights go down the entropy of their mean prediction by plain gradient steps, and the sample
    is answered with these weights, which are then forgotten. Samples do not see each other: all get the same random draws.

    The defaults are the authors' for residual networks on CIFAR-10; on ImageNet they use a rate of 0.00025, 64 views and a
    source of 16. Their views are AugMix mixtures of random crops and mirror images; here they are mirror images, crops and small
    changes of brightness and contrast. It costs ``steps * samples + 1`` passes a sample, all but one with a backward pass.

    Args:
        steps: of the weights, each with new views.
        rate: of a step; 0 answers like the model.
        samples: views a step.
        source: batch norm counts this sample once and the statistics of training so often; infinity for those alone.
        crop: how far a crop goes beyond the image, which is continued by reflection, as a share of its side.
        light: most change of brightness, as a share of the range of the image; and of contrast, as a share of itself.
        seed: of the views.
    """

    name: ClassVar[str] = "memo"
    summary: ClassVar[str] = "all weights fitted to one sample by the entropy over its views (Zhang et al. 2021)"
    changes_weights: ClassVar[bool] = True

    steps: int = 1
    rate: float = 5e-3
    samples: int = 32
    source: float = math.inf
    crop: float = 0.125
    light: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        check_steps("steps", self.steps, "a rate of 0 is what changes nothing")
        check_steps("samples", self.samples, "the entropy is that of their mean prediction")
        check_amount("rate", self.rate, "0 changes nothing")
        _check_source(self.source)
        for name, share in {"crop": self.crop, "light": self.light}.items():
            right = is_number(share) and 0 <= share <= 0.5
            require(right, name, "be a number from 0 to 0.5", repr(share), "it is a share, of the side or of the range")
        check_count("seed", self.seed, "any other number gives other views")

    def around(self, model: nn.Module) -> nn.Module:
        """The model, adapted anew to every sample."""
        check_open(model, self.name)
        return MemoAdapted(model, self)


class NormAdapted(Defended):
    """A model with the statistics of :class:`NormAdaptation`."""

    model: nn.Module
    peer: NormAdaptation

    def forward(self, x: Tensor) -> Tensor:
        """Scores (N, C), batch by batch; samples that are fitted to themselves go through the model together."""
        if not self.peer.needs_batch:
            return self._batch(x, 1)
        return torch.cat([self._batch(part, len(part)) for part in torch.split(x, self.peer.batch)])

    def _batch(self, x: Tensor, fitted_to: int) -> Tensor:
        with mixed_norms(self.model, fitted_to / (self.peer.source + fitted_to), each=fitted_to == 1):
            scores: Tensor = self.model(x)
        return scores


class TentAdapted(Defended):
    """A model behind :class:`Tent`."""

    model: nn.Module
    peer: Tent

    def forward(self, x: Tensor) -> Tensor:
        """Scores (N, C), batch by batch, each with what was learned before it."""
        followed = torch.is_grad_enabled() and x.requires_grad
        with torch.inference_mode(False), torch.enable_grad(), mixed_norms(self.model, 1.0):
            scores = torch.cat(list(self._online(x.clone() if x.is_inference() else x, followed)))
        return scores if followed else scores.detach()

    def _online(self, x: Tensor, followed: bool) -> Iterator[Tensor]:
        """The scores of one batch after the other, which keep their graph if somebody follows it."""
        own = dict(_affine(self.model))
        weights = {name: _wide(value.detach()).clone().requires_grad_() for name, value in own.items()}
        adam = torch.optim.Adam(weights.values(), self.peer.rate)
        scores: Tensor | None = None
        for part in torch.split(x, self.peer.batch):
            for _ in range(self.peer.steps):
                if scores is not None:  # only now: no look follows the last one, which thus needs no update
                    _update(adam, weights, scores, followed)
                given = {name: value.clone().to(own[name].dtype) for name, value in weights.items()}  # updates spare the graph
                scores = functional_call(self.model, given, (part,))
            assert scores is not None
            yield scores


class MemoAdapted(Defended):
    """A model behind :class:`Memo`."""

    model: nn.Module
    peer: Memo

    def forward(self, x: Tensor) -> Tensor:
        """Scores (N, C), sample by sample."""
        require(x.dim() == 4, "x", "be images of shape (N, C, H, W) for memo", tuple(x.shape), "other samples have no crops")
        with mixed_norms(self.model, 1 / (self.peer.source + 1)):
            return torch.cat([functional_call(self.model, self.fitted(row), (row,)) for row in torch.split(x, 1)])

    def fitted(self, x: Tensor) -> dict[str, Tensor]:
        """The weights for one sample (1, C, H, W)."""
        draws = generator(self.peer.seed)
        weights = {name: value.detach() for name, value in self.model.named_parameters() if value.is_floating_point()}
        for _ in range(self.peer.steps):
            with torch.inference_mode(False), torch.enable_grad():
                leaves = {name: value.detach().requires_grad_() for name, value in weights.items()}
                seen = views(x.detach().clone(), self.peer.samples, self.peer.crop, self.peer.light, draws)
                scores = functional_call(self.model, leaves, (seen,))
                mean = scores.log_softmax(1).logsumexp(0) - math.log(len(scores))
                slopes = torch.autograd.grad(entropy(mean), list(leaves.values()), materialize_grads=True)
                weights = {name: weights[name] - self.peer.rate * each for name, each in zip(weights, slopes, strict=True)}
        return weights


def _update(adam: torch.optim.Adam, weights: Mapping[str, Tensor], scores: Tensor, keep: bool) -> None:
    """One step down the mean entropy of these scores."""
    loss = entropy(scores.log_softmax(1)).mean()
    slopes = torch.autograd.grad(loss, list(weights.values()), retain_graph=keep, materialize_grads=True)
    for value, slope in zip(weights.values(), slopes, strict=True):
        value.grad = slope
    adam.step()


def entropy(logarithms: Tensor) -> Tensor:
    """Of probabilities that are given by their logarithms."""
    return -(logarithms.exp() * logarithms).sum(-1)


def views(x: Tensor, count: int, crop: float, light: float, draws: torch.Generator) -> Tensor:
    """Random mirror images and crops of one image (1, C, H, W), a little brighter or darker, within the range of the image."""
    low, high = x.aminmax()
    height, width = x.shape[-2:]
    rows, columns = round(crop * height), round(crop * width)
    wide = pad(x, (columns, columns, rows, rows), mode="reflect")
    found = []
    for top, left, mirror, brightness, contrast in torch.rand(count, 5, generator=draws, dtype=torch.float64).tolist():
        first, second = int(top * (2 * rows + 1)), int(left * (2 * columns + 1))
        view = wide[..., first : first + height, second : second + width]
        view = view.flip(-1) if mirror < 0.5 else view
        view = view.mean() + (1 + light * (2 * contrast - 1)) * (view - view.mean())
        found.append(view + light * (2 * brightness - 1) * (high - low))
    return torch.cat(found).clamp(low, high)


@contextmanager
def mixed_norms(model: nn.Module, share: float, each: bool = False) -> Iterator[None]:
    """Meanwhile batch norm has this share of the statistics of what it sees, and takes the rest from those of training.

    With ``each``, it has those of every sample for that sample.
    """
    training = any(part.training for part in model.modules())  # it would keep what it sees
    require(not training, "model", "be in evaluation mode", "a module in training mode", "call model.eval() first")
    layers = _norms(model) if share > 0 else []

    def hook(layer: nn.Module, inputs: tuple[Tensor], _: Tensor) -> Tensor:
        assert isinstance(layer, _BatchNorm)
        return normalised(layer, inputs[0], share, each)

    handles = [layer.register_forward_hook(hook) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def normalised(layer: _BatchNorm, x: Tensor, share: float, each: bool = False) -> Tensor:
    """What the layer makes of ``x`` with this share of its statistics. They are differentiable, as in training."""
    wide = _wide(x).flatten(2) if x.dim() > 2 else _wide(x)[..., None]  # (N, C, places)
    variance, mean = torch.var_mean(wide, [2] if each else [0, 2], correction=0, keepdim=True)
    if layer.running_mean is not None and layer.running_var is not None:
        mean = share * mean + (1 - share) * layer.running_mean[:, None]
        variance = share * variance + (1 - share) * layer.running_var[:, None]
    found = (wide - mean) * (variance + layer.eps).rsqrt()
    if layer.affine:
        found = found * layer.weight[:, None] + layer.bias[:, None]
    return found.to(x.dtype).view_as(x)


def _wide(x: Tensor) -> Tensor:
    """At least in float32: halves are too short for squares."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _norms(model: nn.Module) -> list[_BatchNorm]:
    return [each for each in model.modules() if isinstance(each, _BatchNorm)]


def _affine(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Weights and biases of batch norm, by their names in the model."""
    layers = [(name, each) for name, each in model.named_modules() if isinstance(each, _BatchNorm)]
    return [(f"{name}.{kind}".strip("."), value) for name, layer in layers for kind, value in layer.named_parameters()]


def check_open(model: nn.Module, name: str) -> None:
    """A model that heeds other weights and hooks. What was compiled need not, or would keep them."""
    scripted = any(isinstance(each, torch.jit.ScriptModule) for each in model.modules())
    compiled = any(hasattr(each, "_orig_mod") or each._compiled_call_impl is not None for each in model.modules())
    remedy = f"give {name} the model from which it was made"
    require(not scripted and not compiled, "model", "not be compiled or scripted", "one that is", remedy)


def check_norms(model: nn.Module, name: str) -> None:
    """A model that can be adapted by them."""
    remedy = "memo adapts models without it, from single samples"
    check_open(model, name)
    require(len(_norms(model)) > 0, "model", f"have batch norm for {name}", "no layer of it", remedy)


def _check_source(source: float) -> None:
    remedy = "it counts samples of training; inf keeps its statistics alone"
    require(is_number(source) and source >= 0, "source", "be a number of at least 0", repr(source), remedy)

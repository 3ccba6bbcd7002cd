"""Classifiers of scikit-learn as differentiable modules: the numbers that they learned, and the arithmetic of their answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from drq.errors import require
from drq.method.adapters import SingleLogit

__all__ = ["from_sklearn"]

LINEAR = ("LogisticRegression", "LogisticRegressionCV", "LinearSVC")
MACHINES = ("SVC", "NuSVC")
CLASSIFIERS = (*LINEAR, *MACHINES, "MLPClassifier", "OneVsRestClassifier", "CalibratedClassifierCV")
SCALERS = ("StandardScaler", "MinMaxScaler")
KERNELS = ("linear", "rbf", "poly", "sigmoid")
ACTIVATIONS: dict[str, type[nn.Module]] = {"identity": nn.Identity, "logistic": nn.Sigmoid, "tanh": nn.Tanh, "relu": nn.ReLU}
SMALLEST = 1e-7  # libsvm's bound on the probability of a pair


def from_sklearn(estimator: Any) -> nn.Module:
    """A fitted classifier as a module from features (N, D) to logits (N, C), in evaluation mode; logit i is ``classes_[i]``.

    Where the estimator has probabilities, softmax of the logits gives them. Where it has none, as :class:`SVC`, the logits are
    its decision function: (0, d) of two classes, otherwise one value a class, votes with a term that breaks ties. Those are no
    probabilities, so robustness has no scale: ``CalibratedClassifierCV(SVC(), ensemble=False)`` learns one.

    A pipeline may scale features first. DRQ measures distances in x: for scaled distances scale the data, and give the last
    step alone.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from_sklearn(LogisticRegression().fit([[-1.0], [1.0]], [0, 1]))(torch.tensor([[0.0]])).softmax(1)
    tensor([[0.5000, 0.5000]])
    """
    logits = _logits(estimator)
    last = estimator.steps[-1][1] if _kind(estimator) == "Pipeline" else estimator
    return Estimator(logits, int(last.n_features_in_)).eval()


class Estimator(nn.Module):
    """Computes in the precision of its numbers, float64 as in scikit-learn, and answers in that of its input."""

    def __init__(self, logits: nn.Module, features: int) -> None:
        super().__init__()
        self.logits, self.features = logits, features

    def forward(self, x: Tensor) -> Tensor:
        fits = x.dim() == 2 and x.shape[1] == self.features
        require(fits, "x", f"have shape (N, {self.features})", tuple(x.shape), "one row a sample, the features of the fit")
        logits: Tensor = self.logits(x.to(next(self.buffers()).dtype))
        return logits.to(x.dtype)


def _logits(estimator: Any) -> nn.Module:
    """The module whose softmax is ``predict_proba``, else the decision function."""
    if _kind(estimator) == "Pipeline":
        return _pipeline(estimator, _logits)
    kind, classes = _check(estimator), len(estimator.classes_)
    if kind == "CalibratedClassifierCV":
        return Mean([_calibrated(each) for each in estimator.calibrated_classifiers_])
    if kind == "MLPClassifier":
        return _perceptron(estimator)
    if kind in MACHINES and len(getattr(estimator, "_probA", ())):
        platt = Scaling(-estimator._probA, -estimator._probB)
        return nn.Sequential(_pairs(estimator), platt, Coupled(classes))
    if kind == "OneVsRestClassifier" and hasattr(estimator, "predict_proba") and not estimator.multilabel_:
        parts = [_logits(each) for each in estimator.estimators_]
        return parts[0] if classes == 2 else OneVsRest([nn.Sequential(each, nn.LogSoftmax(1)) for each in parts])
    if kind in LINEAR[:2] and classes > 2 and (estimator.solver == "liblinear" or getattr(estimator, "multi_class", "") == "ovr"):
        return nn.Sequential(_decision(estimator), nn.LogSigmoid())  # scikit-learn before 1.8: one against the rest
    return SingleLogit(_decision(estimator)) if classes == 2 else _decision(estimator)


def _decision(estimator: Any) -> nn.Module:
    """The module of ``decision_function``: (N, 1) of two classes, else (N, C)."""
    if _kind(estimator) == "Pipeline":
        return _pipeline(estimator, _decision)
    if _kind(estimator) == "FrozenEstimator":
        return _decision(estimator.estimator)
    kind = _check(estimator)
    if kind in LINEAR:
        return Affine(_dense(estimator.coef_).T, estimator.intercept_)
    if kind in MACHINES:
        classes = len(estimator.classes_)
        return nn.Sequential(_pairs(estimator), Votes(classes) if classes > 2 else Affine([[-1.0]], 0))
    rule, remedy = "have a decision_function to be calibrated", "give it to from_sklearn without calibration"
    require(kind == "OneVsRestClassifier", "estimator", rule, f"{kind}, which has none", remedy)
    require(not estimator.multilabel_, "estimator", "give every sample one class", "several", "take its estimators_ one by one")
    return OneVsRest([_decision(each) for each in estimator.estimators_])


def _check(estimator: Any) -> str:
    """The kind of a fitted classifier."""
    kind, name = _kind(estimator), type(estimator).__name__
    rule = f"be a fitted {', '.join(CLASSIFIERS)} or a Pipeline of {', '.join(SCALERS)} and one of them"
    require(kind in CLASSIFIERS, "estimator", rule, name, "drq.DRQ takes any torch module")
    require(hasattr(estimator, "classes_"), "estimator", "be fitted", f"an unfitted {name}", "call fit(X, y) first")
    return kind


def _pipeline(pipeline: Any, build: Callable[[Any], nn.Module]) -> nn.Module:
    """Its scalers, then what is built of its classifier."""
    *scalers, last = (step for _, step in pipeline.steps)
    classifier = build(last)  # first, since it is what a mistake is likely about
    return nn.Sequential(*map(_scaler, scalers), classifier)


class Affine(nn.Module):
    """x W + b, with W of shape (D, C)."""

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Any, bias: Any) -> None:
        super().__init__()
        self.register_buffer("weight", _tensor(weight))
        self.register_buffer("bias", _tensor(bias))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class Scaling(nn.Module):
    """Every feature by a factor, shifted, and clipped to [lowest, highest]."""

    factor: Tensor
    shift: Tensor

    def __init__(self, factor: Any, shift: Any, lowest: float = -math.inf, highest: float = math.inf) -> None:
        super().__init__()
        self.register_buffer("factor", _tensor(factor))
        self.register_buffer("shift", _tensor(shift))
        self.lowest, self.highest = lowest, highest

    def forward(self, x: Tensor) -> Tensor:
        scaled = x * self.factor + self.shift
        limited = self.lowest > -math.inf or self.highest < math.inf
        return scaled.clamp(self.lowest, self.highest) if limited else scaled


class Kernel(nn.Module):
    """How alike every input is to every support vector, (N, S)."""

    support: Tensor

    def __init__(self, estimator: Any) -> None:
        super().__init__()
        self.register_buffer("support", _tensor(_dense(estimator.support_vectors_)))
        self.kind, self.gamma = estimator.kernel, float(estimator._gamma)
        self.constant, self.degree = float(estimator.coef0), estimator.degree

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "rbf":  # -gamma |x - s|^2 as one product, since only these passes over (N, S) count
            own = -self.gamma * self.support.square().sum(1)
            both = torch.cat([2 * self.gamma * self.support.T, torch.full_like(self.support.T[:1], -self.gamma)])
            squares = x.square() @ x.new_ones(x.shape[1], 1)  # a sum over few features is slower than a product
            return torch.addmm(own, torch.cat([x, squares], 1), both).exp_()
        product = x @ self.support.T
        if self.kind == "linear":
            return product
        scaled = self.gamma * product + self.constant
        return torch.tanh(scaled) if self.kind == "sigmoid" else scaled**self.degree


class Votes(nn.Module):
    """One value a class from one a pair: how many pairs it wins, and by how much, squeezed to less than half a vote."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, decisions: Tensor) -> Tensor:
        members = torch.eye(self.classes).to(decisions)
        first, second = (members[[*each]] for each in _pairs_of(self.classes))  # (P, C)
        lost = (decisions < 0).to(decisions)
        lead = decisions @ (first - second)
        return (1 - lost) @ first + lost @ second + lead / (3 * (lead.abs() + 1))


class Coupled(nn.Module):
    """Log-probabilities of classes from the log-odds of pairs, coupled as in libsvm (Wu et al. 2004, method 2)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, log_odds: Tensor) -> Tensor:
        wins = log_odds.sigmoid().clamp(SMALLEST, 1 - SMALLEST)
        over = wins.new_zeros(len(wins), self.classes, self.classes)  # over[i, j]: i rather than j
        first, second = _pairs_of(self.classes)
        over[:, first, second], over[:, second, first] = wins, 1 - wins
        return coupled(over).log()


def coupled(over: Tensor) -> Tensor:
    """The shares p that minimise the sum of (over[j, i] p_i - over[i, j] p_j)^2, as near as libsvm comes, which stops early."""
    classes = over.shape[1]
    form = torch.diag_embed(over.square().sum(1)) - over * over.mT  # the diagonal of `over` is 0
    share = over.new_full(over.shape[:2], 1 / classes)
    for _ in range(max(100, classes)):
        product = torch.einsum("nij,nj->ni", form, share)
        value = (share * product).sum(1)
        unfinished = (product - value[:, None]).abs().amax(1) >= 0.005 / classes
        if not unfinished.any():
            break
        moved = share
        for i in range(classes):
            step = (value - product[:, i]) / form[:, i, i]
            value = (value + step * (step * form[:, i, i] + 2 * product[:, i])) / (1 + step).square()
            product = (product + step[:, None] * form[:, i]) / (1 + step)[:, None]
            moved = torch.cat([moved[:, :i], (moved[:, i] + step)[:, None], moved[:, i + 1 :]], 1) / (1 + step)[:, None]
        share = torch.where(unfinished[:, None], moved, share)
    return share


class OneVsRest(nn.ModuleList):
    """The last column of every part."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part(x)[:, -1:] for part in self], 1)


class Mean(nn.ModuleList):
    """The log of the mean of the probabilities of its parts, but for a constant."""

    def forward(self, x: Tensor) -> Tensor:
        if len(self) == 1:  # as they are: log-probabilities round to 0, where logits still have a gradient
            logits: Tensor = self[0](x)
            return logits
        return torch.stack([part(x).log_softmax(1) for part in self]).logsumexp(0)


def _calibrated(pair: Any) -> nn.Module:
    """One classifier and its calibration."""
    classes = len(pair.classes)
    rule, remedy = "have all classes in every fold", "use ensemble=False or more samples"
    require(len(pair.estimator.classes_) == classes, "estimator", rule, f"{len(pair.estimator.classes_)} of {classes}", remedy)
    known = pair.method in ("sigmoid", "temperature")
    require(known, "method", "be sigmoid or temperature", pair.method, "its steps have no gradient: calibrate with another")
    if pair.method == "temperature":  # of two classes scikit-learn scales (-d, d)
        slope, shift = [float(pair.calibrators[0].beta_) * (2 if classes == 2 else 1)], [0.0]
    else:
        slope, shift = ([-float(getattr(each, name)) for each in pair.calibrators] for name in ("a_", "b_"))
    scaled = nn.Sequential(_decision(pair.estimator), Scaling(slope, shift))
    if classes == 2:
        return SingleLogit(scaled)
    return scaled if pair.method == "temperature" else nn.Sequential(scaled, nn.LogSigmoid())


def _perceptron(estimator: Any) -> nn.Module:
    """The layers of an MLPClassifier."""
    several = estimator.out_activation_ == "logistic" and estimator.n_outputs_ > 1
    require(not several, "estimator", "give every sample one class", "several", "fit one estimator a label")
    layers: list[nn.Module] = []
    for weight, bias in zip(estimator.coefs_, estimator.intercepts_, strict=True):
        layers += [Affine(weight, bias), ACTIVATIONS[estimator.activation]()]
    network = nn.Sequential(*layers[:-1])
    return SingleLogit(network) if estimator.n_outputs_ == 1 else network


def _pairs(estimator: Any) -> nn.Module:
    """The decision of every pair of classes of a support vector machine, positive for the first of the two."""
    known = estimator.kernel in KERNELS
    require(known, "kernel", f"be one of {', '.join(KERNELS)}", repr(estimator.kernel), "others have no gradient here")
    counts = np.asarray(estimator.n_support_)
    owner = np.repeat(np.arange(len(counts)), counts)  # the class of every support vector
    dual = _dense(estimator.dual_coef_)  # (C - 1, S): row j - 1 against a higher class j, row j against a lower one
    pairs = zip(*_pairs_of(len(counts)), strict=True)
    columns = [dual[second - 1] * (owner == first) + dual[first] * (owner == second) for first, second in pairs]
    sign = -1 if len(counts) == 2 else 1  # scikit-learn turns two classes round
    return nn.Sequential(Kernel(estimator), Affine(sign * np.stack(columns, 1), sign * estimator.intercept_))


def _pairs_of(classes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first and the second of every pair of classes, in libsvm's order."""
    first, second = zip(*combinations(range(classes), 2), strict=True)
    return first, second


def _scaler(step: Any) -> nn.Module:
    """A step before the classifier."""
    if step is None or step == "passthrough":
        return nn.Identity()
    rule = f"be {' or '.join(SCALERS)}"
    require(_kind(step) in SCALERS, "steps before the classifier", rule, type(step).__name__, "apply it to the data instead")
    if _kind(step) == "MinMaxScaler":
        return Scaling(step.scale_, step.min_, *(step.feature_range if step.clip else ()))
    factor = 1 / step.scale_ if step.with_std else 1.0
    return Scaling(factor, -step.mean_ * factor if step.with_mean else 0.0)


def _kind(estimator: Any) -> str:
    """The name of its class in scikit-learn, so that scikit-learn need not be imported; subclasses count as their parents."""
    names = [each.__name__ for each in type(estimator).__mro__ if each.__module__.partition(".")[0] == "sklearn"]
    return names[0] if names else type(estimator).__name__


def _dense(values: Any) -> Any:
    sparse = hasattr(values, "toarray")
    require(not sparse, "estimator", "have dense numbers", "sparse ones", "fit it on X.toarray(), or call densify()")
    return np.asarray(values)


def _tensor(values: Any) -> Tensor:
    return torch.as_tensor(np.asarray(values, dtype=np.float64))

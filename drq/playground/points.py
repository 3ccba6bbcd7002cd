"""Make labelled points of the plane, and fit small classifiers to them on first use."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from drq.data.plane import points as gaussians
from drq.errors import imported, nearest, require
from drq.models.scikit import from_sklearn

REMEDY = "pip install 'decision-region-quantification[app]'"
COUNT = 200  # points in a data set
EDGE = 0.1  # distance between the outermost points and the edge of the unit square


class Points(NamedTuple):
    """Labelled points in the unit square."""

    x: Tensor  # (N, 2)
    y: Tensor  # (N,)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.y.max()) + 1


def _from_sklearn(maker: str, **settings: Any) -> Points:
    """Make points with a function of scikit-learn and a fixed seed, and scale them into the unit square."""
    x, y = getattr(imported("sklearn.datasets", "the playground", REMEDY), maker)(COUNT, random_state=0, **settings)
    raw = torch.tensor(x, dtype=torch.float32)
    low, high = raw.amin(0), raw.amax(0)
    return Points(EDGE + (1 - 2 * EDGE) * (raw - low) / (high - low), torch.tensor(y))


CENTRES = ((0.0, 0.0), (1.0, 0.2), (0.4, 1.0))  # centres of the blobs
DATA: Mapping[str, Callable[[], Points]] = {
    "Gaussians": lambda: Points(*gaussians("train")),
    "Moons": lambda: _from_sklearn("make_moons", noise=0.25),
    "Circles": lambda: _from_sklearn("make_circles", noise=0.15, factor=0.45),
    "Blobs": lambda: _from_sklearn("make_blobs", centers=CENTRES, cluster_std=0.25),
}


def _machine() -> Any:
    """Return a support vector machine that overfits single points, so that DRQ has something to smooth."""
    machine = imported("sklearn.svm", "the playground", REMEDY).SVC(gamma=100.0, C=100.0)
    return imported("sklearn.calibration", "the playground", REMEDY).CalibratedClassifierCV(machine, ensemble=False)


def _perceptron() -> Any:
    networks = imported("sklearn.neural_network", "the playground", REMEDY)
    return networks.MLPClassifier((32, 32), activation="tanh", solver="lbfgs", alpha=1e-3, max_iter=200, random_state=0)


def _regression() -> Any:
    return imported("sklearn.linear_model", "the playground", REMEDY).LogisticRegression(C=100.0)


MODELS: Mapping[str, Callable[[], Any]] = {
    "RBF support vector machine": _machine,
    "Neural network": _perceptron,
    "Logistic regression": _regression,
}


@cache
def points(name: str) -> Points:
    """Return the named points."""
    require(name in DATA, "data", f"be one of {', '.join(DATA)}", repr(name), nearest(name, DATA, "choose one"))
    return DATA[name]()


@cache
def classifier(model: str, data: str) -> nn.Module:
    """Return the named model, fitted to the named points, in single precision, which halves the time."""
    require(model in MODELS, "model", f"be one of {', '.join(MODELS)}", repr(model), nearest(model, MODELS, "choose one"))
    samples, limits = points(data), imported("threadpoolctl", "the playground", REMEDY).threadpool_limits
    with limits(1), warnings.catch_warnings():  # with so few points, threads only wait for each other
        warnings.simplefilter("ignore")  # the warning that the fit could go on does not matter here
        return from_sklearn(MODELS[model]().fit(samples.x.numpy(), samples.y.numpy())).float()

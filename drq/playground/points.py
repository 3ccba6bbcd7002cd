"""Points of the plane, and classifiers of them: small enough to fit while somebody waits, and then kept."""

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
COUNT = 200  # points to fit on
EDGE = 0.1  # between the outermost points and the edge of the unit square


class Points(NamedTuple):
    """Labelled points in the unit square."""

    x: Tensor  # (N, 2)
    y: Tensor  # (N,)

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return int(self.y.max()) + 1


def _made(maker: str, **settings: Any) -> Points:
    """Points that a function of scikit-learn makes, brought into the unit square; always the same."""
    x, y = getattr(imported("sklearn.datasets", "the playground", REMEDY), maker)(COUNT, random_state=0, **settings)
    found = torch.tensor(x, dtype=torch.float32)
    low, high = found.amin(0), found.amax(0)
    return Points(EDGE + (1 - 2 * EDGE) * (found - low) / (high - low), torch.tensor(y))


CENTRES = ((0.0, 0.0), (1.0, 0.2), (0.4, 1.0))  # of the blobs
DATA: Mapping[str, Callable[[], Points]] = {
    "Gaussians": lambda: Points(*gaussians("train")),
    "Moons": lambda: _made("make_moons", noise=0.25),
    "Circles": lambda: _made("make_circles", noise=0.15, factor=0.45),
    "Blobs": lambda: _made("make_blobs", centers=CENTRES, cluster_std=0.25),
}


def _machine() -> Any:
    """A support vector machine whose boundary bends round single points, so that there is something to smooth."""
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
    """The points of this name."""
    require(name in DATA, "data", f"be one of {', '.join(DATA)}", repr(name), nearest(name, DATA, "choose one"))
    return DATA[name]()


@cache
def classifier(model: str, data: str) -> nn.Module:
    """The model of this name, fitted on these points. Its numbers are rounded to single precision, which halves the time."""
    require(model in MODELS, "model", f"be one of {', '.join(MODELS)}", repr(model), nearest(model, MODELS, "choose one"))
    given, limits = points(data), imported("threadpoolctl", "the playground", REMEDY).threadpool_limits
    with limits(1), warnings.catch_warnings():  # so few points gain nothing from threads, and wait for each other in them
        warnings.simplefilter("ignore")  # a network that could be fitted longer is a network
        return from_sklearn(MODELS[model]().fit(given.x.numpy(), given.y.numpy())).float()

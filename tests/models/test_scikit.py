"""Classifiers of scikit-learn as modules: compared with scikit-learn itself, and searched by DRQ."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_blobs
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, LinearSVC, NuSVC
from testbed.refusals import refused
from torch.nn.functional import sigmoid

import drq
from drq.errors import InputError
from drq.models.scikit import from_sklearn

KERNELS = ["linear", "rbf", "poly", "sigmoid"]


def data(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping clouds with labels that are no indices."""
    x, y = make_blobs(90, n_features=3, centers=classes, cluster_std=4.0, random_state=classes)
    return x, np.array(["kiwi", "apple", "plum", "fig"])[y]


def fitted(estimator, classes: int):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # probability=True is deprecated; few iterations are enough here
        return estimator.fit(*data(classes))


def unseen(classes: int) -> torch.Tensor:
    """Points among the data and far from it."""
    spread = torch.tensor(data(classes)[0]).std(0) * 2
    return torch.randn(200, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * spread


def proba(estimator, x: np.ndarray) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.predict_proba(x)


def platt(kernel: str, **more) -> SVC:
    return SVC(kernel=kernel, probability=True, random_state=0, **more)


def calibrated(estimator, method: str = "sigmoid", ensemble: bool = False) -> CalibratedClassifierCV:
    return CalibratedClassifierCV(estimator, method=method, ensemble=ensemble, cv=3)


WITH_PROBABILITIES = {
    "logistic": LogisticRegression(),
    "logistic without intercept": LogisticRegression(fit_intercept=False, C=0.1),
    "logistic cv": LogisticRegressionCV(Cs=2, cv=3, use_legacy_attributes=False, scoring="accuracy", l1_ratios=(0,)),
    "one vs rest": OneVsRestClassifier(LogisticRegression()),
    "one vs rest of machines": OneVsRestClassifier(platt("rbf")),
    "relu": MLPClassifier((8, 5), "relu", max_iter=5, random_state=0),
    "tanh": MLPClassifier((4,), "tanh", max_iter=5, random_state=0),
    "logistic units": MLPClassifier((4,), "logistic", max_iter=5, random_state=0),
    "identity": MLPClassifier((4,), "identity", max_iter=5, random_state=0),
    **{f"Platt {kernel}": platt(kernel) for kernel in KERNELS},
    "Platt nu": NuSVC(nu=0.3, probability=True, random_state=0),
    "calibrated rbf": calibrated(SVC()),
    "calibrated linear": calibrated(LinearSVC()),
    "calibrated ensemble": calibrated(SVC(), ensemble=True),
    "calibrated logistic": calibrated(LogisticRegression()),
    "temperature": calibrated(SVC(), "temperature"),
    "temperature ensemble": calibrated(LinearSVC(), "temperature", ensemble=True),
    "calibrated pipeline": calibrated(make_pipeline(StandardScaler(), SVC())),
    "standard pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "unscaled pipeline": make_pipeline(StandardScaler(with_std=False), "passthrough", LogisticRegression()),
    "uncentred pipeline": make_pipeline(StandardScaler(with_mean=False), LogisticRegression()),
    "ranged pipeline": make_pipeline(MinMaxScaler((-1, 2)), platt("rbf")),
    "clipped pipeline": make_pipeline(MinMaxScaler(clip=True), LogisticRegression(C=10)),
    "two scalers": make_pipeline(MinMaxScaler(), StandardScaler(), MLPClassifier((4,), max_iter=5, random_state=0)),
}
WITH_DECISIONS = {
    **{f"machine {kernel}": SVC(kernel=kernel) for kernel in KERNELS},
    "machine with a gamma": SVC(gamma=0.07, C=3),
    "machine of a degree": SVC(kernel="poly", degree=2, coef0=1.5),
    "nu": NuSVC(nu=0.3),
    "linear": LinearSVC(random_state=0),
    "linear without intercept": LinearSVC(fit_intercept=False, random_state=0),
    "one vs rest": OneVsRestClassifier(SVC()),
    "standard pipeline": make_pipeline(StandardScaler(), SVC()),
    "balanced": SVC(class_weight="balanced", C=0.3),
}


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("name", WITH_PROBABILITIES)
def test_softmax_is_predict_proba(name, classes):
    estimator = fitted(WITH_PROBABILITIES[name], classes)
    model, x = from_sklearn(estimator), unseen(classes)
    assert np.abs(model(x).softmax(1).numpy() - proba(estimator, x.numpy())).max() < 1e-9
    single = x.float()
    answer = model(single)
    assert answer.dtype == torch.float32
    assert np.abs(answer.softmax(1).numpy() - proba(estimator, single.double().numpy())).max() < 1e-5


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("name", WITH_DECISIONS)
def test_logits_are_the_decision_function(name, classes):
    estimator = fitted(WITH_DECISIONS[name], classes)
    x = unseen(classes)
    logits, theirs = from_sklearn(estimator)(x).numpy(), estimator.decision_function(x.numpy())
    ours = logits[:, 1] - logits[:, 0] if classes == 2 else logits
    assert np.abs(ours - theirs).max() < 1e-9 * max(1, np.abs(theirs).max())
    own_rule = np.argmax(theirs, 1) if classes > 2 else (theirs > 0).astype(int)
    assert np.array_equal(logits.argmax(1), own_rule)
    assert np.mean(estimator.classes_[logits.argmax(1)] == estimator.predict(x.numpy())) > 0.9  # machines break ties otherwise


def test_ties_broken_give_the_prediction():
    estimator = fitted(SVC(break_ties=True), 4)
    x = unseen(4)
    assert np.array_equal(estimator.classes_[from_sklearn(estimator)(x).argmax(1)], estimator.predict(x.numpy()))


def test_one_value_a_class_whatever_shape_the_machine_reports():
    ovr, ovo = (fitted(SVC(decision_function_shape=shape), 4) for shape in ("ovr", "ovo"))
    x = unseen(4)
    assert torch.equal(from_sklearn(ovr)(x), from_sklearn(ovo)(x))


def test_a_frozen_classifier_is_calibrated():
    x, y = data(3)
    estimator = CalibratedClassifierCV(FrozenEstimator(fitted(SVC(), 3))).fit(x, y)
    assert np.abs(from_sklearn(estimator)(torch.tensor(x)).softmax(1).numpy() - estimator.predict_proba(x)).max() < 1e-9


def test_old_logistic_regression_of_one_against_the_rest():
    """Before 1.8 there was multi_class="ovr": sigmoids that are made to sum to 1."""
    estimator = fitted(LogisticRegression(), 3)
    estimator.multi_class = "ovr"
    x = unseen(3)
    each = 1 / (1 + np.exp(-estimator.decision_function(x.numpy())))
    assert np.abs(from_sklearn(estimator)(x).softmax(1).numpy() - each / each.sum(1, keepdims=True)).max() < 1e-9


def test_subclasses_count_as_their_parents():
    class Mine(SVC):
        pass

    x = unseen(2)
    assert torch.equal(from_sklearn(fitted(Mine(), 2))(x), from_sklearn(fitted(SVC(), 2))(x))


GRADIENTS = {
    "logistic": LogisticRegression(),
    "tanh": MLPClassifier((4,), "tanh", max_iter=5, random_state=0),
    **{f"machine {kernel}": SVC(kernel=kernel, C=0.1) for kernel in KERNELS},
    "Platt": platt("rbf"),
    "calibrated": calibrated(SVC()),
    "ensemble": calibrated(SVC(), ensemble=True),
    "one vs rest": OneVsRestClassifier(LogisticRegression()),
    "pipeline": make_pipeline(StandardScaler(), SVC()),
}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_right_and_not_zero(name, classes):
    model = from_sklearn(fitted(GRADIENTS[name], classes))
    x = torch.tensor(data(classes)[0][:5]).requires_grad_()
    assert torch.autograd.gradcheck(model, x, eps=1e-7, atol=1e-4)
    (gradient,) = torch.autograd.grad(model(x)[:, 1].sum(), x)
    assert (gradient.abs().amax(1) > 1e-9).all()


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_row_does_not_depend_on_its_batch(name):
    model, x = from_sklearn(fitted(GRADIENTS[name], 3)), unseen(3)[:20]
    alone = torch.cat([model(row[None]) for row in x])
    assert torch.allclose(model(x), alone, rtol=0, atol=1e-11)


def test_a_module_like_others():
    model = from_sklearn(fitted(calibrated(SVC(), ensemble=True), 3))
    x = unseen(3)
    assert not any(part.training for part in model.modules())
    assert not list(model.parameters())
    assert torch.equal(copy.deepcopy(model)(x), model(x))
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), model(x))
    other = from_sklearn(fitted(calibrated(SVC(C=1.0), ensemble=True), 3))
    other.load_state_dict({name: value * 0 for name, value in other.state_dict().items()})
    assert not torch.equal(other(x), model(x))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))
    assert torch.allclose(copy.deepcopy(model).float()(x.float()).double(), model(x), atol=1e-3)


@pytest.mark.parametrize("norm", ["l2", "linf", "l1"])
@pytest.mark.parametrize("kind", [LogisticRegression(), SVC(kernel="linear"), LinearSVC(random_state=0)], ids=str)
def test_robustness_of_linear_classifiers_is_the_closed_form(kind, norm):
    """Both classes climb by eps |w|_* and fall by alpha eps |w|_*."""
    estimator = fitted(kind, 2)
    weight, radius, alpha = torch.tensor(estimator.coef_[0]), 50.0, 0.4
    x = torch.tensor(data(2)[0][:8])
    dual = {"l2": weight.norm(), "linf": weight.abs().sum(), "l1": weight.abs().max()}[norm]
    decision = drq.DRQ(from_sklearn(estimator), norm, radius, alpha=alpha, bounds=None, prune="none").decide(x)
    score = torch.tensor(estimator.decision_function(x.numpy()))
    expected = sigmoid(torch.stack([-score, score], 1) + (1 - alpha) * radius * dual)
    assert decision.reached.all()
    assert torch.allclose(decision.robustness, expected, atol=1e-6)
    assert torch.equal(decision.label, (score > 0).long())


@pytest.mark.parametrize("name", ["machine rbf", "Platt", "calibrated", "tanh"])
def test_drq_searches_them_within_bounds_of_each_feature(name):
    estimator = fitted(GRADIENTS[name], 3)
    x = torch.tensor(data(3)[0][:6]).float()
    bounds = x.amin(0) - 1, x.amax(0) + 2
    frozen = torch.tensor([False, True, False])
    robust = drq.DRQ(from_sklearn(estimator), "l2", 6.0, bounds=bounds, frozen=frozen, keep_points=True, prune="none")
    decision = robust.decide(x)
    assert decision.robustness.shape == (6, 3)
    assert decision.reached.sum() > 6  # more than the labels at x
    for points in (decision.explored, decision.quantified):
        points = torch.where(decision.reached[..., None], points, x[:, None])  # not a number elsewhere
        assert (points >= bounds[0] - 1e-5).all()
        assert (points <= bounds[1] + 1e-5).all()
        assert torch.equal(points[..., 1], x[:, None, 1].expand_as(points[..., 1]))
    assert (decision.explored != x[:, None]).any()


class Custom(ClassifierMixin):
    pass


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (SVC(), ["be fitted", "an unfitted SVC", "call fit"]),
        (make_pipeline(StandardScaler(), LogisticRegression()), ["be fitted", "an unfitted LogisticRegression"]),
        (RandomForestClassifier(), ["LogisticRegression", "SVC", "Pipeline", "StandardScaler", "got RandomForestClassifier"]),
        (Custom(), ["got Custom"]),
        (3, ["got int"]),
        (None, ["got NoneType"]),
    ],
    ids=["unfitted", "unfitted in a pipeline", "a forest", "a stranger", "a number", "nothing"],
)
def test_what_cannot_be_taken(estimator, words):
    unfit(estimator, *words)


def unfit(estimator, *words: str) -> None:
    refused(from_sklearn, estimator, words=words)


def test_what_cannot_be_taken_though_fitted():
    x, y = data(3)
    unfit(fitted(RandomForestClassifier(3), 3), "got RandomForestClassifier")
    unfit(fitted(make_pipeline(FunctionTransformer(), SVC()), 3), "StandardScaler or MinMaxScaler", "FunctionTransformer")
    unfit(fitted(make_pipeline(PolynomialFeatures(), SVC()), 3), "PolynomialFeatures")
    unfit(SVC(kernel="precomputed").fit(x @ x.T, y), "kernel must be one of linear, rbf, poly, sigmoid, got 'precomputed'")
    unfit(SVC(kernel=lambda a, b: a @ b.T).fit(x, y), "kernel must be one of")
    unfit(fitted(calibrated(SVC(), "isotonic"), 3), "sigmoid or temperature, got isotonic")
    unfit(fitted(calibrated(MLPClassifier(max_iter=5)), 3), "decision_function", "MLPClassifier")
    several = np.stack([y == "kiwi", y != "plum"], 1).astype(int)
    unfit(OneVsRestClassifier(LogisticRegression()).fit(x, several), "one class")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unfit(MLPClassifier((3,), max_iter=3).fit(x, several), "one class")


def test_sparse_numbers_are_refused():
    sparse = pytest.importorskip("scipy.sparse")
    x, y = data(3)
    unfit(SVC().fit(sparse.csr_matrix(x), y), "dense", "X.toarray()")
    unfit(fitted(LogisticRegression(), 3).sparsify(), "dense", "densify()")


def test_inputs_of_another_shape_are_refused():
    model = from_sklearn(fitted(make_pipeline("passthrough", SVC()), 2))
    for x in (torch.zeros(2, 4), torch.zeros(3), torch.zeros(2, 3, 1)):
        with pytest.raises(InputError, match=r"x must have shape \(N, 3\)"):
            model(x)

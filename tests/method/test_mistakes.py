"""What was likely meant otherwise is found, and one line says what to do; what may be meant is warned of once, or let be."""

import functools
import warnings

import pytest
import torch
from testbed.classifiers import inputs, network
from testbed.refusals import refused
from torch import Tensor, nn

import drq

X = inputs(0, 3, 4)
PICTURES = inputs(0, 5, 3, 6, 6)


def small(model: nn.Module, **settings: object) -> drq.DRQ:
    few = drq.Gradient(1)
    return drq.DRQ(model, **{"norm": "linf", "radius": 0.1, "explore": few, "quantify": few, **settings})


class Network(nn.Module):
    """A network of pictures with a part that behaves otherwise in training."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
            self.head = nn.Linear(4, 3)
        self.double().eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((-2, -1)))


def trained_in_part(network: Network) -> Network:
    network.body[1].train()
    return network


WRAPPERS = {
    "itself": (lambda inner: inner, "model.body.1 (BatchNorm2d)"),
    "Sequential": (lambda inner: nn.Sequential(nn.Identity(), inner).eval(), "model.1 (Network)"),
    "a list in it": (lambda inner: nn.Sequential(nn.Sequential(inner)).eval(), "model.0.0 (Network)"),
    "DataParallel": (lambda inner: nn.DataParallel(inner).eval(), "model.module (Network)"),
    "an adapter": (lambda inner: drq.FirstOutput(inner).eval(), "model.model (Network)"),
}


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize("views", [None, "Mirror()"])
def test_what_is_in_training_mode_is_named(name, views):
    wrap, expected = WRAPPERS[name]
    model = wrap(Network())
    inner = next(each for each in model.modules() if isinstance(each, Network))
    settings = {} if views is None else {"views": views, "radius": drq.drq.CALIBRATED}
    small(model, **settings).decide(PICTURES)
    if name != "itself":
        inner.training = True  # and all in it is in evaluation mode
        words = ["model must be in evaluation mode", f"got {expected} in training mode", "call model.eval() first"]
        refused(small(model, **settings).decide, PICTURES, words=words)
        inner.eval()
    trained_in_part(inner)
    refused(small(model, **settings).decide, PICTURES, words=["body.1 (BatchNorm2d) in training mode"])


def test_one_picture_without_its_batch():
    words = ["x must be a batch (N, ...)", "got one sample of shape (3, 6, 6)", "x[None] is a batch of one"]
    flat = nn.Sequential(nn.Flatten(), network(0, 108)).eval()
    for model in (Network(), flat):
        refused(small(model).decide, PICTURES[0], words=words)
        refused(small(model), PICTURES[0], words=words)
        refused(drq.DRQ(model, views="Mirror()").decide, PICTURES[0], words=words)
    grey = [*words[:1], "got one sample of shape (1, 6, 6)"]
    plain = Network(1)
    plain.body[1] = nn.Identity().eval()  # torch convolves a picture without its batch, too: a row of it has three logits
    assert plain(PICTURES[0, :1]).shape == (3,)
    for model in (Network(1), plain):
        refused(small(model).decide, PICTURES[0, :1], words=grey)
    card = drq.models.Card("mine")
    colours = drq.models.Classifier(Network(), card, [0.5] * 3, [0.5] * 3).eval()
    refused(small(colours).decide, PICTURES[0], words=words)
    front = ["x must be pictures (N, C, H, W)", "got shape (3, 6, 6)", "x[None] is a batch of one picture"]
    refused(small(Network(), front=drq.Restoration()).decide, PICTURES[0], words=front)


def test_other_refusals_of_the_model_keep_their_words():
    refused(small(Network()).decide, PICTURES[:, :2], words=["model must accept x, got shape (1, 2, 6, 6)"])
    squeezed = nn.Sequential(nn.Linear(4, 1).double(), nn.Flatten(0)).eval()
    refused(small(squeezed).decide, X, words=["model must return logits of shape (N, C), got shape (1,)", "drq.SingleLogit"])


class Softmax(nn.Module):
    """What should have been left out."""

    def forward(self, x: Tensor) -> Tensor:
        return x.softmax(1)


def ended(model: nn.Module) -> nn.Module:
    return nn.Sequential(model, Softmax()).eval()


PROBABILITIES = "model should return logits, got probabilities, which sum to 1: leave out its softmax, or wrap it in drq.Proba"


def test_probabilities_are_warned_of_once():
    model = ended(network(0))
    for robust in (small(model), drq.DRQ(model, views="Gain(2, 3)"), small(model.float(), precision="bfloat16")):
        x = X.to(next(model.parameters()).dtype)
        with pytest.warns(UserWarning, match=PROBABILITIES) as caught:
            robust.decide(x)
        assert caught[0].filename == __file__
        assert len(caught) == 1
        robust.decide(x)  # a warning would be an error


def test_wrapped_or_left_out_nothing_is_warned_of():
    model = network(0)
    plain, wrapped = (small(each, prune="none").decide(X) for each in (model, drq.Probabilities(ended(model))))
    torch.testing.assert_close(wrapped.log_odds, plain.log_odds, rtol=0, atol=1e-9)


def test_probabilities_of_a_forest_stay_finite():
    sure = drq.Probabilities(lambda x: x)(torch.eye(3))
    assert sure.isfinite().all()
    assert sure.argmax(1).tolist() == [0, 1, 2]


def test_logits_that_happen_to_sum_to_one_are_no_probabilities():
    model = nn.Identity().eval()  # of features in [0, 1]
    small(model).decide(torch.tensor([[0.25, 0.75]]))
    small(lambda x: 9 * (x - x.mean(1, keepdim=True)) + 1 / 3).decide(inputs(1, 4, 3))  # they sum to 1, and some are negative


WIDE = [  # norm, radius, shape, whether it is warned of
    ("linf", 8, (3, 6, 6), True),
    ("linf", 1.5, (4,), True),
    ("linf", 0.6, (4,), False),  # twice the usual radius of MNIST
    ("linf", 8 / 255, (3, 6, 6), False),
    ("l2", 8, (3, 32, 32), True),
    ("l2", 2.0, (3, 32, 32), False),
    ("l2", 128.0, (3, 32, 32), True),
    ("l2", 6.0, (3, 128, 128), False),  # twice the usual radius of ImageNet
    ("l1", 12.0, (3, 32, 32), False),
]


@pytest.mark.parametrize(("norm", "radius", "shape", "told"), WIDE, ids=str)
def test_a_radius_beside_the_box(norm, radius, shape, told):
    model = nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(shape).numel(), 3)).double().eval()
    robust, x = small(model, norm=norm, radius=radius), inputs(0, 2, *shape)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        robust.decide(x)
        robust(x)
    assert len(caught) == told
    if told:
        message = str(caught[0].message)
        assert message.startswith(f"drq: radius should be small beside the box of inputs, got {radius:g} where no input is ")
        assert message.endswith(f"it is in the units of x, such as {radius:g}/255 for {radius:g} levels of grey in [0, 1]")
        assert caught[0].filename == __file__


def test_a_radius_in_the_units_of_its_inputs():
    model = network(0)
    small(model, radius=8, bounds=(0.0, 255.0)).decide(255 * X)
    small(model, radius=8, bounds=None).decide(X)
    with pytest.warns(UserWarning, match=r"got 300 where no input .* than 2\d\d in Linf\(\): it is in the units of x$"):
        small(model, radius=300, bounds=(0.0, 255.0)).decide(255 * X)


def test_warnings_are_said_where_the_package_was_called():
    """Whatever of the package, or of torch, lies between."""
    robust = drq.DRQ(network(0), "linf", 8, explore=drq.Gradient(1), quantify=drq.Gradient(1))
    for call in (robust.decide, robust, robust.scored, functools.partial(nn.Sequential(nn.Identity(), robust))):
        robust._facts.clear()
        with pytest.warns(UserWarning, match="radius should be") as caught:
            call(X)
        assert caught[0].filename == __file__

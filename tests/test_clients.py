"""Real clients, unchanged, on ``drq.DRQ(...)`` as a plain model; and models of other shapes behind the adapters."""

import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple

import pytest
import torch
from pyautoattack import AutoAttack
from pyautoattack.autopgd_base import APGDAttack
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack
from testbed.digits import Digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import drq
from drq.system.threads import threads

with warnings.catch_warnings():  # Foolbox 3.3.4 takes gaussian_filter from a namespace that SciPy has deprecated
    warnings.filterwarnings("ignore", "Please import `gaussian_filter`", DeprecationWarning)
    import foolbox

pytestmark = pytest.mark.usefixtures("alone")

IMAGES = 16
RADIUS = 0.25  # wide enough that nearly every image reaches several classes, without which losses of scores have no slope
Attack = Callable[[nn.Module, Tensor, Tensor], Tensor]


@pytest.fixture
def alone() -> Iterator[None]:
    """Clients draw from the global random state, and AutoAttack reseeds it."""
    with threads(1), torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.fixture
def batch(digits: Digits) -> tuple[Tensor, Tensor]:
    return digits.x[:IMAGES], digits.y[:IMAGES]


def wrapped(model: nn.Module, **options: object) -> drq.DRQ:
    few = drq.Gradient(steps=5)
    return drq.DRQ(model, norm="linf", radius=RADIUS, explore=few, quantify=few, **options)


def accuracy(robust: drq.DRQ, x: Tensor, y: Tensor) -> float:
    return (robust.decide(x).label == y).double().mean().item()


class Client(NamedTuple):
    """An attack, and the ball that it must stay in."""

    run: Attack
    norm: str
    radius: float


def in_foolbox(attack: foolbox.attacks.base.Attack, radius: float) -> Attack:
    def run(robust: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        _, clipped, _ = attack(foolbox.PyTorchModel(robust, bounds=(0, 1)), x, y, epsilons=radius)
        return clipped

    return run


def in_autoattack(attack: type, **options: object) -> Attack:
    """As AutoAttack runs its members; without a logger, its doubts about a model are warnings, and so errors here."""

    @torch.no_grad()
    def run(robust: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return attack(robust, norm="Linf", eps=0.2, seed=0, **options).perturb(x, y)

    return run


LINF_PGD = in_foolbox(foolbox.attacks.LinfPGD(rel_stepsize=0.25, steps=10), 0.2)
L2_PGD = in_foolbox(foolbox.attacks.L2PGD(rel_stepsize=0.25, steps=10), 1.6)
CLIENTS = {
    "Foolbox LinfPGD": Client(LINF_PGD, "linf", 0.2),
    "Foolbox L2PGD": Client(L2_PGD, "l2", 1.6),
    "APGD-CE": Client(in_autoattack(APGDAttack, n_iter=10, loss="ce"), "linf", 0.2),
    "APGD-DLR": Client(in_autoattack(APGDAttack, n_iter=10, loss="dlr"), "linf", 0.2),
    "FAB": Client(in_autoattack(FABAttack_PT, n_iter=10), "linf", 0.2),
    "Square": Client(in_autoattack(SquareAttack, n_queries=100), "linf", 0.2),
}


def check_attack(client: Client, robust: drq.DRQ, x: Tensor, y: Tensor) -> None:
    given = x.clone()
    attacked = client.run(robust, x, y)
    assert torch.equal(x, given)
    assert not attacked.requires_grad
    assert drq.Ball(x, client.radius, client.norm, bounds=(0, 1)).contains(attacked).all()
    before, after = accuracy(robust, x, y), accuracy(robust, attacked, y)
    print(f"accuracy {before:.2f} -> {after:.2f}")
    assert before >= 0.85
    assert after <= before - 0.3  # six draws of random noise of this size cost at most 0.13


# The loss of APGD-DLR is constant wherever the true class comes third, on any model: such a sample is fooled already.
THIRD = pytest.mark.filterwarnings("ignore:there are 1 points with zero gradient")


@pytest.mark.parametrize("name", [pytest.param(name, marks=THIRD if name == "APGD-DLR" else ()) for name in CLIENTS])
def test_clients_run_and_lower_the_accuracy(name: str, digits: Digits, batch: tuple[Tensor, Tensor]) -> None:
    check_attack(CLIENTS[name], wrapped(digits.model, prune="none"), *batch)


@pytest.mark.parametrize("name", ["Foolbox LinfPGD", "Foolbox L2PGD"])
def test_pruned_scores_suffice_for_foolbox(name: str, digits: Digits, batch: tuple[Tensor, Tensor]) -> None:
    check_attack(CLIENTS[name], wrapped(digits.model), *batch)


def test_autoattack_flags_a_dynamic_defence_and_nothing_else(
    digits: Digits, batch: tuple[Tensor, Tensor], caplog: pytest.LogCaptureFixture
) -> None:
    robust, (x, y) = wrapped(digits.model, prune="none"), batch
    front = AutoAttack(robust, norm="Linf", eps=0.2, seed=0, version="custom", attacks=["apgd-ce", "square"])
    front.apgd.n_restarts, front.apgd.n_iter, front.square.n_queries = 1, 5, 5
    with caplog.at_level(logging.WARNING, "auto-attack"):
        attacked, label = front.run_standard_evaluation(x, y)
    assert torch.equal(label, robust.decide(attacked).label)
    flags = [record.getMessage() for record in caplog.records]
    assert [flag.split("!")[0] for flag in flags] == ["it seems to be a dynamic defense"]


@pytest.mark.parametrize("prune", ["none", "exact"])
def test_gradients_reach_the_input(prune: str, digits: Digits, batch: tuple[Tensor, Tensor]) -> None:
    robust, (x, y) = wrapped(digits.model, prune=prune), batch
    several = robust.decide(x).reached.sum(1) >= 2
    assert several.double().mean() >= 0.9
    x = x.clone().requires_grad_()
    scores = robust(x)
    (of_the_label,) = torch.autograd.grad(scores.max(1).values.sum(), x, retain_graph=True)
    (of_the_loss,) = torch.autograd.grad(cross_entropy(scores, y, reduction="sum"), x)
    assert slopes(of_the_label).all()
    assert slopes(of_the_loss)[several].all()


def slopes(gradient: Tensor) -> Tensor:
    """Whether each sample has a finite gradient other than 0."""
    flat = gradient.flatten(1)
    return flat.isfinite().all(1) & (flat != 0).any(1)


@pytest.mark.parametrize("without_gradients", [torch.no_grad, torch.inference_mode])
def test_scores_are_the_same_without_gradients(
    without_gradients: Callable[[], torch.no_grad], digits: Digits, batch: tuple[Tensor, Tensor]
) -> None:
    robust, (x, _) = wrapped(digits.model, prune="none"), batch
    recorded = robust(x.clone().requires_grad_())
    with without_gradients():
        plain = robust(x)
    assert recorded.requires_grad
    assert not plain.requires_grad
    torch.testing.assert_close(plain, recorded.detach())
    assert torch.equal(plain.argmax(1), robust.decide(x).label)


@dataclass
class ImageClassifierOutput:
    """What models of Hugging Face return, in miniature."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class Returns(nn.Module):
    """A model whose logits come back in another form."""

    def __init__(self, model: nn.Module, form: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.model, self.form = model, form
        self.eval()

    def forward(self, x: Tensor) -> object:
        return self.form(self.model(x))


FORMS = {
    "object": lambda logits: ImageClassifierOutput(logits=logits, hidden_states=(logits.exp(),)),
    "tuple": lambda logits: (logits, logits.exp()),
    "list": lambda logits: [logits],
    "dict": lambda logits: {"loss": None, "logits": logits},
}


@pytest.mark.parametrize("form", FORMS)
def test_first_output_is_the_plain_model(form: str, digits: Digits, batch: tuple[Tensor, Tensor]) -> None:
    other = Returns(digits.model, FORMS[form])
    assert_same(wrapped(drq.FirstOutput(other)), wrapped(digits.model), batch[0])
    with pytest.raises(drq.InputError, match=r"drq\.FirstOutput"):
        wrapped(other).decide(batch[0])


@pytest.mark.parametrize("form", [lambda logit: logit, lambda logit: logit[:, 0]], ids=["(N, 1)", "(N,)"])
def test_single_logit_is_the_plain_model(form: Callable[[Tensor], Tensor], digits: Digits, batch: tuple[Tensor, Tensor]) -> None:
    def odd_against_even(logits: Tensor) -> Tensor:
        return logits[:, 1::2].logsumexp(1, keepdim=True) - logits[:, 0::2].logsumexp(1, keepdim=True)

    def with_a_zero(logits: Tensor) -> Tensor:
        odd = odd_against_even(logits)
        return torch.cat([torch.zeros_like(odd), odd], dim=1)

    single = Returns(digits.model, lambda logits: form(odd_against_even(logits)))
    robust = wrapped(drq.SingleLogit(single))
    assert_same(robust, wrapped(Returns(digits.model, with_a_zero)), batch[0])
    assert accuracy(robust, batch[0], batch[1] % 2) >= 0.85
    with pytest.raises(drq.InputError, match=r"drq\.SingleLogit"):
        wrapped(single).decide(batch[0])


def assert_same(robust: drq.DRQ, plain: drq.DRQ, x: Tensor) -> None:
    """The same decisions, scores and gradients, to the bit."""
    ours, theirs = robust.decide(x), plain.decide(x)
    for field in fields(drq.Decision):
        value, expected = getattr(ours, field.name), getattr(theirs, field.name)
        assert (value is None and expected is None) or torch.allclose(value, expected, 0, 0, equal_nan=True), field.name
    assert torch.equal(*(scores_and_gradient(each, x) for each in (robust, plain)))


def scores_and_gradient(robust: drq.DRQ, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    scores = robust(x)
    (gradient,) = torch.autograd.grad(scores.max(1).values.sum(), x)
    return torch.cat([scores.detach(), gradient.flatten(1)], dim=1)

"""Square and RayS on models whose worst points are known."""

import pytest
import torch
from testbed.classifiers import inputs, linear, network
from testbed.digits import Digits
from torch import Tensor

import drq
from drq import threats
from drq.search.black_box import _flipped
from drq.search.loop import search
from drq.threats.attacks import mislabelled


def problem(features: int = 16) -> tuple[torch.nn.Linear, Tensor, Tensor, Tensor]:
    weight = torch.randn(features, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = inputs(2, 6, features)
    model = linear(weight)
    return model, weight, x, model(x).argmax(1)


def test_square_reaches_the_optimum_of_a_linear_model() -> None:
    model, weight, x, y = problem()
    found = search(drq.Square(3000), drq.margin(model, y), drq.Ball(x, 0.1, "linf"))
    optimum = (x @ weight).abs() - 0.1 * weight.abs().sum()
    torch.testing.assert_close(found.value, optimum, rtol=0, atol=1e-9)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 5, 9), (12,)])
def test_square_beats_random_points_in_every_norm_and_shape(norm: str, shape: tuple[int, ...]) -> None:
    size = int(torch.tensor(shape).prod())
    model = torch.nn.Sequential(torch.nn.Flatten(), network(0, size)).eval()
    x = inputs(1, 8, *shape)
    y, ball = model(x).argmax(1), drq.Ball(x, {"linf": 0.1, "l2": 0.5, "l1": 1.5}[norm], norm, (0, 1))
    squares, random = (search(each, drq.margin(model, y), ball) for each in (drq.Square(200), drq.Random(200)))
    assert ball.contains(squares.point).all()
    assert squares.value.mean() < random.value.mean()


def test_squares_shrink_on_the_published_schedule() -> None:
    """Halved after 10, 50, 200, 1000, 2000, 4000, 6000 and 8000 of 10 000 queries, from a share of 0.8 on."""
    features, method = torch.Size([1, 32, 32]), drq.Square(10_000)
    area = {count: int(method._patch(features, count, torch.Generator()).sum()) for count in (1, 11, 51, 201, 1001, 8001)}
    expected = {1: 0.8, 11: 0.4, 51: 0.2, 201: 0.1, 1001: 0.05, 8001: 0.8 / 256}
    for count, share in expected.items():
        assert area[count] == round((share * 1024) ** 0.5) ** 2


def test_rays_finds_the_distance_to_the_boundary_of_a_linear_model() -> None:
    model, weight, x, y = problem()
    found = search(drq.RayS(1500), mislabelled(model, y), drq.Ball(x, 0.1, "linf"))
    exact = (x @ weight).abs() / weight.abs().sum()
    assert (found.merit >= exact - 1e-9).all()
    torch.testing.assert_close(found.merit, exact, rtol=0, atol=2 * 0.02 * 0.1)  # twice the tolerance of a bisection


def test_rays_tries_all_signs_then_halves_then_quarters() -> None:
    ahead = torch.ones(1, 4)
    turned = [_flipped(ahead, torch.tensor([turn]))[0].tolist() for turn in range(1, 9)]
    one = [[-1 if place == each else 1 for place in range(4)] for each in range(4)]
    assert turned == [[-1] * 4, [-1, -1, 1, 1], [1, 1, -1, -1], *one, [-1] * 4]


@pytest.mark.filterwarnings("ignore:drq. model should return logits")
def test_rays_reads_labels_alone(digits: Digits) -> None:
    x, y = digits.x[:20], digits.y[:20]

    class OnlyLabels(torch.nn.Module):
        """The same labels with scores that say nothing else; the tiny slope satisfies the check for one."""

        def forward(self, x: Tensor) -> Tensor:
            scores = digits.model(x)
            return torch.nn.functional.one_hot(scores.argmax(1), 10).to(x) + 1e-6 * x.mean()

    attack = threats.RaySAttack("linf", 0.25, 400)
    plain, bare = attack(digits.model, x, y), attack(OnlyLabels().eval(), x, y)
    assert torch.equal(plain, bare)
    before, after = ((digits.model(each).argmax(1) == y).double().mean() for each in (x, plain))
    assert after <= before - 0.5


def test_a_sample_that_rays_cannot_fool_stays_as_it_is() -> None:
    model = linear(torch.tensor([1.0, 1.0], dtype=torch.float64), bias=5.0)  # class 1 in the whole box
    x = inputs(0, 3, 2)
    assert torch.equal(threats.RaySAttack("linf", 0.1, 30)(model, x, torch.ones(3, dtype=torch.long)), x)


def test_squares_shrink_by_the_share_of_the_queries() -> None:
    patch = drq.Square(1000)._patch(torch.Size([1, 32, 32]), 6, torch.Generator())  # 60 of 10 000: halved twice
    assert int(patch.sum()) == round((0.2 * 1024) ** 0.5) ** 2


def test_square_draws_belong_to_its_seed() -> None:
    model, x = network(2), inputs(2, 10, 4)
    y = model(x).argmax(1)
    assert not torch.equal(*(threats.SquareAttack("linf", 0.1, 5, seed=seed)(model, x, y) for seed in (0, 1)))


def test_rays_does_not_ask_about_frozen_features() -> None:
    model = linear(torch.tensor([8.0, 0.0], dtype=torch.float64), bias=-4.0)  # the first feature decides
    x, asked = torch.tensor([[0.52, 0.5]], dtype=torch.float64), []
    model.register_forward_pre_hook(lambda _, given: asked.append(given[0].detach().clone()))
    frozen = torch.tensor([True, False])
    assert torch.equal(threats.RaySAttack("linf", 0.1, 30, frozen=frozen)(model, x, torch.tensor([1])), x)
    assert all((each[:, 0] == 0.52).all() for each in asked)

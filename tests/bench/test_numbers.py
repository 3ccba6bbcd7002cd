"""What the benchmark computes from what it measures."""

import pytest
import torch
from testbed.classifiers import inputs
from torch import nn

from drq.bench import numbers
from drq.bench.agreement import largest_gap
from drq.bench.contestants import NAIVE, REFERENCE, contestants, fastest
from drq.errors import InputError
from tools.promises import EXACT, RACE


class TestNumbers:
    def test_folded_heads_are_sums_of_heads(self):
        heads = nn.Linear(7, 30).double()
        x = inputs(0, 5, 7)
        first, second, third = heads(x).reshape(5, 3, 10).unbind(1)
        sums = first[:, :, None, None] + second[:, None, :, None] + third[:, None, None, :]
        torch.testing.assert_close(numbers.fold_heads(heads)(x), sums.flatten(1))

    def test_digits_are_told_apart(self):
        """No two look alike in any thickness, and a drawing shows what its label says."""
        bank = numbers.glyphs().flatten(2)
        assert all(len(torch.unique(each, dim=0)) == 10 for each in bank)
        x, y = numbers.draw_numbers(40, 3, seed=0)
        assert x.shape == (40, 3, 32, 32)
        assert 0 <= x.min() <= x.max() <= 1
        one = bank[:, 1].sum(1).mean()
        light = x[:, 0].mean((1, 2))
        eights = (y == 8).sum(1)
        ones = (y == 1).sum(1)
        assert one < bank[:, 8].sum(1).mean()
        assert light[eights > ones].mean() > light[ones > eights].mean()

    def test_the_same_seed_draws_the_same(self):
        state = torch.random.get_rng_state()
        (a, b), (c, d) = numbers.draw_numbers(4, 2, seed=1), numbers.draw_numbers(4, 2, seed=1)
        assert torch.equal(a, c)
        assert torch.equal(b, d)
        assert not torch.equal(a, numbers.draw_numbers(4, 2, seed=2)[0])
        assert torch.equal(state, torch.random.get_rng_state())

    def test_a_network_learns_them(self):
        """A label is the number as it is read: far better than chance, one in a hundred, after a second."""
        state = torch.random.get_rng_state()
        made = numbers.Training(2, steps=120, batch=24).build(10)
        assert torch.equal(state, torch.random.get_rng_state())
        assert made.accuracy > 0.3
        assert made.model(made.x).shape == (10, 100)
        assert not made.model.training

    def test_four_digits_are_refused(self):
        with pytest.raises(InputError, match="digits must lie between 1 and 3, got 4"):
            numbers.draw_numbers(1, 4, seed=0)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_contestants_are_those_that_are_promised(device):
    names = [each.name for each in contestants(device)]
    assert names[0] == NAIVE
    assert REFERENCE in names
    assert len(names) == len(set(names))
    assert {each.name for each in fastest(device)} <= set(names)
    if device == "cuda":
        assert {EXACT, RACE} <= set(names)


def test_the_largest_gap_is_that_of_labels_that_differ():
    odds = torch.tensor([[3.0, 1.0, 0.0], [2.0, 1.5, -torch.inf], [1.0, -torch.inf, -torch.inf]])
    assert largest_gap(odds, torch.tensor([False, False, False])) is None
    assert largest_gap(odds, torch.tensor([False, True, False])) == pytest.approx(0.5)
    assert largest_gap(odds, torch.tensor([False, True, True])) == pytest.approx(10_001)

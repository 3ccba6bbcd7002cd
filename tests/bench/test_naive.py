"""The naive loop of the benchmark is the same method, written down plainly."""

import pytest
import torch
from testbed.classifiers import inputs, network
from torch import nn

import drq
from drq.bench import growth
from drq.bench.naive import Naive
from drq.bench.timing import tf32_convolutions
from drq.errors import InputError


class TestTheNaiveLoop:
    @pytest.mark.parametrize("norm", ["linf", "l2"])
    @pytest.mark.parametrize("radius", [0.05, 0.2])
    def test_it_gives_the_labels_of_drq_without_pruning(self, norm, radius):
        """Two programs that share no code, in float64, on regions curved enough that labels change."""
        model, x = network(3), inputs(1, 150, 4)
        ours = drq.DRQ(model, norm, radius, prune="none").decide(x)
        naive = Naive(model, norm, radius, batch=64).decide(x)
        assert torch.equal(naive.label, ours.label)
        assert torch.equal(naive.log_odds > -torch.inf, ours.reached)
        torch.testing.assert_close(naive.log_odds, ours.log_odds, rtol=1e-9, atol=1e-9)
        if radius == 0.2:
            assert (ours.label != ours.base_label).any()
            assert not ours.reached.all()

    def test_it_counts_its_passes(self):
        """One for the label of the model alone, and 21 points for every class in each of two searches."""
        calls, model = [], network(0)
        model.register_forward_hook(lambda _, given, __: calls.append(len(given[0])))
        passes = Naive(model, "linf", 0.1, batch=4).decide(inputs(0, 6, 4)).passes
        assert passes.tolist() == [1 + 2 * 21 * 4] * 6
        assert sum(calls) == passes.sum()
        assert growth.naive_passes(4) == passes[0] - 1

    def test_ties_go_to_the_base_label(self):
        """All classes are alike everywhere, so each has the same robustness; the model alone says the first."""
        model = nn.Linear(2, 3).double().eval()
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        assert Naive(model, "linf", 0.1).decide(inputs(0, 2, 2)).label.tolist() == [0, 0]

    def test_it_leaves_parameters_as_found(self):
        model = network(0).requires_grad_(False)
        model[0].weight.requires_grad_(True)
        model[0].weight.grad = held = torch.ones_like(model[0].weight)
        before = [each.requires_grad for each in model.parameters()]
        Naive(model, "l2", 0.1, steps=2).decide(inputs(0, 2, 4))
        assert [each.requires_grad for each in model.parameters()] == before
        assert model[0].weight.grad is held
        assert (held == 1).all()
        assert all(each.grad is None for each in model.parameters() if each is not model[0].weight)

    def test_it_asks_for_gradients_of_parameters(self):
        """What makes it slow is really there."""
        model, seen = network(0).requires_grad_(False), []
        model.register_forward_hook(lambda *_: seen.append(model[0].weight.requires_grad))
        with torch.no_grad():
            Naive(model, "linf", 0.1, steps=2).decide(inputs(0, 2, 4))
        assert all(seen)

    def test_what_it_does_not_know_it_refuses(self):
        with pytest.raises(InputError, match="norm must be 'linf' or 'l2', got 'l1'"):
            Naive(network(0), "l1", 0.1)
        with pytest.raises(InputError, match="model must be in evaluation mode"):
            Naive(network(0).train(), "l2", 0.1)


@pytest.mark.parametrize("convolutions", [True, False])
def test_flags_are_put_back(convolutions):
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    with tf32_convolutions(convolutions):
        assert (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32) == (convolutions, False)
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32) == before

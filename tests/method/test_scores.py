"""Derivatives of the defended classifier: by the envelope rule, and end to end through unrolled searches."""

import pytest
import torch
from testbed.classifiers import inputs, linear, network

import drq
from drq.threats.target import RowCounter

every_norm = pytest.mark.parametrize("norm", [drq.L1(), drq.L2(), drq.Linf()], ids=repr)


def unrolled(steps: int = 3, **settings) -> drq.Gradient:
    return drq.Gradient(steps, direction="raw", unroll=True, **settings)


@every_norm
@pytest.mark.parametrize("bounds", [None, (0.0, 1.0)])
@pytest.mark.parametrize("prune", ["none", "exact"])
def test_gradcheck_of_the_unrolled_pipeline(norm, bounds, prune):
    robust = drq.DRQ(network(0, gain=1.5), norm, 0.5, explore=unrolled(), quantify=unrolled(), bounds=bounds, prune=prune)
    x = inputs(0, 3, 4).mul(0.6).add(0.2).requires_grad_()
    assert (robust(x) > -1e4).sum() > 4
    assert torch.autograd.gradcheck(robust, (x,))


@pytest.mark.parametrize("smooth", [drq.Noise(2, scale=0.3), drq.InnerAttack(2, steps=2, scale=0.3)], ids=["noise", "inner"])
def test_smoothed_searches_can_be_unrolled(smooth):
    robust = drq.DRQ(network(0), "l2", 0.3, explore=unrolled(smooth=smooth), quantify=unrolled(), bounds=None)
    x = inputs(0, 3, 4).requires_grad_()
    (gradient,) = torch.autograd.grad(robust(x).amax(1).sum(), x)
    assert gradient.isfinite().all()
    assert (gradient.abs().amax(1) > 0).all()


def test_checkpointing_changes_memory_and_not_the_gradient():
    model, x = network(1), inputs(1, 4, 4).requires_grad_()

    def gradient_and_storage(checkpoint: bool) -> tuple[torch.Tensor, int]:
        method = unrolled(8, checkpoint=checkpoint)
        stored = 0

        def store(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal stored
            stored += tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(store, lambda tensor: tensor):
            output = drq.DRQ(model, "linf", 0.3, explore=method, quantify=method)(x)
        return torch.autograd.grad(output[output > -1e4].sum(), x)[0], stored

    (plain, much), (saving, little) = gradient_and_storage(False), gradient_and_storage(True)
    torch.testing.assert_close(plain, saving)
    assert little < much / 3


@every_norm
def test_gradcheck_of_the_envelope_gradient_on_a_linear_model(norm):
    """On a linear model the offset of the quantified point does not depend on x, so the envelope rule is exact."""
    weight = torch.tensor([1.0, -2.0, 0.7], dtype=torch.float64)
    robust = drq.DRQ(linear(weight), norm, 0.4, bounds=None)
    x = torch.tensor([[0.1, 0.0, 0.1], [0.2, 0.3, -0.1]], dtype=torch.float64, requires_grad=True)
    assert robust.decide(x).reached.all()
    assert torch.autograd.gradcheck(robust, (x,))


@pytest.mark.parametrize("chunk", [None, 1, 5])
def test_envelope_gradient_is_that_of_the_model_at_the_quantified_point(chunk):
    model, x = network(2), inputs(2, 6, 4).requires_grad_()
    robust = drq.DRQ(model, "linf", 0.2, prune="none", keep_points=True, chunk=chunk)
    decision = robust.decide(x)
    for i in range(4):
        output = robust(x)[:, i]
        (ours,) = torch.autograd.grad(output[decision.reached[:, i]].sum(), x)
        point = torch.where(decision.reached[:, i, None], decision.quantified[:, i], x.detach()).requires_grad_()
        (theirs,) = torch.autograd.grad(model(point).log_softmax(1)[decision.reached[:, i], i].sum(), point)
        torch.testing.assert_close(ours, theirs)


def test_searches_that_are_not_unrolled_pass_gradients_by_the_envelope_rule():
    """One search unrolled and the other not still gives one graph from end to end."""
    model, x = network(3), inputs(3, 4, 4).requires_grad_()
    for explore, quantify in ((unrolled(), drq.Gradient(3)), (drq.Gradient(3), unrolled())):
        output = drq.DRQ(model, "l2", 0.3, explore=explore, quantify=quantify, bounds=None)(x)
        (gradient,) = torch.autograd.grad(output[output > -1e4].sum(), x)
        assert (gradient.abs().amax(1) > 0).all()


def test_score_of_a_differentiated_call_equals_the_plain_one():
    model, x = network(4, gain=4), inputs(4, 40, 4)
    robust = drq.DRQ(model, "l2", 0.3)
    torch.testing.assert_close(robust(x.clone().requires_grad_()), robust(x), rtol=0, atol=1e-9)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # what torch.compile imports
@pytest.mark.parametrize("radius", [0.4, drq.Calibrated(0.9, steps=6)], ids=["given", "calibrated"])
def test_what_is_compiled_has_the_same_slopes(radius):
    """Searches are compiled, and only the last points are differentiated; a sample without a radius is, too."""
    model, x = network(4, gain=4), inputs(4, 12, 4)
    plain = drq.DRQ(model, "l2", radius, explore=drq.Gradient(5), quantify=drq.Gradient(5), front=lambda x: 0.1 + 0.8 * x)
    slopes = []
    for robust in (plain, plain.variant(compile=True, chunk=16)):
        point, meter = x.clone().requires_grad_(), RowCounter()
        handle = model.register_forward_hook(meter.count, with_kwargs=True)
        scores, passes = robust.scored(point)
        handle.remove()
        slopes.append((scores, passes, *torch.autograd.grad(scores[scores > -1e4].sum(), point)))
    torch.testing.assert_close(*slopes)
    assert meter.rows < passes.sum() / 2  # hooks do not see what is compiled
    assert slopes[0][2].abs().amax(1).min() > 0

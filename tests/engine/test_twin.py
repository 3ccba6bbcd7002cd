"""A twin computes what its model does, sooner, and follows it."""

import copy

import pytest
import torch
from testbed.classifiers import inputs, network
from torch import Tensor, nn

from drq.engine.twin import Twin, Watcher
from drq.method.execution import InPrecision

PLAIN, LAST = torch.contiguous_format, torch.channels_last


def filled(model: nn.Module) -> nn.Module:
    """In double precision, with weights and statistics that are nothing like 0 and 1."""
    model.double().eval()
    with torch.no_grad():
        for seed, (name, each) in enumerate(model.state_dict().items()):
            if each.is_floating_point():
                low = 0.2 if name.endswith("running_var") else -0.5
                each.copy_(low + inputs(seed, *each.shape))
    return model


class Block(nn.Module):
    """What residual networks are made of."""

    def __init__(self, stride: int = 2, bias: bool = True) -> None:
        super().__init__()
        self.norm, self.body = nn.BatchNorm2d(6), nn.Conv2d(6, 8, 3, stride, 1, bias=False)
        self.shortcut = nn.Conv2d(6, 8, 1, stride, groups=2, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self.norm(x).relu()) + self.shortcut(x)


def pictures() -> nn.Module:
    parts = (Block(), nn.BatchNorm2d(8, affine=False), nn.Flatten(), nn.BatchNorm1d(8 * 9), nn.Linear(72, 4))
    return filled(nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), *parts))


KINDS = {
    "pictures": (pictures, (5, 3, 6, 6)),
    "uneven strides": (lambda: filled(nn.Sequential(nn.Conv2d(3, 4, 1, (2, 3), bias=False), nn.Flatten())), (5, 3, 7, 7)),
    "padded": (lambda: filled(nn.Sequential(nn.Conv2d(3, 4, 1, 2, padding=1), nn.Flatten())), (5, 3, 6, 6)),
    "volumes": (lambda: filled(nn.Sequential(nn.Conv3d(2, 3, 1, 2), nn.BatchNorm3d(3), nn.Flatten())), (4, 2, 4, 4, 4)),
    "sequences": (lambda: filled(nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.Flatten())), (4, 2, 5)),
    "of the batch itself": (lambda: filled(nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False))), (6, 4)),
}


@pytest.mark.parametrize("layout", [PLAIN, LAST])
@pytest.mark.parametrize(("make", "shape"), KINDS.values(), ids=KINDS.keys())
def test_a_twin_computes_what_its_model_does(make, shape, layout):
    model = make()
    twin = Twin(model).model
    assert twin is not model
    answers, slopes = [], []
    for each in (model, twin):
        x = inputs(0, *shape).contiguous(memory_format=layout if len(shape) == 4 else PLAIN).requires_grad_()
        answers.append(each(x))
        slopes.append(torch.autograd.grad(answers[-1].square().sum(), x)[0])
    torch.testing.assert_close(*answers, rtol=0, atol=1e-12)
    torch.testing.assert_close(*slopes, rtol=0, atol=1e-10)
    assert answers[0].stride() == answers[1].stride()


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_a_twin_follows_weights_and_statistics(dtype):
    model, x = pictures().float(), inputs(2, 5, 3, 6, 6).float()
    twin = Twin(model)
    before = InPrecision(twin.model, dtype)(x)
    with torch.no_grad():
        for each in (*model.parameters(), *model.buffers()):
            if each.is_floating_point():
                each.data.mul_(1.25)  # which PyTorch does not count as a change
    model[2].eps = 0.5
    twin.refresh()
    after, fresh = (InPrecision(each.model, dtype)(x) for each in (twin, Twin(copy.deepcopy(model))))
    assert torch.equal(after, fresh)
    assert not torch.equal(after, before)


def test_a_gradient_survives_a_refresh_without_news():
    twin, x = Twin(pictures().float()), inputs(2, 5, 3, 6, 6).float().requires_grad_()
    total = twin.model(x).sum()
    twin.refresh()
    (slope,) = torch.autograd.grad(total, x)
    assert (slope != 0).any()


class Counting(Watcher):
    calls = 0

    def count(self, module: nn.Module, given: tuple[Tensor, ...], named: dict[str, Tensor], output: Tensor) -> None:
        self.calls += 1


def test_a_twin_is_not_watched():
    model, meter = pictures().float(), Counting()
    for each in (model, model[0]):
        each.register_forward_hook(meter.count, with_kwargs=True)
    model.register_forward_hook(lambda *passed: 2 * passed[-1])  # which is part of the model
    twin, x = Twin(model).model, inputs(2, 5, 3, 6, 6).float()
    assert [len(each._forward_hooks) for each in (model, twin, twin[0])] == [2, 1, 0]
    torch.testing.assert_close(twin(x), model(x))
    assert meter.calls == 2

    class Single(nn.Sequential):
        def __deepcopy__(self, memo: object) -> nn.Module:
            return self

    single = Single(nn.Linear(4, 4))
    single.register_forward_hook(meter.count, with_kwargs=True)
    assert len(Twin(single).model._forward_hooks) == 1


def test_a_twin_shares_all_that_has_no_quicker_form():
    model = nn.Sequential(network(0), nn.BatchNorm1d(4), nn.PReLU()).double().eval()
    twin = Twin(model).model
    assert not any(each.requires_grad for each in twin.parameters())
    assert all(each.requires_grad for each in model.parameters())
    assert [each.data_ptr() for each in twin.parameters()] == [each.data_ptr() for each in model.parameters()]
    assert "scale" not in dict(model.named_buffers())
    assert type(model[1]) is nn.BatchNorm1d
    assert isinstance(twin[1], nn.BatchNorm1d)
    assert type(twin[1]) is not nn.BatchNorm1d
    assert type(Twin(model, quick=False).model[1]) is nn.BatchNorm1d


class Own(nn.BatchNorm1d):
    """A batch normalisation of somebody else's."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input).relu()


def test_what_others_made_stays_as_it_is():
    tied, called = nn.Linear(4, 4), []
    scaled = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    model = filled(nn.Sequential(tied, Own(4), scaled, nn.BatchNorm1d(4), tied)).float()
    model[3].register_forward_hook(lambda *_: called.append(1))
    x = inputs(3, 5, 4).float()
    for dtype in (None, torch.bfloat16):
        twin = InPrecision(Twin(model).model, dtype)
        torch.testing.assert_close(twin(x), InPrecision(model, dtype)(x), rtol=0.02, atol=0.02)
        assert isinstance(twin.model[1], Own)
    assert len(called) == 4


def test_what_cannot_be_copied_is_its_own_twin():
    class Uncopied(nn.Sequential):
        def __deepcopy__(self, memo: object) -> None:
            raise TypeError

    alone = Uncopied(*network(0), nn.BatchNorm1d(4).double()).eval()
    assert Twin(alone).model is alone
    assert type(alone[-1]) is nn.BatchNorm1d
    assert Twin(torch.tanh).model is torch.tanh

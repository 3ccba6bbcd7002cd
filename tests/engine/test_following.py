"""A compiled model follows its model: whatever is changed later is seen."""

import copy
import logging

import pytest
import torch
from testbed.classifiers import inputs, network
from testbed.compiled import agree, pair
from torch import Tensor, nn

import drq
from drq.engine.compiled import Compiled

UPDATES = {
    "in place": lambda model: model[-1].bias.data.add_(torch.tensor([0.0, 9.0, 0.0, 0.0])),
    "state dict": lambda model: model.load_state_dict(network(8).state_dict()),
    "parameters replaced": lambda model: [setattr(each, "data", each.data.flip(0).clone()) for each in model.parameters()],
    "layer replaced": lambda model: model.__setitem__(2, network(9)[2]),
    "buffer": lambda model: model.register_buffer("shift", torch.zeros(3)),
    "as it was": nn.Module.eval,
}


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES.keys())
def test_later_weights_are_seen(update):
    model, x = network(0), inputs(0, 9, 4)
    fast, plain = pair(model)
    agree(fast.decide(x), before := plain.decide(x))
    with torch.no_grad():
        update(model)
    after = plain.decide(x)
    assert torch.equal(before.log_odds, after.log_odds) == (update in (UPDATES["as it was"], UPDATES["buffer"]))
    agree(fast.decide(x), after)


@pytest.mark.usefixtures("uncompiled")
def test_later_statistics_and_a_change_of_dtype_are_seen():
    model, x = nn.Sequential(*network(0)[:2], nn.BatchNorm1d(24), network(0)[2]).double().eval(), inputs(0, 9, 4)
    fast, plain = pair(model)
    fast.decide(x)
    model[2].running_mean += torch.linspace(-1, 1, 24)
    agree(fast.decide(x), plain.decide(x))
    fast.float()
    assert fast.decide(x.float()).log_odds.dtype == torch.float32
    fast.double()
    agree(fast.decide(x), plain.decide(x))


class Hidden(nn.Module):
    """A module whose temperature and inner network are attributes that PyTorch knows nothing of."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature, self.inner = 1.0, [network(0)]

    def forward(self, x: Tensor) -> Tensor:
        return self.inner[0](x) / self.temperature


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(
    "update", [lambda m: setattr(m, "temperature", 0.1), lambda m: m.inner[0][2].bias.data.add_(torch.eye(4)[0] * 9)]
)
@pytest.mark.xfail(strict=True, reason="the twin has copies of attributes that are neither parameters, buffers nor modules")
def test_later_attributes_are_seen(update):
    x = inputs(0, 6, 4)
    fast, plain = pair(model := Hidden().eval())
    agree(fast.decide(x), plain.decide(x))
    update(model)
    agree(fast.decide(x), plain.decide(x))


@pytest.mark.usefixtures("uncompiled")
def test_what_a_compiled_model_follows():
    model, x = nn.Sequential(network(0), nn.BatchNorm1d(4).double()).eval(), inputs(0, 3, 4)
    compiled = Compiled(model, None)
    torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=1e-12)
    assert not compiled(x).requires_grad
    assert compiled(x.clone().requires_grad_()).requires_grad
    assert compiled.follows(model)
    assert not compiled.follows(copy.deepcopy(model))


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("change", [{"norm": drq.Linf()}, {"bounds": None}, {"frozen": torch.arange(4) < 2}], ids=str)
def test_settings_that_are_changed_later_are_seen(change):
    x = inputs(2, 6, 4)
    fast, plain = pair(network(2), "l2", 0.4)
    agree(fast.decide(x), plain.decide(x))
    for robust in (fast, plain):
        vars(robust).update(change)
    agree(fast.decide(x), plain.decide(x))


@pytest.mark.usefixtures("uncompiled")
def test_compiling_is_announced_once_and_again_for_other_weights(caplog):
    fast, _ = pair(model := network(3))
    with caplog.at_level(logging.WARNING, logger="drq"):
        for count in (1, 5, 40):
            fast.decide(inputs(3, count, 4))
        assert len(caplog.records) == 1
        assert "compiled" in caplog.text
        model[0].weight.data = model[0].weight.data.clone()
        fast.decide(inputs(3, 2, 4))
    assert len(caplog.records) == 2

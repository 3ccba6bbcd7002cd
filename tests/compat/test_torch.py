"""What PyTorch itself does with modules, with the compiler that comes with it."""

import sys

import pytest
import torch
from testbed.compat import around_digits, batch, network, pictures
from torch import Tensor, nn
from torch.export import Dim

import drq

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # which the compiler itself uses


def views() -> drq.DRQ:
    """Around a trained network, behind the gate of its card."""
    robust = drq.DRQ(network(), **drq.preset("upright"))
    assert robust.gate is not None
    return robust


def test_data_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without several devices it hands the batch on. Replicas, which have tensors in the place of parameters, answer as well."""
    robust, (x, _) = around_digits(), batch()
    expected = robust(x)
    parallel = nn.DataParallel(robust)
    assert torch.equal(parallel(x), expected)
    assert torch.equal(parallel.module.decide(x).label, expected.argmax(1))

    def copied(tensors: list[Tensor], devices: list[int], *_: object, **__: object) -> list[list[Tensor]]:
        return [[each.clone() for each in tensors] for _ in devices]  # in the place of two GPUs

    monkeypatch.setattr(sys.modules["torch.nn.parallel.replicate"], "_broadcast_coalesced_reshape", copied)
    for replica in nn.parallel.replicate(robust, [0, 1]):
        assert not [*replica.parameters()]
        assert replica is not robust
        assert torch.equal(replica(x), expected)


def test_autocast() -> None:
    """Inside it the model runs in lower precision, and scores stay in that of x; few labels differ, none with precision=."""
    robust, (x, _) = around_digits(), batch(60)
    decision, seen = robust.decide(x), []
    watch = robust.model[0].register_forward_hook(lambda *values: seen.append(values[2].dtype))
    with torch.autocast("cpu", torch.bfloat16):
        scores = robust(x)
    watch.remove()
    assert set(seen) == {torch.bfloat16}
    assert scores.dtype == torch.float32
    assert (scores.argmax(1) != decision.label).double().mean() < 0.05
    settled = around_digits(precision="bfloat16").decide(x)
    assert torch.equal(settled.label, decision.label)


@pytest.mark.parametrize("kind", ["ball", "views"])
def test_torch_compile(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """It leaves DRQ as it is, and says what it would compile."""
    robust, x = (around_digits(), batch()[0]) if kind == "ball" else (views(), pictures(8))
    assert torch.equal(torch.compile(robust)(x), robust(x))
    (said,) = (each.getMessage() for each in caplog.records if each.name == "drq")
    assert "drq.DRQ(model, compile=True) compiles its searches" in said


def test_torch_compile_of_the_model() -> None:
    (x, _), robust = batch(), around_digits()
    compiled = drq.DRQ(torch.compile(robust.model), **robust.settings)
    assert torch.equal(compiled.decide(x).label, robust.decide(x).label)
    torch.testing.assert_close(compiled(x), robust(x), rtol=0, atol=1e-3)


def test_torch_compile_of_views() -> None:
    robust, x = drq.DRQ(network(), views="Mirror() + Contrast()").gated(pictures(100, seed=1), 0.1), pictures(40)
    graph = torch.compile(robust.exportable(), fullgraph=True)
    torch.testing.assert_close(graph(x), robust(x), rtol=0, atol=1e-4)
    assert torch.equal(graph(x).argmax(1), robust.decide(x).label)


def test_torch_export(tmp_path: object) -> None:
    """Written to a file and read from it, for batches of any size."""
    robust, x = views(), pictures(120)
    program = torch.export.export(robust, (x[:3],), dynamic_shapes=({0: Dim.DYNAMIC},))
    torch.export.save(program, f"{tmp_path}/robust.pt2")
    read = torch.export.load(f"{tmp_path}/robust.pt2").module()
    torch.testing.assert_close(read(x), robust(x), rtol=0, atol=1e-5)
    assert torch.equal(read(x).argmax(1), robust.decide(x).label)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_torch_jit(tmp_path: object) -> None:
    robust, x = views(), pictures(40)
    torch.jit.save(torch.jit.trace(robust, x[:2]), f"{tmp_path}/robust.pt")
    torch.testing.assert_close(torch.jit.load(f"{tmp_path}/robust.pt")(x), robust(x), rtol=0, atol=1e-5)


def test_torch_func() -> None:
    """A slope for each sample at once is that of torch.autograd."""
    robust, x = views(), pictures(6)

    def top(one: Tensor) -> Tensor:
        return robust(one[None]).max()

    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(robust(leaf).max(1).values.sum(), leaf)
    torch.testing.assert_close(torch.vmap(torch.func.grad(top))(x), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(torch.vmap(lambda one: robust(one[None])[0])(x), robust(x), rtol=0, atol=1e-5)

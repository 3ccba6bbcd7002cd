"""DRQ over views as an ONNX file: the same labels in ONNX Runtime."""

from pathlib import Path

import pytest
import torch
from testbed.compat import network, pictures
from torch import Tensor, nn
from torch.export import Dim

import drq

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
COUNT = 200


def in_runtime(robust: nn.Module, x: Tensor, folder: Path) -> Tensor:
    """The scores of the exported file, in batches of several sizes."""
    import onnxruntime

    file = folder / "robust.onnx"
    options = {"input_names": ["x"], "output_names": ["scores"], "dynamic_shapes": ({0: Dim.DYNAMIC},)}
    torch.onnx.export(robust, (x[:2],), file, dynamo=True, verbose=False, **options)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    parts = [session.run(["scores"], {"x": rows.numpy()})[0] for rows in (x[:1], x[1:8], x[8:])]
    return torch.cat([torch.as_tensor(each) for each in parts])


VIEWS = "Rotation(90, 5) + Scale(2, 3) + Shift(4, 5) * Mirror()"
SETTINGS = {
    "preset nature, behind the gate of the card": drq.preset("nature"),
    "preset upright, behind the gate of the card": drq.preset("upright"),
    "views alone": {"views": VIEWS},
    "neighbouring views": {"views": VIEWS, "alpha": 0.5},
    "three classes": {"views": VIEWS, "classes": 3},
    "behind a front": {"views": "Mirror()", "front": drq.Restoration()},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_onnx_runtime(name: str, tmp_path: Path) -> None:
    robust, x = drq.DRQ(network(), **SETTINGS[name]), pictures(COUNT)
    assert (robust.gate is not None) == ("card" in name)
    decision = robust.decide(x)
    assert (decision.label != decision.base_label).any()
    assert decision.kept.any() == (robust.gate is not None)
    scores = in_runtime(robust, x, tmp_path)
    assert torch.equal(scores.argmax(1), decision.label)
    torch.testing.assert_close(scores, robust(x), rtol=0, atol=1e-4)


def test_onnx_runtime_behind_a_gate_that_opens_often(tmp_path: Path) -> None:
    robust, x = drq.DRQ(network(), **drq.preset("nature")).gated(pictures(150, seed=1), changes=0.2), pictures(COUNT)
    decision = robust.decide(x)
    assert 0.1 < (decision.label != decision.base_label).double().mean() < 0.9
    assert 0.05 < decision.kept.double().mean() < 0.95
    assert torch.equal(in_runtime(robust, x, tmp_path).argmax(1), decision.label)


def test_onnx_runtime_where_classes_are_certain(tmp_path: Path) -> None:
    """Sigmoids of several classes are 1, and only their logarithms tell them apart."""

    class Loud(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = network()
            self.eval()

        def forward(self, x: Tensor) -> Tensor:
            return 300 * self.model(x)

    robust, x = drq.DRQ(Loud(), views="Rotation(90, 5) + Mirror()"), pictures(COUNT)
    decision = robust.decide(x)
    assert (decision.robustness.topk(2).values[:, 1] == 1).double().mean() > 0.2
    assert torch.equal(in_runtime(robust, x, tmp_path).argmax(1), decision.label)

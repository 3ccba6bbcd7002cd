"""Libraries that explain, measure and train take DRQ as a model."""

import copy

import pytest
import torch
from testbed.compat import accuracy, alone, around_digits, batch
from testbed.refusals import refused
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import drq

apart = pytest.fixture(autouse=True)(alone)


def test_captum() -> None:
    """Slopes are those of torch, and paths from black sum to the difference of scores, as far as these are smooth."""
    from captum.attr import IntegratedGradients, Saliency

    robust, (x, _) = around_digits(), batch(4)
    label = robust.decide(x).label
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(robust(leaf).gather(1, label[:, None]).sum(), leaf)
    assert (expected.flatten(1) != 0).any(1).all()
    torch.testing.assert_close(Saliency(robust).attribute(leaf, target=label, abs=False), expected)
    views = drq.DRQ(robust.model, views="Mirror()")
    label = views.decide(x).label
    _, gap = IntegratedGradients(views).attribute(x, target=label, n_steps=400, return_convergence_delta=True)
    whole = (views(x) - views(torch.zeros_like(x))).gather(1, label[:, None])[:, 0]
    assert (gap.abs() < 0.05 * whole.abs()).all()


def test_torchmetrics() -> None:
    """Scores have the label as their argmax, so that a metric of labels knows them; margins rank answers."""
    from torchmetrics.classification import BinaryAUROC, MulticlassAccuracy

    robust, (x, y) = around_digits(), batch(60)
    x = (x + 0.4 * torch.randn_like(x)).clamp(0, 1)
    metric = MulticlassAccuracy(10, average="micro")
    for rows in torch.arange(60).split(25):
        metric.update(robust(x[rows]), y[rows])
    assert metric.compute().item() == pytest.approx(accuracy(robust, x, y))
    decision = robust.decide(x)
    right = decision.label == y
    assert 0.1 < right.double().mean() < 0.95
    area = BinaryAUROC()(decision.margin, right.long()).item()
    pairs = decision.margin[right][:, None] - decision.margin[~right]
    assert area == pytest.approx(((pairs > 0).double() + 0.5 * (pairs == 0)).mean().item(), abs=1e-4)


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning", "ignore:.*does not have many workers.*")
def test_lightning(tmp_path: object) -> None:
    """Tests and predictions run as ever, in inference mode; training is refused in a line."""
    import lightning

    class Answering(lightning.LightningModule):
        def __init__(self, robust: drq.DRQ) -> None:
            super().__init__()
            self.robust = robust

        def test_step(self, rows: list[Tensor], number: int) -> None:
            x, y = rows
            assert torch.is_inference_mode_enabled()
            self.log("right", (self.robust.decide(x).label == y).double().mean(), batch_size=len(x))

        def predict_step(self, rows: list[Tensor], number: int) -> Tensor:
            return self.robust(rows[0])

        def training_step(self, rows: list[Tensor], number: int) -> Tensor:
            return cross_entropy(self.robust(rows[0]), rows[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    robust, (x, y) = around_digits(), batch(20)
    loader = DataLoader(TensorDataset(x, y), batch_size=8)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_epochs=1, default_root_dir=str(tmp_path), **quiet)
    (found,) = trainer.test(Answering(robust), loader, verbose=False)
    assert found["right"] == pytest.approx(accuracy(robust, x, y))
    scores = torch.cat(trainer.predict(Answering(robust), loader))
    torch.testing.assert_close(scores, robust(x), rtol=0, atol=1e-5)
    learning = Answering(copy.deepcopy(robust)).train()
    refused(
        trainer.fit, learning, loader, words=["model must be in evaluation mode", "in training mode: call model.eval() first"]
    )

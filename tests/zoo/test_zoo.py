"""DRQ on real architectures, and their inputs beside those that their own libraries make."""

import pytest
import torch
from testbed import zoo
from torch import Tensor, nn

import drq
from drq.models.classifier import Classifier, WrongRange

every_model = pytest.mark.parametrize("name", zoo.NAMES)


def seen(model: Classifier, x: Tensor) -> Tensor:
    """What the library's own module is given for these images."""
    given = []
    handle = zoo.bare(model).register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    with torch.no_grad():
        model(x)
    handle.remove()
    return given[0]


@every_model
def test_it_is_ready_for_use(name):
    model = zoo.load(name)
    assert not any(each.training for each in model.modules())
    assert not any(each.requires_grad for each in model.parameters())
    assert {each.dtype for each in model.parameters()} == {torch.float32}
    x = model.card.view(zoo.picture(120, 90))[None]
    count = 12 if name.startswith("hf:") else 1000
    assert model(x).shape == (1, count)
    assert model.card.classes is None or len(model.card.classes) == count


@every_model
def test_the_input_has_a_gradient(name):
    model = zoo.load(name)
    x = model.card.view(zoo.picture(120, 90))[None].requires_grad_()
    (gradient,) = torch.autograd.grad(model(x)[:, :2].diff(dim=1).sum(), x)
    assert gradient.isfinite().all()
    assert (gradient != 0).float().mean() > 0.5


class Contested(nn.Module):
    """The model with its logits levelled near some images, where random weights always prefer the same class."""

    def __init__(self, model: nn.Module, near: Tensor) -> None:
        super().__init__()
        self.model = model
        logits = model(near)
        self.level, self.spread = logits.mean(0), (logits - logits.mean(0)).std()

    def forward(self, x: Tensor) -> Tensor:
        return (self.model(x) - self.level) / self.spread


@every_model
def test_exact_pruning_changes_neither_label_nor_margin(name):
    model = zoo.load(name)
    x = torch.stack([model.card.view(zoo.picture(260, 240, seed)) for seed in (2, 3)])
    contested = Contested(model, torch.cat([x, (x + 0.02).clamp(max=1)])).eval()
    decisions = [
        drq.DRQ(*(contested, "linf", 2 / 255), classes=4, explore=drq.Gradient(2), quantify=drq.Gradient(2), prune=prune).decide(
            x[:1]
        )
        for prune in ("none", "exact")
    ]
    plain, pruned = decisions
    assert plain.reached.sum() >= 2, "no contest: the test would show nothing"
    assert pruned.label.equal(plain.label)
    torch.testing.assert_close(pruned.margin, plain.margin, rtol=0, atol=1e-5)
    assert (pruned.passes <= plain.passes).all()
    for decision in decisions:
        assert decision.robustness.isfinite().all()
        assert decision.margin.isfinite().all()
        assert ((decision.robustness >= 0) & (decision.robustness <= 1)).all()


@every_model
def test_at_its_own_size_a_picture_becomes_the_input_of_the_library(name):
    model = zoo.load(name)
    picture = zoo.native(model)
    theirs, x = zoo.pipeline(name)(picture)[None], model.card.view(picture)[None]
    torch.testing.assert_close(seen(model, x), theirs, rtol=0, atol=1e-5)
    with torch.no_grad():
        logits = zoo.bare(model)(theirs)
        logits = getattr(logits, "logits", logits)
        torch.testing.assert_close(model(x), logits, rtol=1e-4, atol=1e-5)


SIZES = [(301, 267), (97, 143), (640, 481)]


@pytest.mark.parametrize("size", SIZES)
@every_model
def test_resized_it_is_the_input_of_the_library_too(name, size):
    model = zoo.load(name)
    picture = zoo.picture(*size)
    pillow = {"backend": "pil"} if name.startswith("hf:") else {}  # the others hand PIL images to PIL in any case
    theirs, x = zoo.pipeline(name, **pillow)(picture), model.card.view(picture)[None]
    torch.testing.assert_close(seen(model, x)[0], theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [name for name in zoo.NAMES if name.startswith("hf:")])
def test_resized_by_torch_it_is_nearly_the_same(name, size):
    model = zoo.load(name)
    picture = zoo.picture(*size, contrast=0.6)
    theirs = zoo.pipeline(name, backend="torchvision")(picture)
    zoo.check_near(model.card.view(picture), theirs * model.std + model.mean)


@pytest.mark.parametrize("name", ["torchvision:resnet18", "timm:vit_tiny_patch16_224", "hf:vit"])
def test_images_in_the_wrong_range_are_noticed(name):
    view, model = zoo.load(name).card.view, zoo.load(name)
    model.calls = 0  # it looks at the first batch
    x = view(zoo.picture(100, 100))[None]
    with pytest.warns(WrongRange, match=f"{name.partition(':')[0]}:.*divide them by 255"):
        model(x * 255)
    model.calls = 0
    with pytest.warns(WrongRange, match="normalised already"):
        model((x - model.mean) / model.std)

"""The method on one page: short, without the library, and the same answers as `drq.DRQ` and as the loop of `drq bench`."""

import ast
import math
import runpy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import drq
from drq.bench.naive import Naive

PAGE = Path(__file__).parents[2] / "examples" / "naive_drq.py"
P = {"linf": math.inf, "l2": 2}
RADII = [("linf", 0.3), ("l2", 1.2)]

pytest.importorskip("sklearn", reason="scikit-learn is not installed")


@pytest.fixture(scope="module")
def decide():
    return runpy.run_path(str(PAGE))["decide"]


@pytest.fixture(scope="module", params=[torch.float32, torch.float64], ids=str)
def digits(request):
    """A hundred digits (half as many in float64), every other one under noise, and the classifier of the page's own example."""
    count = 100 if request.param == torch.float32 else 50
    model, (x, _) = drq.load_model("digits").to(request.param), drq.load_data("digits").batch(range(count))
    noise = 0.25 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    noise[::2] = 0
    return model, (x + noise).clamp(0, 1).to(request.param)


def smooth() -> tuple[nn.Module, Tensor]:
    """A network with curved regions, and inputs far from the edges of the box."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 4)).double().eval()
    for each in model.parameters():
        each.data = 2.5 * torch.randn(each.shape, generator=generator, dtype=torch.float64) / each.shape[-1] ** 0.5
    return model, 0.3 + 0.4 * torch.rand(100, 4, generator=generator, dtype=torch.float64)


def test_it_is_one_page_without_the_library():
    text = PAGE.read_text()
    assert len(text.splitlines()) <= 100
    *method, main = ast.parse(text).body
    assert ast.unparse(main).startswith("if __name__ == '__main__':")
    imported = [each for each in method if isinstance(each, ast.Import | ast.ImportFrom)]
    assert {alias.name if isinstance(each, ast.Import) else each.module for each in imported for alias in each.names} == {
        *("math", "collections.abc", "torch"),
    }


@pytest.mark.parametrize(("norm", "radius"), RADII)
def test_labels_are_those_of_drq_and_of_the_benchmark(decide, digits, norm, radius):
    """Three programs that share no code."""
    model, x = digits
    label, log_odds, eps = decide(model, x, P[norm], radius)
    ours, naive = drq.DRQ(model, norm, radius, prune="none").decide(x), Naive(model, norm, radius).decide(x)
    assert torch.equal(label, ours.label)
    assert torch.equal(naive.label, ours.label)
    assert torch.equal(log_odds > -torch.inf, ours.reached)
    assert (eps == ours.radius).all()
    if x.dtype == torch.float64:
        torch.testing.assert_close(log_odds.sigmoid(), ours.robustness, rtol=0, atol=1e-6)
        torch.testing.assert_close(naive.log_odds, log_odds, rtol=0, atol=1e-6)
    assert (ours.label != ours.base_label).any()  # or a page that returned F(x) would pass
    assert not ours.reached.all()


@pytest.mark.parametrize("alpha", [0, 0.25, 1])
def test_the_share_for_quantification_is_that_of_drq(decide, alpha):
    model, x = smooth()
    label, log_odds, _ = decide(model, x, 2, 0.2, alpha=alpha)
    ours = drq.DRQ(model, "l2", 0.2, alpha=alpha, prune="none").decide(x)
    assert torch.equal(label, ours.label)
    torch.testing.assert_close(log_odds, ours.log_odds, rtol=0, atol=1e-9)


@pytest.mark.parametrize("norm", P)
def test_calibrated_labels_are_those_of_drq(decide, digits, norm):
    """At an edge of the box a rounding error may turn the search for the radius another way: compared is where it did not."""
    model, x = digits
    label, log_odds, eps = decide(model, x, P[norm])
    ours = drq.DRQ(model, norm, prune="none").decide(x)
    assert torch.equal(eps > 0, ours.found)
    assert torch.equal(label[~ours.found], ours.base_label[~ours.found])
    exact = x.dtype == torch.float64
    alike = ours.found & ((eps - ours.radius).abs() <= (1e-9 if exact else 1e-4) * ours.radius)
    assert alike.float().mean() >= (0.9 if exact else 0.8)
    assert torch.equal(label[alike], ours.label[alike])
    if exact:
        torch.testing.assert_close(log_odds.sigmoid()[alike], ours.robustness[alike], rtol=0, atol=1e-6)


@pytest.mark.parametrize("norm", P)
def test_calibrated_radii_are_those_of_drq(decide, norm):
    model, x = smooth()
    label, log_odds, eps = decide(model, x, P[norm])
    ours = drq.DRQ(model, norm, prune="none").decide(x)
    clear = ours.radius < 0.3  # the ball touches no edge
    assert clear.sum() >= 80
    torch.testing.assert_close(eps[clear], ours.radius[clear], rtol=0, atol=1e-9)
    torch.testing.assert_close(log_odds[clear], ours.log_odds[clear], rtol=0, atol=1e-6)
    assert torch.equal(label, ours.label)


def test_where_all_classes_are_alike_the_classifier_answers(decide):
    """Nothing else is found, and all that is reached ties."""
    model = nn.Linear(2, 3).eval()
    nn.init.zeros_(model.weight)
    model.bias.data = torch.tensor([0.0, 1.0, 0.0])
    label, log_odds, eps = decide(model, torch.rand(4, 2))
    assert label.tolist() == [1] * 4
    assert eps.tolist() == [0] * 4
    assert (log_odds > -torch.inf).tolist() == [[False, True, False]] * 4


def test_it_leaves_the_model_as_it_was(decide):
    model, x = smooth()
    decide(model, x[:5])
    assert all(each.grad is None for each in model.parameters())


def test_the_script_prints_both_labels(capsys):
    runpy.run_path(str(PAGE), run_name="__main__")
    here, library = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (here[:2], library[:1]) == (["this", "page"], ["drq.DRQ"])
    assert here[2:] == library[1:]
    assert len(library) == 21


@pytest.mark.slow
@pytest.mark.parametrize("norm", P)
def test_labels_are_those_of_drq_around_a_network_for_photographs(decide, norm):
    """Three pieces of two photographs, seen by the CIFAR-10 model of the package, with the radius of its training doubled."""
    from sklearn.datasets import load_sample_images

    photographs = torch.stack([torch.tensor(each).permute(2, 0, 1) for each in load_sample_images().images]) / 255
    x = nn.functional.avg_pool2d(photographs, 6)[:, :, 2:66, 4:68].unfold(2, 32, 32).unfold(3, 32, 32)
    x = x.permute(0, 2, 3, 1, 4, 5).reshape(-1, 3, 32, 32)[::3]
    model, radius = drq.load_model("cifar10-small"), {"linf": 16 / 255, "l2": 1.0}[norm]
    ours = drq.DRQ(model, norm, radius, prune="none").decide(x)
    label, log_odds, _ = decide(model, x, P[norm], radius)
    assert torch.equal(label, ours.label)
    torch.testing.assert_close(log_odds.sigmoid(), ours.robustness, rtol=0, atol=1e-3)
    assert not ours.reached.all()

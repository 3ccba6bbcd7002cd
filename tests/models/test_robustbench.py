"""RobustBench's files: every model of the paper, from a file in the published layout, computes what RobustBench computes."""

import sys
from functools import partial

import pytest
import torch
from testbed import robustbench_networks as networks
from testbed.refusals import refused

import drq
from drq.models import robustbench
from drq.models.architectures import blank

CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616))
CIFAR100 = ((0.507075, 0.486549, 0.440918), (0.267334, 0.256438, 0.276150))
HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
wong = partial(networks.run_preact_resnet18, final_norm=False, shortcut_from_input=True)
rice = partial(networks.run_preact_resnet18, final_norm=True, shortcut_from_input=False)
MODELS = {  # names and shapes, what it computes, its normalisation, norm and radius of its training, the size of its images
    "cifar10/Linf/Wong2020Fast": (networks.preact_resnet18(10, False), wong, CIFAR10, ("linf", 8 / 255), 32),
    "cifar10/L2/Rice2020Overfitting": (networks.preact_resnet18(10, True), rice, CIFAR10, ("l2", 0.5), 32),
    "cifar100/Linf/Rice2020Overfitting": (networks.preact_resnet18(100, True), rice, CIFAR100, ("linf", 8 / 255), 32),
    "cifar10/corruptions/Hendrycks2020AugMix_WRN": (
        networks.wide_resnet(40, 2, 10, networks.AUGMIX),
        partial(networks.run_wide_resnet, depth=40, names=networks.AUGMIX),
        HALF,
        (None, None),
        32,
    ),
    "imagenet/Linf/Wong2020Fast": (networks.resnet50(1000), networks.run_resnet50, IMAGENET, ("linf", 4 / 255), 288),
    "imagenet/corruptions/Hendrycks2020Many": (networks.resnet50(1000), networks.run_resnet50, IMAGENET, (None, None), 224),
    "cifar10/Linf/Gowal2020Uncovering_28_10_extra": (
        networks.wide_resnet(28, 10, 10, networks.GOWAL),
        partial(networks.run_wide_resnet, depth=28, names=networks.GOWAL),
        CIFAR10,
        ("linf", 8 / 255),
        32,
    ),
}
QUICK = "cifar10/corruptions/Hendrycks2020AugMix_WRN"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DRQ_MODELS", str(tmp_path))


@pytest.fixture
def stored(tmp_path):
    """Writes a file where RobustBench keeps it."""

    def store(name, content):
        path = tmp_path / f"{name}.pt"
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(content, path)
        return path

    return store


def test_every_published_model_is_checked():
    assert set(MODELS) == set(robustbench.PUBLISHED)


@pytest.mark.parametrize("name", MODELS)
def test_names_and_shapes_are_the_published_ones(name):
    expected = MODELS[name][0]
    model = robustbench.PUBLISHED[name]
    rename = drq.models.ARCHITECTURES[model.arch].rename
    ours = {key: tuple(value.shape) for key, value in blank(model.arch, model.classes).state_dict().items()}
    assert ours == {rename(key): shape for key, shape in expected.items()}
    assert len(ours) == len(expected)


@pytest.mark.parametrize("name", MODELS)
def test_it_computes_what_the_published_network_computes(name, stored):
    shapes, run, (mean, std), (norm, radius), size = MODELS[name]
    weights = networks.values(shapes)
    stored(name, {"state_dict": {f"module.{key}": value for key, value in weights.items()}, "epoch": 3})
    model = drq.load_model(f"robustbench:{name}")
    x = torch.rand(1, 3, 64 if size > 32 else 32, 64 if size > 32 else 32, generator=torch.Generator().manual_seed(1))
    normalised = (x - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    with torch.no_grad():
        torch.testing.assert_close(model(x), run(weights, normalised), rtol=1e-4, atol=1e-4)
    assert (model.card.norm, model.card.radius) == (norm, radius)
    assert (model.card.view.height, model.card.view.width) == (size, size)
    assert not model.training
    assert not any(each.requires_grad for each in model.parameters())


@pytest.mark.parametrize(
    "wrap",
    [
        lambda weights: weights,
        lambda weights: {"model": {f"module.model.{key}": value for key, value in weights.items()}},
        lambda weights: weights | {"mu": torch.full((1, 3, 1, 1), 0.5), "sigma": torch.full((1, 3, 1, 1), 0.5)},
        lambda weights: {key: value for key, value in weights.items() if "num_batches" not in key},
    ],
    ids=["bare", "wrapped twice", "with its normalisation", "without counters"],
)
def test_checkpoints_come_in_several_shapes(wrap, stored):
    shapes, run, *_ = MODELS[QUICK]
    weights = networks.values(shapes)
    stored(QUICK, wrap(weights))
    x = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(drq.load_model(f"robustbench:{QUICK}")(x), run(weights, 2 * x - 1), rtol=1e-4, atol=1e-4)


def test_another_normalisation_in_the_file_is_refused(stored):
    weights = networks.values(MODELS[QUICK][0]) | {"mu": torch.full((3,), 0.4), "sigma": torch.full((3,), 0.5)}
    stored(QUICK, weights)
    assert "be the normalisation of" in refused(drq.load_model, f"robustbench:{QUICK}")


def test_the_variants_are_not_mixed_up(stored):
    """Wong's file lacks the final batch norm that Rice's has."""
    stored("cifar10/L2/Rice2020Overfitting", networks.values(MODELS["cifar10/Linf/Wong2020Fast"][0]))
    message = refused(drq.load_model, "robustbench:cifar10/L2/Rice2020Overfitting")
    assert "bn.bias, bn.running_mean, bn.running_var and 1 more missing" in message
    stored("cifar10/Linf/Wong2020Fast", networks.values(MODELS["cifar10/L2/Rice2020Overfitting"][0]))
    assert "unknown" in refused(drq.load_model, "robustbench:cifar10/Linf/Wong2020Fast")


def test_wrong_number_of_classes(stored):
    stored("cifar100/Linf/Rice2020Overfitting", networks.values(networks.preact_resnet18(10, True)))
    assert "the file has 10 classes" in refused(drq.load_model, "robustbench:cifar100/Linf/Rice2020Overfitting")


def test_a_missing_file_says_where_to_put_it(tmp_path):
    message = refused(drq.load_model, "robustbench:cifar10/Linf/Wong2020Fast")
    assert str(tmp_path / "cifar10" / "Linf" / "Wong2020Fast.pt") in message
    assert "DRQ_MODELS" in message


def test_unknown_names_show_the_nearest():
    assert "did you mean cifar10/Linf/Wong2020Fast?" in refused(drq.load_model, "robustbench:cifar10/Linf/Wong2020")


def test_the_package_is_asked_only_with_download(monkeypatch):
    """It is not installed here: the error says so."""
    monkeypatch.setitem(sys.modules, "robustbench", None)
    assert "needs the package robustbench" in refused(drq.load_model, "robustbench:cifar10/Linf/Wong2020Fast", download=True)
    assert "name data/threat/model" in refused(drq.load_model, "robustbench:Wong2020Fast", download=True)

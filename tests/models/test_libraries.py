"""Models of other libraries and of your own: what is missing, and what a factory is asked."""

import sys

import pytest
import torch
from testbed.libraries import refused
from torch import nn

from drq.models.classifier import Card, Classifier
from drq.models.libraries import load_huggingface, load_python, load_timm, load_torchvision


@pytest.mark.parametrize(
    ("load", "name", "package"),
    [(load_timm, "resnet50", "timm"), (load_torchvision, "resnet50", "torchvision"), (load_huggingface, "a/b", "transformers")],
)
def test_a_missing_library_is_named(load, name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    message = refused(load, name, match=f"^{package} must be installed for its models")
    assert message.endswith("pip install 'decision-region-quantification[zoo]'")


FACTORIES = """
import torch
from drq.models.classifier import Card, Classifier

def table(features=3, classes=2):
    return torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(features, classes))

def images():
    return Classifier(torch.nn.Flatten(), Card("mine"), mean=[0.5], std=[0.25]).train()

def words():
    return "no model"

model = table()
number = 3

class Holder:
    made = staticmethod(table)
"""


class TestPython:
    @pytest.fixture(autouse=True)
    def factories(self, tmp_path, monkeypatch):
        (tmp_path / "my_factories.py").write_text(FACTORIES)
        (tmp_path / "my_broken.py").write_text("import a_package_that_is_missing")
        monkeypatch.syspath_prepend(tmp_path)
        yield
        sys.modules.pop("my_factories", None)

    def test_any_module_is_returned_as_it_is(self):
        model = load_python("my_factories:table", features=4, classes=3)
        assert isinstance(model, nn.Sequential)
        assert not any(each.training for each in model.modules())
        assert not any(each.requires_grad for each in model.parameters())
        assert model(torch.rand(2, 4)).shape == (2, 3)  # tabular: nothing is said of images
        assert load_python("my_factories:Holder.made")(torch.rand(1, 3)).shape == (1, 2)

    def test_a_classifier_keeps_its_card(self):
        model = load_python("my_factories:images")
        assert isinstance(model, Classifier)
        assert model.card == Card("mine")
        assert not any(each.training for each in model.modules())
        assert model(torch.full((1, 1, 1, 2), 0.75)).tolist() == [[1.0, 1.0]]

    @pytest.mark.parametrize(
        ("target", "options", "match"),
        [
            ("my_factories", {}, "^name must have the form python:package.module:factory, got 'my_factories'"),
            ("my factories:table", {}, "must have the form"),
            ("no_such_module:table", {}, "^no_such_module must be a module that can be imported, got 'No module named 'no_such"),
            ("my_broken:table", {}, "^my_broken must be a module .*got 'No module named 'a_package_that_is_missing''"),
            ("my_factories:chair", {}, "^my_factories:chair must name something in my_factories, got no chair"),
            ("my_factories:number", {}, "must name a function or class that makes the model, got int"),
            ("my_factories:model", {}, "must name a function or class that makes the model, got Sequential"),
            ("my_factories:words", {}, "^my_factories:words must return a torch.nn.Module, got str"),
            ("my_factories:table", {"colour": 1}, r"must take these options, got colour \(got an unexpected keyword argument"),
        ],
    )
    def test_mistakes(self, target, options, match):
        refused(load_python, target, **options, match=match)

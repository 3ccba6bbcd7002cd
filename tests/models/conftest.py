"""Libraries that are not there, with stand-ins in their place."""

import sys

import pytest
from testbed.stand_ins import Hub, Timm, Transformers, module, torchvision


@pytest.fixture
def hub(monkeypatch) -> Hub:
    made = Hub()
    monkeypatch.setitem(sys.modules, "huggingface_hub", module("huggingface_hub", snapshot_download=made.snapshot_download))
    return made


@pytest.fixture
def timm(monkeypatch, hub) -> Timm:  # noqa: ARG001 - it asks the hub
    made = Timm()
    monkeypatch.setitem(sys.modules, "timm", made.module)
    monkeypatch.setitem(sys.modules, "timm.data", made.data)
    return made


@pytest.fixture
def vision(monkeypatch, tmp_path):
    made = torchvision()
    monkeypatch.setitem(sys.modules, "torchvision", module("torchvision", models=made))
    monkeypatch.setitem(sys.modules, "torchvision.models", made)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    return made


@pytest.fixture
def transformers(monkeypatch, hub) -> Transformers:  # noqa: ARG001 - it asks the hub
    made = Transformers()
    monkeypatch.setitem(sys.modules, "transformers", made.module)
    return made

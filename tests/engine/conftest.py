"""Fixtures of the engine."""

import pytest
import torch


@pytest.fixture
def uncompiled(monkeypatch):
    """Everything but the compiler, which takes half a minute."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)

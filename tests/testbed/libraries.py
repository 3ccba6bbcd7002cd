"""What models of other libraries come from, and what is checked of all of them."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from drq.errors import InputError
from drq.models.classifier import Classifier
from testbed.stand_ins import Net


def repository(folder: Path, model: nn.Module, *others: str) -> Path:
    folder.mkdir(exist_ok=True)
    save_file(model.state_dict(), folder / "model.safetensors")
    for name in others:
        (folder / name).write_text("{}")
    return folder


def refused(call, *arguments, match: str, **options) -> str:
    """The message of a refusal; it is one line."""
    with pytest.raises(InputError, match=match) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def check_ready(model: Classifier) -> None:
    """In evaluation mode, in float32, with weights fixed; normalises with what the stand-ins have on record."""
    assert not any(each.training for each in model.modules())
    assert not any(each.requires_grad for each in model.parameters())
    assert {each.dtype for each in model.parameters()} == {torch.float32}
    x = torch.rand(2, 3, 32, 32)
    logits = model(x)
    inner = next(each for each in model.modules() if isinstance(each, Net))
    expected = (x - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)) / torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)
    torch.testing.assert_close(inner.normalised, expected)
    torch.testing.assert_close(logits, inner.head(expected.mean((2, 3))))

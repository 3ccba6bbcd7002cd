"""The same defence, compiled and not."""

import torch

import drq

STEPS = {"explore": drq.Gradient(5), "quantify": drq.Gradient(6)}


def pair(model, *settings, **others) -> tuple[drq.DRQ, drq.DRQ]:
    settings = settings or ("l2", 0.3)
    return tuple(drq.DRQ(model, *settings, compile=compile, **STEPS | others) for compile in (True, False))


def agree(first: drq.Decision, second: drq.Decision) -> None:
    for name in ("label", "exact", "reached", "passes"):
        assert torch.equal(getattr(first, name), getattr(second, name)), name
    torch.testing.assert_close(first.log_odds, second.log_odds, rtol=0, atol=1e-9)

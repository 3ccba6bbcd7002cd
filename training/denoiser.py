"""Train the denoiser of the paper (Appendix C): ``python training/denoiser.py``. A GPU takes about two minutes.

DnCNN with 17 layers of 64 channels learns to take Gaussian noise of standard deviation 0.1 off the training images of CIFAR-10:
batches of 128, Adam with a rate of 0.001, mean squared error, 40 epochs. The file lands in the package, where
``drq.models.denoiser()`` finds it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from cifar10 import images
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from drq.method.execution import InPrecision
from drq.models import weights
from drq.models.dncnn import DnCNN
from drq.models.trained import place
from drq.system.files import digest
from drq.system.progress import Bar, Tell

NOISE, BATCH, RATE, EPOCHS = 0.1, 128, 0.001, 40


def main() -> None:
    """Train, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="by default the package; for other epochs, a trial in DRQ_MODELS")
    given = parser.parse_args()
    given.out = given.out or place("cifar10-denoiser" if given.epochs == EPOCHS else "cifar10-denoiser-trial")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    model = train(images("train", given.device)[0], given.epochs, given.seed, Bar("denoiser"))
    seconds = time.monotonic() - began
    training = f"Gaussian noise {NOISE}, batch {BATCH}, Adam {RATE}, {given.epochs} epochs, seed {given.seed}"
    weights.write(model, given.out, {"architecture": "dncnn", "dataset": "CIFAR-10", "training": training})
    error = squared_error(model, images("test", given.device)[0], given.seed)
    print(f"denoiser: mean squared error {error:.6f} of {NOISE**2}, {seconds:.0f} s, {given.out.stat().st_size} bytes,")
    print(f"sha256 {digest(given.out)}: {given.out}")


def train(x: Tensor, epochs: int, seed: int, tell: Tell) -> nn.Module:
    """The trained network, in evaluation mode."""
    torch.manual_seed(seed)
    draws = torch.Generator(x.device).manual_seed(seed)
    model = DnCNN().to(x.device, memory_format=torch.channels_last)
    quick = InPrecision(model, torch.bfloat16 if x.is_cuda else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
    for epoch in range(epochs):
        for rows in torch.randperm(len(x), generator=draws, device=x.device).split(BATCH):
            clean = x[rows].contiguous(memory_format=torch.channels_last)
            loss = mse_loss(quick(noisy(clean, draws)), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        tell((epoch + 1) / epochs, f"epoch {epoch + 1}, squared error {float(loss.detach()):.5f}")
    return model.eval().requires_grad_(False)


def noisy(x: Tensor, draws: torch.Generator) -> Tensor:
    """The images with the noise of the training."""
    return x + NOISE * torch.randn(x.shape, generator=draws, device=x.device)


def squared_error(model: nn.Module, x: Tensor, seed: int) -> float:
    """What is left of the noise on images that were not seen."""
    draws = torch.Generator(x.device).manual_seed(seed + 1)
    return float(sum(mse_loss(model(noisy(part, draws)), part) * len(part) for part in x.split(1000)) / len(x))


if __name__ == "__main__":
    main()

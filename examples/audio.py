"""Sounds: is it a tone, a rising or a falling chirp? A small network hears the waveform itself, in [-1, 1].

    python examples/audio.py                 less than a minute; needs nothing but torch

The sounds are synthesised, so the truth is known. Then they are recorded badly: with noise, turned down, or through a telephone
that lets only the middle band pass. Waveforms lie in [-1, 1], so `bounds=(-1, 1)`. Look at which rows DRQ wins and which it
loses: what it repairs under one shift it can spoil under another.

An illustration, not evidence: without adversarial training of the model DRQ mostly lost here, and this set-up was chosen after
that was seen.
"""

import argparse
import math

import torch
from torch import Tensor, nn

import drq

LENGTH, RATE = 1024, 8000  # samples, and samples a second
BOUNDS = (-1.0, 1.0)
RADIUS = 1.0  # of the training, in l2: best for the model alone, of 0.5, 1 and 2
CLASSES = ("tone", "rising", "falling")


def synthesised(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Sounds (N, 1, LENGTH) with a random pitch, sweep, loudness and phase, and the class of each."""
    generator = torch.Generator().manual_seed(seed)
    pitch, sweep, loudness, phase = torch.rand(4, count, 1, generator=generator)
    y = torch.randint(len(CLASSES), (count,), generator=generator)
    time = torch.arange(LENGTH) / RATE
    direction = torch.tensor([0.0, 1.0, -1.0])[y][:, None]
    middle = 600 + 600 * pitch  # hertz, halfway through
    change = direction * (2000 + 3000 * sweep)  # hertz a second
    cycles = middle * time + change * (time**2 / 2 - time * time[-1] / 2)
    x = (0.3 + 0.6 * loudness) * torch.sin(2 * math.pi * (cycles + phase))
    return x[:, None], y


def trained(x: Tensor, y: Tensor, epochs: int) -> nn.Module:
    """Filters over time, averaged over quarters of the sound; trained on sounds that an attack has made worse."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv1d(1, 16, 32, stride=8), nn.ReLU(), nn.Conv1d(16, 16, 5, stride=2), nn.ReLU()),
        *(nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, len(CLASSES))),
    ).eval()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    attack = drq.threats.PGD("l2", RADIUS, steps=2, bounds=BOUNDS)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            worse = attack(model, x[rows], y[rows])
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(worse), y[rows]).backward()
            optimiser.step()
    return model


def band_limited(x: Tensor, low: float = 500.0, high: float = 1100.0) -> Tensor:
    """Only what lies between two frequencies."""
    frequency = torch.fft.rfftfreq(LENGTH, 1 / RATE)
    return torch.fft.irfft(torch.fft.rfft(x) * ((frequency >= low) & (frequency <= high)), LENGTH)


def shifts(x: Tensor) -> dict[str, Tensor]:
    """The same sounds, recorded badly."""
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(2))
    found = {"clean": x, "noise": x + 0.35 * noise, "quiet": 0.1 * x, "band": band_limited(x)}
    return {name: each.clamp(-1, 1) for name, each in found.items()}


def main() -> None:
    """Train, record badly, and count who is right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few sounds, to see that it runs")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    model = trained(*synthesised(128 if quick else 1000, seed=0), epochs=1 if quick else 15)
    x, y = synthesised(12 if quick else 200, seed=1)
    robust = drq.DRQ(model, "l2", radius=2 * RADIUS, bounds=BOUNDS)

    print(f"{'':12}{'standard':>10}{'DRQ':>10}{'repaired':>10}{'spoiled':>10}   of {len(y)} sounds")
    for name, heard in shifts(x).items():
        standard, ours = model(heard).argmax(1) == y, robust.decide(heard).label == y
        counts = (~standard & ours).sum(), (standard & ~ours).sum()
        print(f"{name:12}{standard.float().mean():>10.1%}{ours.float().mean():>10.1%}{counts[0]:>10}{counts[1]:>10}")


if __name__ == "__main__":
    main()

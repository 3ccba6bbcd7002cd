"""Train networks with 10, 100 or 1000 distinct classes in seconds: their classes are numbers of one, two or three drawn digits.

Digits are drawn like those of a pocket calculator, side by side, with random position, thickness, shades and noise. A network
learns one ten-way head for each digit; then its heads are folded, exactly, into one linear layer with a logit for every number:
the logit of 407 is that of 4 in the first position plus that of 0 in the second plus that of 7 in the third.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate

from drq.errors import require
from drq.method.adapters import channels_last
from drq.seeds import generator

PIXELS = 32  # side of a drawing before it is resized
TALL, WIDE = 20, 10  # height and width of a digit
THICKNESS = (2, 3)  # widths of a digit's lines
SEGMENTS = ("abcdef", "bc", "abdeg", "abcdg", "bcfg", "acdfg", "acdefg", "abc", "abcdefg", "abcdfg")  # lit segments of each digit
ATTACK_RADIUS = 12 / 255  # linf radius of the attack in training
TEST_IMAGES = 256
EXPLORATION_RADIUS = 2 * ATTACK_RADIUS  # linf radius in which DRQ explores


def glyphs() -> Tensor:
    """Return pictures of the ten digits with lines of each thickness: (2, 10, TALL, WIDE)."""
    drawn = torch.zeros(len(THICKNESS), 10, TALL, WIDE)
    right, low, middle = WIDE - 2, TALL, TALL // 2
    for number, width in enumerate(THICKNESS):
        half = width // 2
        boxes = {
            "a": (0, width, 0, right),
            "b": (0, middle, right - width, right),
            "c": (middle, low, right - width, right),
            "d": (low - width, low, 0, right),
            "e": (middle, low, 0, width),
            "f": (0, middle, 0, width),
            "g": (middle - half, middle - half + width, 0, right),
        }
        for digit, lit in enumerate(SEGMENTS):
            for segment in lit:
                top, bottom, left, end = boxes[segment]
                drawn[number, digit, top:bottom, left:end] = 1
    return drawn


def draw_numbers(count: int, digits: int, seed: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Draw random numbers: images (N, 3, PIXELS, PIXELS) in [0, 1], and their digits (N, digits)."""
    require(1 <= digits <= 3, "digits", "lie between 1 and 3", digits, "three digits are 1000 classes")
    draws = generator(seed, digits)

    def random_integers(end: int) -> Tensor:
        return torch.randint(end, (count,), generator=draws)

    y = torch.randint(10, (count, digits), generator=draws)
    thick = random_integers(len(THICKNESS))
    top = (PIXELS - TALL) // 2 - 1 + random_integers(3)
    left = (PIXELS - WIDE * digits) // 2 - 1 + random_integers(3)
    background, shade = (torch.rand(count, generator=draws).to(device) for _ in range(2))
    bank, y, thick, top, left = (each.to(device) for each in (glyphs(), y, thick, top, left))
    ink, place = torch.zeros(count, PIXELS, PIXELS, device=device), torch.arange(PIXELS, device=device)
    row = place - top[:, None]
    for position in range(digits):
        column = place - left[:, None] - WIDE * position
        inside = ((row >= 0) & (row < TALL))[:, :, None] & ((column >= 0) & (column < WIDE))[:, None]
        at = row.clamp(0, TALL - 1)[:, :, None], column.clamp(0, WIDE - 1)[:, None]
        ink += bank[thick[:, None, None], y[:, position, None, None], at[0], at[1]] * inside
    background, shade = 0.3 * background[:, None, None], 0.55 + 0.15 * shade[:, None, None]
    noise = 0.03 * torch.randn(count, PIXELS, PIXELS, generator=draws).to(device)
    return (background + shade * ink + noise).clamp(0, 1)[:, None].repeat(1, 3, 1, 1), y


def resize(x: Tensor, pixels: int) -> Tensor:
    """Resize images to this many pixels on each side."""
    return x if pixels == x.shape[-1] else interpolate(x, (pixels, pixels), mode="bilinear").clamp(0, 1)


def small_trunk(outputs: int, width: int = 16) -> nn.Sequential:
    """Return a small convolutional network for images of at least 32 pixels a side; its last layer is linear."""
    return nn.Sequential(
        *(nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
        *(nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(8), nn.Flatten()),
        *(nn.Linear(128 * width, 128), nn.ReLU(), nn.Linear(128, outputs)),
    )


def fold_heads(heads: nn.Linear) -> nn.Linear:
    """Return one layer whose logits are all sums of one output from each ten-way head.

    >>> fold_heads(nn.Linear(5, 20)).weight.shape
    torch.Size([100, 5])
    """
    weight, bias = heads.weight.new_zeros(1, heads.in_features), heads.weight.new_zeros(1)
    for head in range(heads.out_features // 10):
        rows = slice(10 * head, 10 * head + 10)
        weight = (weight[:, None] + heads.weight.detach()[rows]).flatten(0, 1)
        bias = (bias[:, None] + heads.bias.detach()[rows]).flatten()
    layer = nn.Linear(heads.in_features, len(bias), device="meta").to_empty(device=weight.device).to(weight.dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return layer


class NumbersNetwork(NamedTuple):
    """A trained network that reads numbers, with test images."""

    model: nn.Module
    x: Tensor  # (N, 3, pixels, pixels)
    y: Tensor  # (N,)
    accuracy: float  # share of correct labels on at least TEST_IMAGES images


@dataclass(frozen=True)
class Training:
    """The settings of training: on one-step linf attacks from random starts, with AdamW and a one-cycle learning rate.

    Args:
        digits: how many digits a number has; there are 10 to that power classes.
        pixels: the side of an image.
        trunk: builds the network, given the number of outputs; its last linear layer holds the heads.
        steps, batch, rate: training steps, batch size and highest learning rate.
        device: where the network is trained.
        seed: the seed of images and weights.
    """

    digits: int
    pixels: int = PIXELS
    trunk: Callable[[int], nn.Module] = small_trunk
    steps: int = 300
    batch: int = 32
    rate: float = 2e-3
    device: str = "cpu"
    seed: int = 0

    def build(self, images: int) -> NumbersNetwork:
        """Train a network, fold its heads into a logit for every number, and return it with this many test images."""
        model = self.train_heads()
        name, heads = [(name, each) for name, each in model.named_modules() if isinstance(each, nn.Linear)][-1]
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, fold_heads(heads))
        model.eval().requires_grad_(False)
        x, digits = draw_numbers(max(images, TEST_IMAGES), self.digits, self.seed + 1, self.device)
        x, y = resize(x, self.pixels), _numbers(digits)
        with torch.no_grad():
            correct = [model(a).argmax(1) == b for a, b in zip(torch.split(x, 64), torch.split(y, 64), strict=True)]
        return NumbersNetwork(model, x[:images], y[:images], float(torch.cat(correct).double().mean()))

    def train_heads(self) -> nn.Module:
        """Train the network with one head for each digit."""
        cuda = range(torch.cuda.device_count()) if self.device != "cpu" else ()
        with torch.random.fork_rng(devices=cuda):
            torch.manual_seed(self.seed)
            model = channels_last(self.trunk(10 * self.digits).to(self.device).train())
            optimizer = torch.optim.AdamW(model.parameters(), lr=self.rate)
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.rate, total_steps=self.steps)
            for step in range(self.steps):
                x, y = draw_numbers(self.batch, self.digits, self.seed + 2 + step, self.device)
                x = resize(x, self.pixels).contiguous(memory_format=torch.channels_last)
                # The radius grows from zero: at full radius from the start the network learns nothing.
                x = self._attacked(model, x, y, ATTACK_RADIUS * min(1, 2 * step / self.steps))
                optimizer.zero_grad()
                self._loss(model, x, y).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
        return model

    def _attacked(self, model: nn.Module, x: Tensor, y: Tensor, radius: float) -> Tensor:
        start = (x + radius * (2 * torch.rand_like(x) - 1)).clamp(0, 1).requires_grad_()
        (gradient,) = torch.autograd.grad(self._loss(model, start, y), start)
        worse = start.detach() + 1.25 * radius * torch.sign(gradient)
        return (x + (worse - x).clamp(-radius, radius)).clamp(0, 1)

    def _loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean cross-entropy over images and heads; on a GPU in bfloat16, which needs no loss scaling."""
        with torch.autocast("cuda", torch.bfloat16, enabled=x.is_cuda):
            outputs: Tensor = model(x)
        return cross_entropy(outputs.float().reshape(-1, 10), y.flatten())


def _numbers(digits: Tensor) -> Tensor:
    """Return the number (N,) that the digits (N, digits) spell."""
    number = torch.zeros_like(digits[:, 0])
    for position in range(digits.shape[1]):
        number = 10 * number + digits[:, position]
    return number

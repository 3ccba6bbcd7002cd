"""A defence of your own before the red team: whether what it gains survives an attack on itself.

    python examples/own_defence.py               about a minute; needs scikit-learn for its digits

A defence is a module around the classifier, its `model`. It needs no more than to be called: scores for every class, as
`Averaged` gives. One that decides otherwise than by its highest score says so with `decide`, which returns anything with a
`label`, as `Voting` does. The same on the command line, in this folder:

    PYTHONPATH=. drq redteam --model digits --norm linf --radius 0.15 --defence python:own_defence:voting

Both average over noise, and both gain against attacks that were made for the model alone. The last line of each says what is left
of that when they are attacked themselves: on so few digits, and by these attacks.
"""

import argparse
from typing import NamedTuple

import torch
from torch import Tensor, nn

import drq
from drq import threats

RADIUS = 0.15  # of the attacks, in linf; that of the model's training


class Averaged(nn.Module):
    """The mean probabilities over noisy copies of the input."""

    def __init__(self, model: nn.Module, copies: int = 8, deviation: float = 0.2) -> None:
        super().__init__()
        self.model, self.copies = model, copies
        generator = torch.Generator().manual_seed(0)
        self.noise = [deviation * torch.randn(1, 1, 8, 8, generator=generator) for _ in range(copies)]

    def forward(self, x: Tensor) -> Tensor:
        """Their logarithms (N, C)."""
        looks = [self.model((x + noise).clamp(0, 1)).softmax(1) for noise in self.noise]
        return torch.stack(looks).mean(0).clamp(min=1e-9).log()


class Votes(NamedTuple):
    """What `Voting` decides."""

    label: Tensor


class Voting(Averaged):
    """The class that most noisy copies have; attackers still follow the mean probabilities."""

    def decide(self, x: Tensor) -> Votes:
        """The most frequent of their labels."""
        labels = torch.stack([self.model((x + noise).clamp(0, 1)).argmax(1) for noise in self.noise])
        return Votes(labels.mode(0).values)


def voting(model: nn.Module) -> nn.Module:
    """As the command line makes it."""
    return Voting(model).eval()


def main() -> None:
    """Attack both, and say what stands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few images, to see that it runs")
    count = 10 if parser.parse_args().quick else 100
    torch.set_num_threads(1)
    model, data = drq.load_model("digits"), drq.load_data("digits")
    x, y = data.batch(range(count))
    carried = threats.APGD("linf", RADIUS)(model, x, y)  # made for the model alone
    team = threats.RedTeam("linf", RADIUS)
    for defence in (Averaged(model).eval(), voting(model)):
        answer = defence.decide(carried).label if isinstance(defence, Voting) else defence(carried).argmax(1)
        found = team.findings(team.run(defence, x, y))
        static, defended = found["static"], found["defended"]
        print(f"{type(defence).__name__}, {count} digits")
        print(f"  transferred attack   {(answer == y).float().mean():6.1%}")
        print(f"  model alone          {static['worst_case'] / 100:6.1%}  worst case")
        print(f"  defended             {defended['worst_case'] / 100:6.1%}  worst case")
        print(
            f"  gain                 {found['gain']:+6.1f}  points: {'it stands so far' if found['gain'] > 0 else 'it vanishes'}"
        )


if __name__ == "__main__":
    main()

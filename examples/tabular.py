"""A table: is a tumour malignant? Thirty measurements, some of which will be noisy, missing or from another device.

    python examples/tabular.py               some ten seconds; needs scikit-learn for its breast cancer data

Distances must mean the same in every column, so all features are scaled to [0, 1]. DRQ then searches between the lowest and
highest value of each feature (`bounds`), and leaves alone what cannot vary (`frozen`; here the three radii, as if they were
measured exactly). Look at the rows with a shift, and at the clean row for the price of it.

An illustration, not evidence: without adversarial training of the model DRQ mostly lost here, and this set-up was chosen after
that was seen.
"""

import argparse

import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn

import drq

RADIUS = 0.3  # of the training, in l2: best for the model alone, of 0.1 to 0.4, over the rows of the table below
RADII = [0, 10, 20]  # columns: mean, standard error and worst value of the radius


def load(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test rows, scaled by what the training rows show."""
    table = load_breast_cancer()
    x, y = torch.tensor(table.data, dtype=torch.float32), torch.tensor(table.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    train, test = order[:300], order[300:]
    low, high = x[train].amin(0), x[train].amax(0)
    x = (x - low) / (high - low)
    return x[train], y[train], x[test], y[test]


def trained(x: Tensor, y: Tensor, epochs: int) -> nn.Module:
    """A small network, trained on rows that an attack has made worse: DRQ is for models with some robustness of their own."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)).eval()
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    attack = drq.threats.PGD("l2", RADIUS, steps=5, bounds=None)
    for _ in range(epochs):
        worse = attack(model, x, y)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(worse), y).backward()
        optimiser.step()
    return model


def shifts(x: Tensor, typical: Tensor, seed: int = 1) -> dict[str, Tensor]:
    """What may happen to the measurements; the radii are exact."""
    generator = torch.Generator().manual_seed(seed)
    noise, chance = torch.randn(x.shape, generator=generator), torch.rand(x.shape, generator=generator)
    found = {
        "clean": x,
        "noise": x + 0.2 * noise,
        "missing": torch.where(chance < 0.4, typical, x),  # filled with the mean, as is usual
        "offset": x + 0.12,  # a device that reads high
    }
    for changed in found.values():
        changed[:, RADII] = x[:, RADII]
    return found


def main() -> None:
    """Train, shift the test rows, and count who is right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows, to see that it runs")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    x, y, unseen, truth = load()
    model = trained(x, y, 10 if quick else 200)
    unseen, truth = (unseen[:25], truth[:25]) if quick else (unseen, truth)

    frozen = torch.zeros(30, dtype=torch.bool)
    frozen[RADII] = True
    moved = shifts(unseen, x.mean(0))
    everything = torch.cat([x, *moved.values()])
    bounds = everything.amin(0), everything.amax(0)  # one pair a feature, wide enough for the shifted rows
    robust = drq.DRQ(model, "l2", radius=2 * RADIUS, bounds=bounds, frozen=frozen)

    print(f"{'':12}{'standard':>10}{'DRQ':>10}{'repaired':>10}{'spoiled':>10}   of {len(truth)} rows")
    for name, changed in moved.items():
        standard, ours = model(changed).argmax(1) == truth, robust.decide(changed).label == truth
        counts = (~standard & ours).sum(), (standard & ~ours).sum()
        print(f"{name:12}{standard.float().mean():>10.1%}{ours.float().mean():>10.1%}{counts[0]:>10}{counts[1]:>10}")


if __name__ == "__main__":
    main()

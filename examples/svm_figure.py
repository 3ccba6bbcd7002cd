"""A support vector machine on two moons: which class has the firmer ground around a noisy point.

    python examples/svm_figure.py            a few seconds; needs scikit-learn

The picture that explains DRQ: a machine with a narrow kernel bends its boundary round single noisy training points, so a test
point can lie in a small pocket of the wrong class. Look at the rows with noise: does DRQ leave the pockets, and what does it
cost on clean points? The counts say how many answers DRQ changed, and whether for the better.
"""

import argparse

import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_moons
from sklearn.svm import SVC

import drq
from drq.models import from_sklearn

NOISE = {"clean": 0.0, "noise 0.1": 0.1, "noise 0.2": 0.2, "noise 0.3": 0.3}  # standard deviation; the moons are 2 apart


def moons(count: int, noise: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of both moons, and which moon each is from."""
    x, y = make_moons(count, noise=noise, random_state=seed)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def main() -> None:
    """Fit the machine on noisy moons, and count who is right on others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few points, to see that it runs")
    count = 40 if parser.parse_args().quick else 500
    torch.set_num_threads(1)

    x, y = moons(200, noise=0.3, seed=0)
    machine = CalibratedClassifierCV(SVC(gamma=20.0, C=10.0), ensemble=False).fit(x.numpy(), y.numpy())
    model = from_sklearn(machine)  # a torch module: its softmax is the machine's predict_proba
    robust = drq.DRQ(model, "l2", radius=0.4, bounds=None)  # the plane has no edges

    print(f"{'':12}{'standard':>10}{'DRQ':>10}{'repaired':>10}{'spoiled':>10}   of {count} points")
    clean, y = moons(count, noise=0.0, seed=1)
    draws = torch.randn(clean.shape, generator=torch.Generator().manual_seed(2))
    for name, deviation in NOISE.items():
        shifted = clean + deviation * draws
        standard, ours = model(shifted).argmax(1) == y, robust.decide(shifted).label == y
        changed = (~standard & ours).sum(), (standard & ~ours).sum()
        print(f"{name:12}{standard.float().mean():>10.1%}{ours.float().mean():>10.1%}{changed[0]:>10}{changed[1]:>10}")


if __name__ == "__main__":
    main()

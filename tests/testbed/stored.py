"""Defences in files, and how they are told from others."""

import textwrap
from pathlib import Path

import torch

import drq

QUICK = {"explore": drq.Gradient(2), "quantify": drq.Gradient(2)}
CANARY = """
    from pathlib import Path
    import torch
    HERE = Path(__file__).parent
    (HERE / "imported").touch()

    class Search:
        pass

    def seen(x):
        return x

    def model(seed=0, width=4):
        (HERE / "called").touch()
        with torch.random.fork_rng():
            torch.manual_seed(int(seed))
            return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(int(width), 3)).eval()
"""


def saved_tiny(path: Path) -> drq.DRQ:
    """A defence of the smallest model in the package, as it was and in its file."""
    model = drq.load_model("cifar10-tiny")
    robust = drq.DRQ(model, **model.card.explored, **QUICK)
    robust.save(path, threshold=0.25, measured={"data": "some pictures", "accuracy": 0.5})
    return robust


def put_bird(folder: Path) -> Path:
    """A folder with a module ``bird`` that leaves a file behind once it is imported, and another once its model is made."""
    folder.mkdir()
    (folder / "bird.py").write_text(textwrap.dedent(CANARY))
    return folder


def same(first, second, x):
    one, two = first.decide(x), second.decide(x)
    assert torch.equal(one.label, two.label)
    assert torch.equal(one.robustness, two.robustness)
    assert torch.equal(one.margin, two.margin)
    assert torch.equal(first(x), second(x))


def edited(path, before, after):
    text = path.read_text()
    assert text.count(before) == 1, before
    path.write_text(text.replace(before, after))
    return path

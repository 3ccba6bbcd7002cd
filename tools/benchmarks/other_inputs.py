"""Make sound, tables and text with models that read them, what may happen to such inputs, and views that might undo it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import add

import torch
from torch import Tensor, nn

from drq.views import Gain, Monotone, NoiseFloor, TimeShift, Views, as_views
from examples import audio, text

Change = Callable[[Tensor], Tensor]
LENGTH = 96  # characters of a sentence; the rest is blank
BLANK = ord(" ")
CODES = 128  # characters that a reader knows; inputs are codes over this number, in [0, 1]
ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")  # of keys
RIGHT = {here: there for row in ROWS for here, there in pairwise(row)}
LEFT = {there: here for here, there in RIGHT.items()}
MEASUREMENTS = 10  # of a tumour; the columns hold the mean, the standard error and the worst value of each


@dataclass(frozen=True)
class Trial:
    """Something that happens to inputs, and views that might undo it."""

    shift: str
    happens: Change
    title: str  # of the views
    views: Views


@dataclass(frozen=True)
class Kind:
    """One kind of input: a model, clean inputs to learn gates from, others to count on, and what is tried."""

    name: str
    model: nn.Module
    bounds: tuple[float, float]
    clean: Tensor
    x: Tensor
    y: Tensor
    trials: tuple[Trial, ...]


def trained(model: nn.Module, x: Tensor, y: Tensor, epochs: int) -> nn.Module:
    """Train plainly."""
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
    return model.eval()


def own(**functions: Change) -> Views:
    """Return functions of a batch as one set of views."""
    for name, function in functions.items():
        function.__name__ = name.replace("_", " ")
    return reduce(add, map(as_views, functions.values()))


def scaled(factor: float, columns: list[int]) -> Change:
    """Return what multiplies some columns of a table."""

    def change(x: Tensor) -> Tensor:
        return x.index_copy(1, torch.tensor(columns), x[:, columns] * factor)

    return change


# Sound: the network and the sounds of examples/audio.py


def sound(count: int = 1000) -> Kind:
    """Return sounds, recorded badly."""
    model = audio.trained(*audio.synthesised(count, seed=0), epochs=15)
    x, y = audio.synthesised(count, seed=5)
    noise = 0.35 * torch.randn(x.shape, generator=torch.Generator().manual_seed(2))

    def later(x: Tensor) -> Tensor:
        return nn.functional.pad(x, (256, 0))[..., : x.shape[-1]]

    gain, floor, shift = Gain(16, 9), NoiseFloor(0.1, 0.2, 0.4), TimeShift(512, 5)
    trials = (
        Trial("a tenth as loud", lambda x: 0.1 * x, "Gain(16, 9)", gain),
        Trial("noise", lambda x: (x + noise).clamp(*audio.BOUNDS), "NoiseFloor(0.1, 0.2, 0.4)", floor),
        Trial("a quarter late", later, "TimeShift(512, 5)", shift),
    )
    return Kind("sound", model, audio.BOUNDS, audio.synthesised(500, seed=3)[0], x, y, trials)


# Tables: of scikit-learn


class Standardised(nn.Module):
    """Columns measured by the mean and the deviation that they have where a model is trained."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.mean, self.deviation = x.mean(0), x.std(0).clamp(min=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        """Return the columns measured so."""
        return (x - self.mean) / self.deviation


def table(name: str, data: Tensor, y: Tensor, sizes: tuple[int, int], trials: tuple[Trial, ...]) -> Kind:
    """Return a table in which 0 stays 0 and the highest value of each training column is 1, and a small network."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(1))
    training, clean, rest = order.tensor_split((sizes[0], sum(sizes)))
    x = (data / data[training].amax(0).clamp(min=1e-9)).clamp(0, 1)
    layers = nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, int(y.max()) + 1)
    model = trained(nn.Sequential(Standardised(x[training]), *layers), x[training], y[training], epochs=60)
    return Kind(name, model, (0.0, 1.0), x[clean], x[rest], y[rest], trials)


def tumours() -> Kind:
    """Return tumours, of which one measurement comes in another unit, or all bent."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    columns = [[*range(first, 30, MEASUREMENTS)] for first in range(MEASUREMENTS)]
    names = [found.feature_names[each[0]].removeprefix("mean ").replace(" ", "_") for each in columns]
    units = own(
        **{f"{name}_in_a_unit_a_tenth_as_large": scaled(10, each) for name, each in zip(names, columns, strict=True)},
        **{f"{name}_in_a_unit_ten_times_as_large": scaled(0.1, each) for name, each in zip(names, columns, strict=True)},
    )
    bent = Monotone(0.5, 2)
    trials = (
        Trial("radius in centimetres", scaled(0.1, columns[0]), "each measurement times 10 and 0.1", units),
        Trial("all squared", lambda x: x**2, "Monotone(0.5, 2)", bent),
    )
    return table("table: tumours", torch.tensor(found.data).float(), torch.tensor(found.target), (200, 120), trials)


def digits() -> Kind:
    """Return counts of dark points in 64 cells of a scanned digit, by a sensor that is weak or bent."""
    from sklearn.datasets import load_digits

    found = load_digits()
    every = [*range(64)]
    stronger = own(twice=scaled(2, every), five_times=scaled(5, every), ten_times=scaled(10, every))
    bent = Monotone(1 / 3, 0.5, 2, 3)
    trials = (
        Trial("a fifth of all counts", lambda x: x / 5, "times 2, 5, 10", stronger),
        Trial("all cubed", lambda x: x**3, "Monotone(1/3, 0.5, 2, 3)", bent),
    )
    return table("table: digits", torch.tensor(found.data).float(), torch.tensor(found.target), (600, 300), trials)


# Text: the sentences of examples/text.py, letter by letter


class Reader(nn.Module):
    """A network that reads characters. It has no gradient with respect to them: views need none."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(CODES, 16)
        layers = nn.Conv1d(16, 48, 5, padding=2), nn.ReLU(), nn.Conv1d(48, 48, 5, padding=2), nn.ReLU()
        self.pieces, self.topics = nn.Sequential(*layers), nn.Linear(48, len(text.TOPICS))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of topics."""
        seen: Tensor = self.topics(5 * self.pieces(self.letters(codes(x)).transpose(1, 2)).mean(2))
        return seen


def codes(x: Tensor) -> Tensor:
    """Return the codes of characters."""
    return (CODES * x).round().long().clamp(0, CODES - 1)


def sentences(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return sentences as codes of characters over 128 (N, LENGTH): a capital first, a full stop last. The topic of each."""
    ids, y = text.sentences(count, seed)
    words = (" ".join(text.WORDS[each] for each in row if each > text.IDS["[UNK]"]) for row in ids.tolist())
    written = (f"{each.capitalize()}."[:LENGTH].ljust(LENGTH).encode("ascii") for each in words)
    return torch.tensor([[*each] for each in written]) / CODES, y


def letter_by_letter(change: Callable[[str], str]) -> Change:
    """Return what does the same to every character."""
    becomes = torch.tensor([ord(change(chr(each))) for each in range(CODES)]) / CODES
    return lambda x: becomes[codes(x)]


def typos(x: Tensor) -> Tensor:
    """Replace three in ten small letters by any."""
    generator = torch.Generator().manual_seed(3)
    hit, other = torch.rand(x.shape, generator=generator) < 0.3, torch.randint(97, 123, x.shape, generator=generator)
    return torch.where(hit & (codes(x) >= ord("a")), other / CODES, x)


def without(place: int) -> Change:
    """Return what blanks one eighth of a sentence."""
    inside = torch.arange(LENGTH) // (LENGTH // 8) == place
    return lambda x: torch.where(inside, BLANK / CODES, x)


def prose(count: int = 1000) -> Kind:
    """Return sentences, mistyped."""
    model = trained(Reader(), *sentences(1200, seed=0), epochs=10)
    x, y = sentences(count, seed=5)
    upper, lower = letter_by_letter(str.upper), letter_by_letter(str.lower)
    to_right, to_left = (letter_by_letter(lambda each, keys=keys: keys.get(each.lower(), each)) for keys in (RIGHT, LEFT))
    eighths = own(**{f"without_eighth_{place + 1}": without(place) for place in range(8)})
    trials = (
        Trial("capitals", upper, "small letters", own(small_letters=lower)),
        Trial("hands a key too far right", to_right, "a key left, a key right", own(a_key_left=to_left, a_key_right=to_right)),
        Trial("typos in 3 of 10 letters", typos, "each eighth blank", eighths),
    )
    return Kind("text", model, (0.0, 1.0), sentences(500, seed=3)[0], x, y, trials)


KINDS: tuple[Callable[[], Kind], ...] = (sound, tumours, digits, prose)

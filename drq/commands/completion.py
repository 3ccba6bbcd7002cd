"""What the Tab key offers on the command line. It must not wait for torch, so names are listed without what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from drq import registry

DEVICES = ("cpu", "cuda")
BENCH_PARTS = ("speed", "agreement", "classes", "batch", "size", "attacks", "imagenet")
SPLITS = ("test", "train", "val")


def offered(names: Iterable[str]) -> Callable[[], Sequence[str]]:
    """A function that offers these names; those that begin with what was typed are picked from them."""
    return lambda: [*names]


def model_names() -> Sequence[str]:
    """Models; those of papers in full, of other sources the part up to the colon."""
    listed = {"published:": registry.PUBLISHED, "robustbench:": registry.ROBUSTBENCH}
    of_papers = [prefix + name for prefix, names in listed.items() for name in names]
    sources = [name for name in registry.SOURCES if name not in listed]
    return [*registry.FITTED, *registry.TRAINED, *registry.PACKAGED, *of_papers, *sources]


def data_names(incomplete: str) -> Sequence[str]:
    """Data sets; behind cifar10-c/ and its relatives the corruptions."""
    family, slash, _ = incomplete.partition("/")
    return [f"{family}/{each}" for each in registry.CORRUPTIONS] if slash else [*registry.DATA]


def either(names: Iterable[str]) -> str:
    """Names as a choice, for a help text.

    >>> either(registry.NORMS)
    'linf, l2 or l1'
    """
    *others, last = names
    return f"{', '.join(others)} or {last}"

"""List the names that Tab completion offers. They come from the registry, since completion must not wait for torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from drq import registry

DEVICES = ("cpu", "cuda")
ENGINES = ("local", "ray")
BENCH_PARTS = ("speed", "agreement", "classes", "batch", "size", "attacks", "imagenet")
SPLITS = ("test", "train", "val")


def complete_with(names: Iterable[str]) -> Callable[[], Sequence[str]]:
    """Return a function that lists these names for typer, which keeps those that begin with what was typed."""
    return lambda: [*names]


def model_names() -> Sequence[str]:
    """Return the names of models: in full for those of papers, up to the colon for other sources."""
    listed = {"published:": registry.PUBLISHED, "robustbench:": registry.ROBUSTBENCH}
    of_papers = [prefix + name for prefix, names in listed.items() for name in names]
    sources = [name for name in registry.SOURCES if name not in listed]
    return [*registry.FITTED, *registry.TRAINED, *registry.PACKAGED, *of_papers, *sources]


def data_names(incomplete: str) -> Sequence[str]:
    """Return the names of data sets; after a slash, as in cifar10-c/, those of corruptions."""
    family, slash, _ = incomplete.partition("/")
    return [f"{family}/{each}" for each in registry.CORRUPTIONS] if slash else [*registry.DATA]


def defence_names() -> Sequence[str]:
    """Return the names of defences: DRQ, and those of other authors."""
    return ["drq", *registry.PEERS]


def either(names: Iterable[str]) -> str:
    """Join names as alternatives, for a help text.

    >>> either(registry.NORMS)
    'linf, l2 or l1'
    """
    *others, last = names
    return f"{', '.join(others)} or {last}"

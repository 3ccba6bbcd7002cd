"""Where the numbers of an experiment come from: the command, the machine, the time and the passes."""

from __future__ import annotations

from drq.evaluation.paper import stand_ins
from drq.reproduction.kept_records import Record


def short(model: str) -> str:
    """The name of a model without the place that it comes from.

    >>> short("denoised:robustbench:cifar10/Linf/Wong2020Fast")
    'denoised Wong2020Fast'
    """
    return f"{'denoised ' if model.startswith('denoised:') else ''}{model.rpartition('/')[2].rpartition(':')[2]}"


def made(name: str, record: Record | None) -> str:
    """Where the numbers come from."""
    if record is None:
        return f"Not run yet: `drq reproduce {name} --keep results/paper`."
    told = record.about
    passes = ", ".join(f"{value / 1e6:,.1f} million for {what}" for what, value in told["passes"].items())
    left = [short(each.partition(" ")[2]) for each in told["missing"] if each.partition(" ")[2] in stand_ins()]
    out = f"left out: {', '.join(left)}; " if left else ""
    part = ""
    if told["timed"] < told["samples"]:
        part = f" for {told['timed']:,} of {told['samples']:,} samples"
    elif record.rows["seconds"].sum() > told["seconds"]:
        part = " with answers of another experiment"
    how = "DRQ compiled in float16 with near ties in float32; " if told["quick"] else ""
    return (
        f"`drq reproduce {name}`: {', '.join(told['devices'])}, {told['seconds']:,.0f} s{part}; passes of models: {passes}; "
        f"{out}{how}seed {told['seed']}; spec {told['spec_hash'][:12]}; torch {told['versions']['torch']}."
    )

"""Say where the numbers of an experiment come from: the command, the machine, the time and the passes."""

from __future__ import annotations

from drq.evaluation.paper import stand_ins
from drq.reproduction.kept_records import Record


def short_name(model: str) -> str:
    """Return the name of a model without its source.

    >>> short_name("denoised:robustbench:cifar10/Linf/Wong2020Fast")
    'denoised Wong2020Fast'
    """
    return f"{'denoised ' if model.startswith('denoised:') else ''}{model.rpartition('/')[2].rpartition(':')[2]}"


def provenance(name: str, record: Record | None) -> str:
    """Describe in a line how the record of an experiment was made."""
    if record is None:
        return f"Not run yet: `drq reproduce {name} --keep results/paper`."
    about = record.about
    passes = ", ".join(f"{value / 1e6:,.1f} million for {what}" for what, value in about["passes"].items())
    missing = [short_name(each.partition(" ")[2]) for each in about["missing"] if each.partition(" ")[2] in stand_ins()]
    left_out = f"left out: {', '.join(missing)}; " if missing else ""
    extent = ""
    if about["timed"] < about["samples"]:
        extent = f" for {about['timed']:,} of {about['samples']:,} samples"
    elif record.rows["seconds"].sum() > about["seconds"]:
        extent = " with answers of another experiment"
    how = "DRQ compiled in float16 with near ties in float32; " if about["quick"] else ""
    return (
        f"`drq reproduce {name}`: {', '.join(about['devices'])}, {about['seconds']:,.0f} s{extent}; passes of models: {passes}; "
        f"{left_out}{how}seed {about['seed']}; spec {about['spec_hash'][:12]}; torch {about['versions']['torch']}."
    )

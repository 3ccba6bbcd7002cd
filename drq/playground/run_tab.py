"""Build the run tab: the records of a run, and the samples that a defence repaired or broke."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from drq.errors import InputError
from drq.playground import markup
from drq.playground.opened_runs import FILTERS, OpenedRun, list_runs, open_run
from drq.playground.sample_html import card, known_class_names, record, rerun_decision
from drq.report import plots, tables
from drq.system.code import refuse_code

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST = 200  # samples that are listed
EMPTY = "Choose a run below. drq evaluate and drq demo make some."


def overview(run: OpenedRun) -> str:
    """Return the accuracy by threat, as a figure and as a table."""
    table, records = tables.cells(run.records), run.records
    figure: Any = plots.accuracies(table, tables.worst_case(records)).figure
    rows = [
        (
            *(markup.text(row[name]) for name in ("threat", "defence")),
            f"{row['accuracy']:.1f}",
            f"{row['low']:.1f} to {row['high']:.1f}",
            *("" if row[name] is None else str(row[name]) for name in ("fixed", "spoiled")),
            *("" if row[name] is None else f"{row[name]:.0f}" for name in ("passes",)),
        )
        for row in table.drop_nulls("accuracy").iter_rows(named=True)
    ]
    heads = ("Threat", "Defence", "Accuracy in %", "95 % interval", "Repaired", "Broken", "Passes")
    drawn = markup.figure(figure, "Accuracy by threat and defence; the table below has the numbers")
    return drawn + markup.table("Accuracy by threat", heads, rows)


def summary(run: OpenedRun) -> str:
    """Return the title of a run and the number of its samples."""
    name, count = run.run.about.get("title") or run.run.name, run.records["index"].n_unique()
    return markup.status(f"<strong>{markup.text(name)}</strong>: {count} samples, {len(run.records)} answers.")


def group_names(run: OpenedRun) -> list[str]:
    """Return the names of the groups of samples: threat and defence, and model and data where there are several."""
    models, data = (len({group[number] for group in run.groups}) > 1 for number in (0, 1))
    names = []
    for model, source, _, threat, victim, defence in run.groups:
        target = " on the defence" if victim == "defence" else ""
        names.append(", ".join([f"{threat}{target}", defence, *([model] if models else []), *([source] if data else [])]))
    return names


def sample_names(run: OpenedRun, group: int, which: str, allow_code: bool = False) -> list[tuple[str, int]]:
    """Return descriptions and indices of the first :data:`MOST` samples of a group."""
    rows = run.samples(run.groups[group], which).head(MOST)
    names = known_class_names(run.groups[group][0], allow_code)
    return [(_description(row, names), int(row["index"])) for row in rows.iter_rows(named=True)]


def _description(row: dict[str, Any], names: Sequence[str] | None) -> str:
    label, base, defended = [
        str(value) if names is None else names[value] for value in (row["label"], row["base_prediction"], row["prediction"])
    ]
    return f"{row['index']}, which shows {label}: model {base}, defended {defended}"


def sample(run: OpenedRun, group: int, index: int, allow_code: bool = False) -> str:
    """Return a sample's record, with DRQ's card where the run kept the image and the model is on this machine.

    Where a card needs code that the run names, and that is not allowed, an error stands in its place.
    """
    rows = [row for row in run.samples(run.groups[group]).iter_rows(named=True) if row["index"] == index]
    if not rows:
        raise InputError(f"sample must be one of the list, got {index}: choose another")
    row, names = rows[0], known_class_names(rows[0]["model"], allow_code)
    image = run.image(row)
    settings = run.run.about["spec"].get("defences", {}).get(row["defence"], {})
    if image is not None and settings.get("defence") == "drq":
        try:
            refuse_code({"model": row["model"], "defence": settings}, run.run.path / "run.json", allow_code)
        except InputError as error:
            return markup.error(str(error)) + record(row, names, image)
    decision = None if image is None else rerun_decision(row["model"], settings, image, allow_code)
    drawn = "" if decision is None or names is None else card(decision, names)
    return drawn + record(row, names, None if drawn else image)  # the card shows the image


def build(gr: Any, folder: Path, page: Any, allow_code: bool = False) -> None:
    """Build the tab; ``gr`` is the module gradio, ``page`` the Blocks whose load event lists the runs."""
    with gr.Row():
        with gr.Column(scale=2, min_width=280):
            name = gr.Dropdown([], value=None, label="Run, by its path in the folder", allow_custom_value=True, elem_id="run")
            group = gr.Dropdown([], value=None, label="Threat and defence", type="index", filterable=False, elem_id="group")
            which = gr.Radio([*FILTERS], value="all", label="Samples", elem_id="which")
            samples = gr.Radio([], value=None, label="None", elem_classes="samples", elem_id="samples")
        with gr.Column(scale=3, min_width=300):
            status = gr.HTML(markup.status(EMPTY), elem_id="run-status")
            shown = gr.HTML("", elem_id="sample")
            table = gr.HTML("", elem_id="overview")

    def on_load() -> Any:
        return gr.update(choices=list_runs(folder))

    def sample_choices(run: OpenedRun, group: int, which: str) -> Any:
        choices = sample_names(run, group, which, allow_code)
        label = f"{len(choices)} samples" + (" or more" if len(choices) == MOST else "")
        return gr.update(choices=choices, value=None, label=label)

    def on_run(name: str | None, which: str) -> tuple[Any, ...]:
        nothing = gr.update(choices=[], value=None)
        try:
            run = open_run(folder, name or "")
            groups = group_names(run)
            first = gr.update(choices=groups, value=groups[0]) if groups else nothing
            return summary(run), overview(run), first, sample_choices(run, 0, which) if groups else nothing, ""
        except InputError as error:
            return markup.error(str(error)), "", nothing, nothing, ""

    def on_filter(name: str | None, group: int | None, which: str) -> tuple[Any, ...]:
        try:
            return gr.skip(), sample_choices(open_run(folder, name or ""), group or 0, which), ""
        except InputError as error:
            return markup.error(str(error)), gr.update(choices=[], value=None), ""

    def on_sample(name: str | None, group: int | None, index: int | None) -> tuple[Any, Any]:
        if index is None:
            return gr.skip(), ""
        try:
            return gr.skip(), sample(open_run(folder, name or ""), group or 0, int(index), allow_code)
        except InputError as error:
            return markup.error(str(error)), ""

    options = {"show_progress": "hidden", "concurrency_limit": 2, "concurrency_id": "run"}
    page.load(on_load, outputs=name, api_visibility="private", show_progress="hidden")
    name.input(on_run, [name, which], [status, table, group, samples, shown], api_name="open", **options)
    for each in (group, which):
        each.input(on_filter, [name, group, which], [status, samples, shown], api_visibility="private", **options)
    samples.input(on_sample, [name, group, samples], [status, shown], api_visibility="private", **options)

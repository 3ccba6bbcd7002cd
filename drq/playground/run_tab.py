"""The third tab: the records of a run, and the samples that a defence repaired or broke."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from drq.errors import InputError
from drq.playground import markup
from drq.playground.opened_runs import FILTERS, Opened, listed, opened
from drq.playground.sample_html import card, decided, names_of, record
from drq.report import plots, tables
from drq.system.code import refuse_code

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST = 200  # samples of a list
EMPTY = "Choose a run below. drq evaluate and drq demo make some."


def overview(found: Opened) -> str:
    """Accuracy by threat, as a figure and as a table."""
    table, records = tables.cells(found.records), found.records
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
    drawn = markup.drawing(figure, "Accuracy by threat and defence; the table below has the numbers")
    return drawn + markup.table("Accuracy by threat", heads, rows)


def told(found: Opened) -> str:
    """What the run is."""
    name, count = found.run.about.get("title") or found.run.name, found.records["index"].n_unique()
    words = f"<strong>{markup.text(name)}</strong>: {count} samples, {len(found.records)} answers."
    return markup.said(words)


def group_names(found: Opened) -> list[str]:
    """The groups of samples: threat and defence, and of model and data what differs."""
    models, data = (len({group[number] for group in found.groups}) > 1 for number in (0, 1))
    names = []
    for model, source, _, threat, victim, defence in found.groups:
        whose = " on the defence" if victim == "defence" else ""
        names.append(", ".join([f"{threat}{whose}", defence, *([model] if models else []), *([source] if data else [])]))
    return names


def sample_names(found: Opened, group: int, which: str, allow_code: bool = False) -> list[tuple[str, int]]:
    """The samples of a group, in words, and their positions; the first :data:`MOST` of them."""
    rows = found.samples(found.groups[group], which).head(MOST)
    names = names_of(found.groups[group][0], allow_code)
    return [(_in_words(row, names), int(row["index"])) for row in rows.iter_rows(named=True)]


def _in_words(row: dict[str, Any], names: Sequence[str] | None) -> str:
    said = [str(value) if names is None else names[value] for value in (row["label"], row["base_prediction"], row["prediction"])]
    return f"{row['index']}, which shows {said[0]}: model {said[1]}, defended {said[2]}"


def sample(found: Opened, group: int, index: int, allow_code: bool = False) -> str:
    """One sample: its card, where the run kept its image and the model is here, and its record.

    Where a card needs code that the run names, and that is not allowed, its place says so.
    """
    pl_rows = [row for row in found.samples(found.groups[group]).iter_rows(named=True) if row["index"] == index]
    if not pl_rows:
        raise InputError(f"sample must be one of the list, got {index}: choose another")
    row, names = pl_rows[0], names_of(pl_rows[0]["model"], allow_code)
    image = found.image(row)
    settings = found.run.about["spec"].get("defences", {}).get(row["defence"], {})
    if image is not None and settings.get("defence") == "drq":
        try:
            refuse_code({"model": row["model"], "defence": settings}, found.run.path / "run.json", allow_code)
        except InputError as error:
            return markup.refused(str(error)) + record(row, names, image)
    decision = None if image is None else decided(row["model"], settings, image, allow_code)
    drawn = "" if decision is None or names is None else card(decision, names)
    return drawn + record(row, names, None if drawn else image)  # the card has the image


def build(gr: Any, folder: Path, page: Any, allow_code: bool = False) -> None:
    """Arrange the tab; ``gr`` is Gradio, ``page`` what is loaded when somebody comes."""
    with gr.Row():
        with gr.Column(scale=2, min_width=280):
            name = gr.Dropdown([], value=None, label="Run, by its path in the folder", allow_custom_value=True, elem_id="run")
            group = gr.Dropdown([], value=None, label="Threat and defence", type="index", filterable=False, elem_id="group")
            which = gr.Radio([*FILTERS], value="all", label="Samples", elem_id="which")
            samples = gr.Radio([], value=None, label="None", elem_classes="samples", elem_id="samples")
        with gr.Column(scale=3, min_width=300):
            status = gr.HTML(markup.said(EMPTY), elem_id="run-status")
            shown = gr.HTML("", elem_id="sample")
            table = gr.HTML("", elem_id="overview")

    def found_now() -> Any:
        return gr.update(choices=listed(folder))

    def chosen(found: Opened, group: int, which: str) -> Any:
        named = sample_names(found, group, which, allow_code)
        label = f"{len(named)} samples" + (" or more" if len(named) == MOST else "")
        return gr.update(choices=named, value=None, label=label)

    def open_run(name: str | None, which: str) -> tuple[Any, ...]:
        nothing = gr.update(choices=[], value=None)
        try:
            found = opened(folder, name or "")
            groups = group_names(found)
            first = gr.update(choices=groups, value=groups[0]) if groups else nothing
            return told(found), overview(found), first, chosen(found, 0, which) if groups else nothing, ""
        except InputError as error:
            return markup.refused(str(error)), "", nothing, nothing, ""

    def filtered(name: str | None, group: int | None, which: str) -> tuple[Any, ...]:
        try:
            return gr.skip(), chosen(opened(folder, name or ""), group or 0, which), ""
        except InputError as error:
            return markup.refused(str(error)), gr.update(choices=[], value=None), ""

    def picked(name: str | None, group: int | None, index: int | None) -> tuple[Any, Any]:
        if index is None:
            return gr.skip(), ""
        try:
            return gr.skip(), sample(opened(folder, name or ""), group or 0, int(index), allow_code)
        except InputError as error:
            return markup.refused(str(error)), ""

    look = {"show_progress": "hidden", "concurrency_limit": 2, "concurrency_id": "run"}
    page.load(found_now, outputs=name, api_visibility="private", show_progress="hidden")
    name.input(open_run, [name, which], [status, table, group, samples, shown], api_name="open", **look)
    for each in (group, which):
        each.input(filtered, [name, group, which], [status, samples, shown], api_visibility="private", **look)
    samples.input(picked, [name, group, samples], [status, shown], api_visibility="private", **look)

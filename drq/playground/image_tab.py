"""Build the image tab: an image, a change of it, and the answers of the model alone and of DRQ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from drq.errors import InputError
from drq.playground import markup
from drq.playground.comparison import MOST_PIXELS, Comparison, compare, preview
from drq.playground.image_sources import MOST_BYTES, Picture, available_models, images_of, read_upload, sources, with_model
from drq.playground.jobs import Jobs, run_in_thread
from drq.playground.sample_html import card
from drq.playground.shifts import MOST_STEPS, NONE, all_shifts, find_shift

SHOWN = 5  # classes in the table
SLICE = "0 for none. DRQ decides on every point, which takes minutes."
ENDINGS = [".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm"]
ON_CLICK = """
element.addEventListener('click', event => {
    const button = event.target.closest('button[data-number]');
    if (button) trigger('click', {number: Number(button.dataset.number)});
});
element.dataset.ready = 'yes';
"""


def thumbnails(source: str, chosen: int | None) -> str:
    """Return the images of a source as buttons."""
    buttons = (
        f'<button type="button" data-number="{number}" aria-pressed="{str(number == chosen).lower()}">'
        f'<img src="{markup.image_url(each.image)}" alt="{markup.text(each.name)}, number {number + 1}"></button>'
        for number, each in enumerate(images_of(source))
    )
    return f'<div class="pictures" role="group" aria-label="Images">{"".join(buttons)}</div>'


def default_picture() -> Picture:
    """Return the image that is shown before one is chosen."""
    return images_of(sources()[0])[0]


def result(compared: Comparison) -> str:
    """Return the image before and after, both answers side by side, and the likeliest classes."""
    before = f"original: the model answers {markup.text(compared.names[compared.before])}"
    after = "unchanged" if torch.equal(compared.image, compared.picture.image) else "changed"
    figures = (
        f'<figure><figcaption>{caption}</figcaption><img src="{markup.image_url(image)}" alt="{alt}"></figure>'
        for caption, image, alt in ((before, compared.picture.image, "the image"), (after, compared.image, "the changed image"))
    )
    answers = f'<div class="pair">{_standard_answer(compared)}{_drq_answer(compared)}</div>'
    return f'<div class="pair">{"".join(figures)}</div>{answers}{_class_table(compared)}'


def _standard_answer(compared: Comparison) -> str:
    label = compared.standard
    evidence = f"confidence {float(compared.confidence[label]):.3f}"
    return _answer("Standard: the model alone", compared, label, evidence, "1 pass of the model")


def _drq_answer(compared: Comparison) -> str:
    decision = compared.decision
    if decision is None:
        return '<div class="answer"><h2>DRQ</h2><div class="word">not run yet</div></div>'
    label = int(decision.label)
    evidence = f"robustness {float(decision.robustness[0, label]):.3f}, margin {float(decision.margin):.3f}"
    if not bool(decision.found):
        evidence = "no radius found: the model's answer stands"
    if compared.abstains:
        evidence = f"no answer below margin {compared.least_margin:.3f}, only a best guess: {evidence}"
    cost = f"{int(decision.passes)} passes of the model, {compared.seconds:.1f} s"
    return _answer("DRQ", compared, label, evidence, cost)


def _answer(title: str, compared: Comparison, label: int, evidence: str, cost: str) -> str:
    truth = compared.picture.label
    correct = "" if truth is None else (" ✓ right" if truth == label else f" ✗ it is {markup.text(compared.names[truth])}")
    name = f'<div class="word">{markup.text(compared.names[label])}</div>'
    return f'<div class="answer"><h2>{title}</h2>{name}<div>{evidence}.{correct}</div><div class="cost">{cost}</div></div>'


def _class_table(compared: Comparison) -> str:
    """Return the table of the likeliest classes by either answer."""
    decision, names = compared.decision, compared.names
    robustness = [0.0] * len(names) if decision is None else decision.robustness[0].tolist()
    exact = [True] * len(names) if decision is None else decision.exact[0].tolist()
    confidence = compared.confidence.tolist()
    order = sorted(range(len(names)), key=lambda number: -max(confidence[number], robustness[number] * exact[number]))
    rows = []
    for number in order[:SHOWN]:
        bound = "" if exact[number] else "below "
        robust = "" if decision is None else f"{bound}{markup.bar(robustness[number], 'drq')}"
        rows.append((markup.text(names[number]), markup.bar(confidence[number]), robust))
    return markup.table("The likeliest classes", ("Class", "Confidence", "Robustness"), rows)


def summary(compared: Comparison) -> str:
    """Return both answers in one sentence."""
    assert compared.decision is not None
    standard, drq = compared.names[compared.standard], compared.names[int(compared.decision.label)]
    agree = "DRQ agrees" if standard == drq else f"DRQ answers <strong>{markup.text(drq)}</strong>"
    if compared.abstains:
        agree = "DRQ gives no answer"
    return markup.status(f"The model alone answers <strong>{markup.text(standard)}</strong>; {agree}.")


def run_comparison(
    picture: Picture | None, name: str, strength: float, steps: float, pixels: float, session: str, jobs: Jobs
) -> Iterator[tuple[str, str | None, str | None]]:
    """Change the image and run the model and DRQ; yield status, result and card, where None leaves the shown one as it is."""
    job = jobs.start(session)
    chosen = picture or default_picture()

    def work() -> tuple[str, str, str]:
        compared = compare(chosen, name, float(strength), int(steps), job, int(pixels))
        assert compared.decision is not None
        job.begin("Drawing", 1)
        return summary(compared), result(compared), card(compared.decision, compared.names, compared.slice, compared.seen)

    try:
        reports = run_in_thread(work, job)
        while True:
            try:
                yield markup.progress(next(reports).done, job.part or "Starting"), None, None
            except StopIteration as end:
                yield end.value or (markup.status("Cancelled. Nothing was changed."), None, None)
                return
    except InputError as error:
        yield markup.error(str(error)), None, None
    finally:
        job.stop()  # so that no work goes on after the page was closed
        jobs.finish(session, job)


def build(gr: Any, jobs: Jobs) -> None:
    """Build the tab; ``gr`` is the module gradio."""
    current = gr.State(None, time_to_live=3600)
    with gr.Row():
        with gr.Column(scale=2, min_width=280):
            source = gr.Radio([*sources()], value=sources()[0], label="Images")
            choice = gr.HTML(thumbnails(sources()[0], 0), js_on_load=ON_CLICK, elem_id="choice")
            upload = gr.UploadButton(f"Upload an image (at most {MOST_BYTES // 2**20} MB)", file_types=ENDINGS, type="binary")
            model = gr.Dropdown([*available_models(sources()[0])], label="Model", filterable=False, elem_id="model")
            name = gr.Dropdown([*all_shifts()], value=NONE, label="Change of the image")
            strength = gr.Slider(0, 1, 0.5, step=0.1, label="strength", visible=False, elem_id="strength")
            steps = gr.Slider(1, MOST_STEPS, 40, step=1, label="Steps of the attack", visible=False, elem_id="steps")
            pixels = gr.Slider(
                0, MOST_PIXELS, 0, step=2, label="Slice in the card: points along a side", info=SLICE, elem_id="slice"
            )
            with gr.Row():
                run = gr.Button("Run both", variant="primary")
                cancel = gr.Button("Cancel", interactive=False)
        with gr.Column(scale=3, min_width=300):
            status = gr.HTML(markup.status("Choose an image and a change, then run the model and DRQ."), elem_id="status")
            answers = gr.HTML(result(preview(default_picture(), NONE, 0.5)), elem_id="result")
            decision = gr.HTML("", elem_id="card")

    def show_preview(picture: Picture | None, name: str, strength: float) -> tuple[Any, Any, Any]:
        """Show the change, and the model's answer to it, without DRQ; attacks only run on request."""
        attack = find_shift(name).attack is not None
        try:
            compared = preview(picture or default_picture(), NONE if attack else name, 0.5 if attack else float(strength))
        except InputError as error:
            return markup.error(str(error)), gr.skip(), ""
        hint = "Press “Run both” to attack the image." if attack else "Press “Run both” to see DRQ's answer."
        return markup.status(hint), result(compared), ""

    def on_source(source: str, name: str, strength: float) -> tuple[Any, ...]:
        picture, models = images_of(source)[0], available_models(source)
        choices = gr.update(choices=[*models], value=models[0])
        return choices, picture, thumbnails(source, 0), *show_preview(picture, name, strength)

    def on_thumbnail(event: Any, source: str, model: str, name: str, strength: float) -> tuple[Any, ...]:
        pictures = images_of(source)
        number = max(0, min(int(event._data["number"]), len(pictures) - 1))
        return set_picture(pictures[number], model, thumbnails(source, number), name, strength)

    def on_model(picture: Picture | None, model: str, name: str, strength: float) -> tuple[Any, ...]:
        return set_picture(picture or default_picture(), model, gr.skip(), name, strength)

    def set_picture(picture: Picture, model: str, choice: Any, name: str, strength: float) -> tuple[Any, ...]:
        try:
            picture = with_model(picture, model)
        except InputError as error:
            return gr.skip(), gr.skip(), markup.error(str(error)), gr.skip(), gr.skip()
        return picture, choice, *show_preview(picture, name, strength)

    def on_upload(data: bytes, source: str, model: str, name: str, strength: float) -> tuple[Any, ...]:
        try:
            picture = read_upload(data, model)
        except InputError as error:
            return gr.skip(), gr.skip(), markup.error(str(error)), gr.skip(), gr.skip()
        return picture, thumbnails(source, None), *show_preview(picture, name, strength)

    def on_shift(picture: Picture | None, name: str) -> tuple[Any, ...]:
        """Set the sliders to the range of the shift."""
        shift = find_shift(name)
        limits = {"minimum": shift.low, "maximum": shift.high, "step": shift.step}
        slider = gr.update(value=shift.start, label=shift.unit, visible=name != NONE, **limits)
        return slider, gr.update(visible=shift.attack is not None), *show_preview(picture, name, shift.start)

    def on_run(picture: Picture | None, name: str, strength: float, steps: float, pixels: float, request: Any) -> Iterator[Any]:
        for update in run_comparison(picture, name, strength, steps, pixels, str(request.session_hash), jobs):
            yield *(gr.skip() if each is None else each for each in update), gr.update(interactive=update[1] is None)
        yield gr.skip(), gr.skip(), gr.skip(), gr.update(interactive=False)

    def on_cancel(request: Any) -> None:
        jobs.stop(str(request.session_hash))

    on_thumbnail.__annotations__["event"] = gr.EventData  # Gradio passes these arguments because of the annotations
    on_run.__annotations__["request"] = on_cancel.__annotations__["request"] = gr.Request
    options = {"trigger_mode": "always_last", "show_progress": "hidden", "concurrency_limit": 2, "concurrency_id": "image"}
    outputs = [status, answers, decision]
    source.input(on_source, [source, name, strength], [model, current, choice, *outputs], api_name="source", **options)
    model.input(on_model, [current, model, name, strength], [current, choice, *outputs], api_name="model", **options)
    choice.click(on_thumbnail, [source, model, name, strength], [current, choice, *outputs], api_visibility="private", **options)
    upload.upload(on_upload, [upload, source, model, name, strength], [current, choice, *outputs], api_name="upload", **options)
    name.input(on_shift, [current, name], [strength, steps, *outputs], api_name="shift", **options)
    strength.input(show_preview, [current, name, strength], outputs, api_name="strength", **options)
    heavy = {"show_progress": "hidden", "concurrency_limit": 2, "concurrency_id": "search"}
    run.click(on_run, [current, name, strength, steps, pixels], [*outputs, cancel], api_name="ask", **heavy)
    cancel.click(on_cancel, api_name="cancel", queue=False)

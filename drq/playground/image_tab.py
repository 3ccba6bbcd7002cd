"""The second tab: an image, something that is done to it, and what the model alone and DRQ say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from drq.errors import InputError
from drq.playground import markup
from drq.playground.comparison import MOST_PIXELS, Answers, answered, preview
from drq.playground.image_sources import BYTES, Picture, classifiers, offered, seen_by, sources, uploaded
from drq.playground.jobs import Desk, followed
from drq.playground.sample_html import card
from drq.playground.shifts import MOST_STEPS, NONE, choices, shift

SHOWN = 5  # classes
SLICE = "0 for none. DRQ is asked about every point, which takes minutes."
ENDINGS = [".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm"]
CHOSEN = """
element.addEventListener('click', event => {
    const button = event.target.closest('button[data-number]');
    if (button) trigger('click', {number: Number(button.dataset.number)});
});
element.dataset.ready = 'yes';
"""


def thumbnails(source: str, chosen: int | None) -> str:
    """The images of a source, as buttons."""
    buttons = (
        f'<button type="button" data-number="{number}" aria-pressed="{str(number == chosen).lower()}">'
        f'<img src="{markup.picture(each.image)}" alt="{markup.text(each.name)}, number {number + 1}"></button>'
        for number, each in enumerate(offered(source))
    )
    return f'<div class="pictures" role="group" aria-label="Images">{"".join(buttons)}</div>'


def first() -> Picture:
    """The image that is there before any is chosen."""
    return offered(sources()[0])[0]


def result(found: Answers) -> str:
    """The image before and after, both answers side by side, and the likeliest classes."""
    was = f"as it was: {markup.text(found.names[found.before])}, says the model"
    became = "unchanged" if torch.equal(found.image, found.picture.image) else "as the model sees it now"
    figures = (
        f'<figure><figcaption>{caption}</figcaption><img src="{markup.picture(image)}" alt="{alt}"></figure>'
        for caption, image, alt in ((was, found.picture.image, "the image"), (became, found.image, "the changed image"))
    )
    answers = f'<div class="pair">{_standard(found)}{_defended(found)}</div>'
    return f'<div class="pair">{"".join(figures)}</div>{answers}{_classes(found)}'


def _standard(found: Answers) -> str:
    share = float(found.confidence[found.standard])
    return _answer("Standard: the model alone", found, found.standard, f"confidence {share:.3f}", "1 pass of the model")


def _defended(found: Answers) -> str:
    decision = found.decision
    if decision is None:
        return '<div class="answer"><h2>DRQ</h2><div class="word">not asked yet</div></div>'
    label = int(decision.label)
    kept = f"robustness {float(decision.robustness[0, label]):.3f}, margin {float(decision.margin):.3f}"
    cost = f"{int(decision.passes)} passes of the model, {found.seconds:.1f} s"
    return _answer("DRQ", found, label, kept if bool(decision.found) else "no region found: the model answers", cost)


def _answer(title: str, found: Answers, label: int, why: str, cost: str) -> str:
    truth = found.picture.label
    right = "" if truth is None else (" ✓ right" if truth == label else f" ✗ it is {markup.text(found.names[truth])}")
    word = f'<div class="word">{markup.text(found.names[label])}</div>'
    return f'<div class="answer"><h2>{title}</h2>{word}<div>{why}.{right}</div><div class="cost">{cost}</div></div>'


def _classes(found: Answers) -> str:
    """The likeliest classes for either of both."""
    decision = found.decision
    robustness = [0.0] * len(found.names) if decision is None else decision.robustness[0].tolist()
    exact = [True] * len(found.names) if decision is None else decision.exact[0].tolist()
    seen = found.confidence.tolist()
    order = sorted(range(len(found.names)), key=lambda number: -max(seen[number], robustness[number] * exact[number]))
    rows = []
    for number in order[:SHOWN]:
        known = "" if exact[number] else "below "
        kept = "" if decision is None else f"{known}{markup.bar(robustness[number], 'drq')}"
        rows.append((markup.text(found.names[number]), markup.bar(seen[number]), kept))
    return markup.table("The foremost classes", ("Class", "Confidence", "Robustness"), rows)


def told(found: Answers) -> str:
    """The outcome in one sentence."""
    assert found.decision is not None
    standard, drq = found.names[found.standard], found.names[int(found.decision.label)]
    agree = "DRQ agrees" if standard == drq else f"DRQ answers <strong>{markup.text(drq)}</strong>"
    return markup.said(f"The model alone answers <strong>{markup.text(standard)}</strong>; {agree}.")


def asked(
    picture: Picture | None, name: str, strength: float, steps: float, pixels: float, owner: str, desk: Desk
) -> Iterator[tuple[str, str | None, str | None]]:
    """Change the image and ask both, with news on the way: the status, then the result and the card; None leaves them be."""
    watch = desk.take(owner)
    chosen = picture or first()

    def work() -> tuple[str, str, str]:
        found = answered(chosen, name, float(strength), int(steps), watch, int(pixels))
        assert found.decision is not None
        watch.begin("Drawing", 1)
        return told(found), result(found), card(found.decision, found.names, found.slice)

    try:
        going = followed(work, watch)
        while True:
            try:
                yield markup.under_way(next(going).done, watch.what or "Starting"), None, None
            except StopIteration as end:
                yield end.value or (markup.said("Cancelled. Nothing was changed."), None, None)
                return
    except InputError as error:
        yield markup.refused(str(error)), None, None
    finally:
        watch.stop()  # whoever went away leaves no work behind
        desk.leave(owner, watch)


def build(gr: Any, desk: Desk) -> None:
    """Arrange the tab; ``gr`` is Gradio."""
    kept = gr.State(None, time_to_live=3600)
    with gr.Row():
        with gr.Column(scale=2, min_width=280):
            source = gr.Radio([*sources()], value=sources()[0], label="Images")
            choice = gr.HTML(thumbnails(sources()[0], 0), js_on_load=CHOSEN, elem_id="choice")
            upload = gr.UploadButton(f"Upload an image (at most {BYTES // 2**20} MB)", file_types=ENDINGS, type="binary")
            model = gr.Dropdown([*classifiers(sources()[0])], label="Model that looks at it", filterable=False, elem_id="looker")
            name = gr.Dropdown([*choices()], value=NONE, label="What is done to it")
            strength = gr.Slider(0, 1, 0.5, step=0.1, label="strength", visible=False, elem_id="strength")
            steps = gr.Slider(1, MOST_STEPS, 40, step=1, label="Steps of the attack", visible=False, elem_id="steps")
            pixels = gr.Slider(
                0, MOST_PIXELS, 0, step=2, label="Slice in the card: points along a side", info=SLICE, elem_id="slice"
            )
            with gr.Row():
                ask = gr.Button("Ask both", variant="primary")
                cancel = gr.Button("Cancel", interactive=False)
        with gr.Column(scale=3, min_width=300):
            status = gr.HTML(markup.said("Choose an image, do something to it, and ask."), elem_id="status")
            shown = gr.HTML(result(preview(first(), NONE, 0.5)), elem_id="result")
            drawn = gr.HTML("", elem_id="card")

    def looked(picture: Picture | None, name: str, strength: float) -> tuple[Any, Any, Any]:
        """What can be seen before DRQ is asked; an attack has to be asked for."""
        attack = shift(name).attack is not None
        try:
            seen = preview(picture or first(), NONE if attack else name, 0.5 if attack else float(strength))
        except InputError as error:
            return markup.refused(str(error)), gr.skip(), ""
        waits = "Press “Ask both” to attack the image." if attack else "Press “Ask both” to hear DRQ."
        return markup.said(waits), result(seen), ""

    def turned(source: str, name: str, strength: float) -> tuple[Any, ...]:
        picture, models = offered(source)[0], classifiers(source)
        lookers = gr.update(choices=[*models], value=models[0])
        return lookers, picture, thumbnails(source, 0), *looked(picture, name, strength)

    def chosen(event: Any, source: str, model: str, name: str, strength: float) -> tuple[Any, ...]:
        pictures = offered(source)
        number = max(0, min(int(event._data["number"]), len(pictures) - 1))
        return changed(pictures[number], model, thumbnails(source, number), name, strength)

    def switched(picture: Picture | None, model: str, name: str, strength: float) -> tuple[Any, ...]:
        return changed(picture or first(), model, gr.skip(), name, strength)

    def changed(picture: Picture, model: str, choice: Any, name: str, strength: float) -> tuple[Any, ...]:
        try:
            picture = seen_by(picture, model)
        except InputError as error:
            return gr.skip(), gr.skip(), markup.refused(str(error)), gr.skip(), gr.skip()
        return picture, choice, *looked(picture, name, strength)

    def brought(data: bytes, source: str, model: str, name: str, strength: float) -> tuple[Any, ...]:
        try:
            picture = uploaded(data, model)
        except InputError as error:
            return gr.skip(), gr.skip(), markup.refused(str(error)), gr.skip(), gr.skip()
        return picture, thumbnails(source, None), *looked(picture, name, strength)

    def fitted(picture: Picture | None, name: str) -> tuple[Any, ...]:
        """Sliders that suit a shift."""
        how = shift(name)
        span = {"minimum": how.low, "maximum": how.high, "step": how.step}
        slider = gr.update(value=how.start, label=how.unit, visible=name != NONE, **span)
        return slider, gr.update(visible=how.attack is not None), *looked(picture, name, how.start)

    def run(picture: Picture | None, name: str, strength: float, steps: float, pixels: float, request: Any) -> Iterator[Any]:
        for news in asked(picture, name, strength, steps, pixels, str(request.session_hash), desk):
            yield *(gr.skip() if each is None else each for each in news), gr.update(interactive=news[1] is None)
        yield gr.skip(), gr.skip(), gr.skip(), gr.update(interactive=False)

    def stopped(request: Any) -> None:
        desk.stop(str(request.session_hash))

    chosen.__annotations__["event"] = gr.EventData  # by which Gradio knows what to hand over
    run.__annotations__["request"] = stopped.__annotations__["request"] = gr.Request
    look = {"trigger_mode": "always_last", "show_progress": "hidden", "concurrency_limit": 2, "concurrency_id": "image"}
    news = [status, shown, drawn]
    source.input(turned, [source, name, strength], [model, kept, choice, *news], api_name="source", **look)
    model.input(switched, [kept, model, name, strength], [kept, choice, *news], api_name="model", **look)
    choice.click(chosen, [source, model, name, strength], [kept, choice, *news], api_visibility="private", **look)
    upload.upload(brought, [upload, source, model, name, strength], [kept, choice, *news], api_name="upload", **look)
    name.input(fitted, [kept, name], [strength, steps, *news], api_name="shift", **look)
    strength.input(looked, [kept, name, strength], news, api_name="strength", **look)
    heavy = {"show_progress": "hidden", "concurrency_limit": 2, "concurrency_id": "search"}
    ask.click(run, [kept, name, strength, steps, pixels], [*news, cancel], api_name="ask", **heavy)
    cancel.click(stopped, api_name="cancel", queue=False)

"""The first tab: click a point of the plane and see what DRQ does there."""

from __future__ import annotations

from typing import Any

from drq.errors import InputError
from drq.playground import markup
from drq.playground.panels import FORMS, panels
from drq.playground.points import DATA, MODELS
from drq.playground.scene import MOST_RADIUS, MOST_STEPS, Scene, Settings, scene
from drq.registry import NORMS
from drq.report.planes import COLOURS

CALIBRATED, OWN, SET = "calibrated, for a confidence", "calibrated, for the point's own confidence", "set by hand"
START = (0.3, 0.7)  # a pocket of one class inside the other, where DRQ corrects the classifier
# Where in the plane a click into a panel was: the panel knows what part of it it shows.
CLICKED = """
element.addEventListener('click', event => {
    const panel = event.target.closest('svg[data-window]');
    if (!panel) return;
    const box = panel.getBoundingClientRect();
    const [left, bottom, width] = panel.dataset.window.split(' ').map(Number);
    const x = left + width * (event.clientX - box.left) / box.width;
    const y = bottom + width * (box.bottom - event.clientY) / box.height;
    trigger('click', {x: Math.min(1, Math.max(0, x)), y: Math.min(1, Math.max(0, y))});
});
element.dataset.ready = 'yes';
"""
LEGEND = {
    "triangle": "the point",
    "diamond": "nearest confident point of another class",
    "cross": "most confident point of a class",
    "square": "least confident point near it",
}


def norms() -> list[str]:
    """The norms to choose from, the one that can be seen in a picture first."""
    return sorted(NORMS, key=lambda name: name != "l2")


def settings_of(
    data: str, model: str, norm: str, region: str, confidence: float, radius: float, alpha: float, steps: float
) -> Settings:
    """The settings that the controls say."""
    calibrated = {CALIBRATED: confidence, OWN: None}
    asked = {"confidence": calibrated[region]} if region in calibrated else {"radius": radius}
    return Settings(data, model, norm, alpha=alpha, steps=int(steps), **asked)


def shown(given: Settings, across: float, up: float, frame: int | None = None) -> tuple[str, str, int, int]:
    """The panels, the verdict, the number of the last frame and that of the frame shown; the last one where it is None.

    What cannot be shown is refused in the place of the verdict, and the panels are empty.
    """
    try:
        found = scene(given, round(float(across), 3), round(float(up), 3))
    except InputError as error:
        return "", markup.refused(str(error)), 0, 0
    last = len(found.frames) - 1
    at = last if frame is None else max(0, min(int(frame), last))
    return panels(found, at) + legend(len(found.seen)), verdict(found, at), last, at


def verdict(found: Scene, frame: int) -> str:
    """Who says what about the point, and which step is shown."""
    decision = found.journey.decision
    base, answer = int(decision.base_label), int(decision.label)
    changed = "" if answer == base else " <strong>DRQ corrects the classifier here.</strong>"
    words = [f"Classifier: <strong>class {base + 1}</strong>.", f"DRQ: <strong>class {answer + 1}</strong>.{changed}"]
    if found.found:
        cost = f"{int(decision.passes)} passes of the model"
        words.append(f"Radius {found.radius:.3f}, margin {float(decision.margin):.3f}, {cost}.")
    else:
        words.append("Calibration found no radius, so the classifier's own answer stands everywhere.")
    stage, step = found.frames[frame]
    path = found.path(stage)
    assert path is not None
    words.append(f"<br><span class=cost>Shown: {stage}, step {step} of {len(path.points) - 1}.</span>")
    explored, robustness = decision.explored_confidence[0].tolist(), decision.robustness[0].tolist()
    rows = [
        (f"class {number + 1}", f"{seen:.3f}", f"{explored[number]:.3f}", f"{robustness[number]:.3f}")
        for number, seen in enumerate(found.seen.tolist())
    ]
    heads = ("Class", "at the point", "explored", "robustness")
    return markup.said(*words) + markup.table("Confidence in every class", heads, rows, answer)


def legend(classes: int) -> str:
    """What the markers and colours mean."""
    forms = [(FORMS[form], "#ffffff", name) for form, name in LEGEND.items()]
    circles = [("M-7 0A7 7 0 1 1 7 0A7 7 0 1 1-7 0", COLOURS[number], f"class {number + 1}") for number in range(classes)]
    items = (
        f'<li><svg viewBox="-10 -10 20 20" aria-hidden="true"><path class="mark" fill="{colour}" d="{shape}"/></svg>{name}</li>'
        for shape, colour, name in (*circles, *forms)
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def build(gr: Any) -> None:
    """Arrange the tab; ``gr`` is Gradio."""
    with gr.Row(elem_id="plane-row"):
        with gr.Column(scale=1, min_width=260):
            data = gr.Radio([*DATA], value="Gaussians", label="Points")
            model = gr.Dropdown([*MODELS], value=next(iter(MODELS)), label="Classifier", filterable=False)
            norm = gr.Radio(norms(), value="l2", label="Norm")
            region = gr.Dropdown([CALIBRATED, OWN, SET], value=CALIBRATED, label="Radius of exploration", filterable=False)
            confidence = gr.Slider(0.5, 0.999, 0.99, step=0.001, label="Confidence that calibration asks for")
            radius = gr.Slider(0, MOST_RADIUS, 0.1, step=0.005, label="Radius", visible=False)
            alpha = gr.Slider(0, 1, 0.5, step=0.05, label="alpha: radius of quantification, as a share")
            steps = gr.Slider(1, MOST_STEPS, 20, step=1, label="Steps of every search")
            across = gr.Slider(0, 1, START[0], step=0.005, label="Point, across")
            up = gr.Slider(0, 1, START[1], step=0.005, label="Point, up")
        with gr.Column(scale=3, min_width=300):
            start = shown(Settings(), *START)
            seen = gr.HTML(start[1], elem_id="verdict")
            frame = gr.Slider(0, start[2], start[3], step=1, label="Step through the searches", elem_id="frame")
            drawn = gr.HTML(start[0], js_on_load=CLICKED, elem_id="panels")
    choices = [data, model, norm, region, confidence, radius, alpha, steps]

    def renewed(across: float, up: float, *chosen: Any) -> tuple[Any, ...]:
        panels_, verdict_, last, at = shown(settings_of(*chosen), across, up)
        return panels_, verdict_, gr.update(maximum=max(last, 1), value=at)

    def clicked(event: gr.EventData, *chosen: Any) -> tuple[Any, ...]:
        x, y = (round(float(event._data[name]), 3) for name in "xy")
        return x, y, *renewed(x, y, *chosen)

    def stepped(frame: float, across: float, up: float, *chosen: Any) -> tuple[str, str]:
        return shown(settings_of(*chosen), across, up, int(frame))[:2]

    def fields(region: str) -> tuple[Any, Any]:
        return gr.update(visible=region == CALIBRATED), gr.update(visible=region == SET)

    clicked.__annotations__["event"] = gr.EventData  # by which Gradio knows what to hand over
    look = {"trigger_mode": "always_last", "show_progress": "hidden", "concurrency_limit": 2, "concurrency_id": "plane"}
    result = [drawn, seen, frame]
    gr.on([each.input for each in (*choices, across, up)], renewed, [across, up, *choices], result, api_name="plane", **look)
    region.change(fields, region, [confidence, radius], show_progress="hidden", api_visibility="private")
    drawn.click(clicked, choices, [across, up, *result], api_visibility="private", **look)
    frame.input(stepped, [frame, across, up, *choices], [drawn, seen], api_name="step", **look)

"""Build the plane tab: click a point of the plane and see what DRQ does there."""

from __future__ import annotations

from typing import Any

from drq.errors import InputError
from drq.playground import markup
from drq.playground.panels import MARKERS, panels
from drq.playground.points import DATA, MODELS
from drq.playground.scene import MOST_RADIUS, MOST_STEPS, PlaneSettings, Scene, scene
from drq.registry import NORMS
from drq.report.plane_plots import COLOURS

CALIBRATED, OWN, SET = "calibrated, for a confidence", "calibrated, for the point's own confidence", "set by hand"
START = (0.3, 0.7)  # a pocket of one class inside the other, where DRQ corrects the classifier
# Converts a click into a panel to a point of the plane, by the window that the panel shows.
ON_CLICK = """
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
    """Return the names of all norms, l2 first, since its balls are circles."""
    return sorted(NORMS, key=lambda name: name != "l2")


def settings_from_controls(
    data: str, model: str, norm: str, region: str, confidence: float, radius: float, alpha: float, steps: float
) -> PlaneSettings:
    """Return the settings for the values of the controls."""
    calibrated = {CALIBRATED: confidence, OWN: None}
    choice = {"confidence": calibrated[region]} if region in calibrated else {"radius": radius}
    return PlaneSettings(data, model, norm, alpha=alpha, steps=int(steps), **choice)


def render(settings: PlaneSettings, across: float, up: float, frame: int | None = None) -> tuple[str, str, int, int]:
    """Return the panels, the verdict, the last frame's number and the shown frame's number; None shows the last frame.

    For a mistake the panels are empty, and the error stands in the place of the verdict.
    """
    try:
        drawn = scene(settings, round(float(across), 3), round(float(up), 3))
    except InputError as error:
        return "", markup.error(str(error)), 0, 0
    last = len(drawn.frames) - 1
    current = last if frame is None else max(0, min(int(frame), last))
    return panels(drawn, current) + legend(len(drawn.confidence)), verdict(drawn, current), last, current


def verdict(scene: Scene, frame: int) -> str:
    """Return the answers of the classifier and of DRQ at the point, and which step is shown."""
    decision = scene.trace.decision
    base, answer = int(decision.base_label), int(decision.label)
    changed = "" if answer == base else " <strong>DRQ corrects the classifier here.</strong>"
    sentences = [f"Classifier: <strong>class {base + 1}</strong>.", f"DRQ: <strong>class {answer + 1}</strong>.{changed}"]
    if scene.found:
        cost = f"{int(decision.passes)} passes of the model"
        sentences.append(f"Radius {scene.radius:.3f}, margin {float(decision.margin):.3f}, {cost}.")
    else:
        sentences.append("Calibration found no radius, so the classifier's own answer stands everywhere.")
    stage, step = scene.frames[frame]
    path = scene.path(stage)
    assert path is not None
    sentences.append(f"<br><span class=cost>Shown: {stage}, step {step} of {len(path.points) - 1}.</span>")
    explored, robustness = decision.explored_confidence[0].tolist(), decision.robustness[0].tolist()
    rows = [
        (f"class {number + 1}", f"{confidence:.3f}", f"{explored[number]:.3f}", f"{robustness[number]:.3f}")
        for number, confidence in enumerate(scene.confidence.tolist())
    ]
    heads = ("Class", "at the point", "explored", "robustness")
    return markup.status(*sentences) + markup.table("Confidence in every class", heads, rows, answer)


def legend(classes: int) -> str:
    """Return the legend of markers and colours."""
    markers = [(MARKERS[marker], "#ffffff", name) for marker, name in LEGEND.items()]
    circles = [("M-7 0A7 7 0 1 1 7 0A7 7 0 1 1-7 0", COLOURS[number], f"class {number + 1}") for number in range(classes)]
    items = (
        f'<li><svg viewBox="-10 -10 20 20" aria-hidden="true"><path class="mark" fill="{colour}" d="{shape}"/></svg>{name}</li>'
        for shape, colour, name in (*circles, *markers)
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def build(gr: Any) -> None:
    """Build the tab; ``gr`` is the module gradio."""
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
            start = render(PlaneSettings(), *START)
            answers = gr.HTML(start[1], elem_id="verdict")
            frame = gr.Slider(0, start[2], start[3], step=1, label="Step through the searches", elem_id="frame")
            drawn = gr.HTML(start[0], js_on_load=ON_CLICK, elem_id="panels")
    choices = [data, model, norm, region, confidence, radius, alpha, steps]

    def update(across: float, up: float, *values: Any) -> tuple[Any, ...]:
        panels_, verdict_, last, current = render(settings_from_controls(*values), across, up)
        return panels_, verdict_, gr.update(maximum=max(last, 1), value=current)

    def on_click(event: gr.EventData, *values: Any) -> tuple[Any, ...]:
        x, y = (round(float(event._data[name]), 3) for name in "xy")
        return x, y, *update(x, y, *values)

    def on_frame(frame: float, across: float, up: float, *values: Any) -> tuple[str, str]:
        return render(settings_from_controls(*values), across, up, int(frame))[:2]

    def on_region(region: str) -> tuple[Any, Any]:
        return gr.update(visible=region == CALIBRATED), gr.update(visible=region == SET)

    on_click.__annotations__["event"] = gr.EventData  # Gradio passes the event because of this annotation
    options = {"trigger_mode": "always_last", "show_progress": "hidden", "concurrency_limit": 2, "concurrency_id": "plane"}
    result = [drawn, answers, frame]
    gr.on([each.input for each in (*choices, across, up)], update, [across, up, *choices], result, api_name="plane", **options)
    region.change(on_region, region, [confidence, radius], show_progress="hidden", api_visibility="private")
    drawn.click(on_click, choices, [across, up, *result], api_visibility="private", **options)
    frame.input(on_frame, [frame, across, up, *choices], [drawn, answers], api_name="step", **options)

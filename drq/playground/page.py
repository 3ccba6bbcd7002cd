"""The page and its server: on this machine alone unless told otherwise, and without a word to any other."""

from __future__ import annotations

import ipaddress
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drq.errors import InputError, imported, require
from drq.playground import image_tab, plane_tab, run_tab
from drq.playground.guard import PURPOSE, REMEDY, Guard, nothing_fetched
from drq.playground.image_sources import BYTES
from drq.playground.jobs import Desk
from drq.system.threads import threads

HEAD = """<div class="head"><h1>Decision Region Quantification</h1>
<p>DRQ does not ask which class is most likely at an input. It looks around for the most confident point of every class, then
for how far that confidence can be pushed down nearby, and answers with the class that stays highest.</p></div>"""
STYLE = Path(__file__).with_name("style.css")
WAITING = 100  # requests in the queue, at most
SESSIONS = 200  # whose images are kept
BLUE = "#0072b2"  # as in all figures


def gradio() -> Any:
    """Gradio, told to keep to itself before it is loaded."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    return imported("gradio", PURPOSE, REMEDY)


def page(folder: Path, allow_code: bool = False) -> Any:
    """The page; runs are looked for below ``folder``, and may name code to run where that is allowed."""
    gr, desk = gradio(), Desk()
    with gr.Blocks(title="DRQ playground", analytics_enabled=False, delete_cache=(600, 600)) as made:
        gr.HTML(HEAD)
        with gr.Tabs():
            with gr.Tab("Plane", id="plane"):
                plane_tab.build(gr)
            with gr.Tab("Images", id="images"):
                image_tab.build(gr, desk)
            with gr.Tab("Run", id="run"):
                run_tab.build(gr, folder, made, allow_code)

        def gone(request: Any) -> None:
            desk.stop(str(request.session_hash))

        gone.__annotations__["request"] = gr.Request  # by which Gradio knows what to hand over
        made.unload(gone)
    return made.queue(max_size=WAITING)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def served(folder: Path, host: str = "127.0.0.1", port: int | None = None, allow_code: bool = False) -> Iterator[str]:
    """The address of the page, which is served meanwhile; without a port one that is free is taken."""
    require(folder.is_dir(), "folder", "be a folder", repr(str(folder)), "runs are looked for below it; . is this one")
    gr = gradio()
    quiet = {"quiet": True, "share": False, "inline": False, "ssr_mode": False, "run_history": False, "mcp_server": False}
    look = {"theme": theme(gr), "css": STYLE.read_text(encoding="utf-8"), "footer_links": []}
    guard = {"middleware": [Guard.on(is_loopback(host))]}
    limits = {"max_file_size": BYTES, "state_session_capacity": SESSIONS, "app_kwargs": guard}
    logging.getLogger("drq").setLevel(logging.ERROR)  # the cost of a call is shown on the page
    # Two searches run at once, and threads that wait for a core cost more than they help.
    with nothing_fetched(), threads(max(1, (os.cpu_count() or 1) // 2)):
        made = page(folder, allow_code)
        try:
            _, address, _ = made.launch(server_name=host, server_port=port, prevent_thread_lock=True, **quiet, **look, **limits)
        except OSError as error:
            remedy = "choose another with --host or --port"
            raise InputError(f"--port must be free on this machine, got {host}:{port or 'any'} ({error}): {remedy}") from error
        try:
            yield str(address)
        finally:
            made.close(verbose=False)


def theme(gr: Any) -> Any:
    """Letters that the machine has, since others would be fetched; and greys and blues that can be read."""
    base = gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"], radius_size="sm")
    quiet = {"body_text_color_subdued": "#52525b", "input_placeholder_color": "#52525b", "slider_color": BLUE}
    quiet |= {"button_primary_background_fill": BLUE, "button_primary_background_fill_hover": "#005a8d"}
    dark = {"body_text_color_subdued_dark": "#b4b4bd", "input_placeholder_color_dark": "#b4b4bd"}
    return base.set(**quiet, **dark, button_primary_background_fill_dark=BLUE)

"""Build the page and serve it: by default on this machine only, and without contacting any other."""

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
from drq.playground.guard import PURPOSE, REMEDY, Guard, no_downloads
from drq.playground.image_sources import MOST_BYTES
from drq.playground.jobs import Jobs
from drq.system.threads import threads

HEAD = """<div class="head"><h1>Decision Region Quantification</h1>
<p>DRQ does not ask which class is most likely at an input. It looks around for the most confident point of every class, then
for how far that confidence can be pushed down nearby, and answers with the class that stays highest.</p></div>"""
STYLE = Path(__file__).with_name("style.css")
MOST_WAITING = 100  # requests in the queue
MOST_SESSIONS = 200  # sessions whose images are kept
BLUE = "#0072b2"  # as in all figures


def gradio() -> Any:
    """Import Gradio with its usage reports switched off, which works only before it is loaded."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    return imported("gradio", PURPOSE, REMEDY)


def page(folder: Path, allow_code: bool = False) -> Any:
    """Build the page; runs are searched for below ``folder``, and may run code that they name only with ``allow_code``."""
    gr, jobs = gradio(), Jobs()
    with gr.Blocks(title="DRQ playground", analytics_enabled=False, delete_cache=(600, 600)) as blocks:
        gr.HTML(HEAD)
        with gr.Tabs():
            with gr.Tab("Plane", id="plane"):
                plane_tab.build(gr)
            with gr.Tab("Images", id="images"):
                image_tab.build(gr, jobs)
            with gr.Tab("Run", id="run"):
                run_tab.build(gr, folder, blocks, allow_code)

        def stop_jobs(request: Any) -> None:
            jobs.stop(str(request.session_hash))

        stop_jobs.__annotations__["request"] = gr.Request  # Gradio passes the request because of this annotation
        blocks.unload(stop_jobs)
    return blocks.queue(max_size=MOST_WAITING)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host name.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def served(folder: Path, host: str = "127.0.0.1", port: int | None = None, allow_code: bool = False) -> Iterator[str]:
    """Serve the page inside the context, and give its address; without a port, a free one is taken."""
    require(folder.is_dir(), "folder", "be a folder", repr(str(folder)), "runs are looked for below it; . is this one")
    gr = gradio()
    options = {"quiet": True, "share": False, "inline": False, "ssr_mode": False, "run_history": False, "mcp_server": False}
    appearance = {"theme": theme(gr), "css": STYLE.read_text(encoding="utf-8"), "footer_links": []}
    guard = {"middleware": [Guard.middleware(is_loopback(host))]}
    limits = {"max_file_size": MOST_BYTES, "state_session_capacity": MOST_SESSIONS, "app_kwargs": guard}
    logging.getLogger("drq").setLevel(logging.ERROR)  # the cost of a call is shown on the page
    # Two searches may run at the same time, and threads that wait for a core cost more than they help.
    with no_downloads(), threads(max(1, (os.cpu_count() or 1) // 2)):
        blocks = page(folder, allow_code)
        try:
            local = {"server_name": host, "server_port": port, "prevent_thread_lock": True}
            _, address, _ = blocks.launch(**local, **options, **appearance, **limits)
        except OSError as error:
            remedy = "choose another with --host or --port"
            raise InputError(f"--port must be free on this machine, got {host}:{port or 'any'} ({error}): {remedy}") from error
        try:
            yield str(address)
        finally:
            blocks.close(verbose=False)


def theme(gr: Any) -> Any:
    """Return a theme with fonts of the machine, since others would be downloaded, and with colours of enough contrast."""
    base = gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"], radius_size="sm")
    light = {"body_text_color_subdued": "#52525b", "input_placeholder_color": "#52525b", "slider_color": BLUE}
    light |= {"button_primary_background_fill": BLUE, "button_primary_background_fill_hover": "#005a8d"}
    dark = {"body_text_color_subdued_dark": "#b4b4bd", "input_placeholder_color_dark": "#b4b4bd"}
    return base.set(**light, **dark, button_primary_background_fill_dark=BLUE)

"""Take pictures for the docs: every tab of the playground after some clicks, the first one on a phone, and a card.

``make screenshots``; needs the extra ``app``, playwright and a Chromium. The run that is shown is evaluated first.
"""

import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

import drq
from drq.playground.page import served
from drq.report import plots
from tools import ROOT

FOLDER = ROOT / "docs" / "images"
WIDTH, PHONE = 1280, 375
SPEC = {
    "name": "digits",
    "title": "Digits, rotated and attacked",
    "models": ["digits"],
    "data": ["digits"],
    "limit": 60,
    "keep_images": 60,
    "threats": {
        "clean": {},
        "rotation": {"threat": "Rotation", "degrees": 30},
        "PGD": {"norm": "linf", "radius": 0.15, "steps": 20},
    },
    "defences": {"standard": {}, "DRQ": {"defence": "drq", "norm": "linf", "radius": 0.3}},
}


def plane(page: Page) -> None:
    """Show the middle of quantification at the point that the page opens with."""
    page.locator("#frame input[type=range]").focus()
    for _ in range(10):
        page.keyboard.press("ArrowLeft")
    page.locator("#verdict", has_text="quantification, step 10").wait_for()


def images(page: Page) -> None:
    """Show a frog with noise, one of few images on which the two answers differ."""
    page.get_by_role("tab", name="Images").click()
    page.get_by_role("button", name="frog").click()
    page.get_by_label("Change of the image").click()
    page.get_by_role("option", name="shot noise", exact=True).click()
    page.locator("#strength").wait_for()
    page.get_by_role("button", name="Run both").click()
    page.locator("#status", has_text="The model alone answers").wait_for(timeout=120_000)


def run(page: Page) -> None:
    """Show a sample that DRQ repaired."""
    page.get_by_role("tab", name="Run").click()
    page.get_by_label("Run, by its path").click()
    page.get_by_role("option", name="digits").click()
    page.locator("#overview table").wait_for()
    page.get_by_label("Threat and defence").click()
    page.get_by_role("option", name="PGD").click()
    page.get_by_label("repaired").click()
    page.wait_for_timeout(1000)
    page.locator("#samples label").first.click()
    page.locator("#sample table").wait_for(timeout=60_000)


TABS = {"plane": plane, "images": images, "run": run}


def save(page: Page, name: str, height: int) -> None:
    """Save a screenshot of the top of the page."""
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    page.wait_for_timeout(500)  # colours fade
    size = page.viewport_size
    assert size is not None
    whole = min(height, int(page.evaluate("document.documentElement.scrollHeight")))
    page.set_viewport_size({"width": size["width"], "height": whole})
    page.wait_for_timeout(300)
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    shot.save(FOLDER / f"playground-{name}.png", optimize=True)


def card() -> None:
    """Draw the card of the first digit on which an attack fools the model, and which DRQ repairs."""
    model = drq.load_model("digits")
    x, y = drq.load_data("digits").batch(range(60))
    robust = drq.DRQ(model, keep_points=True, **model.card.explored)
    decision = robust.decide(drq.threats.PGD("linf", 0.15, steps=20)(model, x, y))
    repaired = (decision.label == y) & (decision.base_label != y)
    first = int(repaired.long().argmax())
    one = decision[first : first + 1]
    plots.card(one, robust.slice(one), names=model.card.classes).savefig(FOLDER / "card.png", dpi=130)


def main() -> None:
    """Draw a card, evaluate a run, open every tab, and save the screenshots."""
    card()
    with tempfile.TemporaryDirectory() as place, sync_playwright() as play:
        drq.evaluate(SPEC, Path(place) / "digits")
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with served(Path(place)) as address:
            for name, prepare in TABS.items():
                page = browser.new_page(viewport={"width": WIDTH, "height": 900})
                page.goto(address)
                page.locator("[data-ready]").first.wait_for(state="attached")
                prepare(page)
                save(page, name, 1600)
                page.close()
            page = browser.new_page(viewport={"width": PHONE, "height": 800})
            page.goto(address)
            page.locator("[data-ready]").first.wait_for(state="attached")
            save(page, "phone", 1000)
        browser.close()


if __name__ == "__main__":
    main()

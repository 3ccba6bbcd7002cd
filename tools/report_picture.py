"""Take a picture of the top of a report for the docs: light and dark, side by side.

``python -m tools.report_picture drq-demo/report.html``; needs playwright and a Chromium.
"""

import argparse
import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from tools import ROOT

PICTURE = ROOT / "docs" / "report.png"
WIDTH, HEIGHT = 1000, 960


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--out", type=Path, default=PICTURE)
    given = parser.parse_args()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        halves = []
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
            page.goto(given.report.resolve().as_uri())
            halves.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
        browser.close()
    both = Image.new("RGB", (WIDTH, HEIGHT))
    both.paste(halves[0].crop((0, 0, WIDTH // 2, HEIGHT)), (0, 0))
    both.paste(halves[1].crop((WIDTH // 2, 0, WIDTH, HEIGHT)), (WIDTH // 2, 0))
    both.quantize(128).save(given.out, optimize=True)


if __name__ == "__main__":
    main()

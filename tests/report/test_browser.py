"""The report in a browser: on a desk and on a telephone, light and dark, it loads nothing, complains of nothing, and fits."""

from pathlib import Path

import pytest
from testbed.whole_runs import ABOUT, everything, pictures

from drq.report.html import report

pytestmark = pytest.mark.slow

LONG = "robustbench:cifar10/Linf/" + "AVeryLongNameThatHasNoPlaceToBreak" * 4
OVERFLOW = """() => [...document.querySelectorAll('body *')].filter(each => {
    const box = each.getBoundingClientRect();
    return box.right > innerWidth + 1 && box.width > 0 && !each.closest('.scroll, pre, svg, .skip');
}).map(each => each.outerHTML.slice(0, 200))"""
CONTRAST = """() => {
    const parse = text => text.match(/[\\d.]+/g).map(Number);
    const linear = each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
    const behind = each => {
        for (; each; each = each.parentElement) {
            const colour = parse(getComputedStyle(each).backgroundColor);
            if (colour.length < 4 || colour[3] > 0) return colour;
        }
        return [255, 255, 255];
    };
    const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
    const weak = new Set();
    while (walker.nextNode()) {
        const parent = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || parent.closest('svg') || !parent.checkVisibility()) continue;
        const [a, b] = [light(parse(getComputedStyle(parent).color)), light(behind(parent))].sort((x, y) => y - x);
        if ((a + 0.05) / (b + 0.05) < 4.5) weak.add(parent.outerHTML.slice(0, 200));
    }
    return [...weak];
}"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(
        report(everything(model=LONG), about=ABOUT, examples=pictures(), compare=everything(50, seed=3)), encoding="utf-8"
    )
    return path


def opened(browser, path: Path, width: int, scheme: str):
    """The page, and what went wrong and was asked for meanwhile."""
    shown = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    complaints, requests = [], []
    shown.on("console", lambda message: complaints.append(message.text))
    shown.on("pageerror", lambda error: complaints.append(str(error)))
    shown.on("request", lambda request: requests.append(request.url))
    shown.goto(path.as_uri())
    return shown, complaints, requests


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 375])
def test_the_page_fits_and_loads_nothing(browser, page, width, scheme):
    shown, complaints, requests = opened(browser, page, width, scheme)
    assert complaints == []
    assert [each for each in requests if not each.startswith("data:")] == [page.as_uri()]
    shown.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shown.evaluate("window.scrollTo(1000, 0)")
    assert shown.evaluate("window.scrollX") == 0
    assert shown.evaluate(OVERFLOW) == []
    assert shown.evaluate(CONTRAST) == []
    shown.context.close()


def test_tables_scroll_in_their_own_box(browser, page):
    shown, _, _ = opened(browser, page, 375, "light")
    assert shown.evaluate("[...document.querySelectorAll('.scroll')].some(each => each.scrollWidth > each.clientWidth)")
    assert shown.evaluate("[...document.querySelectorAll('.scroll')].every(each => each.tabIndex === 0)")
    shown.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_paper_it_is_dark_on_light_and_fits(browser, page, scheme):
    shown, _, _ = opened(browser, page, 794, scheme)  # the width of A4
    shown.emulate_media(media="print")
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert shown.evaluate(CONTRAST) == []
    assert shown.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill") == "rgb(0, 0, 0)"
    shown.context.close()


def test_an_accuracy_shows_its_expression(browser, page):
    shown, complaints, _ = opened(browser, page, 375, "dark")
    button = shown.locator("td button.accuracy").first
    box = shown.locator(f"#{button.get_attribute('popovertarget')}")
    assert not box.is_visible()
    button.click()
    assert box.is_visible()
    assert box.locator("code").inner_text() == button.get_attribute("data-expression")
    shown.keyboard.press("Escape")
    assert not box.is_visible()
    assert complaints == []
    shown.context.close()


def test_the_browser_is_told_to_run_no_script(browser, page, tmp_path):
    """If something slipped through all the same."""
    path = tmp_path / "report.html"
    path.write_text(
        page.read_text(encoding="utf-8").replace("</main>", "<script>document.title = 'ran'</script></main>"), encoding="utf-8"
    )
    shown, complaints, _ = opened(browser, path, 1280, "light")
    assert shown.title() != "ran"
    assert len(complaints) == 1
    shown.context.close()


def test_figures_follow_the_colours_of_the_page(browser, page):
    colours = []
    for scheme in ("light", "dark"):
        shown, _, _ = opened(browser, page, 1280, scheme)
        colours.append(shown.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill"))
        assert colours[-1] == shown.evaluate("getComputedStyle(document.body).color")
        shown.context.close()
    assert colours[0] != colours[1]

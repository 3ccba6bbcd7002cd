"""``drq play`` in a browser: what a person does there, with a mouse, a keyboard and a telephone."""

import time
from contextlib import contextmanager

import pytest
from testbed.playing import REPAIRED, photograph, playground, run, uploads

pytest.importorskip("gradio", reason="gradio is not installed")
pytestmark = pytest.mark.slow
TABS = ("Plane", "Images", "Run")
OVERFLOW = """() => [...document.querySelectorAll('body *')].filter(each => {
    const box = each.getBoundingClientRect();
    return box.right > innerWidth + 1 && box.width > 0 && !each.closest('.scroll, svg');
}).map(each => each.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    scratch = tmp_path_factory.mktemp("browser")
    run(scratch / "runs" / "one")
    with playground(scratch / "runs", scratch) as (address, outside):
        yield address
    assert outside.read_text() == ""


@pytest.fixture
def page(browser, server):
    """The page on a desktop screen. In the end nothing was complained of, and nothing came from elsewhere."""
    with visit(browser, server) as shown:
        yield shown


@pytest.fixture
def phone(browser, server):
    """The page on a telephone."""
    with visit(browser, server, 375) as shown:
        yield shown


@contextmanager
def visit(browser, server, width=1280, scheme="light"):
    context = browser.new_context(viewport={"width": width, "height": 900}, has_touch=width < 500, color_scheme=scheme)
    shown = context.new_page()
    complaints, requests = [], []
    shown.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    shown.on("pageerror", lambda error: complaints.append(str(error)))
    shown.on("request", lambda request: requests.append(request.url))
    shown.on("websocket", lambda socket: requests.append(socket.url))
    shown.goto(server)
    shown.locator(".panel svg").first.wait_for()
    shown.locator("[data-ready]").first.wait_for(state="attached")
    yield shown
    context.close()
    assert complaints == []
    assert [each for each in requests if not each.startswith((server, "data:", "blob:"))] == []


def tab(page, name):
    page.get_by_role("tab", name=name).click()


def text(page, selector):
    return page.evaluate("selector => document.querySelector(selector).innerText", selector)


def changed(page, selector, before, seconds=30):
    """Wait until what a part of the page says is something else."""
    page.wait_for_function(
        "([selector, before]) => document.querySelector(selector).innerText !== before",
        arg=[selector, before],
        timeout=1000 * seconds,
    )
    return text(page, selector)


def choose_shift(page, name):
    page.get_by_label("Change of the image").click()
    page.get_by_role("option", name=name, exact=True).click()
    page.locator("#strength").wait_for()


def open_sample(page, number):
    page.get_by_label("Run, by its path").click()
    page.get_by_role("option", name="one").click()
    page.locator("#overview table").wait_for()
    page.locator("#samples label").nth(number).click()
    page.locator("#sample table").wait_for()


def test_it_loads_quickly(browser, server):
    """The second time, so that the server has read its files; on a machine that others use as well."""
    times = []
    for _ in range(3):
        context = browser.new_context()
        shown, began = context.new_page(), time.perf_counter()
        shown.goto(server)
        shown.locator(".panel svg").first.wait_for()
        times.append(time.perf_counter() - began)
        context.close()
    assert min(times) < 3


def test_a_click_moves_the_point_and_changes_the_answer(page):
    whole = page.locator(".panel svg").last
    side = whole.bounding_box()["width"]
    answers = []
    for across, up in ((0.2, 0.2), (0.8, 0.8)):
        before = text(page, "#verdict .status-line")
        whole.click(position={"x": across * side, "y": (1 - up) * side})
        answers.append(changed(page, "#verdict .status-line", before))
        value = float(page.get_by_label("number input for Point, across").input_value())
        assert value == pytest.approx(across, abs=0.01)
    assert "Classifier: class 1" in answers[0]
    assert "Classifier: class 2" in answers[1]


def test_a_click_into_a_zoomed_panel_moves_it_there(page):
    panel = page.locator(".panel svg").first
    left, bottom, width = (float(each) for each in panel.get_attribute("data-window").split())
    assert width < 1
    side, before = panel.bounding_box()["width"], text(page, "#verdict .status-line")
    panel.click(position={"x": 0.25 * side, "y": 0.25 * side})
    changed(page, "#verdict .status-line", before)
    for name, truth in (("across", left + 0.25 * width), ("up", bottom + 0.75 * width)):
        value = float(page.get_by_label(f"number input for Point, {name}").input_value())
        assert value == pytest.approx(truth, abs=0.01)


def test_the_settings_change_what_is_seen(page):
    before = text(page, "#verdict .status-line")
    page.get_by_label("Radius of exploration", exact=True).click()
    page.get_by_role("option", name="set by hand").click()
    page.get_by_label("range slider for Radius").wait_for()
    for name in ("Moons", "linf"):
        before = changed(page, "#verdict .status-line", before)
        page.get_by_label(name, exact=True).click()
    changed(page, "#verdict .status-line", before)


def test_the_keyboard_steps_through_the_searches(page):
    slider = page.locator("#frame input[type=range]")
    slider.focus()
    page.keyboard.press("Home")
    page.locator("#verdict", has_text="Shown: calibration, step 0 of 100").wait_for()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    page.locator("#verdict", has_text="Shown: calibration, step 10 of 100").wait_for()
    page.keyboard.press("End")
    page.locator("#verdict", has_text="Shown: quantification, step 20 of 20").wait_for()


def test_the_keyboard_reaches_everything(page):
    """From tab to tab with arrows, into the panel of a tab with Tab, and a point is moved without a mouse."""
    page.get_by_role("tab", name="Plane").focus()
    before = text(page, "#verdict .status-line")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('aria-label')") == "range slider for Point, across":
            break
    else:
        pytest.fail("Tab does not lead to the point")
    page.keyboard.press("ArrowRight")
    changed(page, "#verdict .status-line", before)
    tab(page, "Images")
    page.locator("#choice button").nth(1).focus()
    page.keyboard.press("Enter")
    page.locator('#choice button[aria-pressed="true"] img[alt^="automobile"]').wait_for()
    assert page.evaluate("getComputedStyle(document.querySelector('#choice button')).cursor") == "pointer"


def test_an_image_is_chosen_corrupted_and_answered(page):
    tab(page, "Images")
    page.get_by_role("button", name="ship, number 4").click()
    page.locator("#result", has_text="ship").wait_for()
    was = page.locator("#result img").nth(1).get_attribute("src")
    choose_shift(page, "fog")
    page.wait_for_function("was => document.querySelectorAll('#result img')[1].src !== was", arg=was)
    fog = page.locator("#result img").nth(1).get_attribute("src")
    page.locator("#strength input[type=range]").focus()
    page.keyboard.press("End")
    page.wait_for_function("was => document.querySelectorAll('#result img')[1].src !== was", arg=fog)
    page.get_by_role("button", name="Run both").click()
    page.locator("#status", has_text="The model alone answers").wait_for(timeout=60_000)
    assert page.locator("#result .answer").count() == 2
    assert "passes of the model" in page.locator("#result .answer").nth(1).inner_text()
    assert page.locator("#card img").get_attribute("alt").startswith("Card of the decision")


def test_an_image_is_uploaded(page, tmp_path):
    tab(page, "Images")
    path = tmp_path / "../mine.png"  # a name that leads elsewhere
    path.write_bytes(photograph())
    was = page.locator("#result img").first.get_attribute("src")
    page.locator("input[type=file]").set_input_files(path)
    page.wait_for_function("was => document.querySelectorAll('#result img')[0].src !== was", arg=was)
    assert page.locator('#choice button[aria-pressed="true"]').count() == 0


@pytest.mark.parametrize("name", ["text.png", "truncated.png", "bomb.png", "page.png"])
def test_a_hostile_upload_is_refused_on_the_page(page, tmp_path, name):
    tab(page, "Images")
    path = tmp_path / name
    path.write_bytes(uploads()[name])
    was = page.locator("#result img").first.get_attribute("src")
    page.locator("input[type=file]").set_input_files(path)
    page.locator("#status [role=alert]").wait_for()
    assert "must" in text(page, "#status")
    assert page.locator("#result img").first.get_attribute("src") == was
    page.get_by_role("button", name="truck, number 5").click()  # and life goes on
    page.locator("#result", has_text="truck").wait_for()


def test_two_browsers_get_their_own_results(browser, server):
    """Both ask at the same time, for other points of the plane and other images."""
    with visit(browser, server) as one, visit(browser, server) as two:
        pages, before = {one: (0.2, 0.2), two: (0.8, 0.8)}, text(one, "#verdict .status-line")
        for page, (across, up) in pages.items():
            whole = page.locator(".panel svg").last
            side = whole.bounding_box()["width"]
            whole.click(position={"x": across * side, "y": (1 - up) * side})
        assert "Classifier: class 1" in changed(one, "#verdict .status-line", before)
        assert "Classifier: class 2" in changed(two, "#verdict .status-line", before)
        for page, name in ((one, "automobile, number 2"), (two, "ship, number 4")):
            tab(page, "Images")
            page.get_by_role("button", name=name).click()
        for page, name in ((one, "automobile"), (two, "ship")):
            page.locator("#result figcaption", has_text=name).wait_for()
            page.get_by_role("button", name="Run both").click()
        for page, name in ((one, "automobile"), (two, "ship")):
            page.locator("#status", has_text=f"The model alone answers {name}").wait_for(timeout=60_000)
            assert page.locator("#card img").get_attribute("alt").endswith(name)


def test_a_long_attack_shows_how_far_it_is_and_is_cancelled(page):
    tab(page, "Images")
    choose_shift(page, "attack on DRQ itself: Envelope")
    cancel = page.get_by_role("button", name="Cancel")
    assert cancel.is_disabled()
    page.get_by_role("button", name="Run both").click()
    page.locator("#status progress").wait_for()
    page.wait_for_function("() => Number(document.querySelector('#status progress')?.value) > 0", timeout=60_000)
    assert cancel.is_enabled()
    began = time.perf_counter()
    cancel.click()
    page.locator("#status", has_text="Cancelled").wait_for()
    assert time.perf_counter() - began < 5
    page.wait_for_function("() => [...document.querySelectorAll('button')].find(each => each.innerText === 'Cancel').disabled")


def test_a_run_is_opened_filtered_and_a_sample_is_seen(page):
    tab(page, "Run")
    page.get_by_label("Run, by its path").click()
    page.get_by_role("option", name="one").click()
    page.locator("#overview table").wait_for()
    assert "60 samples" in text(page, "#run-status")
    assert "<b>Bold</b>" in text(page, "#run-status")  # as letters
    page.get_by_label("repaired").click()
    page.locator("#samples", has_text=f"{len(REPAIRED)} samples").wait_for()
    assert page.locator("#samples label").count() == len(REPAIRED)
    page.locator("#samples label").first.click()
    page.locator("#sample table").wait_for()
    assert f"Sample {REPAIRED[0]} of digits" in text(page, "#sample")
    assert page.locator("#sample img").first.get_attribute("alt").startswith("Card of the decision")
    page.get_by_label("broken").click()
    page.wait_for_function("() => document.querySelector('#sample').innerText.trim() === ''")


def test_a_path_out_of_the_folder_is_refused_on_the_page(page):
    tab(page, "Run")
    field = page.get_by_label("Run, by its path")
    field.fill("../browser")
    field.press("Enter")
    page.locator("#run-status [role=alert]").wait_for()
    assert "run must be" in text(page, "#run-status")


@pytest.mark.parametrize("name", TABS)
def test_it_fits_a_telephone(phone, name):
    tab(phone, name)
    if name == "Run":
        open_sample(phone, 4)
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert phone.evaluate(OVERFLOW) == []


def test_a_touch_moves_the_point(phone):
    whole = phone.locator(".panel svg").last
    whole.scroll_into_view_if_needed()
    side, before = whole.bounding_box()["width"], text(phone, "#verdict .status-line")
    assert side > 250
    whole.tap(position={"x": 0.8 * side, "y": 0.2 * side})
    assert "Classifier: class 2" in changed(phone, "#verdict .status-line", before)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", TABS)
def test_axe_finds_no_serious_fault(browser, server, name, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    with visit(browser, server, scheme=scheme) as page:
        tab(page, name)
        if name == "Images":
            choose_shift(page, "attack: PGD, linf")
        if name == "Run":
            open_sample(page, 4)
        page.wait_for_timeout(500)  # colours fade in
        faults = [each for each in axe.Axe().run(page).response["violations"] if each["impact"] in ("serious", "critical")]
        assert [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in faults] == []

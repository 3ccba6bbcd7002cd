"""The site: every page has a place, every link an end, examples stand alone, the notebook runs, no other host is asked."""

import functools
import http.server
import inspect
import json
import os
import pydoc
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import yaml
from testbed.repository import ROOT

import drq

DOCS = ROOT / "docs"
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "training" / "README.md", *sorted(DOCS.rglob("*.md"))]
NOTEBOOK = ROOT / "examples" / "tour.ipynb"
EXTENSIONS = ("a norm", "a search", "a threat", "a defence", "a view", "a kind of view")
LOADING = ("src", "srcset", "poster", "data", "action")  # attributes whose address a browser asks for by itself


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """Without blocks of code, which have links and headings of their own."""
    return re.sub(r"^(```+).*?^\1", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


# Places and links


def places(nav) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [place for each in (nav.values() if isinstance(nav, dict) else nav) for place in places(each)]


def test_every_page_has_one_place_in_the_navigation():
    found = places(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(found) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


@functools.cache
def anchors(page: Path) -> set[str]:
    """Those of headings, made as GitHub makes them, and of what the reference describes."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).strip().replace(" ", "-")
        found.add(next(name for name in (words, *(f"{words}-{count}" for count in range(1, 1000))) if name not in found))
    return found | set(re.findall(r"^::: (\S+)$", prose(page), re.MULTILINE))


@pytest.mark.parametrize("page", TEXTS, ids=named)
def test_links_and_their_anchors_resolve(page):
    for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", prose(page)):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


# The reference


def described() -> set[int]:
    names = [name for page in (DOCS / "api").glob("*.md") for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)]
    assert len(names) == len(set(names))
    found = {name: pydoc.locate(name) for name in names}
    assert not [name for name, each in found.items() if each is None]
    return {id(each) for each in found.values()}


@pytest.mark.parametrize(
    "module", [drq, drq.views, drq.threats, drq.defences, drq.models, drq.data], ids=lambda each: each.__name__
)
def test_the_reference_has_all_public_names(module):
    public = {name: getattr(module, name) for name in module.__all__}
    missing = {
        name for name, each in public.items() if inspect.isclass(each) or inspect.isroutine(each) if id(each) not in described()
    }
    assert not missing


# Extensions


def blocks() -> dict[str, str]:
    """The only example of each section."""
    sections = re.split(r"^## (.+)\n", (DOCS / "extending.md").read_text(), flags=re.MULTILINE)[1:]
    pairs = zip(sections[::2], sections[1::2], strict=True)
    found = {name.lower(): re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL) for name, text in pairs}
    return {name: code for name, (code,) in found.items()}


def run_alone(name, folder, monkeypatch) -> dict:
    monkeypatch.chdir(folder)
    scope: dict = {"__name__": "extension"}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(compile(blocks()[name], name, "exec"), scope)
    return scope


def test_extensions_are_short():
    assert tuple(blocks()) == (*EXTENSIONS, "a name")
    assert max(len(code.splitlines()) for code in blocks().values()) <= 30


def test_the_norm_obeys_the_laws_of_norms(tmp_path, monkeypatch):
    norm = run_alone("a norm", tmp_path, monkeypatch)["Colour"]()
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 50, 3, 4, 5, generator=generator, dtype=torch.float64)
    inner = (first * second).flatten(1).sum(1)
    assert (norm.length(first + second) <= norm.length(first) + norm.length(second) + 1e-9).all()
    assert (inner <= norm.length(first) * norm.dual_length(second) + 1e-9).all()
    steepest = norm.steepest(second)
    torch.testing.assert_close(norm.length(steepest), torch.ones(50, dtype=torch.float64))
    torch.testing.assert_close((steepest * second).flatten(1).sum(1), norm.dual_length(second))
    assert not norm.steepest(torch.zeros(1, 3, 2, 2)).any()

    radius = torch.full((50,), 0.7, dtype=torch.float64)
    inside, projected = norm.sample((50, 3, 4, 5), generator), norm.project(first, radius)
    assert (norm.length(inside) <= 1).all()
    assert norm.length(inside).max() > 0.9
    assert (norm.length(projected) <= radius + 1e-9).all()
    obtuse = ((first - projected) * (0.7 * inside - projected)).flatten(1).sum(1)
    assert (obtuse <= 1e-9).all()  # which holds for the Euclidean projection and for no other
    torch.testing.assert_close(norm.project(0.5 * inside, radius), 0.5 * inside)


def test_the_search_stays_in_its_ball_and_descends(tmp_path, monkeypatch):
    momentum = run_alone("a search", tmp_path, monkeypatch)["Momentum"]()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, x = torch.nn.Linear(4, 3).eval().requires_grad_(False), torch.rand(20, 4)
    label = torch.zeros(20, dtype=torch.long)
    for norm in ("linf", "l2", "l1"):
        ball, objective = drq.Ball(x, 0.2, norm), drq.favour(model, label)
        found = drq.search.loop.search(momentum, objective, ball)
        assert ball.contains(found.point).all()
        assert (found.value < objective(x).value).all()
        alone = drq.search.loop.search(momentum, objective[3:4], ball[torch.tensor([3])])
        torch.testing.assert_close(alone.point[0], found.point[3])
    found = drq.search.loop.search(momentum, drq.favour(lambda x: x[:, :2], label), drq.Ball(x, 0.2, "linf"))
    torch.testing.assert_close(found.point, x + 0.2 * torch.tensor([1.0, -1.0, 0.0, 0.0]))  # the best point is known


def test_the_threat_strikes_a_sample_whatever_its_batch(tmp_path, monkeypatch):
    patch = run_alone("a threat", tmp_path, monkeypatch)["Patch"](3)
    x, index = torch.rand(6, 1, 8, 8), torch.arange(6)
    struck = patch(None, x, None, index=index)
    assert ((struck != x).flatten(1).sum(1) == 9).all()
    assert torch.equal(patch(None, x[4:], None, index=index[4:]), struck[4:])
    assert len({tuple((each != 0.5).flatten().tolist()) for each in struck}) > 1


def test_the_defence_is_evaluated_beside_others(tmp_path, monkeypatch):
    scope = run_alone("a defence", tmp_path, monkeypatch)
    records = scope["run"].records
    assert set(records["defence"].cast(str)) == {"standard", "DRQ", "neighbours"}
    scores = scope["Neighbours"](drq.load_model("digits"))(torch.rand(3, 1, 8, 8))
    torch.testing.assert_close(scores.exp().sum(1), torch.ones(3))


def test_the_view_is_looked_at_beside_others(tmp_path, monkeypatch):
    scope = run_alone("a view", tmp_path, monkeypatch)
    robust, x = scope["robust"], torch.rand(20, 3, 4, 4)
    odds = torch.stack([drq.log_odds(robust.model(each)) for each in (x, x.rot90(1, (2, 3)), x.rot90(-1, (2, 3)), x / 2)])
    assert torch.equal(robust.decide(x).label, odds.amax(0).argmax(1))
    assert robust.views.names[-1] == "darker"


def test_the_kind_of_view_joins_others(tmp_path, monkeypatch):
    tinted, x = run_alone("a kind of view", tmp_path, monkeypatch)["tinted"], torch.rand(2, 3, 4, 4)
    assert str(tinted) == "Tint() * Mirror()"
    assert tinted.names[1] == "tinted by -0.1"
    darker = torch.cat([(x[:, :1] - 0.1).clamp(0, 1), x[:, 1:]], 1)
    assert torch.equal(tinted[1](x), darker)
    assert torch.equal(tinted[tinted.names.index("tinted by -0.1, mirrored")](x), darker.flip(-1))
    with pytest.raises(drq.InputError, match="be pictures"):
        tinted.check(torch.rand(2, 5))


# The notebook


def test_the_notebook_holds_no_outputs():
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 4
    assert not [cell for cell in cells if cell["outputs"] or cell["execution_count"] is not None]


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    for package in ("nbclient", "ipykernel"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    program = (
        "import sys, nbformat, nbclient\n"
        "notebook = nbformat.read(sys.argv[1], 4)\n"
        "nbclient.NotebookClient(notebook, timeout=60, kernel_name='python3').execute()\n"
        "nbformat.write(notebook, sys.argv[2])\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, str(NOTEBOOK), str(tmp_path / "done.ipynb")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    outputs = [each for cell in json.loads((tmp_path / "done.ipynb").read_text())["cells"] for each in cell.get("outputs", [])]
    assert [each for each in outputs if "image/png" in each.get("data", {})]
    printed = "".join("".join(each.get("text", "")) for each in outputs)
    for expected in ("answers repaired", "the model says", "model alone", "Threshold(value="):
        assert expected in printed


# The pages that are built


class Requests(HTMLParser):
    """Addresses that a browser asks for when it opens a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inside = ""

    def handle_starttag(self, tag, attrs):
        held = dict(attrs)
        self.inside = tag
        self.found += [value for name, value in attrs if name in LOADING and value]
        if tag == "link" and held.get("rel") not in ("canonical", "next", "prev"):
            self.found.append(held["href"])
        self.found += styled(held.get("style") or "")

    def handle_data(self, data):
        if self.inside == "style":
            self.found += styled(data)


def styled(text: str) -> list[str]:
    return re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""", text)


def outside(address: str) -> bool:
    return re.match(r"(https?:)?//", address.strip()) is not None


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    for package in ("mkdocs", "material", "mkdocstrings_handlers"):
        if not find_spec(package):
            pytest.skip(f"{package} is not installed: make test installs it")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_asks_no_other_host(site):
    pages = {str(page.relative_to(site)) for page in site.rglob("*.html")}
    assert {str(page.relative_to(DOCS).with_suffix(".html")) for page in DOCS.rglob("*.md")} <= pages
    assert {"source/drq/engine/slots.py.html", "source/examples/tour.ipynb.html", "source/CONTRIBUTING.html"} <= pages
    for page in pages:
        parser = Requests()
        parser.feed((site / page).read_text())
        assert parser.found
        assert not [each for each in parser.found if outside(each)], page
    for style in site.rglob("*.css"):
        assert not [each for each in styled(style.read_text()) if outside(each)], style
    assert not list(site.rglob("*.py"))


@pytest.mark.slow
def test_the_reference_is_readable(site):
    """Comments describe fields, examples are code, and no role of another markup is left."""
    text = (site / "api" / "index.html").read_text()
    assert "(N,) the class that stays highest." in text
    assert "&gt;&gt;&gt; " in text
    for page in (site / "api").glob("*.html"):
        assert not re.search(r":(class|func|meth|mod|math):", page.read_text()), page
        assert "<blockquote>" not in page.read_text()


@pytest.mark.slow
def test_a_browser_asks_no_other_host(browser, site):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}"
    asked: list[str] = []
    problems: list[str] = []
    try:
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: problems.append(str(error)))
        for place in ("index.html", "ledger.html", "api/index.html", "extending.html", "source/examples/tour.ipynb.html"):
            page.goto(f"{home}/{place}", wait_until="networkidle")
        page.keyboard.press("/")
        page.keyboard.type("calibration", delay=20)
        page.wait_for_selector(".md-search-result__item", timeout=20_000)  # the search is at home, too
    finally:
        server.shutdown()
        server.server_close()
    assert any("search" in each for each in asked)
    assert not [each for each in asked if not each.startswith((home, "data:", "blob:"))]
    assert not problems

"""The shape of the code, apart from its layers, which import-linter holds: what an import costs, and where names lead."""

import ast
import json
import subprocess
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from pkgutil import walk_packages

import pytest
import torch

import drq

PACKAGE = Path(drq.__file__).parent


def loaded(code: str) -> set[str]:
    """The packages that are in memory after some code."""
    script = f"import sys\n{code}\nimport json; print(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_import_needs_only_torch_numpy_and_safetensors():
    """The method runs where nothing else is installed: every other import must be lazy."""
    before = loaded("import torch, numpy")
    after = loaded("import torch, drq; drq.DRQ(torch.nn.Linear(3, 2).eval(), 'l2', 0.1).decide(torch.rand(2, 3))")
    extras = {"rich", "typer", "sklearn", "scipy", "polars", "matplotlib", "foolbox", "pyautoattack", "PIL", "gradio", "cv2"}
    assert not (after - before) & extras


COMPLETION = "import os; os.environ.update(_DRQ_COMPLETE='complete_bash', COMP_WORDS='drq predict --model c', COMP_CWORD='3')"


@pytest.mark.parametrize(
    "code",
    [
        "import drq; dir(drq)",
        "from drq.commands.cli import main; main(['--help'])",
        "from drq.commands.cli import main; main(['--version'])",
        "from drq.commands.cli import main; main(['evaluate', '--help'])",
        f"{COMPLETION}\nfrom drq.commands.cli import main\ntry: main([])\nexcept SystemExit: pass",
    ],
    ids=["import", "help", "version", "help of a command", "completion"],
)
def test_what_needs_no_model_does_not_wait_for_torch(code):
    assert not loaded(code) & {"torch", "numpy", "polars"}


def test_names_are_found_where_type_checkers_read_that_they_are():
    tree = ast.parse(Path(drq.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    said = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        said |= {each.asname or each.name: (node.module, each.name) for each in node.names}
    assert said.keys() == {*drq.__all__} - {"__version__"}
    for name, (module, attribute) in said.items():
        expected = import_module(f"drq.{attribute}") if module == "drq" else getattr(import_module(module), attribute)
        assert getattr(drq, name) is expected, name
        assert name in dir(drq)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = drq.nothing


def modules() -> list[str]:
    """Every module of the package that can be imported as it is."""
    return [each.name for each in walk_packages([str(PACKAGE)], "drq.") if not each.name.endswith("__main__")]


@pytest.mark.parametrize("name", modules())
def test_no_module_hides_behind_a_function_of_its_name(name):
    """What `import drq.a.b as b` yields is the module."""
    pytest.importorskip("gradio") if name.startswith("drq.playground") else None
    module, (parent, _, child) = import_module(name), name.rpartition(".")
    assert getattr(import_module(parent), child) is module


def test_the_root_has_what_a_user_meets_first():
    assert len([*PACKAGE.glob("*.py")]) <= 20


def visited(call) -> list[str]:
    """The files of the package whose functions a call runs, in the order in which each function is first met."""
    met: dict[tuple[str, str], None] = {}

    def profile(frame, event, _):
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(str(PACKAGE)):
            met[name, frame.f_code.co_qualname] = None

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [name for name, _ in met]


def test_who_follows_a_decision_turns_few_pages():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 10)).eval()
    robust, x = drq.DRQ(model, "linf", 0.1), torch.rand(16, 3, 2, 2)
    assert not robust.decide(x).exact.all(), "some searches stop early, as they usually do, and rows are selected"
    files = visited(lambda: robust.decide(x))
    assert len({*files}) <= 10
    assert sum(before != now for before, now in pairwise(files)) <= 25

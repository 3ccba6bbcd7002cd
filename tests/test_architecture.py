"""The shape of the code: what may import what, and what an import costs."""

import ast
import subprocess
import sys
from pathlib import Path

import drq

PACKAGE = Path(drq.__file__).parent
LAYERS = [
    "errors",
    "rows",
    "seeds",
    "norms",
    "objectives",
    "search",
    "smoothing",
    "minimum_norm",
    "adapters",
    "inputs",
    "setting",
    "decision",
    "drq",
    "theory",
    "digits",
    "demo",
    "cli",
]  # a file imports only from files above it
OUTSIDE = {"__init__", "__main__"}


def test_every_file_has_its_layer():
    assert {path.stem for path in PACKAGE.glob("*.py")} - OUTSIDE == set(LAYERS)


def test_files_import_only_from_files_above_them():
    for position, name in enumerate(LAYERS):
        tree = ast.parse((PACKAGE / f"{name}.py").read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "drq":
                imported = node.module.split(".")[1] if "." in node.module else None
                allowed = position > LAYERS.index("drq") if imported is None else imported in LAYERS[:position]
                assert allowed, f"{name}.py may not import {node.module}"


def test_only_geometry_knows_p():
    for name in set(LAYERS) - {"norms", "demo", "theory", "cli", "digits"}:
        source = (PACKAGE / f"{name}.py").read_text()
        assert ".sign()" not in source, name
        assert "vector_norm" not in source, name


def test_one_loop_over_steps():
    loops = [name for name in LAYERS if "range(method.steps" in (PACKAGE / f"{name}.py").read_text()]
    assert loops == ["search"]


def test_import_needs_only_torch_numpy_and_safetensors():
    """The method runs where nothing else is installed: every other import must be lazy."""
    code = (
        "import sys, torch, numpy; before = set(sys.modules); import drq; "
        "model = torch.nn.Linear(3, 2).eval(); drq.DRQ(model, 'l2', 0.1).decide(torch.rand(2, 3)); "
        "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "print(*sorted(new & {'typer', 'rich', 'sklearn', 'scipy', 'polars', 'matplotlib', 'foolbox', 'click'}))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout
    assert output.strip() == ""

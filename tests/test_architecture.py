"""The shape of the code: what may import what, and what an import costs."""

import ast
import subprocess
import sys
from pathlib import Path

import drq

PACKAGE = Path(drq.__file__).parent
LAYERS = [
    "version",
    "errors",
    "threads",
    "rows",
    "seeds",
    "progress",
    "files",
    "images",
    "norms",
    "objectives",
    "search",
    "gradient",
    "auto_step",
    "black_box",
    "smoothing",
    "restoration",
    "presets",
    "minimum_norm",
    "adapters",
    "inputs",
    "setting",
    "calibration",
    "decision",
    "race",
    "regions",
    "twin",
    "compiled",
    "slots",
    "engine",
    "scores",
    "plane",
    "slices",
    "drq",
    "theory",
    "threats.threat",
    "threats.attacks",
    "threats.third_party",
    "threats.ensemble",
    "threats.target",
    "threats.duel",
    "threats.pursuit",
    "threats.stronger",
    "threats.red_team",
    "threats.adaptive",
    "threats.spatial",
    "threats.noise",
    "threats.corruptions.constants",
    "threats.corruptions.draws",
    "threats.corruptions.resample",
    "threats.corruptions.noise",
    "threats.corruptions.blur",
    "threats.corruptions.weather",
    "threats.corruptions.frost",
    "threats.corruptions.digital",
    "threats.corruptions.jpeg",
    "threats.corruptions",
    "threats.catalogue",
    "threats",
    "downloads",
    "data.dataset",
    "data.pickles",
    "data.places",
    "data.digits",
    "data.plane",
    "data.given",
    "data.cifar",
    "data.folders",
    "data.imagenet",
    "data.corrupted",
    "data.catalogue",
    "data",
    "models.classifier",
    "models.preact_resnet",
    "models.wide_resnet",
    "models.resnet",
    "models.dncnn",
    "models.architectures",
    "models.weights",
    "models.stored",
    "models.trained",
    "models.robustbench",
    "models.digits",
    "models.published",
    "models.timm_models",
    "models.torchvision_models",
    "models.huggingface_models",
    "models.libraries",
    "models.scikit",
    "models.plane",
    "models.embeddings",
    "models.catalogue",
    "models",
    "defences.defence",
    "defences.defended",
    "defences.votes",
    "defences.movements",
    "defences.adaptation",
    "defences.catalogue",
    "defences.answers",
    "defences",
    "evaluation.records",
    "evaluation.published",
    "evaluation.reading",
    "evaluation.spec",
    "evaluation.plan",
    "evaluation.stage",
    "evaluation.judging",
    "evaluation.effort",
    "evaluation.run",
    "evaluation.sources",
    "evaluation.showcase",
    "evaluation.engines",
    "evaluation",
    "evaluate",
    "statistics",
    "reporting.expressions",
    "reporting.typesetting",
    "tables",
    "selective",
    "reporting.drawing",
    "reporting.planes",
    "reporting.telling",
    "reporting.found_points",
    "reporting.card",
    "plots",
    "reporting.verdict",
    "reporting.page",
    "reporting.figures",
    "reporting.sections",
    "report",
    "reporting.runs",
    "reporting",
    "reproduction.keeping",
    "reproduction.comparisons",
    "reproduction.measures",
    "reproduction.claims",
    "reproduction.catalogue",
    "reproduction.pictures",
    "reproduction.cells",
    "reproduction.pages",
    "reproduction.peers",
    "reproduction.held_out",
    "reproduction.improvements",
    "reproduction.ledger",
    "reproduction.__main__",
    "reproduction",
    "bench.naive",
    "bench.numbers",
    "bench.settings",
    "bench.timing",
    "bench.subject",
    "bench.contestants",
    "bench.workshop",
    "bench.speed",
    "bench.agreement",
    "bench.growth",
    "bench.attacks",
    "bench.promises",
    "bench.summary",
    "bench.run",
    "bench.__main__",
    "bench",
    "demo",
    "redteam",
    "predict",
    "playground.points",
    "playground.journey",
    "playground.scene",
    "playground.panels",
    "playground.markup",
    "playground.plane_tab",
    "playground.drawn",
    "playground.pictures",
    "playground.watching",
    "playground.shifts",
    "playground.answers",
    "playground.cards",
    "playground.image_tab",
    "playground.runs",
    "playground.run_tab",
    "playground.guard",
    "playground.page",
    "playground",
    "terminal",
    "screens",
    "completion",
    "commands.app",
    "commands.attacking",
    "commands.benching",
    "commands.evaluating",
    "commands.listing",
    "commands.playing",
    "commands.predicting",
    "commands.reproducing",
    "commands",
    "cli",
]  # a file imports only from files above it
OUTSIDE = {"__init__", "__main__"}


def dotted(path: Path) -> str:
    """A file's place in the package: threats/attacks.py is threats.attacks, threats/__init__.py is threats."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


FILES = {dotted(path): path for path in PACKAGE.rglob("*.py")}


def source(name: str) -> str:
    return FILES[name].read_text()


def test_every_file_has_its_layer():
    assert set(FILES) - OUTSIDE == set(LAYERS)


def imports(name: str) -> set[str]:
    """The files of the package that a file imports from; "" for the package itself."""
    found = set()
    for node in ast.walk(ast.parse(source(name))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "drq":
            parent = node.module.partition(".")[2]
            children = [".".join(filter(None, (parent, each.name))) for each in node.names]
            found |= {child if child in FILES else parent for child in children}
    return found


def test_files_import_only_from_files_above_them():
    for position, name in enumerate(LAYERS):
        above = {*LAYERS[:position], *([""] if name in ("cli",) else [])}
        assert imports(name) <= above, f"{name} may not import {imports(name) - above}"


def test_only_geometry_knows_p():
    images = {name for name in LAYERS if name.startswith("threats.corruptions")}  # the sign of a coefficient is no direction
    for name in set(LAYERS) - images - {"norms", "demo", "theory", "terminal", "bench.naive"}:  # which checks the others
        assert ".sign()" not in source(name), name
        assert "vector_norm" not in source(name), name


def test_one_loop_over_steps():
    loops = [name for name in LAYERS if "range(method.steps" in source(name)]
    assert loops == ["search"]


def test_import_needs_only_torch_numpy_and_safetensors():
    """The method runs where nothing else is installed: every other import must be lazy."""
    code = (
        "import sys, torch, numpy; before = set(sys.modules); import drq; "
        "model = torch.nn.Linear(3, 2).eval(); drq.DRQ(model, 'l2', 0.1).decide(torch.rand(2, 3)); "
        "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "extras = {'rich', 'typer', 'sklearn', 'scipy', 'polars', 'matplotlib', 'foolbox', 'pyautoattack', 'PIL', 'gradio', "
        "'cv2'}; "
        "print(*sorted(new & extras))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout
    assert output.strip() == ""

"""Searches, smoothings, fronts and threats of a caller's own code, by name in a spec."""

import json
import textwrap

import pytest
from testbed.refusals import refused

import drq
from drq.commands.cli import main
from drq.evaluation import reading
from drq.system.code import load_object

CODE = """
    from dataclasses import dataclass
    import torch
    import drq
    from drq.threats import Shifted, Threat

    @dataclass(frozen=True)
    class Momentum(drq.Gradient):
        decay: float = 0.75

    @dataclass(frozen=True)
    class Spread(drq.Noise):
        pass

    @dataclass(frozen=True)
    class Dark:
        share: float = 0.5
        def __call__(self, x):
            return self.share * x

    @dataclass(frozen=True)
    class Patch(Threat):
        side: int = 3
        seed: int = 0
        def shift(self, model, x, y, index):
            return Shifted(x.clone(), torch.zeros(len(x), dtype=torch.long))

    @dataclass(frozen=True)
    class Own(drq.threats.PGD):
        pass

    class Nameless:
        def __call__(self, x):
            return x

    class Searches:
        Momentum = Momentum

    def momentum(steps=4):
        return Momentum(steps)

    number = 3
"""


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    (tmp_path / "own_code.py").write_text(textwrap.dedent(CODE))
    monkeypatch.syspath_prepend(str(tmp_path))


def defended(**settings):
    return reading.defence("mine", {"norm": "l2", "radius": 0.1} | settings, "defences.mine").settings


def test_a_search_with_settings():
    import own_code  # type: ignore[import-not-found]

    explore = {"search": "python:own_code:Momentum", "steps": 7, "decay": "1/2"}
    found = defended(explore=explore, quantify="python:own_code:momentum")
    assert found["explore"] == own_code.Momentum(7, decay=0.5)
    assert found["quantify"] == own_code.Momentum(4)
    inner = defended(explore="python:own_code:Searches.Momentum")["explore"]
    assert type(inner) is own_code.Momentum


def test_a_smoothing_and_a_front():
    import own_code

    explore = {"search": "Gradient", "smooth": {"smooth": "python:own_code:Spread", "samples": 2}}
    found = defended(explore=explore, front={"front": "python:own_code:Dark", "share": 0.25})
    assert found["explore"] == drq.Gradient(smooth=own_code.Spread(2))
    assert found["front"] == own_code.Dark(0.25)


def test_a_threat():
    import own_code

    for given in ({"threat": "python:own_code:Patch", "side": 2}, "python:own_code:Patch"):
        found = reading.threat("patch", given, "threats.patch", 5)["patch"]
        assert found == own_code.Patch(2 if isinstance(given, dict) else 3, 5)  # the seed is that of the spec
    attack = {"threat": "python:own_code:Own", "norm": "linf", "radius": 0.1}
    inside = {"threat": "Transfer", "norm": "linf", "radius": 0.1, "attack": attack}
    assert reading.threat("t", inside, "threats.t", 0)["t"].attack == own_code.Own("linf", 0.1)


def test_a_spec_with_it_runs_and_goes_on(tmp_path):
    pytest.importorskip("sklearn")
    explore = {"search": "python:own_code:Momentum", "steps": 2}
    table = {
        "models": ["gaussians-svm"],
        "data": ["gaussians"],
        "limit": 3,
        "threats": {"patch": {"threat": "python:own_code:Patch"}},
        "defences": {"mine": {"norm": "l2", "radius": 0.1, "explore": explore, "quantify": explore}},
    }
    for _ in range(2):
        run = drq.evaluate(table, tmp_path / "run")
    assert run.records.height == 3
    assert run.about["source"] == table
    assert run.about["spec"]["defences"]["mine"]["explore"].startswith("Momentum(steps=2")


MISTAKES = {
    "no module": ("search", "python:nothing.there:Search", ["defences.mine.explore: nothing.there must be a module"]),
    "no such name": ("search", "python:own_code:Momentun", ["own_code:Momentun must name something in own_code"]),
    "half a name": ("search", "python:own_code", ["name must have the form python:package.module:factory"]),
    "a number": ("search", "python:own_code:number", ["explore.search must name a class or function that makes a search", "int"]),
    "something else": ("search", "python:own_code:Dark", ["explore.search must be a drq.Search, got Dark"]),
    "not a dataclass": ("front", "python:own_code:Nameless", ["front must be a dataclass, got Nameless", "recorded"]),
    "a misspelt setting": (
        "search",
        {"search": "python:own_code:Momentum", "dekay": 1},
        ["defences.mine.explore must have settings that exist, got 'dekay'", "did you mean decay?"],
    ),
    "a name of ours, misspelt": ("search", "Gradinet", ["did you mean Gradient?"]),
    "a name of nobody's": ("search", "zzz", ["it is one of Gradient", "python:package.module:Name"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake):
    role, given, words = MISTAKES[mistake]
    key = "explore" if role == "search" else role
    refused(reading.defence, "mine", {"norm": "l2", "radius": 0.1, key: given}, "defences.mine", words=words)


@pytest.fixture
def beside(tmp_path):
    """A folder that Python does not look in, with a spec, a module and a package."""
    folder = tmp_path / "elsewhere"
    (folder / "lost_package").mkdir(parents=True)
    (folder / "lost_code.py").write_text("raise AssertionError('nobody asked for it to run')")
    return folder


NAMED = {
    "a model": {"models": ["python:lost_code:model"], "data": ["digits"]},
    "a model behind another name": {"models": ["denoised:python:lost_code:model"], "data": ["digits"]},
    "a defence": {"models": ["digits"], "data": ["digits"], "defences": {"mine": {"defence": "python:lost_code:defended"}}},
    "a view": {"models": ["digits"], "data": ["digits"], "defences": {"mine": {"views": "Mirror() + python:lost_code:darker"}}},
}


@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize("module", ["lost_code", "lost_package.inside"])
def test_a_module_beside_the_spec_is_told_with_what_to_do(named, module, beside, capsys):
    file = beside / "mine.json"
    file.write_text(json.dumps(NAMED[named]).replace("lost_code", module))
    top = module.partition(".")[0]
    rule = f"{top} must be a module that can be imported, got one beside mine.json, where Python does not look: "
    refused(drq.Spec.read, file, allow_code=True, words=[rule, f"start with PYTHONPATH={beside.resolve()}"])
    assert main(["evaluate", str(file), "--allow-code", "--out", str(beside / "run")]) == 2
    assert capsys.readouterr().err.startswith(f"drq: {rule}")
    refused(drq.Spec.read, file, words=["must not run code unasked", "--allow-code"])  # which comes first


def test_what_can_be_imported_or_lies_nowhere_is_left_to_the_import(beside, monkeypatch):
    table = NAMED["a view"]
    file = beside / "mine.json"
    monkeypatch.syspath_prepend(str(beside))
    (beside / "lost_code.py").write_text("def darker(x):\n    return x / 2")
    file.write_text(json.dumps(table))
    assert drq.Spec.read(file, allow_code=True).defences
    file.write_text(json.dumps(table).replace("lost_code", "nowhere_at_all"))
    refused(drq.Spec.read, file, allow_code=True, words=["nowhere_at_all must be a module", "put its folder in PYTHONPATH"])


def test_a_module_in_this_folder_is_told_too(beside, monkeypatch):
    monkeypatch.chdir(beside)
    (beside / "nearby_code.py").write_text("raise AssertionError('nobody looked here')")
    words = ["got 'No module named 'nearby_code''", "it lies in this folder: start with PYTHONPATH=."]
    refused(load_object, "nearby_code:model", words=words)
    (beside / "broken_code.py").write_text("import nowhere_at_all")
    monkeypatch.syspath_prepend(str(beside))
    refused(load_object, "broken_code:model", words=["No module named 'nowhere_at_all'", "install it, or put its folder in"])

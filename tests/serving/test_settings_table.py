"""Settings as plain values are those of the same DRQ, over all kinds of settings; what text cannot say is refused in one line."""

import json
import tomllib
from dataclasses import dataclass

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from testbed.classifiers import inputs, network
from testbed.refusals import refused

import drq
from drq.drq import CALIBRATED
from drq.evaluation.reading import drq_settings
from drq.serving.settings_table import settings_table, spec_table
from drq.system import toml_text

MODEL = network(0).float().eval()
STEPS, SHARES = st.integers(1, 4), st.floats(0.01, 1)
SMOOTHINGS = st.builds(drq.Noise, STEPS, SHARES, st.integers(0, 9)) | st.builds(drq.InnerAttack, STEPS, STEPS, SHARES)
SEARCHES = (
    st.builds(drq.Gradient, STEPS, st.floats(0.1, 5), st.sampled_from(["steepest", "raw"]), st.none() | SMOOTHINGS)
    | st.builds(drq.Random, STEPS, st.integers(0, 9))
    | st.builds(drq.AutoStep, STEPS)
)
LOW, HIGH = inputs(1, 4).float() - 5, inputs(2, 4).float() + 5
RADII = st.floats(0, 2) | st.builds(drq.Calibrated, st.none() | st.floats(0, 0.99), STEPS) | st.just(torch.tensor(0.3))
SETTINGS = st.fixed_dictionaries(
    {"bounds": st.sampled_from([None, (-50.0, 50), (LOW, HIGH), (LOW.double(), 60.0)])},
    optional={
        "norm": st.sampled_from(["linf", "l2", "l1", drq.L2()]),
        "radius": RADII,
        "alpha": st.floats(0, 1) | st.integers(0, 1),
        "explore": SEARCHES,
        "quantify": SEARCHES,
        "classes": st.none() | st.integers(2, 4),
        "frozen": st.none() | st.just(torch.tensor([True, False, False, True])),
        "explore_base": st.booleans(),
        "prune": st.sampled_from(["none", "exact", "race"]),
        "precision": st.sampled_from(["float32", "bfloat16"]),
        "chunk": st.none() | st.integers(1, 50),
        "keep_points": st.booleans(),
    },
)
VIEWS = [
    "Gain(4, 5)",
    "TimeShift(2, 3) + Gain(1.5, 3)",
    "TimeShift(1, 3) * Gain()",
    "NoiseFloor(0.1, 0.2)",
    "Gain(1.3333333333, 3)",
]
GATES = [None, drq.views.Gate(0.1), drq.views.Gate(-float("inf"), ahead=3.0, inputs=5, changed=1), drq.views.Gate(1 / 3)]
SOUND = st.fixed_dictionaries(
    {"views": st.sampled_from(VIEWS), "gate": st.sampled_from(GATES), "bounds": st.just(None)},
    optional={"radius": st.floats(0, 1), "alpha": st.sampled_from([0, 0.5]), "prune": st.sampled_from(["exact", "race"])},
)


def read_back(robust, model=MODEL):
    """The DRQ that the text of a table stands for."""
    table = tomllib.loads(toml_text.section("settings", settings_table(robust), {}))["settings"]
    kept = table.pop("keep_points")
    return drq.DRQ(model, keep_points=kept, **drq_settings(table, "settings"))


def same(first, second, x):
    """Two DRQ give the same, in all parts of a decision and in their scores."""
    one, two = first.decide(x), second.decide(x)
    for name, value in vars(one).items():
        other = getattr(two, name)
        equal = torch.equal(value.nan_to_num(7), other.nan_to_num(7)) if isinstance(value, torch.Tensor) else value == other
        assert equal, name
    assert torch.equal(first(x), second(x))


@settings(max_examples=30, deadline=None)
@given(SETTINGS)
def test_answers_are_the_same_after_a_round_trip(chosen):
    try:
        robust = drq.DRQ(MODEL, **chosen)
    except drq.InputError:  # settings that do not go together
        assume(False)
    again = read_back(robust)
    assert settings_table(again) == settings_table(robust)
    same(robust, again, inputs(3, 3, 4).float())


@settings(max_examples=20, deadline=None)
@given(SOUND)
def test_views_and_gates_as_well(chosen):
    robust = drq.DRQ(MODEL, **chosen)
    again = read_back(robust)
    assert again.views == robust.views
    assert again.gate == robust.gate
    assert again.ball_searched == robust.ball_searched == ("radius" in chosen)
    assert settings_table(again) == settings_table(robust)
    same(robust, again, inputs(4, 3, 4).float())


def test_a_gate_that_was_learnt():
    x = inputs(5, 120, 4).float()
    robust = drq.DRQ(MODEL, views="Gain(4, 5)", bounds=None).gated(x, 0.1)
    assert len(robust.gate.mean) == 4
    same(robust, read_back(robust), x[:5])


@pytest.mark.parametrize("front", [drq.Restoration(), drq.Restoration(0.18), drq.Restoration(None)])
def test_a_front(front):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3)).eval()
    robust = drq.DRQ(model, "linf", 0.05, front=front)
    again = read_back(robust, model)
    assert again.front == front
    same(robust, again, torch.rand(2, 3, 4, 4))


def test_views_without_a_radius_stay_without_and_calibrated_ones_calibrated():
    assert "radius" not in settings_table(drq.DRQ(MODEL, views="Gain()"))
    around = drq.DRQ(MODEL, radius=drq.Calibrated(steps=7), views="Gain()", bounds=None)
    assert settings_table(around)["radius"] == {"steps": 7}
    assert read_back(around).ball_searched
    assert settings_table(drq.DRQ(MODEL))["radius"] == {"steps": 100}
    assert drq.DRQ(MODEL).settings["radius"] is CALIBRATED


@settings(max_examples=20, deadline=None)
@given(SETTINGS)
def test_specs_take_the_table_and_keep_it_as_json(chosen):
    try:
        robust = drq.DRQ(MODEL, **chosen)
    except drq.InputError:
        assume(False)
    table = json.loads(json.dumps(spec_table(settings_table(robust))))
    spec = drq.Spec.of({"models": ["digits"], "data": ["digits"], "defences": {"mine": table}})
    made = spec.defences["mine"].around(MODEL)
    assert settings_table(made) == settings_table(robust) | {"keep_points": made.keep_points}
    assert spec.source is not None


def test_an_open_gate_in_a_spec():
    robust = drq.DRQ(MODEL, views="Gain()", gate=drq.views.Gate(-float("inf")), bounds=None)
    table = spec_table(settings_table(robust))
    assert json.loads(json.dumps(table, allow_nan=False)) == table
    spec = drq.Spec.of({"models": ["digits"], "data": ["digits"], "defences": {"mine": table}})
    assert spec.defences["mine"].around(MODEL).gate == robust.gate


class Odd(drq.L2):
    pass


class NoDataclass(drq.Gradient):
    def __init__(self, secret):
        super().__init__(3)


@dataclass(frozen=True)
class Mine(drq.Gradient):
    """A search of the caller's own, in a module that others can import."""

    steps: int = 3


def local_search():
    @dataclass(frozen=True)
    class Local(drq.Gradient):
        pass

    return Local(2)


CANNOT = {
    "a radius for every sample": ({"radius": torch.tensor([0.1, 0.2])}, ["radius must be one number", "shape (2,)"]),
    "a norm of one's own": ({"norm": Odd()}, ["norm must be one of linf, l2, l1 to be saved, got Odd()"]),
    "a local search": ({"explore": local_search()}, ["explore must be Gradient, Random, AutoStep, or a dataclass in a module"]),
    "a function in front": ({"front": lambda x: x}, ["front must be Restoration", "got function"]),
    "a module in front": ({"front": torch.nn.Identity().eval()}, ["front must be Restoration", "got Identity"]),
    "a function as a view": (
        {"views": drq.views.Gain() + torch.sqrt},
        ["views must be text to be saved", "python:package.module:function"],
    ),
    "bounds for too many features": ({"bounds": (torch.zeros(101, 100), 1.0)}, ["bounds must have at most 10,000 values"]),
    "a mask of too many": ({"frozen": torch.zeros(10_001).bool()}, ["frozen must have at most 10,000", "variant(frozen=...)"]),
    "a view in a long text": ({"views": " + ".join(f"Gain(1.{n:03}, 3)" for n in range(1, 150))}, ["views must be text"]),
}


@pytest.mark.parametrize("name", CANNOT)
def test_what_text_cannot_say_is_refused(name):
    chosen, words = CANNOT[name]
    views = chosen.get("views")
    if isinstance(views, str):  # longer than a text may be, but made of parts
        parts = [drq.views.Gain(float(f"1.{n:03}"), 3) for n in range(1, 150)]
        chosen = {"views": sum(parts[1:], parts[0])}
    refused(settings_table, drq.DRQ(MODEL, **chosen), words=words)


def test_a_search_of_ones_own_goes_by_its_place():
    robust = drq.DRQ(MODEL, "l2", 0.3, explore=Mine(4), bounds=None)
    table = settings_table(robust)
    place = table["explore"]["search"]
    assert place == f"python:{Mine.__module__}:Mine"
    same(robust, read_back(robust), inputs(6, 2, 4).float())

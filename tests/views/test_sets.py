"""Sets of views: united, combined, counted once, and written as text that is read back, and never evaluated."""

import pickle
import sys
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from testbed.every_view import EVERY, PICTURES, SHAPES, batch, each_set
from testbed.refusals import refused

import drq
from drq import views
from drq.views import Blur, Contrast, Gamma, Mirror, Rotation, Shift, as_views, parse

NUMBERS = st.floats(1e-3, 15, allow_nan=False) | st.integers(1, 15) | st.sampled_from([1 / 3, 0.1, 1e-3, 1.0])
ODD = st.integers(1, 6).map(lambda each: 2 * each + 1)
FAMILIES = st.one_of(
    st.builds(views.Rotation, NUMBERS.map(lambda each: 11.9 * each), ODD),
    st.builds(views.Rotation, st.just(180) | st.just(180.0), st.integers(2, 9)),
    st.builds(views.Scale, NUMBERS.map(lambda each: 1 + each), ODD),
    st.builds(views.Shift, st.integers(1, 9), st.sampled_from([5, 9])),
    st.builds(views.Gamma, NUMBERS) | st.builds(views.Gamma, NUMBERS, NUMBERS),
    st.builds(views.Detail, NUMBERS),
    st.builds(views.Sharpen, NUMBERS),
    st.builds(views.Gain, NUMBERS.map(lambda each: 1 + each), ODD),
    st.builds(views.TimeShift, st.integers(6, 99), ODD),
    st.builds(views.NoiseFloor, NUMBERS, NUMBERS),
    st.builds(views.Monotone, NUMBERS),
    st.sampled_from([kind() for kind in drq.registry.VIEWS.values()]),
)
SETS = st.recursive(
    FAMILIES,
    lambda inner: st.builds(lambda a, b: a + b, inner, inner) | st.builds(lambda a, b: a * b, inner, inner),
    max_leaves=7,
)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(SETS)
def test_text_is_read_back(looks):
    again = parse(str(looks))
    assert again == looks
    assert hash(again) == hash(looks)
    assert str(again) == str(looks)
    assert type(again) is type(looks)


@each_set
def test_sets_survive_pickle_and_start_with_the_input(name):
    looks, x = EVERY[name], batch(SHAPES[name])
    assert looks.names[0] == "the input"
    assert torch.equal(looks[0](x), x)
    assert len(set(looks.names)) == len(looks) == len(list(looks))
    if name != "one's own":
        again = pickle.loads(pickle.dumps(looks))
        assert again == looks == parse(str(looks))
        assert all(torch.equal(one(x), other(x)) for one, other in zip(again, looks, strict=True))


def test_the_left_one_is_made_first():
    """Contrast behind a blur is full contrast, a blur behind contrast is not."""
    x = batch((3, 8, 8))
    first, second = Contrast(), Blur()
    for one, other in ((first, second), (second, first)):
        looks = one * other
        assert len(looks) == 4
        found = {each.name: each(x) for each in looks}
        names = one[1].name, other[1].name
        assert torch.equal(found[", ".join(names)], other[1](one[1](x)))
        assert set(found) == {"the input", *names, ", ".join(names)}
    assert not torch.allclose(first[1](second[1](x)), second[1](first[1](x)))
    text = parse("Mirror() * Blur() * Contrast()")
    assert text[len(text) - 1].name == "mirrored, blurred, stretched"
    assert torch.equal(text[len(text) - 1](x), first[1](second[1](x.flip(3))))


def test_times_binds_tighter_than_plus():
    assert parse("Mirror() + Blur() * Contrast()") == Mirror() + (Blur() * Contrast())
    assert parse("(Mirror() + Blur()) * Contrast()") == (Mirror() + Blur()) * Contrast()
    assert len(parse("Mirror() + Blur() * Contrast()")) == 5
    assert len(parse("(Mirror() + Blur()) * Contrast()")) == 6


@settings(deadline=None, derandomize=True, max_examples=50)
@given(*[st.sampled_from([*PICTURES]).filter(lambda name: name != "one's own")] * 3)
def test_algebra_of_sets(one, other, third):
    a, b, c = (PICTURES[each] for each in (one, other, third))

    def effects(looks):
        return {each.effect for each in looks}

    assert effects(a + b) == effects(a) | effects(b)
    assert effects(a * b) == {(first + second).effect for first in a for second in b}
    assert len(a + a) == len(a)
    assert a + (b + c) == (a + b) + c
    if len(a) * len(b) * len(c) <= 1000:
        assert a * (b * c) == (a * b) * c
        assert effects((a + b) * c) == effects(a * c) | effects(b * c)


def test_what_changes_alike_counts_once():
    assert len(Rotation(90, 3) + Rotation(90, 5) + Rotation(180, 4)) == 6
    assert len(Mirror() + Mirror() * Blur() + Blur()) == 4
    assert len(Gamma(0.5, 2) + Gamma(2, 0.25)) == 4
    assert len(Shift(1) + Shift(2)) == 9
    assert len(views.Detail(0.1) + views.Detail(0.2)) == 3


def test_functions_of_your_own():
    def inverted(x):
        return 1 - x

    x = batch((3, 8, 8))
    for looks in (Mirror() + inverted, inverted + Mirror()):
        assert {*looks.names} == {"the input", "mirrored", "inverted"}
    behind, before = Blur() * inverted, inverted * Blur()
    assert behind[3].name == "blurred, inverted"
    assert before[3].name == "inverted, blurred"
    torch.testing.assert_close(behind[3](x), 1 - Blur()[1](x))
    alone = as_views(inverted)
    assert alone.names == ("the input", "inverted")
    assert torch.equal(alone[1](x), 1 - x)
    assert as_views("Mirror()") == Mirror()
    assert as_views(alone) is alone
    words = ["inverted must return inputs like its own, (12, 3, 8, 8) of torch.float64, got"]
    for wrong in (lambda x: x[0], lambda x: x.float(), lambda x: x.tolist()):
        wrong.__name__ = "inverted"
        refused(as_views(wrong)[1], x, words=words)


@pytest.fixture(name="mine")
def _mine(monkeypatch):
    module = ModuleType("module_of_mine")
    module.dim = lambda x: x / 2
    module.level = 3
    monkeypatch.setitem(sys.modules, "module_of_mine", module)


@pytest.mark.usefixtures("mine")
def test_functions_by_name():
    text = "Mirror() * python:module_of_mine:dim + python:module_of_mine:dim"
    refused(parse, text, words=["not run code unasked, got python:module_of_mine:dim: read what it would run", "allow_code=True"])
    looks, x = parse(text, allow_code=True), batch((3, 8, 8))
    assert str(looks) == text
    assert parse(str(looks), allow_code=True) == looks
    assert len(looks) == 4
    assert torch.equal(looks[2](x), x / 2) or torch.equal(looks[1](x), x / 2)
    refused(parse, "python:module_of_mine:level", allow_code=True, words=["views must name a function"])


CANARY = [
    "__import__('sys').modules.clear()",
    "Rotation(print('read'), 3)",
    "Rotation(90, 3) if print('read') else Mirror()",
    "[Mirror() for each in (1, 2)]",
    "Mirror().members",
    "Mirror.__class__()",
    "Rotation(*(90, 3))",
    "Rotation(**{'degrees': 90})",
    "(lambda: Mirror())()",
    "own[0]",
    "Mirror() + own[0]",
    "Rotation(9**9**9, 3)",
    "Rotation(True, 3)",
    "Rotation('90', 3)",
    "Mirror() - Mirror()",
    "Mirror",
    "Mirror()()",
    "2 * Mirror()",
    "Mirror(); Mirror()",
    "",
    "Mirror(",
    "Mirror(1)",
    "Rotation(degree=90)",
    "Rotate(90, 3)",
    "f'{Mirror()}'",
    "(" * 900 + "Mirror()" + ")" * 900,
    "+".join(["Mirror()"] * 300),
    "-" * 1500 + "1",
    "Rotation(1e999, 3)",
    "Rotation(1/0, 3)",
    "x\0y",
]


@pytest.mark.parametrize("text", CANARY)
def test_text_is_never_evaluated(text, capsys):
    refused(parse, text, allow_code=True, words=["got "])
    refused(parse, text, words=[": "])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Rotate(90, 3)", "views must be of Rotation, Scale, Shift, Mirror,"),
        ("Rotatoin(90, 3)", "did you mean Rotation?"),
        ("Mirror", "views must have parentheses behind names, got 'Mirror' in 'Mirror'"),
        ("Rotation(degree=90)", "views must have settings that Rotation knows, got 'Rotation(degree=90)'"),
        ("Mirror() - Blur()", "views must be families joined by +, * and @, got 'Mirror() - Blur()'"),
        ("Rotation('90', 3)", "views must have numbers as settings"),
        ("Rotation(90, 4)", "views must be an odd number of at least 3, the input itself among them, got 4"),
        ("Mirror(", "views must be an expression, got 'Mirror(' ("),
    ],
)
def test_mistakes_in_text(text, words):
    refused(parse, text, words=[words])


def test_numbers_in_text():
    assert parse("Rotation(degrees=90, views=3)") == parse(" Rotation(90, 3) ") == Rotation(90, 3)
    assert parse("Gamma(1/2, 4)") == Gamma(0.5, 4)
    assert parse("Rotation(1e1, 3)") == Rotation(10, 3)


def test_there_are_at_most_a_thousand():
    words = ["views must be at most 1000, got 1001", "every view costs a pass of the model"]
    assert len(Rotation(180, 1000)) == 1000
    refused(Rotation, 180, 1001, words=words)
    refused(Rotation, 90, 10**9 + 1, words=["views must be at most 1000, got 1000000001"])
    refused(len, Rotation(180, 1000) + Mirror(), words=["views must be at most 1000, got 1001"])
    refused(len, Rotation(180, 36) * Rotation(180, 36), words=["views must be at most 1000, got 1296"])
    refused(len, Rotation(180, 1000) * Rotation(180, 1000) * Rotation(180, 1000), words=["got 1000000000"])
    refused(drq.DRQ, torch.nn.Identity(), views=Rotation(180, 36) * Rotation(180, 36), words=["got 1296"])


def test_a_chain_has_what_all_of_its_parts_change():
    """Beside the input, the views of a product in which every part takes part, in its order."""
    parts = (Rotation(90, 3), Mirror(), Blur())
    chain, whole = parts[0] @ parts[1] @ parts[2], parts[0] * parts[1] * parts[2]
    assert [each.effect for each in chain] == [(), *(each.effect for each in whole if len(each.steps) == 3)]
    assert str(parse(str(chain))) == str(chain) == "Rotation(90, 3) @ Mirror() @ Blur()"
    assert str(parse("Mirror() @ (Blur() + Sharpen()) * Contrast()")) == "(Mirror() @ (Blur() + Sharpen())) * Contrast()"
    assert (Mirror() + Mirror() @ Blur() + Rotation(90, 3) + Mirror()).term_of == (0, 1, 2, 2)

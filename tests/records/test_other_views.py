"""The record on sound, tables and text holds what the page on views says of it."""

import json

import pytest
from testbed.repository import ROOT

from tools.benchmarks.other_views import choose, gained

ROWS = json.loads((ROOT / "results" / "other-views.json").read_text())["found"]
CHOSEN = {row["kind"]: row["reported"] for row in ROWS if row["chosen"]}
TRIED = {row["shift"]: row["choosing"] for row in ROWS if not row["chosen"]}


def accuracy(cell: dict, rule: str) -> float:
    return 100 * cell["right"][rule] / cell["inputs"]


def test_one_half_of_the_inputs_chose_and_the_other_is_shown():
    marked = [dict(row) for row in ROWS]
    choose(marked)
    assert marked == ROWS
    assert {*CHOSEN} == {"sound", "table: tumours", "table: digits", "text"}
    for row in ROWS:
        sizes = {half: {cell["inputs"] for cell in row[half].values()} for half in ("choosing", "reported")}
        assert abs(max(sizes["choosing"]) - max(sizes["reported"])) <= 1
        changed, inputs = row["gate"]
        assert changed <= 0.05 * inputs
        assert inputs == {"sound": 500, "text": 500, "table: digits": 300, "table: tumours": 120}[row["kind"]]


@pytest.mark.parametrize(("kind", "least", "of_the_mean"), [("sound", 36, 27), ("table: digits", 67, -2), ("text", 50, -1)])
def test_views_undo_a_shift_of_sound_digits_and_text(kind: str, least: float, of_the_mean: float) -> None:
    shifted = CHOSEN[kind]["shifted"]
    assert gained(shifted)[1] >= least
    assert gained(shifted, "drq against mean")[1] > of_the_mean
    assert (gained(shifted, "drq against mean")[1] > 0) == (kind == "sound")


def test_quiet_sounds_are_all_heard():
    assert accuracy(CHOSEN["sound"]["shifted"], "drq") == 100
    assert 9 < gained(CHOSEN["sound"]["shifted"], "mean against alone")[0] < 10


def test_clean_inputs_cost_what_is_said():
    costs = {kind: gained(halves["clean"]) for kind, halves in CHOSEN.items()}
    assert [kind for kind, (_, _, high) in costs.items() if high < 0] == ["table: digits"]
    assert -3 < costs["table: digits"][0] < -2.5


def test_no_views_of_tumours_were_found_to_gain():
    chosen, other = CHOSEN["table: tumours"]["shifted"], TRIED["radius in centimetres"]["shifted"]
    assert gained(chosen)[0] == 0
    assert gained(other)[2] < 0


def test_what_else_was_tried_did_what_is_said():
    assert gained(TRIED["noise"]["shifted"])[2] < 0
    assert gained(TRIED["typos in 3 of 10 letters"]["shifted"])[2] < 0
    late, bent, keys = (TRIED[name] for name in ("a quarter late", "all cubed", "hands a key too far right"))
    assert gained(late["shifted"])[1] > 0
    assert gained(late["clean"])[2] < 0
    assert gained(bent["shifted"])[1] > 0
    assert gained(bent["clean"])[2] > 0
    assert accuracy(keys["shifted"], "mean") - accuracy(keys["shifted"], "drq") > 5
    assert gained(keys["clean"], "mean against alone")[0] < -45
    assert -3 < gained(keys["clean"])[0] < -2

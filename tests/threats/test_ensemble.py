"""The paper's ensemble: its members, its numbers."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from testbed.digits import Digits

import drq
from drq.threats import AutoAttack, PGDAttack, PGDNoise, ensemble

STEPS = {"FAB": 100, "Square": 5000, "APGD-L2": 100, "APGD-CE": 100, "PGD-noise": 100, "PGD-attack": 100, "APGD-DLR": 100}
MEMBERS = {"FAB": "fab-t", "Square": "square", "APGD-L2": "apgd-ce", "APGD-CE": "apgd-ce", "APGD-DLR": "apgd-dlr"}


def test_members_and_numbers_are_the_papers() -> None:
    once, twice = (ensemble(8 / 255, beta=beta, seed=3, batch=50) for beta in (1, 2))
    assert {name: each.record["steps"] for name, each in once.items()} == STEPS
    assert all(twice[name].record["steps"] == 2 * each.record["steps"] for name, each in once.items())
    of_autoattack = {name: each for name, each in once.items() if isinstance(each, AutoAttack)}
    assert {name: each.member for name, each in of_autoattack.items()} == MEMBERS
    assert all(each.seed == 3 and each.batch == 50 for each in of_autoattack.values())
    assert once["FAB"].record["targets"] == 9
    assert isinstance(once["PGD-noise"], PGDNoise)
    assert isinstance(once["PGD-attack"], PGDAttack)


def test_the_l2_attack_has_a_radius_of_its_own() -> None:
    member = ensemble(8 / 255)["APGD-L2"].record
    assert member["norm"] == "L2()"
    assert member["radius"] == pytest.approx(0.5)
    assert ensemble(16 / 255)["APGD-L2"].record["radius"] == pytest.approx(1.0)
    assert ensemble(8 / 255, l2_radius=0.25)["APGD-L2"].record["radius"] == 0.25
    in_l2 = ensemble(0.5, "l2")
    assert {(each.record["norm"], each.record["radius"]) for each in in_l2.values()} == {("L2()", 0.5)}
    assert set(in_l2) == set(STEPS) - {"APGD-L2"}


def test_every_member_runs(digits: Digits) -> None:
    x, y = digits.x[:2], digits.y[:2]
    for name, threat in ensemble(0.1).items():
        moved = replace(threat, steps=2)(digits.model, x, y)
        assert threat.ball(x).contains(moved).all(), name


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ensemble(0.1, "l1"), "^norm must be 'linf' or 'l2', got 'l1'"),
        (lambda: ensemble(0.1, beta=0), "^beta must be a whole number of at least 1, got 0"),
        (lambda: ensemble(-1.0), "^radius must be finite and at least 0, got -1.0"),
    ],
)
def test_mistakes_get_one_clear_line(make: Callable[[], object], message: str) -> None:
    with pytest.raises(drq.InputError, match=message):
        make()

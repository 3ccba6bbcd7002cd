"""The committed records: the pages show what they hold, and they hold what is claimed."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import tables  # noqa: E402


def record(name: str) -> dict:
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


@pytest.mark.parametrize("page", tables.PAGES)
def test_tables_are_made_from_the_records(page: str) -> None:
    """``make tables`` writes them anew."""
    assert tables.updated(page) == (ROOT / page).read_text()


def test_our_auto_pgd_is_as_strong_as_the_reference() -> None:
    """Within half a point of each of its seeds, on 500 images, for every loss and norm."""
    found = record("attacks")
    assert found["images"] == 500
    assert len(found["accuracy"]) == 6
    for row in found["accuracy"]:
        assert row["ours"] <= min(row["reference"]) + 0.5, row


def test_the_red_team_takes_away_the_gain_of_anti_adversary() -> None:
    found = record("red-team-anti-adversary-quick")
    assert found["samples"] == 500
    assert found["hasty"] >= found["static"]["worst_case"] + 5  # what a hasty evaluation reports
    assert found["gain"] <= 1.5


def test_the_red_team_takes_away_the_gain_of_drq() -> None:
    found = record("red-team-drq-quick")
    assert found["samples"] == 500
    assert found["transferred"] >= found["static"]["worst_case"] + 3
    assert found["gain"] <= 1.0
    assert found["passes"]["most"] <= 30_000
    assert found["seconds"] <= 300  # 500 images on one GPU
    assert abs(found["defended_again"] - found["defended"]["worst_case"]) <= 1.0  # other batches round otherwise


def test_the_papers_spatial_settings_are_the_closest_readings() -> None:
    """Among all that were measured for a column; for translations among pure translations."""
    from drq import threats

    def distances(column: str) -> dict[str, float]:
        sums: dict[str, float] = {}
        for each in record("spatial")["readings"]:
            if column in each["paper"]:
                key = json.dumps(each["setting"])
                sums[key] = sums.get(key, 0) + abs(each["accuracy"] - each["paper"][column]) / 3
        return sums

    turned, moved = distances("rotation"), distances("translation")
    closest = json.loads(min(turned, key=turned.__getitem__))
    assert (closest["threat"], closest["worst_of"]) == ("RotationTranslation", threats.PAPER_ROTATION.worst_of)
    assert closest["padding"] == threats.PAPER_ROTATION.padding
    pure = {key: value for key, value in moved.items() if json.loads(key)["threat"] == "Translation"}
    closest = json.loads(min(pure, key=pure.__getitem__))
    assert (closest["grid"], closest["padding"]) == (threats.PAPER_TRANSLATION.grid, threats.PAPER_TRANSLATION.padding)

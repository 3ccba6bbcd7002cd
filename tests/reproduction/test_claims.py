"""Claims of the paper's text: each on records that bear it out, and on records that do not."""

import re
import tomllib

import polars as pl
import pytest
from testbed.claimed import (
    DRQ,
    LINF,
    OURS,
    RECORDS,
    calibrated,
    linf_under_attack,
    raw_gradient,
    rows,
    stacked,
)

from drq.evaluation.paper import CLAIMS, experiments, folder
from drq.evaluation.plan import tasks
from drq.evaluation.spec import Spec
from drq.reproduction.claims import MEASURES, claims, judge
from drq.reproduction.intervals import Estimate
from drq.reproduction.kept_records import condense_rows
from drq.reproduction.verdicts import Comparison


@pytest.mark.parametrize("name", MEASURES)
def test_a_claim_that_holds(name):
    found = MEASURES[name](RECORDS[name](good=True))
    assert found.verdict == "holds", found.measured
    assert re.match(r"`cifar10-\w+`: .+ -?\d+\.\d\d \[-?\d+\.\d\d, -?\d+\.\d\d\], n = \d+", found.measured)
    assert "\n" not in found.measured


@pytest.mark.parametrize("name", MEASURES)
def test_a_claim_that_does_not_hold(name):
    found = MEASURES[name](RECORDS[name](good=False))
    assert found.verdict == "does not hold", found.measured


@pytest.mark.parametrize("name", MEASURES)
def test_records_that_lack_something(name):
    """Of the experiment, of any of its defences, or of its threats."""
    records = RECORDS[name](good=True)
    assert MEASURES[name](records.clear()) is None
    assert MEASURES[name](records.with_columns(experiment=pl.lit("another"))) is None
    alone = records.with_columns(defence=pl.lit("other"))
    assert MEASURES[name](alone.filter(pl.int_range(pl.len()).over("data", "threat", "index", "defence") == 0)) is None


@pytest.mark.parametrize("name", ["random_noise", "raw_gradient", "best_on_spatial_shifts", "end_to_end"])
def test_too_few_images_decide_nothing(name):
    records = RECORDS[name](good=True).filter(pl.col("index") % 40 == 0)
    assert MEASURES[name](records).verdict == "undecided"


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("good", [True, False])
def test_kept_records_lead_to_the_same_verdict(name, good):
    records = RECORDS[name](good=good)
    short = condense_rows(records.with_columns(seconds=pl.lit(0.0)))
    assert MEASURES[name](short).verdict == MEASURES[name](records).verdict


def test_one_model_can_refute_and_none_can_hide():
    good, bad = raw_gradient(True), raw_gradient(False).with_columns(model=pl.lit("cifar10-small"))
    found = MEASURES["raw_gradient"](pl.concat([good, bad]))
    assert found.verdict == "does not hold"
    assert "`cifar10-linf`: clean 0.00" in found.measured
    assert "`cifar10-small`: clean -9.75" in found.measured
    half = bad.filter(pl.col("threat") == "clean")  # what is there refutes it, whatever is missing
    assert MEASURES["raw_gradient"](pl.concat([good, half])).verdict == "does not hold"
    other = good.filter(pl.col("threat") == "clean").with_columns(model=pl.lit("cifar10-small"))
    assert MEASURES["raw_gradient"](other) is None
    found = MEASURES["raw_gradient"](pl.concat([good, other]))
    assert found.verdict == "holds"
    assert found.measured.endswith("; the rest was not measured")


def test_what_is_only_shown_may_be_missing():
    far = [part.with_columns(radius=2 * pl.col("radius")) for part in calibrated(LINF, "linf", 16 / 255)]
    assert MEASURES["twice_the_radius"](stacked(far)).verdict == "does not hold"
    assert MEASURES["twice_the_radius"](far[0]).verdict == "does not hold"


@pytest.mark.parametrize(
    ("low", "high", "options", "verdict"),
    [
        (0.1, 1, {"least": 0}, "holds"),
        (-0.1, 1, {"least": 0}, "undecided"),
        (-2, -1, {"least": 0}, "does not hold"),
        (0, 0, {"least": 0}, "does not hold"),
        (-1, 1, {"least": -2, "most": 2}, "holds"),
        (1, 3, {"least": -2, "most": 2}, "undecided"),
        (2.5, 3, {"least": -2, "most": 2}, "does not hold"),
        (-0.9, -0.1, {"least": -1, "fails": 0}, "does not hold"),
        (-0.9, 0.1, {"least": -1, "fails": 0}, "holds"),
        (0, 0, {"least": -1, "fails": 0}, "holds"),
        (-1.5, -0.1, {"least": -1, "fails": 0}, "does not hold"),
        (-1.5, 0.5, {"least": -1, "fails": 0}, "undecided"),
    ],
)
def test_verdicts(low, high, options, verdict):
    assert Comparison("model", "what", Estimate((low + high) / 2, low, high, 10), **options).verdict == verdict


def test_attacks_on_the_defence_itself_do_not_count_among_those_of_the_ensemble():
    records = linf_under_attack(True)
    team = rows("table4", DRQ, 10, threat="red team", victim="defence")
    assert MEASURES["linf_under_attack"](stacked(records, team)) == MEASURES["linf_under_attack"](records)


def test_worst_cases_count_only_images_that_every_attack_was_tried_on():
    records = linf_under_attack(True)
    short = records.filter(~((pl.col("threat") == "FAB") & (pl.col("index") >= 100)))
    assert "n = 100" in MEASURES["linf_under_attack"](short).measured


def test_every_claim_has_a_measure_and_specs():
    found = claims()
    assert {claim.measure for claim in found.values()} == set(MEASURES)
    assert len({claim.measure for claim in found.values()}) == len(found) == 25
    for name, claim in found.items():
        assert name == claim.name == claim.measure.replace("_", "-")
        assert claim.says.endswith(".")
        assert re.fullmatch(r"(Section \d\.\d|Appendix [A-G])", claim.where)
        assert set(claim.experiments) <= set(experiments())
        assert set(claim.experiments) == set(RECORDS[claim.measure](good=True)["experiment"])
        assert judge(claim, RECORDS[claim.measure](good=True)).verdict == "holds"


@pytest.mark.parametrize("name", OURS)
def test_specs_ask_for_little(name):
    spec = Spec.read(experiments()[name])
    assert not spec.rounding
    assert spec.shard in (200, 500)
    assert all(task.limit is not None and task.limit <= 1000 for task in tasks(spec))


@pytest.mark.parametrize("name", sorted({name for claim in claims().values() for name in claim.experiments}))
def test_specs_have_what_the_measures_look_for(name):
    """The names of threats, suites, data and defences in made-up records are those of the spec."""
    planned = tasks(Spec.read(experiments()[name]))
    known = {
        (task.data, task.trial.suite, task.trial.title, task.trial.victim, each) for task in planned for each in task.defences
    }
    records = stacked([make(good=True) for make in RECORDS.values()]).filter(experiment=name)
    assert set(records.select("data", "suite", "threat", "victim", "defence").unique().rows()) <= known


def test_the_list_is_one_table_a_claim():
    path = folder() / CLAIMS
    assert set(tomllib.loads(path.read_text())) == {"claims"}
    assert max(map(len, path.read_text().splitlines())) <= 130

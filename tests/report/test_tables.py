"""Tables against counting by hand, closed forms and their own expressions."""

import subprocess
import sys
from collections import defaultdict

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from testbed.refusals import refused
from testbed.repository import ROOT, reaching
from testbed.synthetic import records as made_up
from testbed.trials import trial

from drq.report.selective import compare
from drq.report.statistics import paired, wilson
from drq.report.tables import GROUP, SUITE, VALUES, against_paper, cells, mean_over_data, worst_case

NASTY = ('it\'s "quoted" \\ and\nbroken', "{x} | _&%$#~^ é 日本 pl.col('a')")
TABLES = [cells, worst_case, mean_over_data]


def by_hand(records, by, worst):
    """The table by loops over rows, as {(group, defence): values}."""
    answers, withstood, threats = defaultdict(lambda: defaultdict(list)), defaultdict(lambda: defaultdict(list)), defaultdict(set)
    for row in records.iter_rows(named=True):
        group = tuple(row[name] for name in by)
        answers[group, row["defence"]][row["index"]].append(row)
        withstood[group, row["defence"]][row["index"]].append(row["base_withstood"])
        threats[group].add((row["suite"], row["threat"]))
    needed = {group: len(each) if worst else 1 for group, each in threats.items()}
    right = {}
    for (group, defence), samples in answers.items():
        full = {index: rows for index, rows in samples.items() if len(rows) == needed[group]}
        right[group, defence] = {index: all(row["prediction"] == row["label"] for row in rows) for index, rows in full.items()}
    table = {}
    for (group, defence), mine in right.items():
        attacked = dict(zip(by, group, strict=True))["victim"] == "defence"
        other, alone = right.get((group, "standard"), {}), withstood[group, "standard"]
        if attacked:  # what was tried in the attack on this defence, and on the model itself
            other = {index: all(each) and all(alone[index]) for index, each in [*withstood[group, defence].items()]}
        both = [] if defence == "standard" else [index for index in mine if index in other]
        rows = [row for index in mine for row in answers[group, defence][index]]
        table[group, defence] = {
            "threats": needed[group],
            "images": len(mine),
            "left_out": len(answers[group, defence]) - len(mine),
            "correct": sum(mine.values()),
            "passes": sum(row["passes"] for row in rows) / len(rows) if rows else None,
            "seconds": sum(row["seconds"] for row in rows) / len(rows) if rows else None,
            "threat_passes": sum(row["threat_passes"] for row in rows) / len(mine) if rows else None,
            "compared": len(both),
            "reference_correct": sum(other[index] for index in both),
            "fixed": sum(mine[index] and not other[index] for index in both),
            "spoiled": sum(other[index] and not mine[index] for index in both),
        }
    return table


def check(table, truth, by):
    assert {(tuple(row[name] for name in by), row["defence"]) for row in table.iter_rows(named=True)} == set(truth)
    assert len(table) == len(truth)
    for row in table.iter_rows(named=True):
        expected = truth[tuple(row[name] for name in by), row["defence"]]
        for name in ("threats", "images", "left_out", "correct", "compared"):
            assert row[name] == expected[name], name
        for name in ("passes", "seconds", "threat_passes"):
            assert row[name] == pytest.approx(expected[name])
        assert row["accuracy"] == (pytest.approx(100 * row["correct"] / row["images"]) if row["images"] else None)
        interval = [each.item() for each in wilson(row["correct"], row["images"])] if row["images"] else [None, None]
        assert [row["low"], row["high"]] == pytest.approx(interval)
        check_comparison(row, expected)


def check_comparison(row, expected):
    names = ("difference", "difference_low", "difference_high", "p_value")
    if not expected["compared"]:
        assert {row[name] for name in (*names, "fixed", "spoiled", "reference_accuracy", "reference_expression")} == {None}
        return
    assert (row["fixed"], row["spoiled"]) == (expected["fixed"], expected["spoiled"])
    assert row["reference_accuracy"] == pytest.approx(100 * expected["reference_correct"] / expected["compared"])
    truth = [each.item() for each in paired(expected["fixed"], expected["spoiled"], expected["compared"])]
    assert [row[name] for name in names] == pytest.approx(truth)


@pytest.mark.parametrize("seed", range(3))
def test_cells_count_what_a_loop_counts(seed):
    records = trial(seed=seed)
    table = cells(records)
    check(table, by_hand(records, GROUP, worst=False), GROUP)
    assert table["compared"].max() > 0
    assert table["difference"].null_count() < len(table)


@pytest.mark.parametrize("by", [SUITE, ("model", "data", "victim")])
@pytest.mark.parametrize("seed", range(3))
def test_worst_cases_count_what_a_loop_counts(seed, by):
    records = trial(seed=seed)
    table = worst_case(records, by)
    check(table, by_hand(records, by, worst=True), by)
    assert set(table["threat"]) == {"worst case"}
    assert len(set(table["left_out"])) > 3  # limits differ by threat
    assert 0 in set(table["images"])  # a defence that lacks a threat has no worst case


def test_a_suite_of_one_threat_has_the_worst_case_of_that_threat():
    records = trial().filter(pl.col("suite") == "clean")
    same = [name for name in VALUES if "expression" not in name] + ["model", "victim", "defence"]
    assert_frame_equal(worst_case(records).select(same), cells(records).select(same))


def test_attacked_defences_are_held_against_all_that_the_model_withstood():
    """Two samples, by hand: the model lost the second one only to the attack on itself, under another threat.

    It lost the first one to the attack on another defence, which must not make this one look better.
    """
    rows = [  # defence, threat, index, right, withstood
        ("DRQ", "A", 0, True, True), ("DRQ", "B", 0, False, True), ("other", "A", 0, True, False), ("other", "B", 0, True, True),
        ("DRQ", "A", 1, True, True), ("DRQ", "B", 1, True, True), ("other", "A", 1, True, True), ("other", "B", 1, True, True),
        ("standard", "A", 0, True, True), ("standard", "B", 0, True, True),
        ("standard", "A", 1, True, True), ("standard", "B", 1, False, False),
    ]  # fmt: skip
    blank = made_up(1, models=("a",), threats={"A": "s"}, defences=("DRQ",))
    records = pl.concat(
        blank.with_columns(
            *(pl.lit(value).alias(name) for name, value in {"defence": defence, "threat": threat, "victim": "defence"}.items()),
            index=pl.lit(index, pl.Int64),
            prediction=pl.col("label") + (not right),
            base_prediction="label",
            base_withstood=pl.lit(withstood),
        )
        for defence, threat, index, right, withstood in rows
    )
    (row,) = worst_case(records).filter(pl.col("defence") == "DRQ").to_dicts()
    assert (row["accuracy"], row["reference_accuracy"], row["fixed"], row["spoiled"]) == (50, 50, 1, 1)
    single = {row["threat"]: row for row in cells(records).filter(pl.col("defence") == "DRQ").to_dicts()}
    assert (single["A"]["accuracy"], single["A"]["reference_accuracy"]) == (100, 100)
    assert (single["B"]["accuracy"], single["B"]["reference_accuracy"]) == (50, 50)
    (row,) = worst_case(records, reference="other").filter(pl.col("defence") == "DRQ").to_dicts()
    assert (row["reference_accuracy"], row["fixed"], row["spoiled"]) == (100, 0, 1)  # another defence answers for itself


@pytest.mark.parametrize("table", TABLES)
def test_every_expression_gives_its_accuracy_again(table):
    records = trial(30, models=(*NASTY, "b"), data=("cifar10-c/fog/5", "cifar10-c/snow/5", "cifar10-c/frost/4"))
    rows = table(records).to_dicts()
    for row in rows:
        assert "\n" not in row["expression"]
        assert eval(row["expression"], {"records": records, "pl": pl}) == pytest.approx(row["accuracy"])
        if row["reference_expression"]:
            assert eval(row["reference_expression"], {"records": records, "pl": pl}) == pytest.approx(row["reference_accuracy"])
    assert any(row["reference_expression"] and row["victim"] == "defence" for row in rows)
    assert {row["model"] for row in rows} == {*NASTY, "b"}


@pytest.mark.parametrize("table", TABLES)
def test_settings_of_a_defence_may_tell_groups_apart(table):
    """The reference has no such settings, and is compared all the same."""
    base = trial(30, victims=("base",), data=("cifar10-c/fog/5",), defences=("standard", "DRQ linf"))
    more = base.filter(pl.col("defence") != "standard").with_columns(explore_steps=pl.lit(5, pl.Int64), prediction="label")
    records, default = pl.concat([base, more]), SUITE if table is worst_case else GROUP
    found = table(records, by=(*default, "explore_steps"))
    for row in found.to_dicts():
        assert eval(row["expression"], {"records": records, "pl": pl}) == pytest.approx(row["accuracy"])
        if row["reference_expression"]:
            assert eval(row["reference_expression"], {"records": records, "pl": pl}) == pytest.approx(row["reference_accuracy"])
    assert found.filter(pl.col("explore_steps") == 5)["accuracy"].unique().to_list() == [100]
    assert found.filter(pl.col("explore_steps") == 5)["spoiled"].to_list() == [0] * (len(found) // 3)
    plain = found.filter(pl.col("explore_steps") != 5)["difference"].to_list()
    assert plain == table(base).filter(pl.col("defence") != "standard")["difference"].to_list()
    refused(table, records, by=(*default, "explore_steps"), reference="DRQ linf", words=["reference", "explore_steps"])


@pytest.mark.parametrize("table", TABLES)
def test_what_is_nothing_tells_groups_apart_like_any_value(table):
    records = trial(30, data=("cifar10-c/fog/5",)).filter(pl.col("suite") == "clean")
    default = SUITE if table is worst_case else GROUP
    found = table(records, by=(*default, "threat_radius"))  # null for clean images
    same = [name for name in found.columns if name in VALUES and "expression" not in name]
    assert_frame_equal(found.select(same), table(records).select(same))
    assert found["threat_radius"].null_count() == len(found)
    for row in found.to_dicts():
        assert eval(row["expression"], {"records": records, "pl": pl}) == pytest.approx(row["accuracy"])


@pytest.mark.parametrize("table", [*TABLES, compare])
def test_names_may_be_categories(table):
    records = trial(30, data=("cifar10-c/fog/5", "cifar10-c/snow/5"))
    assert_frame_equal(table(records.with_columns(pl.selectors.string().cast(pl.Categorical))), table(records))


@pytest.mark.parametrize("table", TABLES)
def test_the_order_of_records_changes_only_the_order_of_rows(table):
    records = trial(30, data=("cifar10-c/fog/5", "cifar10-c/snow/5"))
    mixed = records.sample(fraction=1, shuffle=True, seed=1)
    order = [name for name in table(records).columns if name not in VALUES]
    assert_frame_equal(table(mixed).sort(order), table(records).sort(order))


@pytest.mark.parametrize("table", TABLES)
def test_rows_come_in_the_order_of_the_records(table):
    kinds = ("fog", "snow") if table is mean_over_data else ("fog",)
    records = made_up(5, models=[f"m{number}" for number in range(40)], data=[f"cifar10-c/{kind}/5" for kind in kinds])
    mixed = records.sample(fraction=1, shuffle=True, seed=1)
    keys = ["model", "suite", "defence"] if table is worst_case else ["model", "threat", "defence"]
    assert table(mixed).select(keys).rows() == mixed.select(keys).unique(maintain_order=True).rows()


def test_all_tables_have_the_same_columns():
    records = trial(20, data=("cifar10-c/fog/5",))
    frames = [cells(records), worst_case(records), worst_case(records, ("model", "data", "victim")), mean_over_data(records)]
    frames += [table(records.clear()) for table in TABLES]
    assert len({tuple(frame.schema.items()) for frame in frames}) == 1
    assert len(pl.concat(frames)) == sum(map(len, frames))
    assert set(VALUES) < set(frames[0].columns)
    assert [len(frame) for frame in frames[-3:]] == [0, 0, 0]


def published(*rows):
    return pl.DataFrame(rows, schema=["experiment", "model", "data", "threat", "defence", "value"], orient="row")


def test_numbers_of_the_paper_stand_beside_ours():
    table = pl.concat([cells(made_up()), worst_case(made_up())])
    paper = published(
        ("table1", "a", "cifar10", "clean", "standard", 83.34),
        ("table7", "a", "cifar10", "clean", "standard", 81.16),  # the paper has two values here
        ("table4", "b", "cifar10", "worst case", "DRQ linf", 48.52),
        ("table4", "c", "cifar10", "clean", "DRQ linf", 1.0),
    )
    found = against_paper(table, paper)
    assert_frame_equal(found.drop("published", "minus_paper"), table)
    shown = found.filter(pl.col("published").is_not_null())
    worst = [("b", suite, "worst case", "DRQ linf", 48.52) for suite in ("clean", "ensemble")]
    assert shown.select("model", "suite", "threat", "defence", "published").rows() == [
        ("a", "clean", "clean", "standard", 83.34),
        *worst,
    ]
    assert shown["minus_paper"].to_list() == pytest.approx((shown["accuracy"] - shown["published"]).to_list())
    own = cells(made_up().with_columns(experiment=pl.lit("table7")), by=("experiment", *GROUP))
    assert against_paper(own, paper)["published"].drop_nulls().to_list() == [81.16]


def test_mistakes_are_named():
    records = made_up(5)
    twice = pl.concat([records, records])
    for table in TABLES[:2]:
        refused(table, twice, words=["records", "once", "'experiment'"])
        refused(table, records, by=("model", "data"), words=["by", "victim"])
        refused(table, records, by=("model", "colour", "victim"), words=["by", "'colour'"])
    refused(cells, records, by=SUITE, words=["records", "once"])  # several threats in a suite
    refused(mean_over_data, records, by=("model", "suite", "threat", "victim"), words=["by", "'data'"])
    apart = pl.concat([records, records.with_columns(experiment=pl.lit("again"))])
    assert len(cells(apart, by=("experiment", *GROUP))) == 2 * len(cells(records))


MEASURE = """
import resource, time
from testbed.synthetic import records
from drq.report import selective, tables
made = records(5000, [f"m{n}" for n in range(5)], [f"cifar10-c/{kind}/5" for kind in ("fog", "snow", "frost", "contrast")],
               {"clean": "clean", "A": "x", "B": "x", "C": "y", "D": "y"})
assert len(made) == 1_000_000
before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
for table in (tables.cells, tables.worst_case, tables.mean_over_data, selective.compare):
    assert len(table(made))
print(time.process_time() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6)
"""


@pytest.mark.slow
def test_a_million_rows_take_seconds():
    """All tables together; the aim is 3 s of computing time and well below 1 GB."""
    command = [sys.executable, "-c", MEASURE]
    options = {"capture_output": True, "text": True, "check": True, "timeout": 300}
    output = subprocess.run(command, env=reaching(ROOT / "tests"), **options).stdout
    seconds, gigabytes = map(float, output.split())
    assert seconds < 10
    assert gigabytes < 1

"""The verdict: gains, losses and costs are counted again in plain Python; each kind of verdict on records made for it."""

import numpy as np
import polars as pl
import pytest
from scipy.stats import binomtest
from testbed.refusals import refused
from testbed.synthetic import records
from testbed.whole_runs import everything

from drq.report.verdict import UNTESTED, Finding, verdict


def answered(right, defence, threat="clean", victim="base", withstood=None, passes=0.0):
    """Records of one defence that is right where it is told to be."""
    right = np.asarray(right)
    frame = records(len(right), ("a",), threats={threat: threat}, defences=(defence,))
    return frame.with_columns(
        prediction=pl.Series(np.where(right, frame["label"], frame["label"] + 1)),
        base_withstood=pl.Series(right if withstood is None else np.asarray(withstood)),
        victim=pl.lit(victim),
        threat_passes=pl.lit(passes),
    )


def share(count, total=100):
    return np.arange(total) < count


def headline(*parts):
    (line,) = verdict(pl.concat(parts)).headlines()
    return line


def test_findings_are_those_of_a_plain_count():
    frame = everything()
    found = [each for each in verdict(frame).findings if each.threat in ("clean", "rotation", "FAB", "Square", "APGD-CE")]
    found = [each for each in found if "*" not in each.data]
    rows = frame.filter(victim="base", model="cifar10-linf").rows(named=True) + frame.filter(victim="base", model="other").rows(
        named=True
    )
    right = {
        (row["model"], row["data"], row["threat"], row["defence"], row["index"]): row["prediction"] == row["label"]
        for row in rows
    }
    assert len(found) == 2 * 5 * 2 + 5
    for each in found:
        mine, base = (
            [right[each.model, each.data, each.threat, defence, index] for index in range(100)]
            for defence in (each.defence, "standard")
        )
        fixed = sum(a and not b for a, b in zip(mine, base, strict=True))
        spoiled = sum(b and not a for a, b in zip(mine, base, strict=True))
        assert (each.accuracy.value, each.reference.value) == (pytest.approx(sum(mine)), pytest.approx(sum(base)))
        assert each.difference == pytest.approx(fixed - spoiled)
        p_value = binomtest(fixed, fixed + spoiled).pvalue if fixed + spoiled else 1
        assert each.p_value == pytest.approx(p_value)
        expected = "even" if p_value >= 0.05 else "gain" if fixed > spoiled else "loss"
        assert each.kind == expected
        assert each.transferred == (each.threat in ("FAB", "Square", "APGD-CE", "rotation"))  # rotation has passes here, too
    significance = [each.p_value for each in verdict(frame).findings]
    assert significance == sorted(significance)


def test_worst_cases_and_means_are_compared_too():
    names = {(each.data, each.threat) for each in verdict(everything()).findings}
    assert ("cifar10", "worst case of ensemble") in names
    assert ("cifar10-c/*/5", "clean") in names


def test_expressions_give_the_accuracies_again():
    frame = everything()
    found = verdict(frame)
    for each in (*found.findings, *found.adaptive):
        for given in (each.accuracy, each.reference):
            assert eval(given.expression, {"records": frame, "pl": pl}) == pytest.approx(given.value)


def test_a_gain():
    line = headline(answered(share(50), "standard"), answered(share(70), "DRQ"))
    assert line == "DRQ is better than standard in 1 of 1 comparisons, worse in none."


def test_a_loss_is_called_a_loss():
    line = headline(answered(share(70), "standard"), answered(share(50), "DRQ"))
    assert line == "DRQ loses: worse than standard in 1 of 1 comparisons, better in none."


def test_gains_losses_and_neither():
    parts = [answered(share(60), name, threat) for name in ("standard", "DRQ") for threat in ("same",)]
    parts += [answered(share(60), "standard", "up"), answered(share(80), "DRQ", "up")]
    parts += [answered(share(60), "standard", "down"), answered(share(40), "DRQ", "down")]
    line = headline(*parts)
    assert (
        line == "DRQ is better than standard in 1 of 3 comparisons, worse in 1. The other one shows no difference beyond chance."
    )


def test_five_samples_are_not_enough_and_six_are():
    """The sign test: 2 / 2^5 is above 0.05, 2 / 2^6 below."""
    base = answered(share(50), "standard")
    assert "no difference beyond chance" in headline(base, answered(share(55), "DRQ"))
    assert "is better" in headline(base, answered(share(56), "DRQ"))


def test_gains_under_attacks_are_said_to_be_transferred():
    line = headline(answered(share(40), "standard", "PGD", passes=100.0), answered(share(60), "DRQ", "PGD", passes=100.0))
    assert "in 1 of 1 comparisons (all under transferred attacks)" in line


def test_without_an_attack_on_the_defence_nothing_is_claimed():
    found = verdict(records())
    assert not found.adaptive
    assert UNTESTED in str(found)
    assert "not evidence of security" in UNTESTED


@pytest.mark.parametrize(
    ("static", "defended", "end", "survives"),
    [
        (40, 60, "The gain survives.", True),
        (40, 42, "No gain survives.", False),
        (40, 40, "No gain survives.", False),
        (60, 40, "It is worse than no defence.", False),
    ],
)
def test_a_gain_survives_only_beyond_its_interval(static, defended, end, survives):
    """The static model is right where it withstood; what the same defence does under transferred attacks does not count."""
    attacked = answered(share(defended), "DRQ", "red team", "defence", share(static), 1000.0)
    found = verdict(pl.concat([answered(share(40), "standard", "PGD"), answered(share(90), "DRQ", "PGD"), attacked]))
    (adaptive,) = found.adaptive
    assert (adaptive.reference.value, adaptive.accuracy.value) == (static, defended)
    assert adaptive.survives == survives == (adaptive.low > 0 and adaptive.p_value < 0.05)
    assert end in str(adaptive)
    (line,) = found.headlines()
    assert line.endswith(f"Under attacks on the defence itself {'the' if survives else 'no'} gain survives.")
    assert len(found.findings) == 1  # it is no gain or loss among others


def test_other_defences_make_nobody_look_better():
    """The undefended model is held against the attack on the defence and on itself, not on others."""
    first = answered(share(60), "DRQ linf", "red team", "defence", share(50), passes=9)
    second = answered(share(60), "DRQ l2", "red team", "defence", share(100) & ~share(20), passes=9)
    found = {each.defence: each.reference.value for each in verdict(pl.concat([first, second])).adaptive}
    assert found == {"DRQ linf": 50, "DRQ l2": 80}
    alone = answered(share(40), "standard", "red team", "defence", share(40), passes=9)
    found = {each.defence: each.reference.value for each in verdict(pl.concat([alone, first, second])).adaptive}
    assert found == {"DRQ linf": 40, "DRQ l2": 20}


def test_what_looks_at_nobody_is_no_attack_on_the_defence():
    parts = answered(share(50), "standard", "fog", "defence"), answered(share(90), "DRQ", "fog", "defence")
    found = verdict(pl.concat(parts))
    assert found.adaptive == ()
    assert UNTESTED in str(found)


def test_one_attack_that_is_withstood_is_not_enough():
    parts = [answered(share(40), "standard", name, "defence", passes=9) for name in ("weak", "strong")]
    parts += [answered(share(80), "DRQ", "weak", "defence", share(40), passes=9)]
    parts += [answered(share(40), "DRQ", "strong", "defence", share(40), passes=9)]
    assert headline(*parts).endswith("the gain survives in 1 of 2 cases only.")


def test_defences_without_a_reference_have_no_verdict():
    lines = verdict(everything()).headlines()
    assert lines[-1].startswith(
        "Not measured on the same inputs as standard, so without a verdict: DRQ 1+20, DRQ 5+20, DRQ 10+20 and "
    )
    assert "Attacks on it were not tried." not in lines[-1]


def test_the_undefended_model_alone():
    found = verdict(records(defences=("standard",)))
    assert found.headlines() == ["Only standard was evaluated: there is nothing to compare it with."]
    assert found.findings == ()


def test_costs_are_means_and_multiples():
    frame = records().with_columns(
        passes=pl.when(pl.col("defence") == "standard")
        .then(2)
        .otherwise(pl.when(pl.col("model") == "a").then(100).otherwise(300)),
        seconds=pl.when(pl.col("defence") == "standard").then(0.001).otherwise(0.05),
    )
    found = verdict(frame)
    by_name = {(each.model, each.defence): each for each in found.costs}
    assert by_name["a", "DRQ linf"].times_passes == pytest.approx(50)
    assert by_name["b", "DRQ linf"].times_passes == pytest.approx(150)
    assert by_name["b", "standard"].times_seconds == pytest.approx(1)
    means, times = (
        "100 to 300 passes of the model and 50 ms an answer",
        "50 to 150 times the passes of standard",
    )
    assert found.prices() == [f"DRQ linf: {means}, {times}."]


def test_costs_without_a_reference_have_no_multiples():
    found = verdict(records(models=("a",), defences=("DRQ linf",)))
    assert found.prices() == ["DRQ linf: 280 passes of the model and 10 ms an answer."]


def test_another_reference():
    found = verdict(records(defences=("standard", "DRQ linf", "DRQ l2")), reference="DRQ linf")
    assert found.defences == ("standard", "DRQ l2")
    assert all(each.defence != "DRQ linf" for each in found.findings)


def test_text_tells_both_sides():
    text = str(verdict(everything()))
    for title in ("Gains:", "Losses:", "Attacks on the defence itself:", "Cost:"):
        assert title in text


def test_fewer_samples_in_common_are_said():
    some = answered(share(60), "DRQ").filter(pl.col("index") < 80)
    found = verdict(pl.concat([answered(share(50), "standard").filter(pl.col("index") < 50), some]))
    (only,) = found.findings
    assert isinstance(only, Finding)
    assert (only.images, only.compared) == (80, 50)
    assert "80 images, compared on 50" in str(only)


def test_no_rows():
    refused(verdict, records().clear(), words=["records must have rows"])


def test_too_few_samples_tell_nothing():
    assert headline(answered(share(0, 5), "standard"), answered(share(5, 5), "DRQ")).startswith("DRQ: 5 samples are too few")
    assert "better" in headline(answered(share(0, 6), "standard"), answered(share(6, 6), "DRQ"))

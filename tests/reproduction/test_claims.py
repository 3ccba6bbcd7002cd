"""Claims of the paper's text: each on records that bear it out, and on records that do not."""

import re
import tomllib
from functools import cache

import polars as pl
import pytest

from drq.evaluation.plan import tasks
from drq.evaluation.published import CLAIMS, experiments, folder
from drq.evaluation.spec import Spec
from drq.reproduction.claims import claims, find
from drq.reproduction.comparisons import Value
from drq.reproduction.keeping import condensed
from drq.reproduction.measures import MEASURES, Part
from drq.threats.corruptions import KINDS

OURS = ("calibration", "plain", "alpha", "gradient", "exploits", "training-data", "section5")
LINF, AUGMENT, STANDARD, DRQ = "cifar10-linf", "cifar10-augment", "standard", "DRQ linf"
CORRUPTED = [f"cifar10-c/{kind}/5" for kind in list(KINDS)[:15]]
ATTACKS = ("FAB", "Square", "APGD-CE", "PGD-noise", "PGD-attack")
TEXT = ("experiment", "model", "data", "suite", "threat", "victim", "defence")
WHOLE = ("index", "label", "prediction", "base_prediction", "explore_steps", "quantify_steps", "passes")
NUMBERS = (
    *(
        "robustness",
        "true_robustness",
        "margin",
        "confidence",
        "logit_margin",
        "radius",
        "cosine",
        "distance_linf",
        "distance_l2",
    ),
    *("threat_radius", "alpha", "threshold", "threat_passes"),
)
GOLDEN = (5**0.5 - 1) / 2  # its multiples are spread evenly
SCHEMA = (  # the columns of records that are kept
    dict.fromkeys(TEXT, pl.String)
    | dict.fromkeys(WHOLE, pl.Int64)
    | dict.fromkeys(NUMBERS, pl.Float64)
    | dict.fromkeys(("base_withstood", "found"), pl.Boolean)
)


def rows(experiment, defence, right=50, *, images=400, base=None, **columns):
    """Records in which ``right`` percent of the images are answered rightly. A function makes a column of the index."""
    index = list(range(images))
    told = {"experiment": experiment, "model": LINF, "data": "cifar10", "threat": "clean", "victim": "base", "defence": defence}
    told |= columns
    told |= {name: [value(i) for i in index] for name, value in told.items() if callable(value)}
    told.setdefault("suite", told["threat"])
    for name, share in {"prediction": right, "base_prediction": right if base is None else base}.items():
        told[name] = [3 if i * GOLDEN % 1 < share / 100 else 4 for i in index]
    frame = pl.DataFrame({"index": index, **{name: value for name, value in told.items() if isinstance(value, list)}})
    constant = {name: pl.lit(value) for name, value in told.items() if not isinstance(value, list)}
    frame = frame.with_columns(label=pl.lit(3), **constant)
    missing = [pl.lit(None).alias(name) for name in SCHEMA if name not in frame.columns]
    return frame.with_columns(missing).select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())


def stacked(*parts):
    return pl.concat([each for part in parts for each in (part if isinstance(part, list) else [part])])


def calibrated(model, norm, size):
    names = (f"DRQ {norm} c=0", f"DRQ {norm} own confidence")
    return [rows("calibration", name, model=model, radius=lambda i: size * (0.9 + 0.2 * (i % 2))) for name in names]


def twice_the_radius(good):
    return stacked(calibrated(LINF, "linf", (2 if good else 4) * 8 / 255), calibrated("cifar10-l2", "l2", 1.0))


def plain_radius(good):
    return stacked(calibrated(LINF, "linf", 0.06), calibrated("cifar10-plain", "linf", 0.001 if good else 0.02))


def corrupted(experiment, accuracies, images=100, **columns):
    return [
        rows(experiment, name, right, data=data, images=images, **columns)
        for name, right in accuracies.items()
        for data in CORRUPTED
    ]


def plain_gains_nothing(good):
    accuracies = {STANDARD: 60, "DRQ linf calibrated": 60, "DRQ l2 calibrated": 60 if good else 70}
    plain = [
        rows("plain", name, right, threat=threat) for name, right in accuracies.items() for threat in ("clean", "PGD", "rotation")
    ]
    return stacked(plain, corrupted("plain", accuracies, images=400))


def training_data(good):
    def robust(level, **columns):
        values = {name: lambda i: level + 0.01 * (i % 3) for name in ("robustness", "true_robustness")}
        return rows("training-data", DRQ, **values, **columns)

    shifted = [robust(0.3 if good else 0.8, threat="PGD"), *(robust(0.5, data=data, images=50) for data in CORRUPTED)]
    return stacked(robust(0.7, data="cifar10:train"), robust(0.6), shifted)


def half_alpha(good):
    accuracies = {"DRQ linf, alpha 0": 60, DRQ: 70 if good else 64, "DRQ linf, alpha 1": 65 if good else 74}
    both = [rows("alpha", name, right, threat=threat) for name, right in accuracies.items() for threat in ("clean", "PGD")]
    return stacked(both, corrupted("alpha", accuracies))


def iterations(good):
    steps = {1: 40, 5: 45, 10: 50 if good else 38, 20: 52}
    names = {"DRQ {}+20": steps, "DRQ 20+{}": steps}
    found = {name.format(count): right for name, each in names.items() for count, right in each.items()}
    return stacked([rows("figure3", name, right, threat=threat) for name, right in found.items() for threat in ("clean", "PGD")])


def thresholds(good):
    radii = {0.1: 0.2, 0.5: 0.205 if good else 0.3, 0.9: 0.3, 0.999: 0.9}
    made = [
        rows("figure4", f"DRQ c={c}", model=AUGMENT, threshold=c, found=True, radius=lambda i, r=r: r * (0.9 + 0.2 * (i % 2)))
        for c, r in radii.items()
    ]
    return stacked(made)


def exploited(shortcut, threat, victim, good):
    left = {DRQ: 50, shortcut: 20 if good else 55}
    attacked = [rows("exploits", name, right, threat=threat, victim=victim) for name, right in left.items()]
    return stacked([rows("exploits", name, 80) for name in left], attacked)


def base_class_unexplored(good):
    return exploited("DRQ linf, base class unexplored", "manipulation", "defence", good)


def top_k(good):
    return exploited("DRQ linf top-3", "last place", "base", good)


def clean_accuracy(good):
    accuracies = {STANDARD: 83, DRQ: 82.9, "DRQ l2": 83.1 if good else 80}
    return stacked([rows("table6", name, right, images=5000) for name, right in accuracies.items()])


def best_on_corruptions(good):
    return stacked(corrupted("table1", {STANDARD: 60, DRQ: 48, "DRQ l2": 70 if good else 45}))


def training_norm(good):
    return stacked(corrupted("table1", {STANDARD: 60, DRQ: 70 if good else 60, "DRQ l2": 65}))


def best_on_spatial_shifts(good):
    accuracies = {STANDARD: 50, DRQ: 48, "DRQ l2": 60 if good else 40}
    shifts = ("rotations", "translations", "one rotation")
    return stacked([rows("table3", name, right, threat=threat) for name, right in accuracies.items() for threat in shifts])


def ensemble(experiment, accuracies, suite="ensemble", **columns):
    """By defence the accuracies under each attack, or one for all."""
    named = {name: each if isinstance(each, dict) else dict.fromkeys(ATTACKS, each) for name, each in accuracies.items()}
    return [
        rows(experiment, name, right, threat=attack, suite=suite, **columns)
        for name, each in named.items()
        for attack, right in each.items()
    ]


def linf_under_attack(good):
    return stacked(ensemble("table4", {STANDARD: 45, DRQ: 55, "DRQ l2": 48 if good else 60}))


def fab_alone(good):
    left = {"FAB": 84, "Square": 50, "PGD-noise": 0, "PGD-attack": 1 if good else 80}
    if not good:
        left["PGD-noise"] = 80
    return stacked(ensemble("table4", {STANDARD: 0, "DRQ linf calibrated": 40, "DRQ l2 calibrated": left}, model=AUGMENT))


def adaptive_attacks(good):
    left = {"FAB": 70, "APGD-CE": 60, "PGD-noise": 50, "PGD-attack": 52 if good else 75}
    return stacked(ensemble("table7", {DRQ: left, "DRQ l2": left}))


def noisy_exploration(good):
    left = {DRQ: 50, f"{DRQ} + PGD-noise": 60 if good else 45}
    clean = [rows("table5", name, right + 30, suite="clean") for name, right in left.items()]
    return stacked(clean, ensemble("table5", left))


def either_search(good):
    names = [f"{DRQ}, {each}" for each in ("both random", "random exploration", "random quantification")]
    left = {DRQ: 70, **dict.fromkeys(names, 60)} | ({} if good else {names[1]: 78})
    return stacked(corrupted("table8", left), ensemble("table8", left))


def more_iterations(good):
    betas = {"ensemble, beta 2": 48.5, "ensemble, beta 4": 48.5 if good else 40}
    more = [each for suite, right in betas.items() for each in ensemble("section5", {DRQ: right}, suite, images=1000)]
    return stacked(ensemble("table4", {DRQ: 49}, images=1000), more)


def random_noise(good):
    return stacked(rows("section5", DRQ, 80), rows("section5", DRQ, 80 if good else 70, threat="random noise"))


def opposite_directions(good):
    return directions({"FAB": -0.4, "Square": -0.1 if good else 0.2})


def lowest_cosine(good):
    return directions({"FAB": -0.4, "Square": -0.1, "PGD-noise": -0.5 if good else -0.2})


def directions(levels):
    return stacked(
        [
            # those that both answer rightly point the other way, and do not count
            rows(
                "figure5",
                DRQ,
                60,
                base=40,
                suite="ensemble",
                threat=name,
                cosine=lambda i, level=level: level + 0.01 * (i % 2) if i * GOLDEN % 1 >= 0.4 else 0.9,
            )
            for name, level in levels.items()
        ]
    )


def raw_gradient(good):
    both = {DRQ: 70, "DRQ linf, raw gradient": 70 if good else 60}
    return stacked([rows("gradient", name, right, threat=threat) for name, right in both.items() for threat in ("clean", "PGD")])


def end_to_end(good):
    adaptive = [
        rows("section5", DRQ, 50, threat=name, suite="adaptive, 20 steps")
        for name in ("PGD-noise, 20 steps", "PGD-attack, 20 steps")
    ]
    return stacked(adaptive, rows("section5", DRQ, 52 if good else 30, threat="end to end", victim="defence", images=100))


def square_on_the_pipeline(good):
    square = rows("section5", DRQ, 70 if good else 10, threat="Square on DRQ", victim="defence", images=50)
    return stacked(ensemble("table4", {DRQ: {"FAB": 0, "PGD-noise": 50, "PGD-attack": 55}}), square)


RECORDS = {name: cache(globals()[name]) for name in MEASURES}


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
    short = condensed(records.with_columns(seconds=pl.lit(0.0)))
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
    assert Part("model", "what", Value((low + high) / 2, low, high, 10), **options).verdict == verdict


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
        assert find(claim, RECORDS[claim.measure](good=True)).verdict == "holds"


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

"""Records that bear out what the paper says, and records that do not."""

from functools import cache

import polars as pl

from drq.reproduction.claims import MEASURES
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

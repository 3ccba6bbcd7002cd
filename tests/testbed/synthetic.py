"""Records that no model made: as many rows as a test wants, with accuracies that it knows."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from drq.evaluation.records import COLUMNS, NOTHING, SCHEMA_VERSION, as_frame

SETTINGS = {"standard": {}, "DRQ linf": {"explore_steps": 20, "quantify_steps": 20, "alpha": 0.5}}


def records(
    images: int = 200,
    models: Sequence[str] = ("a", "b"),
    data: Sequence[str] = ("cifar10",),
    threats: Mapping[str, str] = {"clean": "clean", "FAB": "ensemble", "Square": "ensemble"},  # and the suite of each
    defences: Sequence[str] = ("standard", "DRQ linf"),
    classes: int = 10,
    seed: int = 0,
) -> pl.DataFrame:
    """Every sample under every threat, answered by every defence. ``standard`` is the undefended model itself."""
    random, parts = np.random.default_rng(seed), []
    for model in models:
        for name in data:
            label = np.random.default_rng(seed).integers(0, classes, images)
            for number, (threat, suite) in enumerate(threats.items()):
                base = np.where(random.random(images) < 0.8 - 0.1 * number, label, (label + 1) % classes)
                for defence in defences:
                    drq = defence != "standard"
                    changed = np.where(random.random(images) < 0.9, base, label)
                    spoiled = np.where(random.random(images) < 0.97, changed, (label + 2) % classes)
                    answer = spoiled if drq else base
                    right, clean = answer == label, threat == "clean"
                    trust = np.clip(random.normal(0.5 + 0.2 * right, 0.2, images), 0, 1)
                    rows = {
                        **{key: np.full(images, NOTHING[column.kind]) for key, column in COLUMNS.items()},
                        **dict(experiment="made-up", model=model, data=name, suite=suite, threat=threat, victim="base"),
                        **dict(defence=defence, index=np.arange(images), label=label, prediction=answer, base_prediction=base),
                        **dict(base_withstood=base == label, rounded_prediction=answer, survives_rounding=1),
                        **dict(confidence=np.clip(trust + random.normal(0, 0.1, images), 0.1, 1), logit_margin=10 * trust),
                        **dict(distance_linf=0 if clean else 8 / 255, distance_l2=0 if clean else 1.0),
                        **dict(passes=280 if drq else 1, threat_passes=0 if clean else 101, seconds=0.01 if drq else 1e-4),
                        **dict(threat_radius=np.nan if clean else 8 / 255, seed=seed, precision="float32", device="cpu"),
                        **dict(spec_hash="0" * 64, weights_sha256="1" * 64, data_sha256="2" * 64),
                        **dict(drq_version="0", torch_version="0", schema_version=SCHEMA_VERSION),
                    }
                    if drq:
                        cosine = np.nan if clean else np.clip(random.normal(-0.4, 0.1, images), -1, 1)
                        rows |= dict(robustness=trust, true_robustness=trust * right, explored=np.minimum(1, trust + 0.2))
                        rows |= dict(true_explored=trust, margin=trust, radius=16 / 255, found=1, candidates=3, cosine=cosine)
                        rows |= SETTINGS["DRQ linf"]
                    parts.append({key: np.broadcast_to(np.asarray(value), (images,)) for key, value in rows.items()})
    return as_frame(parts)

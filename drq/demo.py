"""What ``drq demo`` evaluates: the spec of digits that comes with the package, on as many images as are asked for."""

from __future__ import annotations

import tomllib
from collections.abc import Callable

from drq.data.digits import TEST_IMAGES, split
from drq.errors import require
from drq.evaluation.published import experiments
from drq.evaluation.spec import Spec
from drq.models.digits import Recipe, Track, trained, untracked


def tour(images: int = 200, seed: int = 0) -> Spec:
    """The spec: so many test images, and this seed for noise and movements.

    >>> list(tour(5).threats)
    ['clean', 'noise', 'blur', 'rotation', 'translation', 'PGD', 'APGD', 'red team']
    """
    rule = f"lie between 1 and {TEST_IMAGES}, the number of test images"
    require(1 <= images <= TEST_IMAGES, "images", rule, images, "200 take two minutes")
    table = tomllib.loads(experiments()["digits"].read_text(encoding="utf-8"))
    for threat in table["threats"].values():
        threat["limit"] = min(images, threat.get("limit", images))
    return Spec.of(table | {"name": "drq-demo", "limit": images, "seed": seed})


def prepare(track: Track = untracked, say: Callable[[str], None] = print) -> None:
    """Train the model, unless that was done before: some seconds, which are shown here and not in the evaluation."""
    trained(Recipe(), split()[0], track, say)

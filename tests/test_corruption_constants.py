"""The table of constants against the published ones, written out here a second time."""

import numpy as np
import pytest

from drq.threats.corruptions import KINDS
from drq.threats.corruptions.constants import SEVERITIES, constants

# As the arguments stand in make_cifar_c.py, its five severities in a row.
PUBLISHED_32 = {
    "gaussian_noise": [0.04, 0.06, 0.08, 0.09, 0.10],
    "shot_noise": [500, 250, 100, 75, 50],
    "impulse_noise": [0.01, 0.02, 0.03, 0.05, 0.07],
    "glass_blur": [(0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)],
    "defocus_blur": [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)],
    "motion_blur": [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)],
    "zoom_blur": [(1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)],
    "fog": [(0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)],
    "frost": [(1, 0.2, 0.2), (1, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)],
    "snow": [
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ],
    "contrast": [0.75, 0.5, 0.4, 0.3, 0.15],
    "brightness": [0.05, 0.1, 0.15, 0.2, 0.3],
    "jpeg_compression": [80, 65, 58, 50, 40],
    "pixelate": [0.95, 0.9, 0.85, 0.75, 0.65],
    "elastic_transform": [(0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)],
}
# make_imagenet_c.py; for the elastic transform imagecorruptions, whose noise of 0.005 sides is scaled by 250 times these numbers.
PUBLISHED_224 = {
    "gaussian_noise": [0.08, 0.12, 0.18, 0.26, 0.38],
    "shot_noise": [60, 25, 12, 5, 3],
    "impulse_noise": [0.03, 0.06, 0.09, 0.17, 0.27],
    "glass_blur": [(0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)],
    "defocus_blur": [(3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)],
    "motion_blur": [(10, 3), (15, 5), (15, 8), (15, 12), (20, 15)],
    "zoom_blur": [(1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)],
    "fog": [(1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)],
    "frost": [(1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)],
    "snow": [
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ],
    "contrast": [0.4, 0.3, 0.2, 0.1, 0.05],
    "brightness": [0.1, 0.2, 0.3, 0.4, 0.5],
    "jpeg_compression": [25, 18, 15, 10, 7],
    "pixelate": [0.6, 0.5, 0.4, 0.3, 0.25],
    "elastic_transform": [(250 * 0.005 * share, 0.01, 0) for share in (0.05, 0.065, 0.085, 0.1, 0.12)],
}


class TestConstants:
    @pytest.mark.parametrize(
        ("side", "published"), [(32, PUBLISHED_32), (8, PUBLISHED_32), (224, PUBLISHED_224), (299, PUBLISHED_224)]
    )
    def test_are_the_published_ones(self, side, published):
        assert set(published) == set(KINDS)
        for kind, rows in published.items():
            for severity, row in zip(SEVERITIES, rows, strict=True):
                row = row if isinstance(row, tuple) else (row,)
                assert tuple(constants(kind, severity, side).values()) == pytest.approx(row, rel=1e-12), (kind, severity)

    @pytest.mark.parametrize("kind", KINDS)
    def test_lie_between_for_sides_between(self, kind):
        for severity in SEVERITIES:
            small, middle, large = (constants(kind, severity, side) for side in (32, 96, 224))
            for name in small:
                low, high = sorted((small[name], large[name]))
                assert low <= middle[name] <= high, name
                assert isinstance(middle[name], int) == isinstance(small[name], int), name

    def test_are_linear_in_the_logarithm_of_the_side(self):
        halfway = constants("brightness", 5, 64), constants("brightness", 5, 128)
        expected = [0.3 + 0.2 * np.log(side / 32) / np.log(7) for side in (64, 128)]
        assert [each["rise"] for each in halfway] == pytest.approx(expected)

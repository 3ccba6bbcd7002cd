"""The table of constants against the published ones, written out here a second time."""

import numpy as np
import pytest
from testbed.published_constants import PUBLISHED_32, PUBLISHED_224

from drq.threats.corruptions import KINDS
from drq.threats.corruptions.constants import SEVERITIES, constants


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

"""The corruptions against closed forms, the published constants, Pillow, scipy and the library imagecorruptions."""

import io
from colorsys import hsv_to_rgb, rgb_to_hsv
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage, stats
from sklearn.datasets import load_sample_images

from drq.errors import InputError
from drq.seeds import generator
from drq.threats.corruptions import DESCRIPTIONS, FIXED, KINDS, RANDOM, Corruption
from drq.threats.corruptions.blur import disk, gaussian_filter, streaked
from drq.threats.corruptions.constants import SEVERITIES, constants
from drq.threats.corruptions.draws import Draws
from drq.threats.corruptions.frost import COLOURS, PHOTOGRAPHS, drawn, frost, photographed
from drq.threats.corruptions.jpeg import CHROMINANCE_TABLE, LUMINANCE_TABLE, jpeg_compression, scaled
from drq.threats.corruptions.noise import poisson_quantile
from drq.threats.corruptions.resample import doubled, magnified, mirrored, nearest
from drq.threats.corruptions.weather import plasma

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


@cache
def sample_images() -> list[np.ndarray]:
    return load_sample_images().images


def crops(side: int, count: int, first: int = 0) -> torch.Tensor:
    """Random pieces of two photographs in turn, (2 * count, 3, side, side) in 255ths."""
    pieces = []
    for number in range(first, first + count):
        random = np.random.default_rng(number)
        for image in sample_images():
            top, left = (random.integers(0, length - side) for length in image.shape[:2])
            pieces.append(image[top : top + side, left : left + side])
    return torch.tensor(np.stack(pieces)).permute(0, 3, 1, 2) / 255


def corrupted(x: torch.Tensor, kind: str, severity: int = 5, **settings) -> torch.Tensor:
    index = settings.pop("index", None)
    return Corruption(kind, severity, **settings)(None, x, None, index=index)


def draws_of(*index: int, kind: int = 0) -> Draws:
    return Draws(0, torch.tensor(index), kind, torch.empty(0, dtype=torch.float64))


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


class TestConformance:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (3, 8, 8), (3, 40, 33), (1, 33, 70), (1, 1, 3)])
    def test_range_shape_and_type(self, kind, shape):
        for dtype in (torch.float32, torch.float64):
            x = torch.rand(2, *shape, dtype=dtype, generator=generator(0))
            before = x.clone()
            found = Corruption(kind, 4).run(None, x, None)
            assert torch.equal(x, before)
            assert found.x.shape == x.shape
            assert found.x.dtype == dtype
            assert found.x.isfinite().all()
            assert found.x.min() >= 0
            assert found.x.max() <= 1
            assert found.passes.tolist() == [0, 0]

    @pytest.mark.parametrize("kind", KINDS)
    def test_extreme_images(self, kind):
        x = torch.stack([torch.zeros(3, 32, 32), torch.ones(3, 32, 32)])
        assert corrupted(x, kind).isfinite().all()

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("channels", [1, 3])
    def test_result_belongs_to_the_sample(self, kind, channels):
        """Bit for bit: whatever else is in the batch, in whatever order, in whatever pieces."""
        x = crops(45, 4)[:, :channels]
        together = corrupted(x, kind, 3)
        assert torch.equal(together, corrupted(x, kind, 3))
        order = torch.tensor([5, 0, 3])
        assert torch.equal(corrupted(x[order], kind, 3, index=order), together[order])
        alone = [corrupted(x[i : i + 1], kind, 3, index=torch.tensor([i])) for i in range(len(x))]
        assert torch.equal(torch.cat(alone), together)

    @pytest.mark.parametrize("kind", KINDS)
    def test_pieces_do_not_matter(self, kind, monkeypatch):
        x = crops(32, 4)
        whole = corrupted(x, kind)
        monkeypatch.setitem(__import__("drq.threats.corruptions").threats.corruptions.PIECE, "cpu", 3 * x[0].numel())
        assert torch.equal(corrupted(x, kind), whole)

    @pytest.mark.parametrize("kind", KINDS)
    def test_seed_and_index_change_what_is_random(self, kind):
        x = crops(32, 1)[:1].expand(2, -1, -1, -1)
        first, second = corrupted(x, kind)
        other = corrupted(x, kind, seed=1)[0]
        assert torch.equal(first, second) == torch.equal(first, other) == (kind in FIXED)
        assert (kind in FIXED) != (kind in RANDOM)

    @pytest.mark.parametrize("kind", KINDS)
    def test_precisions_agree(self, kind):
        x = crops(32, 4)
        difference = (corrupted(x.double(), kind) - corrupted(x, kind)).abs()
        assert difference.max() < 1e-5

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
    @pytest.mark.parametrize("kind", KINDS)
    def test_devices_agree(self, kind):
        x = crops(64, 4)
        assert (corrupted(x.cuda(), kind).cpu() - corrupted(x, kind)).abs().max() < 1e-5

    def test_global_state_stays(self):
        before = torch.get_rng_state()
        for kind in KINDS:
            corrupted(crops(32, 1), kind)
        assert torch.equal(torch.get_rng_state(), before)

    def test_kinds_are_described(self):
        assert len(KINDS) == 15
        assert all(DESCRIPTIONS[kind] for kind in KINDS)

    def test_record(self, tmp_path):
        record = Corruption("fog", 2, seed=7).record
        assert record == {
            **{"threat": "Corruption", "batch_dependent": False},
            **{"kind": "fog", "severity": 2, "seed": 7, "photographs": None},
        }
        assert Corruption("frost").record["texture"] == "procedural"
        for name in PHOTOGRAPHS:
            (tmp_path / name).touch()
        record = Corruption("frost", photographs=tmp_path).record
        assert record["texture"] == "photographs"
        assert record["photographs"] == str(tmp_path)


class TestErrors:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"kind": "gausian_noise"}, "kind must be one of .* got 'gausian_noise': the nearest is 'gaussian_noise'"),
            ({"kind": "jpeg"}, "'jpeg_compression'"),
            ({"kind": 3}, "kind must be one of"),
            ({"kind": "fog", "severity": 0}, "severity must be a whole number from 1 to 5, got 0"),
            ({"kind": "fog", "severity": 6}, "severity"),
            ({"kind": "fog", "severity": 2.0}, r"severity .* got 2\.0"),
            ({"kind": "fog", "severity": True}, "severity"),
            ({"kind": "fog", "seed": 0.5}, "seed must be a whole number"),
            ({"kind": "frost", "photographs": "no/such/folder"}, "photographs must be a folder, got 'no/such/folder'"),
            ({"kind": "frost", "photographs": 3}, "photographs"),
        ],
    )
    def test_settings(self, settings, message):
        with pytest.raises(InputError, match=message):
            Corruption(**settings)

    def test_missing_photograph_is_named(self, tmp_path):
        for name in set(PHOTOGRAPHS) - {"frost4.jpg"}:
            (tmp_path / name).touch()
        with pytest.raises(InputError, match=r"got a folder without frost4\.jpg"):
            Corruption("frost", photographs=tmp_path)

    @pytest.mark.parametrize("shape", [(2, 5), (2, 3, 32), (2, 4, 32, 32), (2, 3, 0, 32), (2, 3, 4, 32, 32)])
    def test_images_only(self, shape):
        with pytest.raises(InputError, match=r"x must be images of shape \(N, 1 or 3, height, width\)"):
            corrupted(torch.rand(shape), "fog")

    def test_values_outside_the_range(self):
        with pytest.raises(InputError, match="x must lie within"):
            corrupted(255 * torch.rand(1, 3, 32, 32), "fog")


class TestClosedForms:
    def test_gaussian_noise_is_normal(self):
        noise = corrupted(torch.full((4, 3, 64, 64), 0.5), "gaussian_noise", 1) - 0.5
        scale = constants("gaussian_noise", 1, 64)["scale"]
        assert stats.kstest(noise.flatten().numpy(), "norm", (0, scale)).pvalue > 0.01

    def test_poisson_quantile_is_that_of_scipy(self):
        random = generator(1)
        probability = torch.rand(20_000, dtype=torch.float64, generator=random)
        for rate in (0.0, 0.01, 0.4, 3.0, 60.0, 500.0):
            rates = rate * torch.rand(20_000, dtype=torch.float64, generator=random)
            found = poisson_quantile(probability, rates)
            assert torch.equal(found, torch.tensor(stats.poisson.ppf(probability.numpy(), rates.numpy())).clamp(min=0))

    def test_shot_noise_has_poisson_moments(self):
        x = torch.full((8, 3, 32, 32), 0.3, dtype=torch.float64)
        shot = corrupted(x, "shot_noise", 3)  # 100 photons
        assert shot.mean() == pytest.approx(0.3, rel=0.01)
        assert shot.var() == pytest.approx(0.3 / 100, rel=0.03)

    def test_impulse_noise_strikes_as_often_as_it_should(self):
        x = torch.full((8, 3, 64, 64), 0.5)
        struck, amount = corrupted(x, "impulse_noise"), constants("impulse_noise", 5, 64)["amount"]
        for value in (0, 1):
            assert (struck == value).double().mean() == pytest.approx(amount / 2, rel=0.05)
        assert set(struck.unique().tolist()) == {0, 0.5, 1}

    @pytest.mark.parametrize("value", [0.0, 0.2, 0.9, 1.0])
    def test_constant_images(self, value):
        x = torch.full((1, 3, 32, 32), value, dtype=torch.float64)
        assert torch.allclose(corrupted(x, "contrast"), x)
        assert torch.allclose(corrupted(x, "brightness"), (x + 0.3).clamp(max=1))
        for kind in ("zoom_blur", "glass_blur", "motion_blur", "elastic_transform", "pixelate", "defocus_blur"):
            assert torch.allclose(corrupted(x, kind), x), kind
        assert (corrupted(x, "jpeg_compression") - x).abs().max() < 2.01 / 255

    def test_contrast_formula(self):
        x = crops(32, 2)
        mean = x.mean((2, 3), keepdim=True)
        assert torch.allclose(corrupted(x, "contrast"), 0.15 * x + 0.85 * mean, atol=1e-6)

    def test_brightness_keeps_hue_and_saturation(self):
        colours = torch.rand(200, 3, dtype=torch.float64, generator=generator(2))
        hsv = [rgb_to_hsv(*colour) for colour in colours.tolist()]
        expected = torch.tensor([hsv_to_rgb(h, s, min(v + 0.3, 1)) for h, s, v in hsv], dtype=torch.float64)
        found = corrupted(colours.T.reshape(1, 3, 10, 20), "brightness")
        assert torch.allclose(found, expected.T.reshape(1, 3, 10, 20))

    def test_fog_formula(self):
        x = 0.8 * crops(32, 1).double()
        black, foggy = torch.zeros_like(x), corrupted(x, "fog", 2)
        assert torch.equal(corrupted(black, "fog", 2), black)  # the fog of an image is no brighter than the image
        top = x.amax((1, 2, 3), keepdim=True)
        haze = (foggy * (top + 0.5) / top - x) / 0.5
        assert (haze - haze[:, :1]).abs().max() < 1e-9  # the same in every channel
        assert haze.amin() == pytest.approx(0, abs=1e-9)  # a map of 32 pixels is seen whole
        assert haze.amax() == pytest.approx(1)

    def test_plasma_is_diamonds_and_squares(self):
        """Point by point on a torus, with the same noise."""
        size, decay = 16, 1.7
        cloud, noise = np.zeros((size, size)), draws_of(0)
        noise.uniform(1, 1)  # the first point's, which does not matter: only differences are seen
        step, reach = size, 1.0
        while step > 1:
            half, around = step // 2, reach * (2 * noise.uniform(3, size // step, size // step)[0].numpy() - 1)
            for layer, (down, right) in enumerate(((half, half), (0, half), (half, 0))):
                ring = [
                    (a * half, b * half)
                    for a, b in ([(1, 1), (1, -1), (-1, 1), (-1, -1)] if layer == 0 else [(0, 1), (0, -1), (1, 0), (-1, 0)])
                ]
                for i, j in np.ndindex(size // step, size // step):
                    row, column = i * step + down, j * step + right
                    mean = sum(cloud[(row + a) % size, (column + b) % size] for a, b in ring) / 4
                    cloud[row, column] = mean + around[layer, i, j]
            step, reach = half, reach / decay**2
        expected = (cloud - cloud.min()) / (cloud.max() - cloud.min())
        assert np.allclose(plasma(draws_of(0), size, decay)[0].numpy(), expected)

    def test_pixelate_by_an_exact_factor(self):
        x = crops(224, 1).double()
        means = torch.nn.functional.avg_pool2d(x, 2)
        expected = means.repeat_interleave(2, 2).repeat_interleave(2, 3)
        assert torch.allclose(corrupted(x, "pixelate", 2), expected)

    def test_elastic_tilt_is_affine(self):
        """At 32 pixels the mildest transform only tilts: a linear ramp stays linear away from the border."""
        ramp = torch.linspace(0.3, 0.7, 32, dtype=torch.float64).expand(1, 3, 32, 32)
        tilted = corrupted(ramp, "elastic_transform", 1)[..., 10:22, 10:22]
        assert tilted.diff(n=2, dim=-1).abs().max() < 1e-6
        assert tilted.diff(n=2, dim=-2).abs().max() < 1e-6
        assert (tilted - ramp[..., 10:22, 10:22]).abs().max() > 1e-3

    def test_motion_blur_spreads_a_point_along_its_direction(self):
        point = torch.zeros(1, 1, 41, 41, dtype=torch.float64)
        point[..., 20, 20] = 1
        level, upright = streaked(point, 5, 2.0, [0.0])[0, 0], streaked(point, 5, 2.0, [90.0])[0, 0]
        weights = np.exp(-0.5 * (np.arange(11) / 2) ** 2)
        assert level[20, 10:21].flip(0).tolist() == pytest.approx(weights / weights.sum())
        assert upright[10:21, 20].flip(0).tolist() == pytest.approx(weights / weights.sum())
        assert level.sum() == pytest.approx(1)

    def test_glass_blur_copies_values_from_nearby(self):
        """At 32 pixels the mildest one does not smooth: what remains is copies, never swaps, of neighbours below and beside."""
        x = torch.rand(1, 1, 32, 32, dtype=torch.float64, generator=generator(3))
        moved = corrupted(x, "glass_blur", 1)
        assert set(moved.flatten().tolist()) < set(x.flatten().tolist())
        assert torch.equal(moved[..., :2, :], x[..., :2, :])
        assert torch.equal(moved[..., :2], x[..., :2])
        assert 0.6 < (moved != x).double().mean() < 0.9  # three of four steps lead elsewhere, inside the border

    def test_snow_on_black(self):
        """Half of what is whitened, and two layers of flakes of which one is the other upside down."""
        snowy = corrupted(torch.zeros(4, 3, 64, 64, dtype=torch.float64), "snow", 1)
        kept = constants("snow", 1, 64)["kept"]
        assert snowy.amin() == pytest.approx((1 - kept) / 2)
        assert torch.allclose(snowy, snowy.flip(-2, -1))
        assert snowy.amax() > 0.3

    def test_frost_is_a_weighted_sum(self):
        x = torch.zeros(6, 3, 32, 32, dtype=torch.float64)
        mild, strong = corrupted(x, "frost", 1) / 0.2, corrupted(x, "frost", 5) / 0.45
        assert torch.allclose(mild, strong)  # the same ice, more of it
        x, sheets = crops(32, 1), (torch.tensor([0.2, 0.4, 0.6])[:, None, None].expand(3, 300, 400),)
        found = frost(x, draws_of(0, 1), sheets, kept=0.7, added=0.5, scale=0.2)
        assert torch.allclose(found, 0.7 * x + torch.tensor([0.1, 0.2, 0.3])[:, None, None])

    def test_zero_strength_changes_nothing(self):
        x = crops(32, 2)
        assert torch.equal(gaussian_filter(x, 0.0), x)
        assert torch.equal(magnified(x, 1.0), x)
        assert disk(0.5, 0.1).tolist() == [[1.0]]
        assert (jpeg_compression(x[:, :1], quality=100) - x[:, :1]).abs().max() < 2.01 / 255


class TestIndependentLibraries:
    @pytest.mark.parametrize("sigma", [0.05, 0.4, 1.5, 6.4])
    @pytest.mark.parametrize(("fold", "mode"), [(nearest, "nearest"), (mirrored, "mirror"), (doubled, "reflect")])
    def test_gaussian_filter_is_that_of_scipy(self, sigma, fold, mode):
        x = crops(32, 1)[0, 0].double()[:, :20]
        expected = ndimage.gaussian_filter(x.numpy(), sigma, mode=mode, truncate=3)
        assert np.allclose(gaussian_filter(x, sigma, truncate=3, fold=fold).numpy(), expected, atol=1e-12)

    @pytest.mark.parametrize("factor", [1.0, 1.07, 1.3, 2.25, 4.5])
    def test_magnified_is_the_zoom_of_scipy(self, factor):
        x = crops(32, 1)[0, 0].double()
        crop = int(np.ceil(32 / factor))
        start = (32 - crop) // 2
        zoomed = ndimage.zoom(x.numpy()[start : start + crop, start : start + crop], factor, order=1)
        trim = (len(zoomed) - 32) // 2
        assert np.allclose(magnified(x, factor).numpy(), zoomed[trim : trim + 32, trim : trim + 32], atol=1e-9)

    @pytest.mark.parametrize("severity", SEVERITIES)
    def test_elastic_transform_is_that_of_scipy(self, severity):
        """The same recipe from numpy and scipy: an affine map through three moved corners, then smooth displacements."""
        x = crops(32, 1)[:1].double()
        amplitude, sigma, corner = (32 * each for each in PUBLISHED_32["elastic_transform"][severity - 1])
        draws = draws_of(0, kind=KINDS.index("elastic_transform"))
        tilt, noise = (2 * draws.uniform(*shape)[0].numpy() - 1 for shape in ((3, 2), (2, 32, 32)))
        corners = 16 + 10 * np.array([[1, 1], [1, -1], [-1, -1]])  # column, row
        homogeneous = np.c_[corners, np.ones(3)]
        onward = np.eye(3)
        onward[:2] = np.linalg.solve(homogeneous, corners + corner * tilt).T
        rows, columns = np.mgrid[:32, :32]
        from_column, from_row, _ = np.tensordot(np.linalg.inv(onward), np.stack([columns, rows, np.ones((32, 32))]), 1)
        down, right = (amplitude * ndimage.gaussian_filter(each, sigma, mode="reflect", truncate=3) for each in noise)
        found = corrupted(x, "elastic_transform", severity)
        for channel in range(3):
            tilted = ndimage.map_coordinates(x[0, channel].numpy(), [from_row, from_column], order=1, mode="mirror")
            expected = ndimage.map_coordinates(tilted, [rows + down, columns + right], order=1, mode="reflect")
            assert np.allclose(found[0, channel].numpy(), expected, atol=1e-9)

    def test_pixelate_is_that_of_pillow(self):
        x = crops(64, 2)
        for severity in SEVERITIES:
            size = int(64 * constants("pixelate", severity, 64)["fraction"])
            for image, found in zip(x, corrupted(x, "pixelate", severity), strict=True):
                small = as_pillow(image).resize((size, size), Image.Resampling.BOX)
                shown = as_tensor(small.resize((64, 64), Image.Resampling.BOX))
                assert (shown - found).abs().max() < 1.5 / 255  # Pillow rounds twice

    @pytest.mark.parametrize("mode", ["RGB", "L"])
    @pytest.mark.parametrize("quality", [7, 25, 40, 80])
    @pytest.mark.parametrize("side", [32, 45, 224])
    def test_jpeg_is_that_of_pillow(self, mode, quality, side):
        images = [as_pillow(each).convert(mode) for each in crops(side, 1 if side == 224 else 20)]
        references = [saved_as_jpeg(image, quality) for image in images]
        x, expected = (torch.stack([as_tensor(each) for each in each_of]) for each_of in (images, references))
        tables = (LUMINANCE_TABLE, CHROMINANCE_TABLE)[: 1 if mode == "L" else 2]
        for table, stored in zip(tables, references[0].quantization.values(), strict=True):
            assert scaled(table, quality).flatten().tolist() == list(stored)
        error, loss = (jpeg_compression(x, quality=quality) - expected).abs(), (expected - x).abs()
        assert error.mean() < 0.02 * loss.mean() + 0.25 / 255  # 8-bit roundings in between
        assert (error > 3.5 / 255).double().mean() < 0.03  # a coefficient rounded the other way, here and there


def saved_as_jpeg(image: Image.Image, quality: int) -> Image.Image:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return Image.open(stream)


# Pairs of crops from the two photographs, enough for random draws to average out; frost needs each photograph of ice as often.
PAIRS = {"fog": 180, "frost": 90, "motion_blur": 42, "snow": 24, "elastic_transform": 12, "impulse_noise": 12}
AT_ONCE = 6


def ours(x: torch.Tensor, kind: str, severity: int, first: int, *, drawn_ice: bool = False) -> torch.Tensor:
    folder = None if drawn_ice else Path(imagecorruptions().__file__).parent / "frost"
    index = torch.arange(2 * first, 2 * first + len(x))
    if kind == "frost":  # positions far apart, at which every photograph has its turn
        ices = lambda i: int(6 * torch.rand(3, generator=generator(0, i, KINDS.index(kind)), dtype=torch.float64)[0])  # noqa: E731
        index = torch.tensor([next(i for i in range(1000 * n, 1000 * n + 1000) if ices(i) == n // 2 % 6) for n in index.tolist()])
    return corrupted(x, kind, severity, photographs=folder, index=index)


def theirs(x: torch.Tensor, kind: str, severity: int, first: int) -> torch.Tensor:
    results, state = [], np.random.get_state()
    for number, image in enumerate((x * 255).round().byte().permute(0, 2, 3, 1).numpy(), 2 * first):
        seeds = range(1000 * number, 1000 * number + 1000)
        ices = lambda seed: np.random.RandomState(seed).randint(6)  # noqa: E731
        seed = next(seed for seed in seeds if kind != "frost" or ices(seed) == number // 2 % 6)
        np.random.seed(seed)
        own_seed = {"seed": seed} if kind in ("impulse_noise", "glass_blur") else {}
        results.append(imagecorruptions().corrupt(image, severity, kind, **own_seed))
    np.random.set_state(state)
    return torch.tensor(np.stack(results)).permute(0, 3, 1, 2) / 255


def imagecorruptions():
    return pytest.importorskip("imagecorruptions", reason="the library imagecorruptions-imaug is not installed")


def strengths(kind: str, severity: int, ours=ours) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of |x' - x| at 224 pixels, each ours and theirs."""
    sums = torch.zeros(3, 2, dtype=torch.float64)
    for first in range(0, PAIRS.get(kind, AT_ONCE), AT_ONCE):
        x = crops(224, AT_ONCE, first)
        change = torch.stack([make(x, kind, severity, first) - x for make in (ours, theirs)]).abs().double().flatten(1)
        sums += torch.stack([torch.full((2,), change.shape[1]), change.sum(1), change.square().sum(1)])
    mean = sums[1] / sums[0]
    return mean, (sums[2] / sums[0] - mean**2).sqrt()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the library's own
@pytest.mark.parametrize("kind", KINDS)
def test_strength_is_that_of_the_library_within_5_percent(kind):
    """Also in its order of severities, wherever the library's differ by more than the draws do."""
    means = []
    for severity in SEVERITIES:
        mean, spread = strengths(kind, severity)
        (by_mean,), (by_spread,) = ((mean[:1] / mean[1:] - 1).tolist(), (spread[:1] / spread[1:] - 1).tolist())
        print(f"{kind} {severity}: {mean[1]:.4f}, ours {by_mean:+.1%}; spread {spread[1]:.4f}, ours {by_spread:+.1%}")
        assert abs(by_mean) < 0.05, severity
        assert abs(by_spread) < 0.05, severity
        means.append(mean)
    for earlier, later in pairwise(means):
        rise, rise_of_library = (later - earlier).tolist()
        if abs(rise_of_library) > 0.01 * earlier[1]:
            assert rise * rise_of_library > 0, means


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_strength_of_drawn_ice_is_near_that_of_photographs():
    for severity in SEVERITIES:
        by_mean, by_spread = (
            float(each[0] / each[1] - 1) for each in strengths("frost", severity, partial(ours, drawn_ice=True))
        )
        print(f"drawn frost {severity}: mean {by_mean:+.1%}, spread {by_spread:+.1%}")
        assert max(abs(by_mean), abs(by_spread)) < 0.08, severity


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"glass_blur", "frost", "elastic_transform"}))
def test_severities_rise_at_32_pixels(kind):
    """For the three left out, the published constants themselves are not in order.

    Motion blur 3 and 4 differ only in how far their bell is followed, to 6 or to 8 standard deviations.
    """
    x = crops(32, 8)
    means = [float((corrupted(x, kind, severity) - x).abs().mean()) for severity in SEVERITIES]
    assert [later > earlier for earlier, later in pairwise(means)] == [True, True, kind != "motion_blur", True], means


@pytest.mark.parametrize("read", [False, True], ids=["drawn", "photographed"])
def test_ice_looks_like_the_photographs(read):
    sheets = photographed(Path(imagecorruptions().__file__).parent / "frost") if read else drawn()
    assert len(sheets) == len(PHOTOGRAPHS)
    for sheet, (mean, spread) in zip(sheets, COLOURS, strict=True):
        assert sheet.mean((1, 2)).tolist() == pytest.approx(mean, abs=0.01)
        assert sheet.std((1, 2)).tolist() == pytest.approx(spread, abs=0.015)


def as_pillow(image: torch.Tensor) -> Image.Image:
    return Image.fromarray((image * 255).round().byte().permute(1, 2, 0).numpy())


def as_tensor(image: Image.Image) -> torch.Tensor:
    pixels = np.array(image)
    return torch.tensor(pixels.reshape(*pixels.shape[:2], -1)).permute(2, 0, 1) / 255

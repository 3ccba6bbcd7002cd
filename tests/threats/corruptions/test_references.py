"""The corruptions against Pillow, scipy and the library imagecorruptions."""

import io
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from testbed.corrupted import corrupted, crops, draws_of
from testbed.published_constants import PUBLISHED_32

from drq.seeds import generator
from drq.threats.corruptions import KINDS
from drq.threats.corruptions.blur import gaussian_filter
from drq.threats.corruptions.constants import SEVERITIES, constants
from drq.threats.corruptions.ice import COLOURS, PHOTOGRAPHS, drawn, photographed
from drq.threats.corruptions.jpeg import CHROMINANCE_TABLE, LUMINANCE_TABLE, jpeg_compression, scaled
from drq.threats.corruptions.resample import doubled, magnified, mirrored, nearest


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

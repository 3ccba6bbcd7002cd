"""The corruptions: what holds for all of them, errors, closed forms."""

from colorsys import hsv_to_rgb, rgb_to_hsv

import numpy as np
import pytest
import torch
from scipy import stats
from testbed.corrupted import corrupted, crops, draws_of

from drq.errors import InputError
from drq.seeds import generator
from drq.threats.corruptions import DESCRIPTIONS, KINDS, Corruption, is_random
from drq.threats.corruptions.blur import disk, gaussian_filter, streaked
from drq.threats.corruptions.constants import constants
from drq.threats.corruptions.ice import PHOTOGRAPHS, digest, frost
from drq.threats.corruptions.jpeg import jpeg_compression
from drq.threats.corruptions.noise import poisson_quantile
from drq.threats.corruptions.resample import magnified
from drq.threats.corruptions.weather import plasma


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
        assert torch.equal(first, second) == torch.equal(first, other) == (not is_random(kind))

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
        assert record["photographs"] == digest(tmp_path)  # what they show, not where they lie
        (tmp_path / "frost3.png").write_bytes(b"another")
        assert Corruption("frost", photographs=tmp_path).record["photographs"] != record["photographs"]


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

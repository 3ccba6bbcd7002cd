"""Views of tones against their definitions, scipy and drq.Restoration; views of sound and tables against theirs."""

import numpy as np
import pytest
import torch
from scipy import ndimage
from testbed.every_view import batch

import drq
from drq.views import Blur, Contrast, Denoise, Detail, Gain, Gamma, Monotone, NoiseFloor, Sharpen, TimeShift

SIZES = [(3, 8, 8), (1, 7, 9), (2, 2, 2), (4, 5, 2)]
sizes = pytest.mark.parametrize("shape", SIZES, ids=str)
KERNEL = np.outer([1, 2, 1], [1, 2, 1]) / 16


def by_channel(x: torch.Tensor, change) -> torch.Tensor:
    """Every channel of every picture changed by itself."""
    return torch.from_numpy(np.stack([change(each) for each in x.flatten(0, 1).numpy()])).view_as(x)


def blurred(x: torch.Tensor) -> torch.Tensor:
    return by_channel(x, lambda each: ndimage.convolve(each, KERNEL, mode="mirror"))


@sizes
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_denoised_is_the_median_of_scipy(shape, dtype):
    x = batch(shape).to(dtype)
    x[0] = x[0].round(decimals=1)  # with ties
    expected = by_channel(x, lambda each: ndimage.median_filter(each, size=3, mode="mirror"))
    assert torch.equal(Denoise()[1](x), expected)


@sizes
def test_blurred_is_the_convolution_of_scipy(shape):
    x = batch(shape)
    torch.testing.assert_close(Blur()[1](x), blurred(x), rtol=0, atol=1e-12)


@sizes
@pytest.mark.parametrize("amount", [0.5, 1.0, 3.0])
def test_sharpened_has_more_of_what_a_blur_takes_away(shape, amount):
    x = batch(shape)
    expected = (x + amount * (x - blurred(x))).clamp(0, 1)
    torch.testing.assert_close(Sharpen(amount)[1](x), expected, rtol=0, atol=1e-12)
    assert Sharpen() == Sharpen(1)


@sizes
def test_stretched_and_restored_are_those_of_restoration(shape):
    x = batch(shape)
    assert torch.equal(Contrast()[1](x), drq.Restoration(detail=None)(x))
    for share in (0.1, 0.25, 0.4):
        assert torch.equal(Detail(share)[1](x), drq.Restoration(share)(x))
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    torch.testing.assert_close(Contrast()[1](x), (x - low) / (high - low), rtol=0, atol=1e-12)


def test_detail_is_measured_on_clear_pictures():
    x = batch((3, 16, 16), 30)
    measured = drq.Restoration.like(x).detail
    views = (drq.views.Mirror() * Detail() + Blur() * Detail()).like(x)
    details = {each.detail for each in views.families if isinstance(each, Detail)}
    assert len(details) == 1
    assert details.pop() == pytest.approx(measured, rel=1e-3)
    assert str(views).startswith("Mirror() * Detail(0.")
    assert drq.views.Mirror().like(x) == drq.views.Mirror()


@sizes
def test_gamma_is_a_power(shape):
    x = batch(shape)
    x[0, 0, 0, 0] = 0
    for exponent, view in zip((0.4, 2.5), list(Gamma(0.4, 2.5))[1:], strict=True):
        torch.testing.assert_close(view(x), x**exponent, rtol=0, atol=1e-12)
    assert Gamma(0.4, 2.5).names[1:] == ("brighter, gamma 0.4", "darker, gamma 2.5")


def test_slopes_are_finite_where_a_power_has_none():
    x = torch.zeros(1, 1, 2, 2, dtype=torch.float64, requires_grad=True)
    for view in Gamma(0.5) + Contrast() + Detail() + Denoise() + Sharpen():
        (slope,) = torch.autograd.grad(view(x).sum(), x)
        assert slope.isfinite().all()


@pytest.mark.parametrize("shape", [(12,), (2, 12)])
def test_louder_and_softer(shape):
    x = batch(shape) - 0.5
    seen = [each.inside(x, (-0.5, 0.5)) for each in Gain(4, 5)]
    for each, factor in zip(seen, (1, 0.25, 0.5, 2, 4), strict=True):
        torch.testing.assert_close(each, (factor * x).clamp(-0.5, 0.5), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(12,), (2, 12)])
def test_earlier_and_later(shape):
    x = batch(shape)
    for view, by in zip(TimeShift(4, 5), (0, -4, -2, 2, 4), strict=True):
        expected = torch.zeros_like(x)
        for place in range(12):
            if 0 <= place - by < 12:
                expected[..., place] = x[..., place - by]
        assert torch.equal(view(x), expected)
    assert TimeShift(4, 3).names == ("the input", "4 samples earlier", "4 samples later")


@pytest.mark.parametrize("shape", [(12,), (2, 12)])
def test_without_a_noise_floor(shape):
    x = batch(shape) - 0.5
    for view, level in zip(list(NoiseFloor(0.1, 0.3))[1:], (0.1, 0.3), strict=True):
        expected = torch.where(x > level, x - level, torch.where(x < -level, x + level, 0.0))
        torch.testing.assert_close(view(x), expected, rtol=0, atol=1e-12)


def test_features_keep_their_order():
    x = batch((6,), 40)
    for view, exponent in zip(list(Monotone(0.5, 3))[1:], (0.5, 3), strict=True):
        torch.testing.assert_close(view(x), x**exponent, rtol=0, atol=1e-12)
        assert torch.equal(view(x).argsort(0), x.argsort(0))


@pytest.mark.parametrize("bounds", [(0.2, 0.7), tuple(torch.tensor([0.2, 0.7], dtype=torch.float64))])
def test_views_stay_inside_narrower_bounds(bounds):
    x = batch((3, 8, 8)).clamp(*bounds)
    views = Contrast() + Detail() + Gamma(0.2, 5) + Sharpen(8) + Denoise() + Blur() + drq.views.Rotation(30, 3)
    views = views + (lambda x: 5 * x - 2)
    for view in views:
        seen = view.inside(x, bounds)
        torch.testing.assert_close(seen, view(x).clamp(0.2, 0.7), rtol=0, atol=1e-12)
        assert seen.min() >= 0.2 - 1e-12
        assert seen.max() <= 0.7 + 1e-12

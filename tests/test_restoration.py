"""Restoration: what it must not change, what it must, and that DRQ and its attackers see through it."""

import pytest
import torch
from torch import nn

import drq
from drq import threats
from drq.evaluation import reading
from drq.restoration import Restoration
from drq.threats.pursuit import as_target


@pytest.fixture(name="pictures")
def _pictures() -> torch.Tensor:
    """Smooth pictures with some detail, dull: from 0.2 to 0.8 at most."""
    torch.manual_seed(0)
    coarse = nn.functional.interpolate(torch.rand(6, 3, 4, 4, dtype=torch.float64), size=16, mode="bilinear")
    return 0.2 + 0.6 * (0.9 * coarse + 0.1 * torch.rand(6, 3, 16, 16, dtype=torch.float64))


def share(x: torch.Tensor) -> torch.Tensor:
    """Of detail, with the blur written out as sums of moved pictures."""
    wide = nn.functional.pad(x, (1, 1, 1, 1), "reflect")
    weight = {-1: 0.25, 0: 0.5, 1: 0.25}
    size = x.shape[2]
    blurred = sum(
        weight[down] * weight[right] * wide[:, :, 1 + down : 1 + down + size, 1 + right : 1 + right + size]
        for down in weight
        for right in weight
    )
    return (x - blurred).std((1, 2, 3), correction=0) / x.std((1, 2, 3), correction=0)


def test_contrast_and_brightness_of_channels_do_not_matter(pictures):
    scale, lift = torch.rand(6, 3, 1, 1).double() / 2 + 0.1, torch.rand(6, 3, 1, 1).double() / 4
    torch.testing.assert_close(Restoration()(scale * pictures + lift), Restoration()(pictures))


def test_every_channel_reaches_both_ends(pictures):
    stretched = Restoration(None)(pictures)
    torch.testing.assert_close(stretched.amin((2, 3)), torch.zeros(6, 3).double())
    torch.testing.assert_close(stretched.amax((2, 3)), torch.ones(6, 3).double())
    torch.testing.assert_close(share(stretched[:, :1]), share(pictures[:, :1]))  # detail stays


def test_detail_of_clear_pictures_stays(pictures):
    low, high = pictures.amin((2, 3), keepdim=True), pictures.amax((2, 3), keepdim=True)
    clear = (pictures - low) / (high - low)
    for picture in clear.split(1):
        torch.testing.assert_close(Restoration(float(share(picture)))(picture), picture, atol=1e-6, rtol=0)
    assert abs(Restoration.like(clear).detail - float(share(clear).median())) < 1e-6


def test_blur_is_sharpened_and_noise_is_smoothed(pictures):
    restore = Restoration.like(pictures)
    blurred = nn.functional.avg_pool2d(nn.functional.pad(pictures, (1, 1, 1, 1), "reflect"), 3, 1)
    noisy = (pictures + 0.1 * torch.randn_like(pictures)).clamp(0, 1)
    assert (share(restore(blurred)) > share(blurred)).all()
    assert (share(restore(noisy)) < share(noisy)).all()
    for shifted in (blurred, noisy):
        before, after = ((each - restore(pictures)).square().mean() for each in (shifted, restore(shifted)))
        assert after < before


def test_gradients_are_right(pictures):
    x = pictures[:1, :, :6, :6].clone().requires_grad_()
    assert torch.autograd.gradcheck(Restoration(0.3), x)


def test_a_picture_without_contrast_stays():
    flat = torch.full((2, 3, 8, 8), 0.3, requires_grad=True)
    restored = Restoration()(flat)
    torch.testing.assert_close(restored, flat)
    restored.sum().backward()
    assert flat.grad.isfinite().all()
    assert Restoration()(torch.zeros(0, 3, 8, 8)).shape == (0, 3, 8, 8)


def test_what_is_no_picture_is_refused():
    with pytest.raises(drq.InputError, match=r"x must be pictures \(N, C, H, W\) in \[0, 1\], got shape \(2, 5\)"):
        Restoration()(torch.rand(2, 5))
    with pytest.raises(drq.InputError, match="x must be pictures"):
        Restoration()([1.0])
    with pytest.raises(drq.InputError, match="detail must be None or a number above 0, got -1"):
        Restoration(-1)
    with pytest.raises(drq.InputError, match=r"front must be None or callable, got 3"):
        drq.DRQ(nn.Identity(), front=3)


class Bent(nn.Module):
    """A small classifier of pictures that is not linear."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.inner = nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x):
        return self.inner(x)


def halved(x):
    """A front whose slope is known."""
    return 0.5 * x + 0.25


def test_drq_searches_behind_its_front():
    model, x = Bent().eval(), torch.rand(5, 3, 4, 4)
    plain, fronted = drq.DRQ(model, "linf", 0.1, keep_points=True), drq.DRQ(model, "linf", 0.1, keep_points=True, front=halved)
    behind, found = plain.decide(halved(x)), fronted.decide(x)
    for name in ("label", "base_label", "robustness", "margin", "explored", "quantified", "x"):
        torch.testing.assert_close(getattr(found, name), getattr(behind, name), equal_nan=True)
    assert torch.equal(fronted.variant(alpha=0.25).decide(x).label, plain.variant(alpha=0.25).decide(halved(x)).label)
    assert "front=" in repr(fronted)
    assert "front=" not in repr(plain)


def test_scores_are_differentiated_through_the_front():
    model, x = Bent().eval(), torch.rand(5, 3, 4, 4)
    slopes = []
    for front, point in ((halved, x), (None, halved(x))):
        point = point.clone().requires_grad_()
        drq.DRQ(model, "linf", 0.1, prune="none", front=front)(point)[:, 1].sum().backward()
        slopes.append(point.grad)
    assert slopes[1].abs().max() > 0
    torch.testing.assert_close(slopes[0], 0.5 * slopes[1])


def test_attackers_follow_a_class_through_the_front():
    model, x = Bent().eval(), torch.rand(5, 3, 4, 4)
    y, rival, radius = torch.zeros(5).long(), torch.ones(5).long(), torch.full((5,), 0.1)
    values, slopes = [], []
    for front, point in ((halved, x), (None, halved(x))):
        target = as_target(drq.DRQ(model, "linf", 0.1, front=front).eval())
        point = point.clone().requires_grad_()
        value = target.contest(y, rival, radius)(point).value
        value.sum().backward()
        values.append(value.detach())
        slopes.append(point.grad)
    torch.testing.assert_close(values[0], values[1])
    torch.testing.assert_close(slopes[0], 0.5 * slopes[1])


THREATS = {
    "transfer": lambda radius, box: threats.Transfer("linf", radius, threats.APGD("linf", radius, 8, bounds=box), bounds=box),
    "envelope": lambda radius, box: threats.Envelope("linf", radius, 8, bounds=box),
    "end to end": lambda radius, box: threats.EndToEnd("linf", radius, 5, bounds=box),
    "manipulation": lambda radius, box: threats.Manipulation("linf", radius, 8, bounds=box),
}


@pytest.mark.parametrize("threat", THREATS)
def test_attacks_see_through_the_front(threat):
    """Half as far behind a front that halves everything is the same problem, in double precision to the last digits."""
    model, x = Bent().double().eval(), torch.rand(12, 3, 4, 4, dtype=torch.float64)
    short = {"explore": drq.Gradient(3), "quantify": drq.Gradient(3)}
    fronted, plain = (drq.DRQ(model, "linf", 0.1, bounds=(0.0, 1.0), front=front, **short).eval() for front in (halved, None))
    y = model(halved(x)).argmax(1)
    before = THREATS[threat](0.2, (0.0, 1.0))(fronted, x, y)
    behind = THREATS[threat](0.1, (0.25, 0.75))(plain, halved(x), y)
    assert (before - x).abs().max() > 0.1
    torch.testing.assert_close(halved(before), behind, atol=1e-6, rtol=0)


def test_planes_lie_behind_the_front():
    model, x = Bent().eval(), torch.rand(1, 3, 4, 4)
    fronted, plain = (drq.DRQ(model, "linf", 0.1, keep_points=True, front=front) for front in (halved, None))
    found, behind = fronted.decide(x), plain.decide(halved(x))
    pairs = [(fronted.slice(found, pixels=5), plain.slice(behind, pixels=5))]
    u, v = torch.randn(2, 3, 4, 4)
    pairs += [(fronted.plane(x, u, v, pixels=5), plain.plane(halved(x), u, v, pixels=5))]
    for mine, expected in pairs:
        assert torch.equal(mine.base_confidence.nan_to_num(), expected.base_confidence.nan_to_num())
        assert torch.equal(mine.label, expected.label)


def test_a_front_is_as_little_changed_as_a_model():
    model, x = Bent().eval(), torch.rand(2, 3, 4, 4)
    front = nn.BatchNorm2d(3)
    with pytest.raises(drq.InputError, match=r"front must be in evaluation mode, got front \(BatchNorm2d\) in training mode"):
        drq.DRQ(model, "linf", 0.1, bounds=None, front=front).decide(x)
    with pytest.raises(drq.InputError, match="x must lie within bounds"):
        drq.DRQ(model, "linf", 0.1, front=Restoration()).decide(255 * x)


def test_restored_pictures_stay_pictures(pictures):
    """Sharpening overshoots, and is limited where there is next to no detail."""
    restored = Restoration(5.0)(pictures)
    assert restored.min() >= 0
    assert restored.max() <= 1
    smooth = nn.functional.interpolate(torch.rand(2, 1, 2, 2).double(), size=16, mode="bicubic")
    stretched = Restoration(None)(smooth)
    blurred = nn.functional.conv2d(
        nn.functional.pad(stretched, (1, 1, 1, 1), "reflect"), torch.tensor([[[[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]]]).double() / 16
    )
    expected = (stretched + 2 * (stretched - blurred)).clamp(0, 1)  # three times the detail, no more
    torch.testing.assert_close(Restoration(5.0)(smooth), expected)


def test_specs_name_a_front():
    defence = reading.defence("mine", {"norm": "linf", "radius": "8/255", "front": "Restoration"}, "defences.mine")
    assert defence.around(Bent().eval()).front == Restoration()
    assert defence.record["front"] == "Restoration(detail=0.25)"
    table = {"norm": "linf", "radius": 0.1, "front": {"front": "Restoration", "detail": 0.1}}
    assert reading.defence("mine", table, "defences.mine").around(Bent().eval()).front == Restoration(0.1)
    with pytest.raises(drq.InputError, match="front must be the name of a front, got 'Restore'"):
        reading.defence("mine", {"norm": "linf", "front": "Restore"}, "defences.mine")

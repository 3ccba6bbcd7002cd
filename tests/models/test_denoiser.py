"""The denoiser, and models behind it."""

import torch
from torch import nn

import drq
from drq.models import Denoised, DnCNN


class TestDenoiser:
    def test_it_has_the_layers_of_the_paper(self):
        convolutions = [each for each in DnCNN().modules() if isinstance(each, nn.Conv2d)]
        assert len(convolutions) == 17
        assert {each.out_channels for each in convolutions[:-1]} == {64}
        assert sum(isinstance(each, nn.BatchNorm2d) for each in DnCNN().modules()) == 15

    def test_a_denoiser_that_finds_no_noise_changes_nothing(self):
        denoiser = DnCNN(layers=3, width=4).eval()
        nn.init.zeros_(denoiser.noise[-1].weight)
        nn.init.zeros_(denoiser.noise[-1].bias)
        model, x = nn.Flatten(), torch.rand(2, 3, 8, 8)
        assert torch.equal(Denoised(denoiser, model)(x), model(x))

    def test_the_trained_one_removes_noise(self):
        """On smooth images, which leave all that is rough to the noise."""
        draws = torch.Generator().manual_seed(0)
        coarse = torch.rand(8, 3, 4, 4, generator=draws)
        clean = nn.functional.interpolate(coarse, size=32, mode="bicubic", align_corners=False).clamp(0, 1)
        noisy = clean + 0.1 * torch.randn(clean.shape, generator=draws)
        error = (drq.models.denoiser()(noisy) - clean).square().mean()
        assert error < 0.25 * (noisy - clean).square().mean()

    def test_it_composes_with_drq_and_by_name(self):
        model = drq.load_model("denoised:cifar10-small")
        x = torch.rand(1, 3, 32, 32)
        inner = drq.load_model("cifar10-small")
        with torch.no_grad():
            torch.testing.assert_close(model(x), inner(drq.models.denoiser()(x).clamp(0, 1)))
        assert model.card.name == "denoised:cifar10-small"
        robust = drq.DRQ(model, "linf", 2 / 255, explore=drq.Gradient(1), quantify=drq.Gradient(1), classes=2)
        assert robust.decide(x).robustness.isfinite().all()

    def test_it_trains_when_one_of_both_does(self):
        assert Denoised(DnCNN(3, 4), nn.Flatten().eval()).training
        assert not Denoised(DnCNN(3, 4).eval(), nn.Flatten().eval()).training

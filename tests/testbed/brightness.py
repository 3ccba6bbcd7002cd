"""Models that judge images by their brightness, and that commands load by name."""

import torch

import drq


class Stripes(torch.nn.Module):
    """Three classes of 8 x 8 images by their brightness: dark, grey, bright. Linear in the mean, so DRQ is known."""

    def forward(self, x):
        mean = x.mean((1, 2, 3))
        return 20 * torch.stack([0.3 - mean, torch.full_like(mean, 0.0), mean - 0.7], 1)


def stripes(norm="linf", radius=0.05, **_):
    card = drq.models.Card("stripes", "", ("dark", "grey", "bright"), drq.models.View(8, 8), norm, radius)
    return drq.models.Classifier(Stripes(), card).eval()


class Certain(torch.nn.Module):
    def forward(self, x):
        mean = x.mean((1, 2, 3))
        return torch.stack([5 + mean, mean.square()], 1)


def certain():
    return drq.models.Classifier(Certain(), drq.models.Card("certain", "", ("yes", "no"), drq.models.View(8, 8))).eval()


class Fragile(torch.nn.Module):
    """As Stripes, but lost where it is bright."""

    def forward(self, x):
        logits = Stripes()(x)
        return torch.where(x.mean((1, 2, 3))[:, None] > 0.9, torch.nan, logits)


def fragile():
    return drq.models.Classifier(Fragile(), drq.models.Card("fragile", "", None, drq.models.View(8, 8), "linf", 0.01)).eval()


def silent_model():
    return Stripes().eval()


class Quarters(torch.nn.Module):
    """Four classes of images (N, C, H, W), by the brightness of their quarters."""

    def forward(self, x):
        grey = x.mean(1)
        half = grey.shape[-1] // 2
        parts = [grey[:, :half, :half], grey[:, :half, half:], grey[:, half:, :half], grey[:, half:, half:]]
        return 12 * torch.stack([each.mean((1, 2)) for each in parts], 1)


def quarters():
    card = drq.models.Card("quarters", "", ("a", "b", "c", "d"), drq.models.View(6, 6), "linf", 0.05)
    return drq.models.Classifier(Quarters(), card).eval()

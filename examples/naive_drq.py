"""DRQ on one page of plain PyTorch, in the order and the symbols of the paper: read it before the library.

    python examples/naive_drq.py               some seconds; needs scikit-learn for its digits

The norm is l_p with p = 2 or infinity, and inputs lie in [0, 1]. All that belongs to one is a row: points (N, d), numbers (N, 1).
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn


def decide(model: nn.Module, x: Tensor, p: float = 2, radius: float | None = None, alpha: float = 0.5) -> tuple[Tensor, ...]:
    """The label F_DRQ(x), the robustness of every class in log-odds (N, C), -inf where it was not reached, and the radius."""
    model, x = nn.Sequential(nn.Unflatten(1, x.shape[1:]), model), x.flatten(1)  # R^d -> R^C
    z = model(x).detach()
    y, robustness = z.argmax(1, keepdim=True), torch.empty_like(z)
    eps = calibrate(model, x, y, log_odds(z, y), p) if radius is None else torch.full_like(z[:, :1], radius)
    for i in torch.arange(z.shape[1], device=z.device).expand_as(z).split(1, dim=1):  # one class for all rows
        x_i, reached = explore(model, x, i, eps, p)
        robustness[:, i[0]] = torch.where(reached, quantify(model, x_i, i, alpha * eps, p), -torch.inf)
    best, label = robustness.max(1, keepdim=True)
    return torch.where(robustness.gather(1, y) == best, y, label)[:, 0], robustness, eps[:, 0]  # Eq. 3; ties stay with F(x)


def calibrate(model: nn.Module, x: Tensor, y: Tensor, c: Tensor, p: float, steps: int = 100) -> Tensor:
    """Eq. 1 by the Fast Minimum-Norm attack: how far the nearest point is that is not of class y and has confidence c."""
    c = c - 64 * torch.finfo(c.dtype).eps * (1 + c.abs())  # so that x is above it: else rounding would choose the first slope
    point, eps, best = x, torch.full_like(c, torch.inf), torch.full_like(c, torch.inf)
    limit, q = norm(torch.maximum(x, 1 - x), p), 1 if p == math.inf else 2  # the size of the box; l_q is dual to l_p
    for step in range(steps + 1):
        point = point.detach().requires_grad_()
        z = model(point)
        own, rival = log_odds(z, y), log_odds(z, z.scatter(1, y, -torch.inf).argmax(1, keepdim=True))
        value = torch.maximum(own, c) - rival  # at most 0 where F(point) is not F(x) and f(point) >= c
        (slope,) = torch.autograd.grad(value.sum(), point)
        slope = torch.where(torch.where(slope > 0, point > 0, point < 1), slope, 0)  # along the edges of the box
        delta, there, gap = (point - x).detach(), value <= 0, value.detach().abs()
        best = torch.where(there, best.minimum(norm(delta, p)), best)
        wave = (1 + math.cos(math.pi * step / steps)) / 2  # from 1 to 0
        gamma, eta = 0.001 + 0.049 * wave, 0.01 + 1.49 * wave
        missed = torch.where(best < torch.inf, (1 + gamma) * eps, (1 + 1e-6) * (norm(delta, p) + gap / norm(slope, q)))
        eps = torch.where(there, best.minimum((1 - gamma) * eps), missed).minimum(limit)
        stride = eta * torch.maximum(norm(delta, 2), gap / norm(slope, 2))
        lost = (best == torch.inf) & (2 * step >= steps)  # straight to the boundary then, without a ball
        eps, stride = torch.where(lost, torch.inf, eps), torch.where(lost, (1 + 1e-6) * gap / norm(slope, 2), stride)
        point = project(x + delta - stride * slope / norm(slope, 2), x, eps, p)
    return torch.where(best < torch.inf, best, 0)  # in a ball of radius 0 there is F(x) alone


def explore(model: nn.Module, x: Tensor, i: Tensor, eps: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Eq. 2 and 4: the most confident point in B_p(x; eps) that the model assigns to class i, and whether there is any."""
    x_i, best = x, torch.full_like(eps, -torch.inf)
    for point, z in pgd(model, x, i, eps, p, sign=+1):
        better = (z.argmax(1, keepdim=True) == i) & (log_odds(z, i) > best)
        x_i, best = torch.where(better, point, x_i), torch.where(better, log_odds(z, i), best)
    return x_i, best > -torch.inf


def quantify(model: nn.Module, x_i: Tensor, i: Tensor, eps: Tensor, p: float) -> Tensor:
    """Eq. 3 and 5: the lowest confidence in class i that is met in B_p(x_i; eps)."""
    return torch.stack([log_odds(z, i) for _, z in pgd(model, x_i, i, eps, p, sign=-1)]).amin(0)


def pgd(model: nn.Module, x: Tensor, i: Tensor, eps: Tensor, p: float, sign: int) -> Iterator[tuple[Tensor, Tensor]]:
    """From x, raise (+1) or lower (-1) the confidence in class i within B_p(x; eps): every point visited, and its logits."""
    point, steps = x, 20
    for _ in range(steps + 1):
        point = point.detach().requires_grad_()
        z = model(point)
        yield point.detach(), z.detach()
        (slope,) = torch.autograd.grad(log_odds(z, i).sum(), point)
        direction = slope.sign() if p == math.inf else slope / norm(slope, 2)
        point = project(point.detach() + sign * 2.5 * eps / steps * direction, x, eps, p)


def log_odds(z: Tensor, i: Tensor) -> Tensor:
    """o_i = log f_i - log(1 - f_i), in place of f_i, which in float32 is 1 from o_i = 17 on: classes tie there, slopes vanish."""
    return z.gather(1, i) - z.scatter(1, i, -torch.inf).logsumexp(1, keepdim=True)


def project(point: Tensor, center: Tensor, eps: Tensor, p: float) -> Tensor:
    """Into the ball B_p(center; eps), then into the box."""
    v = point - center
    return (center + (v.clamp(-eps, eps) if p == math.inf else v * (eps / norm(v, 2)).clamp(max=1))).clamp(0, 1)


def norm(v: Tensor, p: float) -> Tensor:
    """The length of every row, never 0, so that it can divide."""
    return torch.linalg.vector_norm(v, p, dim=1, keepdim=True).clamp(min=1e-30)


if __name__ == "__main__":
    import drq

    digits, (images, _) = drq.load_model("digits"), drq.load_data("digits").batch(range(20))
    print("this page", *decide(digits, images, math.inf, radius=0.3)[0].tolist())
    print("drq.DRQ  ", *drq.DRQ(digits, "linf", radius=0.3).decide(images).label.tolist())

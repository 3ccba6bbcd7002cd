"""Measure how many passes a second one GPU makes, for the cost model in docs/scale.md.

    python -m tools.benchmarks.scale        a few minutes on one GPU

Evaluates DRQ on networks of the size that ImageNet models have: ResNet-50 at 224 and at 288 pixels, with the ten likeliest
classes as in the paper, once with a set radius and once calibrated. Weights and images are random, since a pass costs the same
whatever they are; so the passes an image takes are reported at their most, not as random networks happen to prune them.
"""

import torch
from torch.utils.data import TensorDataset

import drq
from drq.evaluation.judging import judge
from drq.evaluation.plan import shards, tasks
from drq.evaluation.resources import WorkerContext
from drq.models.resnet import ResNet50
from tools.benchmarks.assets import arguments, write

PIXELS = (224, 288)
DEFENCES = {
    "DRQ linf 8/255": {"defence": "drq", "norm": "linf", "radius": "8/255", "classes": 10},
    "DRQ l2 calibrated": {"defence": "drq", "norm": "l2", "radius": "calibrated", "classes": 10},
}


def measure(pixels: int, settings: dict[str, object], images: int, shard: int, device: str) -> dict[str, float]:
    """Return the passes in a second, and the most passes that an image takes."""
    torch.manual_seed(0)
    model = ResNet50(1000).eval().requires_grad_(False)
    x = torch.randint(0, 256, (images, 3, pixels, pixels), dtype=torch.uint8)
    data = TensorDataset(x, torch.randint(0, 1000, (images,)))
    spec = drq.Spec(models={"network": model}, data={"noise": data}, defences={"DRQ": settings}, shard=shard, rounding=False)
    task, context = tasks(spec)[0], WorkerContext.of(spec, device)
    parts = [*shards(task, images, shard)]
    judge(context, parts[0])  # the first pass chooses algorithms
    rows = [judge(context, part).rows for part in parts]
    passes, seconds = sum(float(each["passes"].sum()) for each in rows), sum(float(each["seconds"].sum()) for each in rows)
    most = spec.defences["DRQ"].around(model).most_passes(1000)
    return {"passes_per_second": passes / seconds, "most_passes": most, "passes": passes / images, "seconds": seconds / images}


def main() -> None:
    parser = arguments(__doc__, images=200)
    parser.add_argument("--shard", type=int, default=100)
    given, found = parser.parse_args(), {}
    for pixels in PIXELS:
        for name, settings in DEFENCES.items():
            title = f"ResNet-50 at {pixels} pixels, {name}"
            found[title] = measure(pixels, settings, given.images, given.shard, given.device)
            print(title, found[title], flush=True)
    write(given.out, "scale", {"images": given.images, "shard": given.shard, "measured": found})


if __name__ == "__main__":
    main()

"""Pictures of a run: the right images beside the right words, those that tell most first."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

import drq
from drq.evaluation.showcase import examples
from drq.method.adapters import Wrapper

KEPT, ALL = 4, 6


class Dark(torch.nn.Module):
    """Class 1 for bright images, 0 for dark ones."""

    def forward(self, x: Tensor) -> Tensor:
        light = x.flatten(1).mean(1) - 0.5
        return torch.stack([-light, light], 1)


class Contrary(Wrapper):
    """Says the opposite about the images in the middle."""

    def forward(self, x: Tensor) -> Tensor:
        logits = self.model(x)
        return torch.where((logits[:, :1].abs() < 0.2), -logits, logits)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> drq.Run:
    light = torch.tensor([0.9, 0.1, 0.6, 0.4, 0.6, 0.6])
    x, y = light[:, None, None, None].expand(ALL, 1, 8, 8).contiguous(), torch.tensor([1, 0, 0, 0, 0, 1])
    spec = drq.Spec(
        models={"dark": Dark().eval()},
        data={"lights": TensorDataset(x, y)},
        threats={"clean": None, "noise": drq.threats.GaussianNoise(0.01)},
        defences={"standard": {}, "contrary": Contrary},
        keep_images=KEPT,
        rounding=False,
    )
    return drq.evaluate(spec, tmp_path_factory.mktemp("showcase") / "run")


def test_repaired_images_come_first_then_spoiled_ones(run: drq.Run) -> None:
    shown = [each for each in examples(run, run.records, each=KEPT) if each["title"].startswith("clean")]
    assert [each["title"] for each in shown] == [f"clean, image {number} of lights" for number in (2, 3, 0, 1)]
    assert shown[0]["caption"] == "true class 0; standard 1, contrary 0"
    assert shown[1]["caption"] == "true class 0; standard 0, contrary 1"


def test_a_shifted_image_stands_beside_what_it_was(run: drq.Run) -> None:
    clean, noise = run.images(0), run.images(1)
    assert clean.shape == noise.shape == (KEPT, 1, 8, 8)
    shown = {each["title"]: each["image"] for each in examples(run, run.records, each=KEPT)}
    for number in range(KEPT):
        alone, pair = shown[f"clean, image {number} of lights"], shown[f"noise, image {number} of lights"]
        assert alone.shape == (8, 8, 3)
        assert pair.shape == (8, 8 + 1 + 8, 3)
        assert alone.dtype == pair.dtype == np.uint8
        np.testing.assert_array_equal(pair[:, :8], alone)
        assert (pair[:, 8] == 255).all()
        np.testing.assert_array_equal(pair[:, 9:, 0], (noise[number, 0] * 255).round().astype(np.uint8))


def test_only_so_many_of_each_and_only_what_was_kept(run: drq.Run) -> None:
    assert len(examples(run, run.records, each=1)) == 2
    numbers = {each["title"].split()[2] for each in examples(run, run.records, each=ALL)}
    assert numbers == {str(number) for number in range(KEPT)}


def test_without_images_there_is_nothing_to_show(tmp_path: Path) -> None:
    data = TensorDataset(torch.rand(2, 1, 8, 8), torch.tensor([0, 1]))
    spec = drq.Spec(models={"dark": Dark().eval()}, data={"lights": data}, defences={"standard": {}})
    bare = drq.evaluate(spec, tmp_path)
    assert examples(bare, bare.records) == []
    assert bare.records.select(pl.len()).item() == 2

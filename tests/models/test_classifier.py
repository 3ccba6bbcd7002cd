"""Inputs in the wrong range are noticed."""

import warnings

import pytest
import torch
from testbed.refusals import refused
from torch import nn

from drq.models import Card, Classifier, WrongRange


class TestRange:
    """The wrapper warns where images cannot be in [0, 1], and names the likely mistake."""

    def model(self):
        return Classifier(nn.Flatten(), Card("mine"), mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5])

    @pytest.mark.parametrize(
        ("x", "mistake"),
        [
            (torch.rand(2, 3, 4, 4) * 255, "divide them by 255"),
            (torch.randn(2, 3, 4, 4), "normalised already"),
            (torch.rand(2, 3, 4, 4) / 255, "divided by 255 twice"),
            (torch.rand(2, 3, 4, 4) + 0.5, "clip them"),
        ],
        ids=["bytes", "normalised", "twice", "overshot"],
    )
    def test_a_wrong_range_is_warned_of(self, x, mistake):
        with pytest.warns(WrongRange, match=mistake):
            self.model()(x)

    @pytest.mark.parametrize(
        "x", [torch.rand(2, 3, 4, 4), torch.zeros(1, 3, 4, 4), torch.ones(1, 3, 4, 4), torch.rand(0, 3, 4, 4)]
    )
    def test_a_right_one_is_not(self, x):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.model()(x)

    @pytest.mark.parametrize("before", [0, 2, 4])
    def test_later_batches_are_looked_at_too(self, before):
        model = self.model()
        for _ in range(before):
            model(torch.rand(1, 3, 4, 4))
        with pytest.warns(WrongRange):
            model(torch.full((1, 3, 4, 4), 200.0))

    @pytest.mark.parametrize(
        ("x", "words"),
        [
            (torch.rand(2, 4, 4, 3), "permute(0, 3, 1, 2)"),
            (torch.rand(3, 4, 4), "x[None] adds the batch"),
            (torch.rand(2, 1, 4, 4), "mean and std have 3 values, one a channel"),
            (torch.ones(2, 3, 4, 4, dtype=torch.uint8), "x.float() / 255"),
        ],
        ids=["channels last", "no batch", "grey", "bytes"],
    )
    def test_what_are_no_images_is_refused_at_every_call(self, x, words):
        model = self.model()
        for _ in range(4):
            refused(model, x, words=[words])

    @pytest.mark.parametrize(
        ("mean", "std"),
        [([0.5], None), ([0.5], [0.5, 0.5]), ([0.5], [0.0]), ([0.5], [-1.0]), ([float("nan")], [1.0]), ([0.5], [float("inf")])],
    )
    def test_a_normalisation_must_make_sense(self, mean, std):
        refused(Classifier, nn.Flatten(), Card("mine"), mean, std, words=["mean and std must be given together"])

    @pytest.mark.parametrize("wrong", [{"norm": "l7"}, {"radius": 0}, {"radius": float("nan")}, {"view": "square"}], ids=str)
    def test_a_card_must_make_sense(self, wrong):
        refused(Card, "mine", words=[next(iter(wrong))], **wrong)

    def test_the_precision_of_the_input_is_kept(self):
        assert self.model()(torch.rand(1, 3, 4, 4, dtype=torch.float64)).dtype == torch.float64

    def test_the_darkest_pictures_are_not_warned_of(self):
        x = torch.zeros(1, 3, 4, 4)
        x[0, 0, 0, 0] = 1 / 255
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.model()(x)

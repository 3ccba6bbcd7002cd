"""Decisions to draw cards of, and the parts of a card."""

import torch

import drq
from testbed.brightness import Quarters


def images(channels, count=3, side=6):
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(channels)) * 0.8 + 0.1


def about(channels=3, norm="linf", radius=0.1, **settings):
    robust = drq.DRQ(Quarters().eval(), norm, radius, keep_points=True, prune="none", **settings)
    return robust, robust.decide(images(channels))[:1]


def titled(figure, title):
    """The axes under a title; those in the second row of pictures follow in the same column."""
    (first,) = (each for each in figure.axes if each.get_title() == title)
    return first

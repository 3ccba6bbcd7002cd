"""Classifiers by name, with their normalisation inside: ``drq.load_model(name)``."""

from drq.models.architectures import ARCHITECTURES
from drq.models.catalogue import Entry, list, load
from drq.models.classifier import Card, Classifier, WrongRange
from drq.models.dncnn import Denoised, DnCNN
from drq.models.trained import denoiser

__all__ = ["ARCHITECTURES", "Card", "Classifier", "Denoised", "DnCNN", "Entry", "WrongRange", "denoiser", "list", "load"]

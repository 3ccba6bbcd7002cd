"""Classifiers by name, with their normalisation inside: ``drq.load_model(name)``. And wrappers for text and tables."""

from drq.images import View
from drq.models.architectures import ARCHITECTURES
from drq.models.classifier import Card, Classifier, WrongRange
from drq.models.dncnn import Denoised, DnCNN
from drq.models.embeddings import TextClassifier
from drq.models.loading import Entry, list, load
from drq.models.scikit import from_sklearn
from drq.models.trained import denoiser

__all__ = [
    "ARCHITECTURES",
    "Card",
    "Classifier",
    "Denoised",
    "DnCNN",
    "Entry",
    "TextClassifier",
    "View",
    "WrongRange",
    "denoiser",
    "from_sklearn",
    "list",
    "load",
]

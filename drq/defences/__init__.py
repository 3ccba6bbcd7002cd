"""Ways to answer with a given model, behind one call, so that they can be compared."""

from drq.defences.answers import Answers, answered
from drq.defences.defence import Custom, Defence, Quantified, Standard

__all__ = ["Answers", "Custom", "Defence", "Quantified", "Standard", "answered"]

"""Trained models and CIFAR-10, which are no part of the repository."""

import os

import pytest

missing = "DRQ_TEST_ASSETS is not set: it names the folder of trained models and CIFAR-10"
needs_assets = pytest.mark.skipif("DRQ_TEST_ASSETS" not in os.environ, reason=missing)

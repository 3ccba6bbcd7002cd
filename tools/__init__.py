"""Tools of this repository, which no wheel has: they measure, and they write the pages and pictures of the docs."""

from pathlib import Path

ROOT = Path(__file__).parents[1]

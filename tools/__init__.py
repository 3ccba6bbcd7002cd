"""Hold tools of this repository, which no wheel contains: they measure, and write the pages and pictures of the docs."""

from pathlib import Path

ROOT = Path(__file__).parents[1]

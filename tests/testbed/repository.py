"""Where the repository lies, and how a process of its own finds what it needs there."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def reaching(*folders: Path) -> dict[str, str]:
    """An environment in which Python imports from these folders before all others."""
    paths = [*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}

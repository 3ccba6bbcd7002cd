"""``python -m drq`` is the command ``drq``."""

import sys

from drq.commands.cli import main

if __name__ == "__main__":
    sys.exit(main())

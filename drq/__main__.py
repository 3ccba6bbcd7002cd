"""``python -m drq`` is the command ``drq``."""

import sys

from drq.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m vrtd` is the command `vrtd`."""

import sys

from vrtd.cli import main

if __name__ == "__main__":
    sys.exit(main())

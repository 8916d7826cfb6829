"""Entry point of the command ``vrtd``, which is also ``python -m vrtd``."""

import signal
import sys


def main() -> int:
    """Run the command line. While it loads libraries, Ctrl-C ends the process immediately (see vrtd.cli.interrupts)."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if it is ignored, as in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    from vrtd.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())

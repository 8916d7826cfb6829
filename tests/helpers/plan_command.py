"""What the tests of `vrtd plan` share."""

import shlex

from vrtd.cli import main

WALK = shlex.split("plan --problem random_walk --sampling iid")
SMALL = [*WALK, "--budget", "2000"]


def run(capsys, arguments, *more):
    """What a command that goes well prints, with nothing on stderr."""
    assert main([*(shlex.split(arguments) if isinstance(arguments, str) else arguments), *more]) == 0
    shown, noise = capsys.readouterr()
    assert noise == ""
    return shown

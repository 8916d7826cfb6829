"""Messages for users of the command line: options in place of parameters, and advice for errors of the system."""

from __future__ import annotations

import re
from collections.abc import Mapping

from vrtd.files import advise, is_out_of_memory

_MEMORY = "There is not enough memory, or the system starts no more threads."
_LESS = "Close other programs, raise the limit (ulimit), or use less: fewer runs, features, checkpoints or threads."
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# What only a user of Python can do is in brackets and names something of vrtd.
_FOR_PYTHON = re.compile(r" \((?:[^()]|\([^()]*\))*\bvrtd\.(?:[^()]|\([^()]*\))*\)")
# The last dot of "..." at the end of a message is its period.
_VALUE = r"""(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<plain>-?\w+(?:[.+-]+\w+)*)|\.\.(?:\.(?!$))?|)"""


def explain(error: Exception) -> str | None:
    """Return the file, the problem and advice for an error of the system; None for any other error.

    >>> explain(OSError(28, "No space left on device", "a.npz"))
    'a.npz: No space left on device. Free space, then run it again.'
    """
    if isinstance(error, MemoryError) or is_out_of_memory(error):
        detail = f"{error}".rstrip(".")
        return f"{_MEMORY}{f' ({detail})' if detail else ''} {_LESS}"
    if not isinstance(error, OSError):
        return None
    file = "" if error.filename is None else f"{error.filename}: "
    problem = f"{error.strerror or error}".rstrip(".")
    return f"{file}{problem}. {advise(error)}".rstrip()


def to_shell(message: str, flags: Mapping[str, str]) -> str:
    """Return a message with options in place of parameters; `flags` maps parameters to options.

    >>> flags = {"n_runs": "--runs", "sampling": "--sampling"}
    >>> to_shell("n_runs must be at least 1, but is 0. Raise n_runs.", flags)
    '--runs must be at least 1, but is 0. Raise --runs.'
    >>> to_shell('svrg needs a data set. Use sampling="dataset" (with vrtd.record).', flags)
    'svrg needs a data set. Use --sampling dataset.'
    """
    text = _FOR_PYTHON.sub("", _COLOURS.sub("", message))
    names = "|".join(sorted(map(re.escape, flags), key=len, reverse=True))
    with_value = rf"(?<![\w,])(?<!\w\()(?P<name>{names})=(?!=){_VALUE}"  # but not in f(n=1), nor in rff:9,seed=1
    text = re.sub(with_value, lambda match: _assign(match, flags), text)
    # A name with "_" is always a parameter. Other names are also English words, and parameters only at the beginning
    # of the message, or alone after "drop", "omit" or "change".
    compound = "|".join(name for name in names.split("|") if "_" in name) or "(?!)"
    patterns = (
        rf"^(?:{names})(?= )",
        rf"(?:(?<=[Dd]rop )|(?<=[Oo]mit )|(?<=[Cc]hange ))(?:{names})(?=[.,;](?:\s|$)|$)",
        rf"(?<![\w'\"./-])(?:{compound})(?![\w'\"/(=]|\.\w|-\w)",
    )
    return re.sub("|".join(patterns), lambda match: flags[match[0]], text)


def _assign(match: re.Match[str], flags: Mapping[str, str]) -> str:
    value = match["double"] or match["single"] or match["plain"] or ""
    return f"{flags[match['name']]} {'' if value in ('True', '...') else value}".rstrip()

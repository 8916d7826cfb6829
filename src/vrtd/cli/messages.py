"""Messages of the library as a user of the command line reads them: with options in the place of parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# What only a user of Python can do stands in brackets and names something of vrtd.
_FOR_PYTHON = re.compile(r" \((?:[^()]|\([^()]*\))*\bvrtd\.(?:[^()]|\([^()]*\))*\)")
_VALUE = r"""(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<plain>[\w.+-]+)|)"""


def to_shell(message: str, flags: Mapping[str, str]) -> str:
    """Return a message with options in the place of parameters: `flags` has the option of each parameter.

    >>> flags = {"n_runs": "--runs", "sampling": "--sampling"}
    >>> to_shell("n_runs must be at least 1; got 0", flags)
    '--runs must be at least 1; got 0'
    >>> to_shell('svrg must have a data set; use sampling="dataset" (with vrtd.record)', flags)
    'svrg must have a data set; use --sampling dataset'
    """
    text = _FOR_PYTHON.sub("", _COLOURS.sub("", message))
    names = "|".join(sorted(map(re.escape, flags), key=len, reverse=True))
    with_value = rf"(?<![\w,])(?<!\w\()(?P<name>{names})=(?!=){_VALUE}"  # but not in f(n=1), nor in rff:9,seed=1
    text = re.sub(with_value, lambda found: _assign(found, flags), text)
    # A name with "_" is a parameter wherever it stands; an English word only where the message is about the parameter.
    compound = "|".join(name for name in names.split("|") if "_" in name) or "(?!)"
    patterns = (
        rf"^(?:{names})(?= )",
        rf"(?:(?<=drop )|(?<=change ))(?:{names})(?=$|[,;])",
        rf"(?<![\w'\"./-])(?:{compound})(?![\w'\"/.(=]|-\w)",
    )
    return re.sub("|".join(patterns), lambda found: flags[found[0]], text)


def _assign(found: re.Match[str], flags: Mapping[str, str]) -> str:
    value = found["double"] or found["single"] or found["plain"] or ""
    return f"{flags[found['name']]} {'' if value in ('True', '...') else value}".rstrip()

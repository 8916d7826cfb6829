"""Reads the parameters that a numpydoc docstring documents, so that the command line can show them as help."""

from __future__ import annotations

import re
from inspect import cleandoc
from itertools import pairwise
from typing import Any

_UNDERLINE = re.compile(r"-{3,}")
_SENTENCE_END = re.compile(r"(?<!e\.g)(?<!i\.e)[.?!](?=\s+[A-Z0-9`\"'(]|$)")


def read_parameters(documented: Any) -> dict[str, str]:
    """Return the first sentence about each parameter of a function or class.

    Parameters
    ----------
    documented : function or class
        Object with a ``Parameters`` section in its docstring.

    Returns
    -------
    dict of str to str
        The sentences without backticks, by the names of the parameters. Empty if there is no such section, as where
        ``python -OO`` has removed all docstrings.

    Examples
    --------
    >>> read_parameters(read_parameters)
    {'documented': 'Object with a Parameters section in its docstring.'}
    """
    entries: dict[str, list[str]] = {}
    paragraph: list[str] = []
    for line in _list_section(cleandoc(documented.__doc__ or ""), "Parameters"):
        if line[:1].strip():  # an entry such as "low, high : ndarray"
            paragraph = []
            entries |= {name.strip(" *"): paragraph for name in line.partition(" :")[0].split(",")}
        elif line.strip() or paragraph:
            paragraph.append(line.strip())
    return {name: _first_sentence(lines) for name, lines in entries.items()}


def _list_section(docstring: str, title: str) -> list[str]:
    """Return the lines between the underlined title and the next one."""
    lines = docstring.splitlines()
    heads = [i for i, (_, below) in enumerate(pairwise(lines)) if _UNDERLINE.fullmatch(below)]
    ends = dict(pairwise([*heads, len(lines)]))
    return next((lines[i + 2 : ends[i]] for i in heads if lines[i] == title), [])


def _first_sentence(lines: list[str]) -> str:
    """Return the first sentence of the first paragraph; a paragraph ends at an empty line."""
    paragraph = " ".join([*lines, ""][: [*lines, ""].index("")])
    end = _SENTENCE_END.search(paragraph)
    return (paragraph if end is None else paragraph[: end.end()]).replace("`", "")

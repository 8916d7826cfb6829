"""Parameters that are read from numpydoc docstrings."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

import vrtd
from vrtd.docstrings import read_parameters


def documented(docstring: str | None) -> Any:
    def function() -> None: ...

    function.__doc__ = docstring
    return function


def entry(*description: str) -> str:
    """The sentence that is read from this description of one parameter."""
    lines = "\n".join(f"        {line}".rstrip() for line in description)
    docstring = f"Do it.\n\n    Parameters\n    ----------\n    size : int, default=3\n{lines}\n    "
    return read_parameters(documented(docstring))["size"]


def test_every_kind_of_entry() -> None:
    docstring = """Do it.

    More about it.

    Parameters
    ----------
    first : int
        The first one. And more.
    low, high : ndarray of shape (n,)
        The bounds.
    kind : {"a", "b"}, default="a"
        Which kind it is,
        on two lines. Not this.

        A second paragraph.

        - a list. Of sorts.
    plain
        Without a type.
    bare : int
    *args
        All the others.
    **options : Any
        All the options.

    Returns
    -------
    result : int
        Not a parameter.
    """
    assert read_parameters(documented(docstring)) == {
        "first": "The first one.",
        "low": "The bounds.",
        "high": "The bounds.",
        "kind": "Which kind it is, on two lines.",
        "plain": "Without a type.",
        "bare": "",
        "args": "All the others.",
        "options": "All the options.",
    }


@pytest.mark.parametrize(
    ("description", "sentence"),
    [
        (["Number of runs."], "Number of runs."),
        (["``Number`` of `runs`. More."], "Number of runs."),
        (["A path, e.g. Data/x.csv, i.e. A file. Second."], "A path, e.g. Data/x.csv, i.e. A file."),
        (["A number such as 0.95 in vrtd.plan. ``None`` is 1."], "A number such as 0.95 in vrtd.plan."),
        (["One of i.i.d. samples or markov. 2 follow."], "One of i.i.d. samples or markov."),
        (["Is it so? Perhaps."], "Is it so?"),
        (["Ends without a period"], "Ends without a period"),
        (["A sentence that goes", "over two lines. The second."], "A sentence that goes over two lines."),
        (["One of", "", "- a", "- b"], "One of"),
    ],
)
def test_the_first_sentence(description: list[str], sentence: str) -> None:
    assert entry(*description) == sentence


@pytest.mark.parametrize(
    "docstring",
    [
        None,
        "",
        "Do it.",
        "Do it.\n\n    Returns\n    -------\n    int\n        A number.\n",
        "Parameters are few.\n\n    ---",
    ],
)
def test_nothing_is_read_without_parameters(docstring: str | None) -> None:
    assert read_parameters(documented(docstring)) == {}


def test_a_section_may_be_the_last_or_stand_between_others() -> None:
    section = "Parameters\n----------\na : int\n    The a.\n"
    for docstring in (
        section,
        f"Do it.\n\n{section}",
        f"Notes\n-----\nA : note.\n\n{section}\nNotes\n-----\nB : note.\n",
    ):
        assert read_parameters(documented(docstring)) == {"a": "The a."}


def test_classes_are_documented_too() -> None:
    @dataclass
    class Size:
        """Size of a thing.

        Parameters
        ----------
        n : int
            Number of its parts.
        """

        n: int

    @dataclass
    class Bare:
        n: int

    assert read_parameters(Size) == {"n": "Number of its parts."}
    assert read_parameters(Bare) == {}  # whose docstring is its signature


def test_docstrings_may_be_stripped() -> None:
    code = "import vrtd; from vrtd.docstrings import read_parameters as r; print(r(vrtd.compare), r(vrtd.TD))"
    command = [sys.executable, "-OO", "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "{} {}\n"
    assert read_parameters(vrtd.compare)["size"]

"""Streams that stand for a terminal and for the output of a notebook."""

from __future__ import annotations

import io


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


class NotebookStream(io.StringIO):
    """What the kernel of a notebook has in the place of stderr: no terminal, but a carriage return goes back."""

    __module__ = "ipykernel.iostream"


def shown_texts(stream: io.StringIO) -> list[str]:
    """Return what stood on the line, one text after another, without the blanks that cover older ones."""
    return [text.rstrip() for text in stream.getvalue().split("\r")[1:]]

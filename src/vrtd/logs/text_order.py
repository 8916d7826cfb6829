"""Checks of text columns to sort by: dates of one form sort correctly, numbers as text do not."""

from __future__ import annotations

import re
from typing import Any

from vrtd.errors import DataError

_NUMBERS = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
#: Numbers with leading zeros and dates with or without times sort correctly if all have the form of the first.
_ORDERED = r"\d{1,20}|\d{4}-\d\d(-\d\d)?([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]00:?00)?)?"


class TextOrder:
    """Common form of the values of a text column."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._form: str | None = None  # of the first value, as a pattern
        self._common: set[str] | None = None  # patterns that all values match

    def see(self, values: Any) -> None:
        """Update the common form with an Arrow array of text."""
        from pyarrow.compute import all as all_of
        from pyarrow.compute import match_substring_regex

        if self._common is None:
            first = values[0].as_py()
            if re.fullmatch(_ORDERED, first):
                self._form = f"^{re.sub(r'[0-9]', '[0-9]', re.escape(first))}$"
            self._common = {_NUMBERS} if self._form is None else {_NUMBERS, self._form}
        self._common = {form for form in self._common if all_of(match_substring_regex(values, form)).as_py()}

    @property
    def _is_ordered(self) -> bool:
        return self._common is not None and self._form in self._common

    def check(self) -> None:
        """Raise if the values are numbers, which do not sort correctly as text."""
        if self._common is not None and _NUMBERS in self._common and not self._is_ordered:
            raise DataError(
                f"Rows cannot be sorted by column {self._name!r}: it holds numbers as text, which sort as 1, 10, 2.",
                "Convert the column to numbers.",
            )

    @property
    def remark(self) -> str | None:
        """Remark that rows are sorted as text, or None if that is the order of the values."""
        return None if self._is_ordered else f"column {self._name!r} holds text and was sorted as text"

"""Features as plain values that JSON can hold without changing a bit."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np


def plain_settings(kind: str, features: Any) -> dict[str, Any]:
    """The kind and the fields of a frozen dataclass; tuples and arrays become lists."""
    return {"kind": kind} | {field.name: _plain(getattr(features, field.name)) for field in fields(features)}


def _plain(value: Any) -> Any:
    match value:
        case np.ndarray():
            return value.tolist()
        case tuple():
            return [_plain(item) for item in value]
        case _:
            return value

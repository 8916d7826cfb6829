"""Properties that are computed when they are first used."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801 - the name in the standard library
        """As in Python 3.12: without a lock. A child would wait for ever if a thread held the lock at the fork.

        Two threads may compute the same value twice.
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            """Compute the value and store it in the instance, where Python finds it from then on."""
            if instance is None:
                return self
            return instance.__dict__.setdefault(self.attrname, self.func(instance))

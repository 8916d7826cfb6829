"""The one run loop, and the verb that calls it."""

from vrtd.engine.simulation import simulate

__all__ = ["simulate"]

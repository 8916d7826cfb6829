"""The one run loop, and the verb that calls it."""

from vrtd.engine.recording import record
from vrtd.engine.simulation import simulate

__all__ = ["record", "simulate"]

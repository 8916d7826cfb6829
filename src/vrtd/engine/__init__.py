"""The one run loop, and the verb that calls it."""

from vrtd.engine.recording import record as record
from vrtd.engine.simulation import simulate as simulate

"""Run loops on simulated and recorded transitions, and the functions that call them."""

from vrtd.engine.recording import record as record
from vrtd.engine.simulation import simulate as simulate

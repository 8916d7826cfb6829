"""Where transitions come from."""

from vrtd.sources.chain import chain_source
from vrtd.sources.data_set import data_set_source
from vrtd.sources.simulator import simulator_source
from vrtd.sources.source import Slots, Source

__all__ = ["Slots", "Source", "chain_source", "data_set_source", "simulator_source"]

"""Sources of transitions: chains, simulators and data sets."""

from vrtd.sources.chain import chain_source as chain_source
from vrtd.sources.data_set import data_set_source as data_set_source
from vrtd.sources.simulator import simulator_source as simulator_source
from vrtd.sources.source import Slots as Slots
from vrtd.sources.source import Source as Source

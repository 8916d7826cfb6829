"""Logs: recorded transitions from arrays, tables, files and live environments."""

from vrtd.logs.arrays import from_arrays as from_arrays
from vrtd.logs.environment import from_env as from_env
from vrtd.logs.episodes import from_minari as from_minari
from vrtd.logs.log import Chunk as Chunk
from vrtd.logs.log import Log as Log
from vrtd.logs.log import data_set as data_set
from vrtd.logs.reading import read as read
from vrtd.logs.writing import write as write

"""One file per algorithm, and the registry that names them.

`vrtd` has every name that this file imports.
"""

from collections.abc import Mapping
from types import MappingProxyType

from vrtd.algorithms.algorithm import Algorithm as Algorithm
from vrtd.algorithms.algorithm import Epoch as Epoch
from vrtd.algorithms.algorithm import Kernels as Kernels
from vrtd.algorithms.td import TD as TD
from vrtd.algorithms.vrtd import VRTD as VRTD

_ALGORITHMS: tuple[type[Algorithm], ...] = (
    TD,
    VRTD,
)

REGISTRY: Mapping[str, type[Algorithm]] = MappingProxyType({algorithm.name: algorithm for algorithm in _ALGORITHMS})

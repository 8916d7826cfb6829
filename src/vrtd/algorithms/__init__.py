"""One file per algorithm, and the registry that names them."""

from collections.abc import Mapping
from types import MappingProxyType

from vrtd.algorithms.algorithm import Algorithm, Epoch, Kernels
from vrtd.algorithms.td import TD
from vrtd.algorithms.vrtd import VRTD

__all__ = ["REGISTRY", "TD", "VRTD", "Algorithm", "Epoch", "Kernels"]

REGISTRY: Mapping[str, type[Algorithm]] = MappingProxyType({"td": TD, "vrtd": VRTD})

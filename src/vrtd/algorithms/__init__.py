"""One file per algorithm, and the registry that names them.

`vrtd` has every name that this file imports.
"""

from collections.abc import Mapping
from types import MappingProxyType

from vrtd.algorithms.algorithm import Algorithm as Algorithm
from vrtd.algorithms.algorithm import Epoch as Epoch
from vrtd.algorithms.algorithm import Kernels as Kernels
from vrtd.algorithms.gradient_td import GTD as GTD
from vrtd.algorithms.gradient_td import GTD2 as GTD2
from vrtd.algorithms.gradient_td import TDC as TDC
from vrtd.algorithms.lstd import LSTD as LSTD
from vrtd.algorithms.primal_dual import PrimalDual as PrimalDual
from vrtd.algorithms.recursive_lstd import RecursiveLSTD as RecursiveLSTD
from vrtd.algorithms.saga import SAGA as SAGA
from vrtd.algorithms.scsg import SCSG as SCSG
from vrtd.algorithms.svrg import SVRG as SVRG
from vrtd.algorithms.svrg import BatchingSVRG as BatchingSVRG
from vrtd.algorithms.svrg import GrowingSCSG as GrowingSCSG
from vrtd.algorithms.target_td import TargetTD as TargetTD
from vrtd.algorithms.td import TD as TD
from vrtd.algorithms.td_lambda import TDLambda as TDLambda
from vrtd.algorithms.true_online_td import TrueOnlineTD as TrueOnlineTD
from vrtd.algorithms.vrtd import VRTD as VRTD

_ALGORITHMS: tuple[type[Algorithm], ...] = (
    TD,
    TDLambda,
    TrueOnlineTD,
    TargetTD,
    GTD,
    GTD2,
    TDC,
    VRTD,
    LSTD,
    RecursiveLSTD,
    PrimalDual,
    SVRG,
    BatchingSVRG,
    SCSG,
    GrowingSCSG,
    SAGA,
)

REGISTRY: Mapping[str, type[Algorithm]] = MappingProxyType({algorithm.name: algorithm for algorithm in _ALGORITHMS})

"""Algorithms, their registry, step-size schedules, and the base class for new algorithms.

There is one file per algorithm or family of algorithms. Parts that they share are in ``_base``.
"""

from collections.abc import Mapping
from types import MappingProxyType

from vrtd.algorithms._base.algorithm import STEP_SIZES as STEP_SIZES
from vrtd.algorithms._base.algorithm import Algorithm as Algorithm
from vrtd.algorithms._base.algorithm import ChainSampling as ChainSampling
from vrtd.algorithms._base.algorithm import Epoch as Epoch
from vrtd.algorithms._base.algorithm import Kernels as Kernels
from vrtd.algorithms._base.algorithm import Sampling as Sampling
from vrtd.algorithms._base.algorithm import Tuned as Tuned
from vrtd.algorithms._base.algorithm import check_sampling as check_sampling
from vrtd.algorithms._base.schedules import Constant as Constant
from vrtd.algorithms._base.schedules import Exponential as Exponential
from vrtd.algorithms._base.schedules import Harmonic as Harmonic
from vrtd.algorithms._base.schedules import Piecewise as Piecewise
from vrtd.algorithms._base.schedules import Schedule as Schedule
from vrtd.algorithms._base.schedules import as_schedule as as_schedule
from vrtd.algorithms.gradient_td import GTD as GTD
from vrtd.algorithms.gradient_td import GTD2 as GTD2
from vrtd.algorithms.gradient_td import TDC as TDC
from vrtd.algorithms.lstd import LSTD as LSTD
from vrtd.algorithms.primal_dual import PrimalDual as PrimalDual
from vrtd.algorithms.recursive_lstd import RecursiveLSTD as RecursiveLSTD
from vrtd.algorithms.richardson_td import RichardsonTD as RichardsonTD
from vrtd.algorithms.saga import SAGA as SAGA
from vrtd.algorithms.scsg import SCSG as SCSG
from vrtd.algorithms.svrg import SVRG as SVRG
from vrtd.algorithms.svrg import BatchingSVRG as BatchingSVRG
from vrtd.algorithms.svrg import GrowingSCSG as GrowingSCSG
from vrtd.algorithms.target_td import TargetTD as TargetTD
from vrtd.algorithms.td import TD as TD
from vrtd.algorithms.td_lambda import TDLambda as TDLambda
from vrtd.algorithms.td_lambda import TrueOnlineTD as TrueOnlineTD
from vrtd.algorithms.vrtd import VRTD as VRTD
from vrtd.errors import InvalidInputError

_FOR_ANY_SAMPLES = (TD, TDLambda, TrueOnlineTD, TargetTD, RichardsonTD, GTD, GTD2, TDC, VRTD, LSTD, RecursiveLSTD)
_FOR_A_DATA_SET = (PrimalDual, SVRG, BatchingSVRG, SCSG, GrowingSCSG, SAGA)

REGISTRY: Mapping[str, type[Algorithm]] = MappingProxyType(
    {algorithm.name: algorithm for algorithm in (*_FOR_ANY_SAMPLES, *_FOR_A_DATA_SET)}
)
"""Algorithms by name. The engine, the command line and the comparison of algorithms all read this registry."""


def check_sparse_rows(algorithm: Algorithm) -> None:
    """Raise if the algorithm cannot learn from sparse rows.

    Parameters
    ----------
    algorithm : Algorithm
        The algorithm.

    Raises
    ------
    InvalidInputError
        If it has no form with O(nnz) work per row.

    Examples
    --------
    >>> check_sparse_rows(GTD2())
    Traceback (most recent call last):
    vrtd.errors.InvalidInputError: gtd2 cannot learn from sparse rows. Use td, td_lambda, richardson_td or vrtd, or pass
    dense rows.
    """
    if algorithm.learns_from_sparse_rows:
        return
    names = [name for name, kind in REGISTRY.items() if kind.sparse_kernels is not None]
    if algorithm.name in names:
        problem = f"On sparse rows, {algorithm.name} has no projection, but radius is {algorithm.settings['radius']}."
        raise InvalidInputError(problem, "Drop radius, or pass dense rows.")
    can = f"{', '.join(names[:-1])} or {names[-1]}"
    raise InvalidInputError(f"{algorithm.name} cannot learn from sparse rows.", f"Use {can}, or pass dense rows.")

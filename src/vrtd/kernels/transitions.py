"""The one data type that algorithms see: a transition as two rows of feature tables."""

from __future__ import annotations

from typing import Any, NamedTuple


class Transition(NamedTuple):
    """What one sample tells: features are never copied, only pointed at."""

    phi: Any  # (n, d) table of feature rows: the states of a chain, the rows of a log, what a simulator just computed
    row: Any  # phi[row] are the features of the state that was left
    phi_next: Any  # the same table, or, for a log, that of the successors
    row_next: Any  # phi_next[row_next] are the features of the state that was reached
    reward: Any
    discount: Any  # gamma; 0 where the transition terminates
    weight: Any  # importance ratio; 1 on policy
    carry: Any  # the discount of a trace: `discount`, or 0 where the next sample does not go on from this one

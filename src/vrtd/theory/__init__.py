"""What is known without simulation: exact moments of the methods, and what follows from them."""

from vrtd.theory.curves import exact_curve
from vrtd.theory.limits import instance_optimal, stability_limit
from vrtd.theory.moments import Anchor, Moments, Output, stationary_second_moment, td_iid_moments, vrtd_iid_moments

__all__ = [
    "Anchor",
    "Moments",
    "Output",
    "exact_curve",
    "instance_optimal",
    "stability_limit",
    "stationary_second_moment",
    "td_iid_moments",
    "vrtd_iid_moments",
]

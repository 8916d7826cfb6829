"""What is known without simulation: exact moments of the methods."""

from vrtd.theory.moments import Moments, Output, stationary_second_moment, td_iid_moments, vrtd_iid_moments

__all__ = ["Moments", "Output", "stationary_second_moment", "td_iid_moments", "vrtd_iid_moments"]

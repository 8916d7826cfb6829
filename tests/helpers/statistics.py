"""Tests of random quantities: the threshold comes from a stated rate of false alarms, never from a look at the data.

One run of the whole suite raises a false alarm with probability at most 1e-6. That is shared out evenly among the
families of random tests, and inside a family among its statistics (Bonferroni): forty-eight in the tests, one for
what the pages of the documentation assert (6 standard errors), one in reserve. Seeds are fixed, so a test that passes
keeps passing; the rate says how much a pass means.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

FALSE_ALARM_RATE = 1e-6
N_FAMILIES = 50
FAMILY_RATE = FALSE_ALARM_RATE / N_FAMILIES


def z_scores(samples: Any, expected: Any) -> Any:
    """(mean - expected) / standard error, for independent rows of `samples`."""
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    return (samples.mean(axis=0) - expected) / error


def z_limit(n_statistics: int) -> float:
    return float(stats.norm.isf(FAMILY_RATE / n_statistics / 2))


def t_limit(n_statistics: int, n_samples: int) -> float:
    """The same where the standard error comes from few samples."""
    return float(stats.t.isf(FAMILY_RATE / n_statistics / 2, n_samples - 1))


def moment_scores(theta: Any, theta_star: Any, mean: Any, second: Any) -> Any:
    """Scores of every first and second moment of u = theta - theta_star over independent runs."""
    u = theta - theta_star
    upper = np.triu_indices(u.shape[1])
    products = u[:, upper[0]] * u[:, upper[1]]
    return np.concatenate([z_scores(theta, mean), z_scores(products, second[upper])])


def chi_square_is_fine(counts: Any, probability: Any, n_tests: int = 1) -> bool:
    """Outcomes that are expected less than 50 times are taken together: chi-square is the law of frequent ones."""
    expected = counts.sum() * probability
    rare = expected < 50
    if rare.any():
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return bool(stats.chi2.sf(statistic, len(counts) - 1) > FAMILY_RATE / n_tests)

"""Small chains that several tests use."""

import numpy as np
import scipy.sparse as sp

from vrtd.problems import MarkovRewardProcess

TWO = np.array([[0.7, 0.3], [0.4, 0.6]])


def chain(P, gamma=0.9):
    P = np.asarray(P, dtype=float)
    return MarkovRewardProcess(P, np.ones(len(P)), gamma)


def birth_death(up, down):
    """CSR chain on a line, and its stationary distribution by detailed balance."""
    n = len(up)
    up, down = up.copy(), down.copy()
    up[-1] = down[0] = 0.0
    P = sp.diags_array([down[1:], 1.0 - up - down, up[:-1]], offsets=[-1, 0, 1], shape=(n, n)).tocsr()
    log_mu = np.concatenate([[0.0], np.cumsum(np.log(up[:-1]) - np.log(down[1:]))])
    mu = np.exp(log_mu - log_mu.max())
    return P, mu / mu.sum()


def distances(P, mu, n_times):
    power, d = np.eye(len(P)), []
    for _ in range(n_times):
        d.append(0.5 * np.abs(power - mu).sum(axis=1).max())
        power = power @ P
    return np.array(d)

"""Small chains that several tests use."""

import numpy as np
import scipy.sparse as sp

from vrtd.problems import LinearProblem, MarkovRewardProcess

TWO = np.array([[0.7, 0.3], [0.4, 0.6]])
# A_x = -1/2 on every transition and b_x = +-1: lambda_A = 1, theta_star = 0, sigma2 = 1.
COIN = LinearProblem(MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], 0.5), [[1.0], [1.0]])
# A_x = 0.5 s s' - 1 is -1/2 or -3/2, each with probability 1/2; b_x = 1, so theta_star = 1.
SIGNS = LinearProblem(MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], 0.5), [[1.0], [-1.0]])
TWO_STATES = LinearProblem(MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [[1, 0], [0, 2]], 0.9), [[1.0], [0.5]])


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

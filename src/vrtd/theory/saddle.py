"""Step sizes with which the methods for a data set provably converge linearly to its solution.

Let z = (theta - theta_star, w / sqrt(k)) with k = beta / alpha be the distance from the saddle point. The gradients of
row x are G_x z plus a constant, with

    G_x = a p^T + c q^T,   a = (sqrt(k) rho psi, 0),  p = (0, phi),  c = (0, sqrt(k) phi),  q = (-rho psi, sqrt(k) phi),

and a step is z <- z - alpha (...). If A and C are invertible, all eigenvalues of G, the mean of G_x, have a positive
real part: for a unit eigenvector (t, y) it is k y.C y, and y = 0 would imply A t = 0. So G^T P + P G = I has a solution
P > 0. Let V(z) = z^T P z, and let q and s be such that I >= q P and the mean of G_x^T P G_x is <= s P.

- Full gradient:  V(z - alpha G z) <= (1 - alpha q + alpha^2 s) V(z), by Jensen's inequality.
- From an anchor y:  E V(z - alpha (G_x z - (G_x - G) y)) <= (1 - alpha q + 2 alpha^2 s) V(z) + 2 alpha^2 s V(y),
  because |u - v|^2 <= 2 |u|^2 + 2 |v|^2 and a variance is at most a second moment.
- SAGA, with H_x the memory of row x minus its gradient at the saddle point, and D the mean of H_x^T P H_x:
  E V(next) <= (1 - alpha q + 2 alpha^2 s) V(z) + 2 alpha^2 D, and E D(next) <= (1 - 1/n) D + s V(z) / n. Hence
  V + 4 n alpha^2 D falls by the factor max(1 - alpha q + 6 alpha^2 s, 1 - 1 / 2n) per step.

With alpha = q / 8s the factors are 1 - 7/8 alpha q per pass of the full gradient and max(1 - alpha q / 4, 1 - 1 / 2n)
per step of SAGA. In an epoch, V at step t is at most (1 - c)^t + 1/3 times V of the anchor, with c = 3/4 alpha q. So an
epoch of N = 6 / c steps has a factor of at most 1/2, whether it returns the last iterate or a random one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vrtd.arrays import Floats
from vrtd.errors import AccuracyError, InvalidInputError
from vrtd.problems import Transitions

_LEAST_RATE = 1e-13  # for smaller rates 1 - rate is mostly rounding
_RATIOS = np.geomspace(1e-3, 1e3, 37)  # ratios of the two steps, times the one that makes both parts of G equally large


class SaddleSteps(NamedTuple):
    """Proven step sizes for the methods that go through a data set, and their rates.

    The factors are upper bounds of the ratio of successive means of ``V = z^T norm z``, with
    ``z = (theta - theta_star, w)``.

    Attributes
    ----------
    step_size : float
        Step size of theta.
    step_size_w : float
        Step size of w.
    n_steps : int
        Inner steps per epoch.
    epoch_factor : float
        Factor per epoch of SVRG and its variants, once their batches are all rows.
    pass_factor : float
        Factor per pass of the full gradient.
    step_factor : float
        Factor per step of SAGA, whose V includes its memory.
    norm : ndarray of shape (2 * n_features, 2 * n_features)
        The matrix of V.
    """

    step_size: float
    step_size_w: float
    n_steps: int
    epoch_factor: float
    pass_factor: float
    step_factor: float
    norm: Floats


def saddle_steps(data: Transitions) -> SaddleSteps:
    """Compute proven step sizes for ``PrimalDual``, ``SVRG``, ``BatchingSVRG``, ``GrowingSCSG`` and ``SAGA``.

    Larger steps are often stable, too.

    Parameters
    ----------
    data : Transitions
        The data set.

    Returns
    -------
    SaddleSteps
        Step sizes, inner steps per epoch, and rates.

    Raises
    ------
    AccuracyError
        If the features are so close to dependent that the rate is smaller than rounding errors.
    SingularSystemError
        If the data set does not determine theta_star.

    Notes
    -----
    The proof is in the docstring of the module ``vrtd.theory.saddle``.

    Examples
    --------
    >>> data = Transitions(phi=[[1.0], [0.5]], reward=[1.0, 2.0], phi_next=[[0.5], [1.0]], discount=0.9)
    >>> steps = saddle_steps(data)
    >>> round(steps.step_size, 3), round(steps.step_size_w, 3), steps.n_steps, steps.epoch_factor
    (0.131, 0.01, 2252, 0.5)
    """
    if not isinstance(data, Transitions):
        raise InvalidInputError(
            f"data must be Transitions, but is of type {type(data).__name__}.",
            "Build them, or draw them with vrtd.record(...).",
        )
    data.theta_star  # noqa: B018 - raises if the data set has no unique solution
    scale = float(np.linalg.norm(data.A, 2) / np.linalg.norm(data.C, 2)) ** 2
    ratio, q, s, P = max(
        (_constants(data, scale * r) for r in _RATIOS.tolist()), key=lambda found: found[1] ** 2 / found[2]
    )
    alpha = q / (8.0 * s)
    rate = alpha * q
    if not rate > _LEAST_RATE:
        raise AccuracyError(
            f"the proven rate of {rate:.3g} per step is too small for double precision. "
            f"Scale the features to similar sizes, or remove features that are nearly dependent."
        )
    back = np.diag(np.repeat([1.0, ratio**-0.5], data.n_features))
    return SaddleSteps(
        step_size=alpha,
        step_size_w=ratio * alpha,
        n_steps=int(np.ceil(8.0 / rate)),
        epoch_factor=0.5,
        pass_factor=1.0 - 7.0 / 8.0 * rate,
        step_factor=max(1.0 - rate / 4.0, 1.0 - 0.5 / data.n_rows),
        norm=back @ P @ back,
    )


def _constants(data: Transitions, ratio: float) -> tuple[float, float, float, Floats]:
    """Return k, q, s and P for k = `ratio`."""
    from scipy.linalg import eigh, solve_continuous_lyapunov

    root, d = ratio**0.5, data.n_features
    G = np.block([[np.zeros((d, d)), root * data.A.T], [-root * data.A, ratio * data.C]])
    P: Any = solve_continuous_lyapunov(G.T, np.eye(2 * d))
    P = (P + P.T) / 2.0
    psi = data.weight[:, None] * (data.discount[:, None] * data.phi_next - data.phi)
    zero = np.zeros_like(psi)
    a, p = np.hstack([root * psi, zero]), np.hstack([zero, data.phi])
    c, q = np.hstack([zero, root * data.phi]), np.hstack([-psi, root * data.phi])
    aa, ac, cc = (np.einsum("ni,ij,nj->n", *pair, optimize=True) for pair in ((a, P, a), (a, P, c), (c, P, c)))
    mixed = (ac[:, None] * p).T @ q
    S = ((aa[:, None] * p).T @ p + mixed + mixed.T + (cc[:, None] * q).T @ q) / data.n_rows
    s = float(eigh(S, P, eigvals_only=True)[-1])
    return ratio, 1.0 / float(np.linalg.eigvalsh(P)[-1]), s, P

"""Step sizes with which the methods for a data set are proven to converge linearly to its own solution.

In z = (theta - theta_star, w / sqrt(k)) with k = beta / alpha, the gradients of row x at the saddle point's distance z
are G_x z and a constant,

    G_x = a p^T + c q^T,   a = (sqrt(k) rho psi, 0),  p = (0, phi),  c = (0, sqrt(k) phi),  q = (-rho psi, sqrt(k) phi),

and a step is z <- z - alpha (...). With A and C invertible, all eigenvalues of the mean G of G_x have a positive real
part: for a unit eigenvector (t, y) it is k y.C y, and y = 0 would make A t = 0. So G^T P + P G = I has a P > 0.
Let V(z) = z^T P z, and take q and s with I >= q P and mean of G_x^T P G_x <= s P.

- Full gradient:  V(z - alpha G z) <= (1 - alpha q + alpha^2 s) V(z), by Jensen's inequality.
- From an anchor y:  E V(z - alpha (G_x z - (G_x - G) y)) <= (1 - alpha q + 2 alpha^2 s) V(z) + 2 alpha^2 s V(y), as
  |u - v|^2 <= 2 |u|^2 + 2 |v|^2 and a variance is at most a second moment.
- SAGA, with H_x the memory of row x less its gradient at the saddle point, and D the mean of H_x^T P H_x:
  E V(next) <= (1 - alpha q + 2 alpha^2 s) V(z) + 2 alpha^2 D, and E D(next) <= (1 - 1/n) D + s V(z) / n. Hence
  V + 4 n alpha^2 D falls by the factor max(1 - alpha q + 6 alpha^2 s, 1 - 1 / 2n) a step.

With alpha = q / 8s these are 1 - 7/8 alpha q a pass, max(1 - alpha q / 4, 1 - 1 / 2n) a step of SAGA, and, as an epoch
of N steps leaves (1 - c)^t + 1/3 of the anchor's V at its step t, c = 3/4 alpha q, at most 1/2 an epoch of N = 6 / c
steps, whether it ends with the last or with a random one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vrtd.arrays import Floats
from vrtd.errors import AccuracyError, InvalidInputError
from vrtd.problems import Transitions

_LEAST_RATE = 1e-13  # below which 1 - rate says nothing
_RATIOS = np.geomspace(1e-3, 1e3, 37)  # of the two steps, beside what makes both parts of G equally large


class SaddleSteps(NamedTuple):
    """Steps, and by which factor the mean of V = z^T norm z falls at least, z = (theta - theta_star, w)."""

    step_size: float
    step_size_w: float
    n_steps: int  # inner steps of an epoch
    epoch_factor: float  # of SVRG and its variants, once their batches are all rows
    pass_factor: float  # of the full gradient
    step_factor: float  # of SAGA, whose V counts its memory
    norm: Floats  # (2 d, 2 d)


def saddle_steps(data: Transitions) -> SaddleSteps:
    """Proven steps for `PrimalDual`, `SVRG`, `BatchingSVRG`, `GrowingSCSG` and `SAGA`; larger ones are often stable.

    >>> data = Transitions(phi=[[1.0], [0.5]], reward=[1.0, 2.0], phi_next=[[0.5], [1.0]], discount=0.9)
    >>> steps = saddle_steps(data)
    >>> round(steps.step_size, 3), round(steps.step_size_w, 3), steps.n_steps, steps.epoch_factor
    (0.131, 0.01, 2252, 0.5)
    """
    if not isinstance(data, Transitions):
        raise InvalidInputError(
            "data must be Transitions", type(data).__name__, "build them, or draw them: vrtd.record(...)"
        )
    data.theta_star  # noqa: B018 - refuses a data set without a single solution
    scale = float(np.linalg.norm(data.A, 2) / np.linalg.norm(data.C, 2)) ** 2
    ratio, q, s, P = max(
        (_constants(data, scale * r) for r in _RATIOS.tolist()), key=lambda found: found[1] ** 2 / found[2]
    )
    alpha = q / (8.0 * s)
    rate = alpha * q
    if not rate > _LEAST_RATE:
        raise AccuracyError(
            f"steps must be provable in double precision; got a rate of {rate:.3g} a step; scale the features alike, "
            f"or remove such as are nearly dependent"
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
    """k, q, s and P for k = `ratio`."""
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

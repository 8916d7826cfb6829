"""Both sides of every statement on every chain, computed without simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd import theory
from vrtd.algorithms import VRTD
from vrtd.arrays import Floats
from vrtd.paper.evidence import are_met
from vrtd.paper.experiment import Runner, Settings, build_problem
from vrtd.problems import LinearProblem, MarkovRewardProcess
from vrtd.tables import Table, table
from vrtd.theory import Bound, Complexity, Condition, Inequality, Moments, exact_curve
from vrtd.theory.enumeration import batch_types
from vrtd.theory.increments import Increments, correlated_increments, independent_increments
from vrtd.theory.markov import MarkovTD
from vrtd.theory.moments import Anchor, epoch_maps, read_moments, td_terms
from vrtd.theory.statements import Form
from vrtd.theory.symmetric import orbit, unpack

Row = dict[str, Any]

_FORMS: dict[str, Form] = {"printed": "printed", "repaired": "corrected"}  # keys: names of the variants in the tables

FAR_ABOVE = "C8 eps = 1/e, far above |u_0|^2"  # a target above the initial error


def measure(settings: Settings, runner: Runner) -> dict[str, Table]:
    """Compute both sides of all statements and the tables for the other claims.

    `statements` has the two sides, with left <= right if the statement is true. `floors` has errors that do not vanish
    and `experiments` the range of the theorems. `mixing` and `fixed_points` are about Section 2.2.
    """
    del runner  # nothing is simulated
    cases = [Case(chain, settings) for chain in settings["chains"]]
    return {
        "statements": table(row for case in cases for part in STATEMENTS for row in part(case)),
        "floors": table(row for case in cases for row in _floors(case)),
        "experiments": table(row for chain in settings["experiments"] for row in _experiment(chain, settings)),
        "mixing": table(_mixing(**settings["mixing"])),
        "fixed_points": table(_fixed_point(case) for case in cases),
    }


def _problem(chain: Mapping[str, Any], normalised: bool = True) -> LinearProblem:
    problem = build_problem(chain)
    longest = np.linalg.norm(problem.phi, axis=1).max() if normalised else 1.0
    return LinearProblem(problem.mrp, problem.phi / max(longest, 1.0))


class Case:
    """Chain with the quantities that its statements share."""

    def __init__(self, chain: Mapping[str, Any], settings: Settings) -> None:
        problem = _problem(chain)
        self.name, self.family, self.problem, self.settings = chain["name"], chain["family"], problem, settings
        self.lam, self.g2 = problem.lambda_A, float(1.0 + problem.mrp.edges.discount.max()) ** 2
        self.theta_0: Floats = problem.theta_star + settings["distance"] / math.sqrt(problem.n_features)
        self.starts = {"theta_star": problem.theta_star, "theta_0": self.theta_0}
        self.radius = float(max(np.linalg.norm(theta) for theta in self.starts.values()))
        self.wide = 2.0 * self.radius  # a radius at which the projection, which the moments omit, is inactive
        self.independent, self.correlated = independent_increments(problem), correlated_increments(problem)

    def batch(self, units: float) -> int:
        """Return a batch size, given in units of (1 + gamma)^2/lambda_A^2."""
        return math.ceil(units * self.g2 / self.lam**2)

    def moments(
        self, samples: Increments, a: float, M: int, epochs: Sequence[int], start: Floats, anchor: Anchor = "batch"
    ) -> Moments:
        """Return the moments of VRTD after each number of `epochs`."""
        path = epoch_maps(samples, a, [M], "random", anchor)[M].orbit(samples.start(start), np.array(epochs))
        return read_moments(path, self.problem.theta_star)

    def errors_iid(self, a: float, M: int, epochs: Sequence[int]) -> Floats:
        """Return the exact errors of Algorithm 1 after each number of `epochs`."""
        return self.moments(self.independent, a, M, epochs, self.theta_0).squared_error

    def errors_markov(self, a: float, M: int, epochs: Sequence[int]) -> tuple[Floats, str]:
        """Return the errors of Algorithm 2 after each number of `epochs`, and whether they are exact."""
        enumerated = self.settings["enumerated"]
        if self.name not in enumerated["chains"] or enumerated["largest_batch"] < M:
            return self.moments(self.correlated, a, M, epochs, self.theta_0).squared_error, "approximation"
        counts = 2 * M * np.array(epochs)
        curve = exact_curve(
            self.problem, VRTD(a, M), n_gradients=int(counts[-1]), checkpoints=counts,
            theta_0=self.theta_0, method="exact",
        )  # fmt: skip
        return curve.values("squared_error")[0], "exact"

    def row(
        self,
        statement: str,
        variant: str,
        parameters: str,
        sides: tuple[float, float],
        conditions: Sequence[Condition] = (),
        basis: str = "exact",
    ) -> Row:
        """Make a row of the table `statements`."""
        left, right = sides
        return {
            "statement": statement, "variant": variant, "family": self.family, "chain": self.name,
            "parameters": parameters, "left": left, "right": right, "ratio": left / right, "basis": basis,
            "conditions_hold": are_met(conditions),
        }  # fmt: skip


def _worst(errors: Floats, bounds: Floats) -> tuple[float, float]:
    """Return the error and the bound at the epoch where their ratio is largest."""
    k = int((errors / bounds).argmax())
    return float(errors[k]), float(bounds[k])


def _at(a: float, M: int) -> str:
    return f"a = {a:.2g}, M = {M:,}"


def _theorem1(case: Case) -> Iterator[Row]:
    n, step = case.settings["n_epochs"], case.lam / (16.0 * case.g2)
    for units in case.settings["theorem1_batches"]:
        M = case.batch(units)
        forms: tuple[tuple[str, float, Any, float | None], ...] = (
            ("printed", step, "printed", case.radius),
            ("repaired", step / 2, "corrected", case.radius),
            ("sharp", step, "sharp", None),
        )
        for variant, a, form, radius in forms:
            bound: Bound[Any] = theory.vrtd_iid_bound(case.problem, a, M, case.theta_0, radius, form=form)
            sides = _worst(case.errors_iid(a, M, range(1, n + 1)), bound.curve(n)[1:])
            yield case.row("Theorem 1", variant, _at(a, M), sides, bound.conditions)


def _one_epoch(case: Case) -> Iterator[Row]:
    problem = case.problem
    for share, units in case.settings["epoch_settings"]:
        a, M = share * case.lam / (8.0 * case.g2), case.batch(units)
        for where, theta in case.starts.items():
            u, mean = theta - problem.theta_star, problem.mean_update(theta)
            second = unpack(case.independent.square @ case.independent.start(theta), problem.n_features)  # E g_x g_x^T
            gradient_error = float(np.trace(second) - mean @ mean) / M
            left = float(case.moments(case.independent, a, M, [1], theta).squared_error[0])
            for variant, form in _FORMS.items():
                inequality = theory.epoch_inequality_iid(problem, a, M, form=form)
                sides = left, inequality.right(float(u @ u), gradient_error)
                what = f"from {where}, {_at(a, M)}"
                yield case.row("Section 4.1, one epoch", variant, what, sides, inequality.conditions)


def _corollaries(case: Case) -> Iterator[Row]:
    def row(statement: str, variant: str, plan: Complexity) -> Row:
        a, M, end, eps = plan.step_size, plan.batch_size, [plan.n_epochs], plan.target_error
        iid = statement == "Corollary 1"
        errors, basis = (case.errors_iid(a, M, end), "exact") if iid else case.errors_markov(a, M, end)
        conditions = (*plan.bound.conditions, *plan.conditions)
        return case.row(statement, variant, f"eps = {eps:g}, M = {M:,}", (float(errors[0]), eps), conditions, basis)

    for eps in case.settings["targets"]:
        one, two = (case.problem, eps, case.theta_0, case.radius), (case.problem, eps, case.theta_0, case.wide)
        for variant, form in _FORMS.items():
            yield row("Corollary 1", variant, theory.vrtd_iid_complexity(*one, form=form))
        for variant, form in _FORMS.items():
            yield row("Corollary 2", variant, theory.vrtd_markov_complexity(*two, form=form))


def _remarks(case: Case) -> Iterator[Row]:
    """Compare exact gradients, and the squared mean error of Algorithm 1, with C1^m of the first error.

    C1 is that of Theorem 1.
    """
    epochs, a = range(1, 6), case.lam / (16.0 * case.g2)
    for units in case.settings["theorem1_batches"]:
        M = case.batch(units)
        bound = theory.vrtd_iid_bound(case.problem, a, M, case.theta_0, case.radius, form="printed")
        decay = bound.initial * bound.rate ** np.array(epochs)
        error = case.moments(case.independent, a, M, epochs, case.theta_0, "mean").squared_error
        mean = case.moments(case.independent, a, M, epochs, case.theta_0).mean - case.problem.theta_star
        for statement, left in (("Exact gradients", error), ("No bias", (mean**2).sum(axis=1))):
            yield case.row(statement, "printed", _at(a, M), _worst(left, decay), bound.conditions)


def _theorem2(case: Case) -> Iterator[Row]:
    n, a = case.settings["n_epochs"], case.lam / (24.0 * case.g2)
    for units in case.settings["theorem2_batches"]:
        M = case.batch(units)
        errors, basis = case.errors_markov(a, M, range(1, n + 1))
        for variant, form in _FORMS.items():
            bound = theory.vrtd_markov_bound(case.problem, a, M, case.theta_0, case.wide, form=form)
            yield case.row("Theorem 2", variant, _at(a, M), _worst(errors, bound.curve(n)[1:]), bound.conditions, basis)


def _one_epoch_markov(case: Case) -> Iterator[Row]:
    chosen, problem = case.settings["trajectory_epochs"], case.problem
    for M in chosen["batch_sizes"] if problem.mrp.n_states == 2 else []:
        batches = batch_types(problem, M) or []
        for a in (share * case.lam / (3.0 * case.g2) for share in chosen["steps"]):
            inequality = theory.epoch_inequality_markov(problem, a, M)
            for where, theta in case.starts.items():
                u = theta - problem.theta_star
                for state, types in enumerate(batches):
                    left, gradient, bias = _epoch_from(problem, a, M, u, types)
                    sides = left, inequality.right(float(u @ u), gradient, bias)
                    what = f"from {where} and state {state}, {_at(a, M)}"
                    yield case.row("Section 4.2, one epoch", "printed", what, sides, inequality.conditions)


def _epoch_from(problem: LinearProblem, a: float, M: int, u: Floats, types: Mapping[Any, float]) -> Floats:
    """Return E|u_1|^2, E|g_m(theta_star)|^2 and the mean of E xi_m over the epoch, over all batches from one state.

    Let A_m be the batch's mean of A_x, G the batch gradient at the anchor and w the displacement from the anchor. Given
    the batch, E w' = E w + a (A_m E w + G), and E[w w^T] obeys a similar recursion.
    """
    edges, phi, d = problem.mrp.edges, problem.phi, problem.n_features
    A = np.einsum("ei,ej->eij", phi[edges.origin], edges.discount[:, None] * phi[edges.successor] - phi[edges.origin])
    p, share = np.array(list(types.values())), np.array([counts for _, counts in types]) / M
    A_m = np.tensordot(share, A, 1)
    A_twice = np.tensordot(share, np.einsum("eik,ejl->eijkl", A, A), 1)
    g_star = A_m @ problem.theta_star + share @ (edges.reward[:, None] * phi[edges.origin])
    G = A_m @ u + g_star
    w, ww = np.zeros((len(p), d)), np.zeros((len(p), d, d))
    left = bias = 0.0
    for _ in range(M):
        square = np.outer(u, u) + u[:, None] * w[:, None] + w[:, :, None] * u + ww
        bias += p @ (np.einsum("tij,tij->t", A_m - problem.A, square) + np.einsum("ti,ti->t", u + w, g_star))
        moved = w + a * np.einsum("tij,tj->ti", A_m, w)
        half = a * (A_m @ ww + moved[:, :, None] * G[:, None])
        spread = np.einsum("tijkl,tkl->tij", A_twice, ww) + G[:, :, None] * G[:, None]
        ww = ww + half + half.swapaxes(1, 2) + a * a * spread
        w = moved + a * G
        left += p @ (u @ u + 2.0 * w @ u + np.einsum("tii->t", ww))
    return np.array([left / M, p @ (g_star**2).sum(axis=1), bias / M])


def _lemmas(case: Case) -> Iterator[Row]:
    problem = case.problem

    def row(name: str, variant: str, parameters: str, inequality: Inequality) -> Row:
        return case.row(name, variant, parameters, (inequality.left, inequality.right), inequality.conditions)

    for M in case.settings["lemma1_batches"]:
        for sign in (1.0, -1.0):
            theta = problem.theta_star + sign * (case.theta_0 - problem.theta_star)
            for variant, form in _FORMS.items():
                inequality = theory.batch_bias_inequality(problem, M, theta, case.wide, form=form)
                yield row("Lemma 1", variant, f"M = {M:,}, theta_star {'+' if sign > 0 else '-'} u_0", inequality)
    for what, inequality in zip("Ab", theory.transition_inequalities(problem), strict=True):
        yield row("Lemma 2", "printed", what, inequality)
    inequality = theory.pseudo_gradient_inequality(problem, case.radius)
    yield row("Lemma 3", "printed", f"R = {case.radius:.3g}", inequality)
    for where, theta in case.starts.items():
        yield row("Lemma 4", "printed", f"at {where}", theory.squared_pseudo_gradient_inequality(problem, theta))
    for lag in case.settings["lags"]:
        for variant, form in _FORMS.items():
            for what, inequality in zip("Ab", theory.mixing_inequalities(problem, lag, form=form), strict=True):
                yield row("Lemma 5", variant, f"{what}, lag {lag}", inequality)


def _contraction(case: Case) -> Iterator[Row]:
    """Compare both sides of 2 u^T A u <= -lambda_A |u|^2 in the direction u in which A contracts least."""
    u = np.linalg.eigh(case.problem.A + case.problem.A.T)[1][:, -1]
    right = -2.0 * float(u @ case.problem.A @ u)
    yield case.row("lambda_A", "printed", "Section 3.2", (theory.lambda_A(case.problem, "section 3.2"), right))
    yield case.row("lambda_A", "repaired", "appendix", (theory.lambda_A(case.problem), right))


def _td_iid(case: Case) -> Iterator[Row]:
    problem, samples = case.problem, case.independent
    still, first, second = td_terms(samples)

    def errors(a: float, counts: NDArray[np.int64]) -> Floats:
        path = orbit(still + a * first + a * a * second, samples.start(case.theta_0), counts)
        return read_moments(path, problem.theta_star).squared_error

    for a in (share * case.lam / (4.0 * case.g2) for share in case.settings["td_steps"]):
        counts = np.ceil(np.array(case.settings["td_times"]) / (a * case.lam)).astype(np.int64)
        forms: tuple[Any, ...] = ("printed", "sharp")
        for variant in forms:
            bound: Bound[Any] = theory.td_iid_bound(problem, a, case.theta_0, form=variant)
            sides = _worst(errors(a, counts), bound.initial * bound.rate**counts + bound.floor)
            yield case.row("TD, i.i.d.", variant, f"a = {a:.2g}", sides, bound.conditions)
    for eps in case.settings["targets"]:
        plan = theory.td_iid_complexity(problem, eps, case.theta_0)
        reached = float(errors(plan.step_size, np.array([plan.n_epochs]))[0])
        yield case.row("TD, i.i.d., count", "printed", f"eps = {eps:g}", (reached, eps), plan.bound.conditions)


def _td_markov(case: Case) -> Iterator[Row]:
    a, counts, recursion = case.settings["experiments_step"], case.settings["td_updates"], MarkovTD(case.problem)
    Y, errors = recursion.start(case.theta_0, case.problem.mrp.stationary), []
    for n in np.diff(counts, prepend=0).tolist():
        Y = recursion.update(Y, a, n)
        errors.append(float(np.trace(Y.sum(axis=0)[:-1, :-1])))
    bound = theory.td_markov_bound(case.problem, a, case.theta_0, case.wide)
    sides = _worst(np.array(errors), bound.curve(counts[-1])[counts])
    yield case.row("TD, trajectory", "printed", f"a = {a:.2g}", sides, bound.conditions)


def _td_markov_count(case: Case) -> Iterator[Row]:
    """Compare the bound after the counted number of updates with the target of the count."""
    problem, start, lam = case.problem, case.theta_0, case.lam
    _, C6, C7 = theory.td_markov_bound(problem, 1.0, start).constants
    C8, initial = lam * min(1.0 / C6, 1.0 / (6.0 * C7)), case.settings["distance"] ** 2
    targets = {
        "eps = |u_0|^2": initial,
        "eps = |u_0|^2/100": 0.01 * initial,
        FAR_ABOVE: 1.0 / (math.e * C8),
    }
    for name, eps in targets.items():
        a = min(C8 * eps / -math.log(C8 * eps), 1.0 / lam)
        n = max(math.ceil(2.0 / (lam * a) * math.log(3.0 * initial / eps)), 0)
        plan = theory.td_markov_complexity(problem, eps, start)
        printed = theory.td_markov_bound(problem, a, start)
        for variant, k, bound in (("printed", n, printed), ("repaired", plan.n_epochs, plan.bound)):
            sides = bound.initial * bound.rate**k + bound.floor, eps
            yield case.row("TD, trajectory, count", variant, name, sides, bound.conditions)


STATEMENTS: tuple[Callable[[Case], Iterator[Row]], ...] = (
    _theorem1, _one_epoch, _corollaries, _remarks, _theorem2, _one_epoch_markov, _lemmas, _contraction, _td_iid,
    _td_markov, _td_markov_count,
)  # fmt: skip


def _floors(case: Case) -> Iterator[Row]:
    """Return the error after n epochs and after 2 n epochs; if it vanished, the second would be far smaller."""
    n, a = case.settings["n_epochs"], case.lam / (24.0 * case.g2)
    M = case.batch(case.settings["theorem2_batches"][0])
    curves = {"iid": (case.errors_iid(a, M, [n, 2 * n]), "exact"), "markov": case.errors_markov(a, M, [n, 2 * n])}
    for sampling, (errors, basis) in curves.items():
        yield {
            "family": case.family, "chain": case.name, "sampling": sampling, "step_size": a, "batch_size": M,
            "n_epochs": n, "error": float(errors[0]), "later_error": float(errors[1]), "basis": basis,
        }  # fmt: skip


def _mixing(lag: int, chains: Mapping[str, Any]) -> Iterator[Row]:
    """Compute the total variation distance to the stationary distribution after `lag` steps, from the worst state.

    The `bound` is (1 - S delta)^floor(lag/n). Here n = `power` is the smallest power for which P^n has no zero, delta
    is the smallest entry of P^n and S the number of states. If every power has a zero, `power` is 0 and the bound is 1.
    """
    for name, chain in chains.items():
        mrp = build_problem(chain).mrp if "problem" in chain else MarkovRewardProcess(**chain)
        P = mrp.P if isinstance(mrp.P, np.ndarray) else mrp.P.toarray()
        later, n = np.linalg.matrix_power(P, lag), _first_positive_power(P)
        common = len(P) * float(np.linalg.matrix_power(P, n).min()) if n else 0.0
        yield {
            "chain": name,
            "ergodic": "yes" if mrp.period == 1 and (mrp.stationary > 0.0).all() else "no",  # aperiodic, irreducible
            "lag": lag,
            "distance": float(np.abs(later - mrp.stationary).sum(axis=1).max() / 2.0),
            "power": n,
            "bound": (1.0 - common) ** (lag // n) if n else 1.0,
        }


def _first_positive_power(P: Floats) -> int:
    """Return the smallest n for which P^n has no zero, or 0 if there is none.

    By Wielandt's theorem it is at most S^2 - 2 S + 2.
    """
    possible = later = P > 0.0
    for n in range(1, len(P) ** 2 - 2 * len(P) + 3):
        if later.all():
            return n
        later = later @ possible
    return 0


def _fixed_point(case: Case) -> Row:
    """Evaluate both sides of the scalar equation of Section 2.2 at theta_star: the means of v and of T v."""
    problem, mrp = case.problem, case.problem.mrp
    values = problem.phi @ problem.theta_star
    mean, after = (float(mrp.stationary @ each) for each in (values, mrp.mean_reward + mrp.discounted_P @ values))
    return {"family": case.family, "chain": case.name, "mean": mean, "mean_after": after}


def _experiment(chain: Mapping[str, Any], settings: Settings) -> Iterator[Row]:
    for features in ("raw", "normalised"):
        problem = _problem(chain, features == "normalised")
        g2 = float(1.0 + problem.mrp.edges.discount.max()) ** 2
        yield {
            "family": chain["family"],
            "problem": chain["name"],
            "features": features,
            "largest_norm": float(np.linalg.norm(problem.phi, axis=1).max()),
            "step_size": settings["experiments_step"],
            "theorem1_limit": problem.lambda_A / (8.0 * g2),
            "theorem2_limit": problem.lambda_A / (12.0 * g2),
        }

"""The claims of Table 1 and of the texts about it, as statements on slopes and ratios."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Any

from vrtd.paper.evidence import Claim, NumberCheck, agrees
from vrtd.paper.table_1.floors import LONG_EPOCHS, SHORT_EPOCHS, THEOREM
from vrtd.paper.table_1.slopes import MODERATE_TARGETS, SMALL_TARGET
from vrtd.paper.table_1.sweep import GAMMAS, MIXED, RANDOM
from vrtd.tables import Tables, rows, rows_where

Evidence = Callable[[Mapping[str, Tables]], list[NumberCheck]]

_NAME = "table-1"
# Criteria of ours. A slope is of the claimed order within this; an upper bound may be undercut by any amount.
_NEAR = 0.15
# A slope over two decades, of an approximation that is off by a tenth, one way at one end and the other at the other.
_SLOPE_UNCERTAINTY = 0.05
# log(1/eps) is told from a constant and from its square by this.
_NEAR_LOGARITHM = 0.25
_MOST_CONSTANT = 10.0

_OURS = f" The criterion is ours: a slope within {_NEAR:g} of it is of the claimed order."
_SMALL = (
    f"A comparison of orders is about small targets: by a criterion of ours, at most {SMALL_TARGET:g} of the initial "
    "error. Larger ones are looked at beyond the paper."
)
_LINEAR = (
    "The proof bounds the error by C1^m of the first one plus a floor. As a check, from theta_0 = 0: the {} less its "
    f"floor is at most {_MOST_CONSTANT:g} times its first value times r^m, r < 1 being the spectral radius of an "
    "epoch. Settings outside the conditions of the proof are looked at beyond the statement. The constant is ours."
)
_FIXED = "all other constants (r_max, the radius, E|g_x(theta_star)|^2, kappa, rho) being fixed."
_SECTION_1 = "1. Theorem 1 and Corollary 1 are false as stated"
_SECTION_5 = "5. Lemmas 5 and 1, and Theorem 2"
_SECTION_7 = "7. TD: the constants of the appendix"


def _orders(
    tables: Mapping[str, Tables],
    above: float = -inf,
    below: float = inf,
    beyond: tuple[str, ...] = (SHORT_EPOCHS, MODERATE_TARGETS),
    **where: Any,
) -> list[NumberCheck]:
    """Every local slope of every range is above and below; the ranges `beyond` are outside what is stated."""
    found = []
    for row in rows(rows_where(tables[_NAME]["slopes"], **where)):
        if row["basis"] == "simulated":
            continue
        condition, what = f"{row['problem']}, {row['range']}", f"{row['quantity']} of {row['method']}"
        limits: dict[str, Any] = {"basis": row["basis"], "uncertainty": _SLOPE_UNCERTAINTY}
        limits["stated"] = row["range"] not in beyond
        if above > -inf:
            quantity = f"{what}: least slope in {row['against']}"
            found.append(NumberCheck(condition, quantity, row["low"], above=above, **limits))
        if below < inf:
            quantity = f"{what}: largest slope in {row['against']}"
            found.append(NumberCheck(condition, quantity, row["high"], below=below, **limits))
    return found


def _order(above: float = -inf, below: float = inf, **where: Any) -> Evidence:
    return partial(_orders, above=above, below=below, **where)


def _all(*parts: Evidence) -> Evidence:
    return lambda tables: [comparison for part in parts for comparison in part(tables)]


def _agreement(sampling: str, method: str, kind: str = "floor") -> Evidence:
    """Simulated errors are the expected ones, or near the approximate ones."""

    def compare(tables: Mapping[str, Tables]) -> list[NumberCheck]:
        part = rows_where(tables[_NAME]["simulated"], kind=kind, sampling=sampling, method=method)
        return [agrees(f"{method}, alpha = {row['step_size']:.3g}, M = {row['batch_size']}", row) for row in rows(part)]

    return compare


def _linear(sampling: str) -> Evidence:
    """What the error has above its floor falls like radius^m; settings that no proof covers are not stated."""

    def compare(tables: Mapping[str, Tables]) -> list[NumberCheck]:
        found = []
        for row in rows(rows_where(tables[_NAME]["rates"], sampling=sampling)):
            where = f"alpha = {row['step_size']:g}, M = {row['batch_size']:,}"
            rate, most = f"spectral radius of an epoch, {where}", f"largest (error - floor) / (first radius^m), {where}"
            is_stated = row["conditions_hold"] == "yes"
            condition = row["problem"] if is_stated else f"{row['problem']}, outside the conditions of the proof"
            rest: dict[str, Any] = {"basis": row["basis"], "stated": is_stated}
            found += [
                NumberCheck(condition, rate, row["radius"], below=1.0, **rest),
                NumberCheck(condition, most, row["constant"], below=_MOST_CONSTANT, **rest),
            ]
        return found

    return compare


def _cheaper(sampling: str, *families: str) -> Evidence:
    """Tuned VRTD costs less than tuned TD, for small targets, and for larger ones beyond what is stated; along a family
    at its least lambda_A."""

    def compare(tables: Mapping[str, Tables]) -> list[NumberCheck]:
        found = []
        for family in families:
            part = rows_where(tables[_NAME]["costs"], family=family, sampling=sampling)
            part = rows_where(part, lambda_A=part["lambda_A"].min())
            td, vrtd = (rows(rows_where(part, method=method)) for method in ("TD", "VRTD"))
            for a, b in zip(td, vrtd, strict=True):
                condition = f"{family}, eps = {a['target']:g}"
                quantity = f"cost of TD / cost of VRTD at lambda_A = {a['lambda_A']:.2g}"
                found.append(
                    NumberCheck(
                        condition, quantity, a["cost"] / b["cost"], above=1.0, basis=b["basis"],
                        stated=a["target"] <= SMALL_TARGET,
                    )
                )  # fmt: skip
        return found

    return compare


def _claim(name: str, place: str, statement: str, test: str, evidence: Evidence, **rest: Any) -> Claim:
    return Claim(name, place, statement, test, (_NAME,), evidence, **rest)


_TD_IID: dict[str, Any] = {"sampling": "iid", "method": "TD"}
_TD_MARKOV: dict[str, Any] = {"sampling": "markov", "method": "TD"}
_VRTD_IID: dict[str, Any] = {"sampling": "iid", "method": "VRTD"}
_VRTD_MARKOV: dict[str, Any] = {"sampling": "markov", "method": "VRTD"}
_FALLING: dict[str, Any] = {"quantity": "cost", "problem": GAMMAS, "against": "1/lambda_A"}
_TARGETS: dict[str, Any] = {"problem": RANDOM, "against": "1/eps"}

CLAIMS = (
    _claim(
        "td-variance-alpha",
        "Table 1; after Theorem 1",
        "With independent samples and a constant step, the error at which TD settles is of order alpha.",
        f"Slope of the exact stationary error in alpha above {1 - _NEAR:g}, on two chains.{_OURS}",
        _order(above=1 - _NEAR, quantity="floor", **_TD_IID),
        agreement=_agreement("iid", "TD"),
        kind="universal",
        proof=_SECTION_7,
    ),
    _claim(
        "td-markov-error-alpha",
        "Table 1",
        "On a trajectory, too, the error at which TD settles is of order alpha.",
        f"Slope of the exact stationary error in alpha above {1 - _NEAR:g}, on two chains.{_OURS}",
        _order(above=1 - _NEAR, quantity="floor", **_TD_MARKOV),
        agreement=_agreement("markov", "TD"),
        kind="universal",
        note="No factor log(1/alpha) is seen.",
    ),
    _claim(
        "td-markov-bias-alpha",
        "Table 1; after Lemma 1",
        "On a trajectory TD has a bias, the mean of xi = (theta - theta_star)^T (g_x(theta) - g(theta)), of order "
        "alpha or alpha log(1/alpha).",
        f"Slope of the exact |E xi| of the long run in alpha above {1 - _NEAR:g}, on two chains.{_OURS}",
        _order(above=1 - _NEAR, quantity="E xi", **_TD_MARKOV),
        kind="universal",
        note="Its sign depends on the chain. On the random MDP it is negative, and TD's error smaller than with "
        "independent samples. On the sticky states it is positive, and the error larger.",
    ),
    _claim(
        "small-step-slows-td",
        "Section 1; after Theorem 1",
        "A small step makes TD's error small, and TD slow.",
        f"Slope in alpha of the updates until TD's error is twice its floor below {-1 + _NEAR:g}, exact.{_OURS}",
        _order(below=-1 + _NEAR, quantity="updates to twice the floor"),
        agreement=_agreement("iid", "TD"),
        kind="universal",
    ),
    _claim(
        "vrtd-iid-variance-alpha-over-m",
        "Table 1; Theorem 1; Section 1.1",
        "With independent samples, the error at which VRTD settles is of order alpha/M.",
        f"Slopes of Algorithm 1's exact stationary error above {1 - _NEAR:g} in alpha and below {-1 + _NEAR:g} in M."
        + _OURS,
        _all(
            _order(above=1 - _NEAR, quantity="floor", against="alpha", **_VRTD_IID),
            _order(below=-1 + _NEAR, quantity="floor", against="M", **_VRTD_IID),
        ),
        agreement=_agreement("iid", "VRTD"),
        kind="universal",
        note="When epochs are long (alpha lambda_A M is large, as the theorem requires) it is of order 1/M, whatever "
        "the step. When they are short it is of order alpha, whatever M: about two thirds of TD's. In neither case is "
        "it of order alpha/M.",
    ),
    _claim(
        "vrtd-markov-variance-alpha-over-m",
        "Table 1; Section 1.1; Section 4.2, the inequality of one epoch",
        "On a trajectory, too, the variance error of VRTD, the term 3a/(lambda_A - 3a (1 + gamma)^2) "
        "E|g_m(theta_star)|^2 of its bound, is of order alpha/M.",
        f"Slopes of the exact term above {1 - _NEAR:g} in alpha, at the theorems' steps, and below {-1 + _NEAR:g} in "
        f"M, where M > 10/(1 - rho).{_OURS}",
        _all(
            _order(above=1 - _NEAR, quantity="variance term", against="alpha", **_VRTD_MARKOV),
            _order(below=-1 + _NEAR, quantity="variance term", against="M", **_VRTD_MARKOV),
        ),
        kind="universal",
        proof=_SECTION_5,
        note="The error itself has another part, the mean of xi over the iterates, which the paper calls bias and "
        "bounds by order 1/M: see the observation vrtd-markov-error-without-alpha.",
    ),
    _claim(
        "vrtd-markov-error-without-alpha",
        "Section 4.2",
        "On a trajectory the error at which VRTD settles, variance and bias together, does not vanish with the step "
        "when epochs are long.",
        f"Slope of Algorithm 2's stationary error in alpha below {_NEAR:g}: approximate, at the theorems' steps and "
        "wherever alpha lambda_A M > 20.",
        _all(
            *(
                _order(below=_NEAR, quantity="floor", against="alpha", range=name, **_VRTD_MARKOV)
                for name in (THEOREM, LONG_EPOCHS)
            )
        ),
        agreement=_agreement("markov", "VRTD"),
        kind="observation",
        note="The paper states the sum of both parts as order 1/M. The squared bias |E u|^2 of the estimate is less "
        "than a hundredth of the error on the tiny chain: what does not vanish is the variance of the solution of the "
        "batch equation, which the term with xi contains.",
    ),
    _claim(
        "vrtd-iid-floor-1-over-m",
        "After Theorem 1",
        "With independent samples, a larger batch makes VRTD's error as small as one wishes, at most in proportion to "
        "1/M.",
        f"Slope of Algorithm 1's exact stationary error in M below {-1 + _NEAR:g}, at the theorems' steps and wherever "
        "alpha lambda_A M > 20; beyond the statement, also where alpha lambda_A M < 0.1. What lies between, the "
        f"paper's figures among it, bends from one to the other and is left out.{_OURS}",
        _order(below=-1 + _NEAR, quantity="floor", against="M", **_VRTD_IID),
        agreement=_agreement("iid", "VRTD"),
        kind="universal",
        proof=_SECTION_1,
    ),
    _claim(
        "vrtd-markov-floor-1-over-m",
        "Table 1; Theorem 2",
        "On a trajectory, the error at which VRTD settles, variance and bias together, is of order 1/M.",
        f"Slope of Algorithm 2's stationary error in M below {-1 + _NEAR:g} at the theorems' steps, approximate. "
        "Beyond these, where nothing is proved: the same wherever alpha lambda_A M > 20, on a tiny chain exact, and "
        f"where alpha lambda_A M < 0.1.{_OURS}",
        _order(below=-1 + _NEAR, beyond=(SHORT_EPOCHS, LONG_EPOCHS), quantity="floor", against="M", **_VRTD_MARKOV),
        agreement=_agreement("markov", "VRTD"),
        kind="universal",
        proof=_SECTION_5,
    ),
    _claim(
        "vrtd-markov-bias-1-over-m",
        "Table 1; Lemma 1",
        "On a trajectory the bias of VRTD is of order 1/M.",
        f"Slope in M below {-1 + _NEAR:g} of the exact mean of xi over a batch from the worst state, theta being "
        f"fixed, and of the exact |E u| on a tiny chain.{_OURS}",
        _all(
            _order(below=-1 + _NEAR, quantity="E xi", **_VRTD_MARKOV),
            _order(below=-1 + _NEAR, quantity="|E u|", against="M", **_VRTD_MARKOV),
        ),
        kind="universal",
        note="The mean of the estimate is off by order 1/M only when epochs are long; when they are short, by order "
        "alpha, as TD's.",
    ),
    _claim(
        "vrtd-linear-convergence-iid",
        "Theorem 1; Abstract",
        "With independent samples, VRTD converges to a neighbourhood of theta_star at a linear rate.",
        _LINEAR.format("exact error of Algorithm 1"),
        _linear("iid"),
        kind="universal",
        proof=_SECTION_1,
    ),
    _claim(
        "vrtd-linear-convergence-markov",
        "Theorem 2; Abstract",
        "On a trajectory, VRTD converges to a neighbourhood of theta_star at a linear rate.",
        _LINEAR.format("approximate error of Algorithm 2"),
        _linear("markov"),
        agreement=_agreement("markov", "VRTD", "tuned"),
        kind="universal",
        proof=_SECTION_5,
    ),
    _claim(
        "td-iid-cost",
        "Table 1; Appendix on TD",
        f"With independent samples TD needs of order log(1/eps) / (eps lambda_A^2) pseudo-gradients, {_FIXED}",
        f"Exact cost at the best step: slope in 1/eps, without the logarithm, below {1 + _NEAR:g}; slope in 1/lambda_A "
        f"below {2 + _NEAR:g}.{_OURS}",
        _all(_order(below=1 + _NEAR, **_TARGETS, **_TD_IID), _order(below=2 + _NEAR, **_FALLING, **_TD_IID)),
        kind="universal",
        proof=_SECTION_7,
    ),
    _claim(
        "td-markov-cost",
        "Table 1; Appendix on TD",
        "On a trajectory TD needs of order log(1/eps)^2 / (eps lambda_A^2) pseudo-gradients for eps <= lambda_A, "
        + _FIXED,
        f"Exact cost at the best step: slope in 1/eps, without the logarithms, below {1 + _NEAR:g}; slope in "
        f"1/lambda_A below {2 + _NEAR:g}.{_OURS} The proof is for projected TD from a stationary first state; "
        "the projection is left out of the numbers, at a radius that is hardly ever reached.",
        _all(_order(below=1 + _NEAR, **_TARGETS, **_TD_MARKOV), _order(below=2 + _NEAR, **_FALLING, **_TD_MARKOV)),
        kind="universal",
        proof=_SECTION_7,
        note="An upper bound: one logarithm is enough. One of those in the proof is log(1/(eps lambda_A)), which is "
        "at most twice log(1/eps) for eps <= lambda_A.",
    ),
    _claim(
        "vrtd-iid-cost",
        "Table 1; Corollary 1",
        "With independent samples VRTD needs of order max(1/eps, 1/lambda_A^2) log(1/eps) pseudo-gradients: while "
        "lambda_A^2 is well above eps, the cost does not depend on it.",
        f"Exact cost at the best step and batch size: slope in 1/lambda_A below {_NEAR:g} at eps = 1e-5, where "
        f"lambda_A^2 > 100 eps; slope in 1/eps, without the logarithm, below {1 + _NEAR:g}.{_OURS}",
        _all(
            _order(below=_NEAR, range="eps = 1e-05", **_FALLING, **_VRTD_IID),
            _order(below=1 + _NEAR, **_TARGETS, **_VRTD_IID),
        ),
        kind="universal",
        note="In the long run no such method needs fewer than tr(A^-1 Sigma A^-T)/eps samples, and here that grows "
        "like 1/lambda_A^2. The order is 1/(eps lambda_A^2), as TD's, but without the logarithm: for small targets two "
        "or three epochs are best.",
    ),
    _claim(
        "vrtd-markov-cost",
        "Table 1; Corollary 2",
        "On a trajectory VRTD needs of order max(1/eps, 1/(eps lambda_A^2)) log(1/eps) pseudo-gradients, " + _FIXED,
        "Approximate cost at the best step and batch size: slope in 1/eps, without the logarithm, below "
        f"{1 + _NEAR:g}; slope in 1/lambda_A below {2 + _NEAR:g}.{_OURS}",
        _all(_order(below=1 + _NEAR, **_TARGETS, **_VRTD_MARKOV), _order(below=2 + _NEAR, **_FALLING, **_VRTD_MARKOV)),
        agreement=_agreement("markov", "VRTD", "tuned"),
        kind="universal",
        proof=_SECTION_5,
        note="An upper bound: for small targets two or three epochs are best, and there is no logarithm.",
    ),
    _claim(
        "vrtd-iid-beats-td-small-lambda",
        "Abstract; Section 1.1; after Corollary 1",
        "With independent samples VRTD needs fewer pseudo-gradients than TD if lambda_A is small.",
        "Exact cost of TD at its best step over that of VRTD at its best step and batch size, at the least lambda_A of "
        f"two families, above 1. {_SMALL}",
        _cheaper("iid", MIXED, GAMMAS),
        note="As the discount nears 1 the ratio does not depend on lambda_A. As features become alike it rises, for "
        "small targets only. In both it grows with log(1/eps).",
    ),
    _claim(
        "vrtd-markov-beats-td",
        "Abstract; Section 1.1; after Corollary 2",
        "On a trajectory VRTD needs fewer pseudo-gradients than TD.",
        "Exact cost of TD at its best step over the approximate one of VRTD at its best step and batch size, above 1. "
        f"{_SMALL}",
        _cheaper("markov", RANDOM, GAMMAS),
        agreement=_agreement("markov", "VRTD", "tuned"),
        note="Counted by samples VRTD is ahead sooner: an epoch evaluates 2M pseudo-gradients and draws M samples.",
    ),
    _claim(
        "vrtd-markov-log-factor",
        "Section 1.1; after Corollary 2",
        "On a trajectory TD's cost over that of VRTD grows like log(1/eps).",
        f"Slope of the ratio of tuned costs over log(1/eps), on logarithmic scales, within {_NEAR_LOGARITHM:g} of 1, a "
        f"criterion of ours. {_SMALL}",
        _order(
            above=1 - _NEAR_LOGARITHM,
            below=1 + _NEAR_LOGARITHM,
            method="TD / VRTD",
            against="log(1/eps)",
            sampling="markov",
        ),
        agreement=_agreement("markov", "VRTD", "tuned"),
        kind="universal",
        note="The reason is not TD's bias: TD needs one logarithm and VRTD none, with independent samples as well. The "
        "ratio is below 1 until the target is some 3e-7 of the initial error.",
    ),
)

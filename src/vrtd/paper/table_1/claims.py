"""Claims of Table 1 and of the texts on it, as statements on slopes and ratios."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

from vrtd.paper.evidence import NumberCheck, agrees
from vrtd.paper.experiment import ClaimTest, Evidence
from vrtd.paper.table_1.floors import LONG_EPOCHS, SHORT_EPOCHS, THEOREM
from vrtd.paper.table_1.settings import GAMMAS, MIXED, RANDOM
from vrtd.paper.table_1.slopes import MODERATE_TARGETS, SMALL_TARGET
from vrtd.tables import Tables, rows, rows_where

# Our criterion: a slope within NEAR of the claimed one is of that order. A slope may be below an upper bound by any
# amount.
NEAR = 0.15
LINEAR, INVERSE = 1 - NEAR, -1 + NEAR
AT_MOST_LINEAR, AT_MOST_SQUARE = 1 + NEAR, 2 + NEAR
# Tolerance that distinguishes log(1/eps) from a constant and from its square.
NEAR_LOGARITHM = 0.25
MOST_CONSTANT = 10.0
# Error of a slope over two decades, if the approximation is off by a tenth with opposite signs at the two ends.
_SLOPE_UNCERTAINTY = 0.05

NUMBERS = {
    "near": NEAR,
    "linear": LINEAR,
    "inverse": INVERSE,
    "at_most_linear": AT_MOST_LINEAR,
    "at_most_square": AT_MOST_SQUARE,
    "near_logarithm": NEAR_LOGARITHM,
    "most_constant": MOST_CONSTANT,
    "small_target": SMALL_TARGET,
}


def _check_slopes(
    where: dict[str, Any], above: float, below: float, beyond: tuple[str, ...], tables: Tables
) -> list[NumberCheck]:
    checks = []
    for row in rows(rows_where(tables["slopes"], **where)):
        if row["basis"] == "simulated":
            continue
        condition, what = f"{row['problem']}, {row['range']}", f"{row['quantity']} of {row['method']}"
        limits: dict[str, Any] = {"basis": row["basis"], "uncertainty": _SLOPE_UNCERTAINTY}
        limits["stated"] = row["range"] not in beyond
        if above > -inf:
            quantity = f"{what}: least slope in {row['against']}"
            checks.append(NumberCheck(condition, quantity, row["low"], above=above, **limits))
        if below < inf:
            quantity = f"{what}: largest slope in {row['against']}"
            checks.append(NumberCheck(condition, quantity, row["high"], below=below, **limits))
    return checks


def _order(
    where: dict[str, Any],
    above: float = -inf,
    below: float = inf,
    beyond: tuple[str, ...] = (SHORT_EPOCHS, MODERATE_TARGETS),
) -> Evidence:
    """Check all local slopes of all ranges against the limits; the ranges `beyond` are outside the statement."""
    return partial(_check_slopes, where, above, below, beyond)


def _all(*parts: Evidence) -> Evidence:
    return lambda tables: [comparison for part in parts for comparison in part(tables)]


def _agrees(where: dict[str, Any], kind: str = "floor") -> Evidence:
    """Check that simulated errors agree with the exact ones, or are close to the approximate ones."""

    def compare(tables: Tables) -> list[NumberCheck]:
        return [
            agrees(f"{row['method']}, alpha = {row['step_size']:.3g}, M = {row['batch_size']}", row)
            for row in rows(rows_where(tables["simulated"], kind=kind, **where))
        ]

    return compare


def _is_linear(sampling: str) -> Evidence:
    """Check that the error above the floor falls like radius^m; settings without a proof are not stated."""

    def compare(tables: Tables) -> list[NumberCheck]:
        checks = []
        for row in rows(rows_where(tables["rates"], sampling=sampling)):
            where = f"alpha = {row['step_size']:g}, M = {row['batch_size']:,}"
            rate, most = f"spectral radius of an epoch, {where}", f"largest (error - floor) / (first radius^m), {where}"
            is_stated = row["conditions_hold"] == "yes"
            condition = row["problem"] if is_stated else f"{row['problem']}, outside the conditions of the proof"
            rest: dict[str, Any] = {"basis": row["basis"], "stated": is_stated}
            checks += [
                NumberCheck(condition, rate, row["radius"], below=1.0, **rest),
                NumberCheck(condition, most, row["constant"], below=MOST_CONSTANT, **rest),
            ]
        return checks

    return compare


def _is_cheaper(sampling: str, *families: str) -> Evidence:
    """Check that tuned VRTD costs less than tuned TD, in each family at its smallest lambda_A.

    Small targets are stated; larger ones are tested beyond the statement.
    """

    def compare(tables: Tables) -> list[NumberCheck]:
        checks = []
        for family in families:
            part = rows_where(tables["costs"], family=family, sampling=sampling)
            part = rows_where(part, lambda_A=part["lambda_A"].min())
            td, vrtd = (rows(rows_where(part, method=method)) for method in ("TD", "VRTD"))
            for a, b in zip(td, vrtd, strict=True):
                condition, is_stated = f"{family}, eps = {a['target']:g}", a["target"] <= SMALL_TARGET
                quantity = f"cost of TD / cost of VRTD at lambda_A = {a['lambda_A']:.2g}"
                share, basis = a["cost"] / b["cost"], b["basis"]
                checks.append(NumberCheck(condition, quantity, share, above=1.0, basis=basis, stated=is_stated))
        return checks

    return compare


_TD_IID, _TD_MARKOV, _VRTD_IID, _VRTD_MARKOV = (
    {"sampling": sampling, "method": method} for method in ("TD", "VRTD") for sampling in ("iid", "markov")
)
_FLOOR, _XI = {"quantity": "floor"}, {"quantity": "E xi"}
_VARIANCE = {"quantity": "variance term"}
_IN_ALPHA, _IN_M = {"against": "alpha"}, {"against": "M"}
_FALLING = {"quantity": "cost", "problem": GAMMAS, "against": "1/lambda_A"}
_TARGETS = {"problem": RANDOM, "against": "1/eps"}
_RATIO = {"method": "TD / VRTD", "against": "log(1/eps)", "sampling": "markov"}
_TUNED = _agrees(_VRTD_MARKOV, "tuned")


def _has_order_alpha_over_m(quantity: dict[str, Any]) -> Evidence:
    return _all(_order(quantity | _IN_ALPHA, above=LINEAR), _order(quantity | _IN_M, below=INVERSE))


def _costs(method: dict[str, Any]) -> Evidence:
    return _all(
        _order(_TARGETS | method, below=AT_MOST_LINEAR),
        _order(_FALLING | method, below=AT_MOST_SQUARE),
    )


TESTS = {
    "td-variance-alpha": ClaimTest(_order(_FLOOR | _TD_IID, above=LINEAR), _agrees(_TD_IID)),
    "td-markov-error-alpha": ClaimTest(_order(_FLOOR | _TD_MARKOV, above=LINEAR), _agrees(_TD_MARKOV)),
    "td-markov-bias-alpha": ClaimTest(_order(_XI | _TD_MARKOV, above=LINEAR)),
    "small-step-slows-td": ClaimTest(
        _order({"quantity": "updates to twice the floor"}, below=INVERSE),
        _agrees(_TD_IID),
    ),
    "vrtd-iid-variance-alpha-over-m": ClaimTest(_has_order_alpha_over_m(_FLOOR | _VRTD_IID), _agrees(_VRTD_IID)),
    "vrtd-markov-variance-alpha-over-m": ClaimTest(_has_order_alpha_over_m(_VARIANCE | _VRTD_MARKOV)),
    "vrtd-markov-error-without-alpha": ClaimTest(
        _all(
            *(
                _order(_FLOOR | _IN_ALPHA | {"range": name} | _VRTD_MARKOV, below=NEAR)
                for name in (THEOREM, LONG_EPOCHS)
            )
        ),
        _agrees(_VRTD_MARKOV),
    ),
    "vrtd-iid-floor-1-over-m": ClaimTest(_order(_FLOOR | _IN_M | _VRTD_IID, below=INVERSE), _agrees(_VRTD_IID)),
    "vrtd-markov-floor-1-over-m": ClaimTest(
        _order(_FLOOR | _IN_M | _VRTD_MARKOV, below=INVERSE, beyond=(SHORT_EPOCHS, LONG_EPOCHS)),
        _agrees(_VRTD_MARKOV),
    ),
    "vrtd-markov-bias-1-over-m": ClaimTest(
        _all(
            _order(_XI | _VRTD_MARKOV, below=INVERSE),
            _order({"quantity": "|E u|"} | _IN_M | _VRTD_MARKOV, below=INVERSE),
        )
    ),
    "vrtd-linear-convergence-iid": ClaimTest(_is_linear("iid")),
    "vrtd-linear-convergence-markov": ClaimTest(_is_linear("markov"), _TUNED),
    "td-iid-cost": ClaimTest(_costs(_TD_IID)),
    "td-markov-cost": ClaimTest(_costs(_TD_MARKOV)),
    "vrtd-iid-cost": ClaimTest(
        _all(
            _order(_FALLING | {"range": "eps = 1e-05"} | _VRTD_IID, below=NEAR),
            _order(_TARGETS | _VRTD_IID, below=AT_MOST_LINEAR),
        )
    ),
    "vrtd-markov-cost": ClaimTest(_costs(_VRTD_MARKOV), _TUNED),
    "vrtd-iid-beats-td-small-lambda": ClaimTest(_is_cheaper("iid", MIXED, GAMMAS)),
    "vrtd-markov-beats-td": ClaimTest(_is_cheaper("markov", RANDOM, GAMMAS), _TUNED),
    "vrtd-markov-log-factor": ClaimTest(_order(_RATIO, above=1 - NEAR_LOGARITHM, below=1 + NEAR_LOGARITHM), _TUNED),
}

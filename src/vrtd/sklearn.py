"""The estimator `ValueRegressor` with the interface of a scikit-learn regressor."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import Floats, check_unmasked
from vrtd.checks import check_count
from vrtd.errors import DataError, MissingExtraError
from vrtd.estimator import Diagnostics, Evaluator, Intervals
from vrtd.estimator.auto_settings import Cost, default_pilot_rows
from vrtd.estimator.summary import Method
from vrtd.logs import Log, from_arrays

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.metrics import r2_score
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtraError("scikit-learn", "sklearn") from error

Column = ArrayLike | None  # one entry per row of X

_SETTINGS = ("algorithm", "discount", "step_size", "batch_size", "cost", "closed_form")  # same names in `Evaluator`
_KINDS = (np.float64, np.float32)  # other types are converted to the first


class ValueRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Linear value function estimator with the interface of a scikit-learn regressor.

    It is a `vrtd.Evaluator` whose rows of ``X`` are the features of states and whose targets ``y`` are rewards. The
    predictions are the values of states.

    Parameters
    ----------
    algorithm : str, default="auto"
        Learning algorithm. ``"auto"`` takes the closed form where ``cost`` allows it, and VRTD with growing batches
        otherwise. See `vrtd.Evaluator` for other choices.
    discount : float, default=0.95
        Discount factor gamma in [0, 1].
    step_size : float or "auto", default="auto"
        Step size of the algorithm. ``"auto"`` chooses it from the pilot rows.
    batch_size : int or "auto", default="auto"
        Batch size of VRTD. ``"auto"`` chooses it from the pilot rows.
    cost : {"auto", "linear", "quadratic"}, default="auto"
        Work and memory that are allowed per row, as a function of the number of features d. See `vrtd.Evaluator`.
    pilot_rows : int, default=None
        Number of rows from which ``"auto"`` chooses settings. The default is 5000, or 1000 with ``cost="linear"``.
    closed_form : bool, default=False
        Whether to compute the closed form of all rows too, if the algorithm is another one.
    random_state : int, RandomState instance or None, default=0
        Seed of the random numbers that the algorithm draws.

    Attributes
    ----------
    evaluator_ : Evaluator
        Fitted evaluator.
    n_features_in_ : int
        Number of columns of ``X``.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns of ``X``, if they are strings.

    Notes
    -----
    Without ``next_X``, row i + 1 of ``X`` follows row i, and the last row is dropped. A terminated row does not
    bootstrap and needs no successor. A truncated row bootstraps from its row of ``next_X``, and is dropped without
    ``next_X``.

    `fit` chooses settings for the rows that it receives, from at most ``pilot_rows`` of them. `partial_fit` does not
    know how many rows will come: values are 0 until it has received ``pilot_rows`` rows.

    Examples
    --------
    >>> import numpy as np
    >>> from vrtd.sklearn import ValueRegressor
    >>> states = np.eye(3)[np.arange(300) % 3]  # 0, 1, 2, 0, ...: row i + 1 follows row i
    >>> model = ValueRegressor("closed_form", discount=0.5).fit(states, y=states[:, 2])  # 1 for leaving state 2
    >>> model.predict(np.eye(3)).round(3).tolist()
    [0.286, 0.571, 1.143]
    """

    def __init__(
        self,
        algorithm: str = "auto",
        *,
        discount: float = 0.95,
        step_size: float | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        cost: Cost = "auto",
        pilot_rows: int | None = None,
        closed_form: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.algorithm = algorithm
        self.discount = discount
        self.step_size = step_size
        self.batch_size = batch_size
        self.cost = cost
        self.pilot_rows = pilot_rows
        self.closed_form = closed_form
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        next_X: Any = None,
        terminated: Column = None,
        truncated: Column = None,
        weight: Column = None,
    ) -> Self:
        """Learn from transitions, and discard what was learned before.

        If columns of ``X`` are linearly dependent, the parameters with the smallest norm are taken.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n, d)
            Features of the states that the transitions leave.
        y : array-like of shape (n,)
            Rewards of the transitions.
        next_X : {array-like, DataFrame} of shape (n, d), default=None
            Features of the states that the transitions reach. By default, row i + 1 of ``X`` follows row i.
        terminated : array-like of shape (n,), default=None
            Whether each row ends its episode without bootstrap.
        truncated : array-like of shape (n,), default=None
            Whether each row ends its episode with bootstrap from its row of ``next_X``.
        weight : array-like of shape (n,), default=None
            Importance ratios of the actions.

        Returns
        -------
        ValueRegressor
            The estimator itself.

        Raises
        ------
        DataError
            If no row has a successor.
        """
        steps = self._check_steps(True, X, y, next_X, terminated, truncated, weight)
        if steps.n_transitions == 0:
            raise DataError(
                f"No row has a successor, with n_samples = {len(steps.reward)}.",
                "Pass more rows or next_X, or mark the rows that terminate.",
            )
        self.evaluator_ = self._evaluator(steps.n_transitions).fit(steps.log)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        *,
        next_X: Any = None,
        terminated: Column = None,
        truncated: Column = None,
        weight: Column = None,
    ) -> Self:
        """Learn from more transitions.

        Calls do not continue each other: without ``next_X`` the last row of each call is dropped.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n, d)
            Features of the states that the transitions leave.
        y : array-like of shape (n,)
            Rewards of the transitions.
        next_X : {array-like, DataFrame} of shape (n, d), default=None
            Features of the states that the transitions reach. By default, row i + 1 of ``X`` follows row i.
        terminated : array-like of shape (n,), default=None
            Whether each row ends its episode without bootstrap.
        truncated : array-like of shape (n,), default=None
            Whether each row ends its episode with bootstrap from its row of ``next_X``.
        weight : array-like of shape (n,), default=None
            Importance ratios of the actions.

        Returns
        -------
        ValueRegressor
            The estimator itself.
        """
        is_first = "evaluator_" not in vars(self)
        steps = self._check_steps(is_first, X, y, next_X, terminated, truncated, weight)
        if is_first:
            self.evaluator_ = self._evaluator(None)
        self.evaluator_.partial_fit(steps.log)
        return self

    def predict(
        self, X: Any, return_interval: float | None = None, *, method: Method | None = None
    ) -> Floats | Intervals:
        """Predict the values of states.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n, d)
            Features of the states.
        return_interval : float, default=None
            Confidence level of intervals, for example 0.95. Without a level, only the values are returned.
        method : {"recursion", "closed_form"}, default=None
            Estimate that the intervals are for, see `vrtd.Evaluator.predict`.

        Returns
        -------
        ndarray of shape (n,), or Intervals
            Values, or with ``return_interval`` values and the bounds of their intervals.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=_KINDS, order="C")
        if return_interval is None:
            return self._values(rows)
        return self.evaluator_.predict(rows, return_interval=return_interval, method=method)

    def score(
        self, X: Any, y: Any, *, next_X: Any = None, terminated: Column = None, truncated: Column = None
    ) -> float:
        """Return R^2 of the values with respect to the discounted sums of the rewards that follow.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n, d)
            Features of the states that the transitions leave.
        y : array-like of shape (n,)
            Rewards of the transitions.
        next_X : {array-like, DataFrame} of shape (n, d), default=None
            Features of the states that the transitions reach. By default, row i + 1 of ``X`` follows row i.
        terminated : array-like of shape (n,), default=None
            Whether each row ends its episode without bootstrap.
        truncated : array-like of shape (n,), default=None
            Whether each row ends its episode with bootstrap from its row of ``next_X``.

        Returns
        -------
        float
            Coefficient of determination R^2.

        Notes
        -----
        The rows must be in the order of time. What follows the last row or a truncated row is not known, and its
        predicted value is used instead. Each row is weighted by the share of its sum that was observed. The sums are
        those of the policy that made the rows.
        """
        check_is_fitted(self)
        steps = self._check_steps(False, X, y, next_X, terminated, truncated)
        values = self._values(steps.observations)
        after = values if steps.next_observations is None else self._values(steps.next_observations)
        returns, shares = _returns(steps, values, after, self.evaluator_.discount)
        return float(r2_score(returns, values, sample_weight=shares))

    @property
    def coef_(self) -> Floats:
        """Parameters, an array of shape (d,)."""
        check_is_fitted(self)
        return self.evaluator_.theta_

    @property
    def diagnostics_(self) -> Diagnostics:
        """Diagnostics of the fit: whether it has converged, and the largest source of error."""
        check_is_fitted(self)
        return self.evaluator_.diagnostics_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # values do not predict rewards
        return tags

    def _values(self, rows: NDArray[Any]) -> Floats:
        return np.asarray(rows.astype(np.float64, copy=False) @ self.coef_)

    def _evaluator(self, n_rows: int | None) -> Evaluator:
        seed = self.random_state
        if not isinstance(seed, Integral):
            seed = check_random_state(seed).randint(2**31 - 1)
        pilot_rows = default_pilot_rows(self.cost) if self.pilot_rows is None else self.pilot_rows
        check_count("pilot_rows", pilot_rows)
        pilot_rows = pilot_rows if n_rows is None else min(pilot_rows, n_rows)
        options = {name: getattr(self, name) for name in _SETTINGS} | {"n_samples": n_rows, "pilot_rows": pilot_rows}
        return Evaluator(seed=seed, **options)

    def _check_steps(
        self, is_first: bool, X: Any, y: Any, next_X: Any, terminated: Column, truncated: Column, weight: Column = None
    ) -> _Steps:
        """Validate the arrays of a call. All get the type of the first X."""
        for name, value in (("X", X), ("y", y), ("next_X", next_X)):
            check_unmasked(name, value)
        kinds: Any = _KINDS if is_first else self._kind
        X, y = validate_data(self, X, y, reset=is_first, dtype=kinds, order="C", y_numeric=True)
        if is_first:
            self._kind: np.dtype[Any] = X.dtype
        if next_X is not None:  # any value is allowed in rows that terminate; the evaluator checks the others
            next_X = validate_data(self, next_X, reset=False, dtype=X.dtype, order="C", ensure_all_finite=False)
        log = from_arrays(X, y, next_X, terminated, truncated, weight)
        flags = [
            np.zeros(len(X), bool) if column is None else np.asarray(column).astype(bool).reshape(-1)
            for column in (terminated, truncated)
        ]
        return _Steps(log, X, np.asarray(y, np.float64), next_X, flags[0], flags[1])


class _Steps(NamedTuple):
    """Validated rows in the order of time."""

    log: Log
    observations: NDArray[Any]
    reward: Floats
    next_observations: NDArray[Any] | None
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]

    @property
    def ends(self) -> NDArray[np.bool_]:
        """Whether no row of X follows, for each row."""
        ends = self.terminated | self.truncated
        ends[-1] = True
        return ends

    @property
    def n_transitions(self) -> int:
        """Number of rows that have a successor or terminate."""
        if self.next_observations is not None:
            return len(self.reward)
        return int((self.terminated | ~self.ends).sum())


def _returns(steps: _Steps, values: Floats, after: Floats, discount: float) -> tuple[Floats, Floats]:
    """Return the discounted sums of rewards from each row on, and the share of each that was observed."""
    returns, shares = np.empty(len(values)), np.empty(len(values))
    has_next = steps.next_observations is not None
    total = share = 0.0
    ends, terminated, reward = steps.ends.tolist(), steps.terminated.tolist(), steps.reward.tolist()
    for i in range(len(values) - 1, -1, -1):
        if terminated[i]:
            total, share = reward[i], 1.0
        elif not ends[i]:
            total, share = reward[i] + discount * total, 1.0 - discount + discount * share
        elif has_next:
            total, share = reward[i] + discount * after[i], 1.0 - discount
        else:
            total, share = values[i], 0.0
        returns[i], shares[i] = total, share
    return returns, shares

"""Exceptions and warnings of vrtd."""

from __future__ import annotations

from typing import Any


class VrtdError(Exception):
    """Base class of all errors that vrtd raises on purpose."""


class InvalidInputError(VrtdError, ValueError):
    """Raised when an argument is invalid.

    Parameters
    ----------
    problem : str
        One sentence that says what is wrong and shows the value.
    remedy : str
        One sentence that says what to do.

    Examples
    --------
    >>> raise InvalidInputError("step_size must be positive, but is -0.1.", "Pass a number above 0.")
    Traceback (most recent call last):
    vrtd.errors.InvalidInputError: step_size must be positive, but is -0.1. Pass a number above 0.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem, self.remedy = problem, remedy

    def __reduce__(self) -> Any:  # errors are pickled on the way back from a worker process
        return type(self), (self.problem, self.remedy)


class ReducibleChainError(InvalidInputError):
    """Raised when a chain has several closed classes, and so no unique stationary distribution."""


class FeatureScaleError(InvalidInputError):
    """Raised when features are longer than a theorem assumes. Scaling them helps."""


class SingularSystemError(InvalidInputError):
    """Raised when a linear system does not have a unique solution."""


class UnstableStepError(InvalidInputError):
    """Raised when a quantity in the long run is asked for, but the mean squared error grows without bound."""


class AccuracyError(VrtdError, ArithmeticError):
    """Raised when a numerical result is less accurate than promised."""


class ResultFileError(VrtdError, ValueError):
    """Raised when a file is not a result written by vrtd, or is damaged."""


class ModelFileError(VrtdError, ValueError):
    """Raised when a file is not a model written by vrtd, or is damaged."""


class DataError(InvalidInputError):
    """Raised when a log or a data file cannot be used.

    The message names the file, the column and the row where possible.
    """


class NotFittedError(InvalidInputError):
    """Raised when an estimator is asked for a result before it has seen enough rows."""


class WorkerError(InvalidInputError):
    """Raised when a task fails on a worker process, or a worker process ends. The message names the task."""


class DeviceError(InvalidInputError):
    """Raised when a computation on a GPU is asked for, but no GPU can be used."""


class DivergenceError(VrtdError, ArithmeticError):
    """Raised when parameters are no longer finite, because the step size is too large for the data."""


class MissingExtraError(VrtdError, ImportError):
    """Raised when optional libraries are not installed. The message gives the command that installs them.

    Parameters
    ----------
    libraries : str or tuple of str
        Names of the missing libraries.
    extras : str or tuple of str
        Extras of vrtd that install them.

    Examples
    --------
    >>> raise MissingExtraError("matplotlib", "plot")
    Traceback (most recent call last):
    vrtd.errors.MissingExtraError: matplotlib is not installed. Run: pip install 'vrtd[plot]'
    """

    def __init__(self, libraries: str | tuple[str, ...], extras: str | tuple[str, ...]) -> None:
        self.libraries = (libraries,) if isinstance(libraries, str) else libraries
        self.extras = (extras,) if isinstance(extras, str) else extras
        *others, last = self.libraries
        missing = f"{', '.join(others)} and {last} are" if others else f"{last} is"
        super().__init__(f"{missing} not installed. Run: pip install 'vrtd[{','.join(self.extras)}]'")

    def __reduce__(self) -> Any:
        return type(self), (self.libraries, self.extras)


class StabilityWarning(UserWarning):
    """Issued when the step size exceeds the mean-square stability limit, so errors grow without bound."""


class AccuracyWarning(UserWarning):
    """Issued when a result has fewer correct digits than usual, because the problem is ill-conditioned."""


class ConvergenceWarning(UserWarning):
    """Issued when a result or an interval cannot be trusted.

    The rows change too slowly to estimate the uncertainty, or the initial transient is too large, or the run diverged.
    """


class DataWarning(UserWarning):
    """Issued when rows or features make the result doubtful: many rows were dropped, or no feature is constant."""

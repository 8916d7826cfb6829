"""The exceptions of vrtd: one tree, and messages that say what must hold, what came and what to do."""

from __future__ import annotations

from typing import Any


class VrtdError(Exception):
    """Base of every error that vrtd raises on purpose."""


class InvalidInputError(VrtdError, ValueError):
    """An argument breaks what must hold.

    >>> raise InvalidInputError("step_size must be positive", -0.1, "pass a number above 0")
    Traceback (most recent call last):
    vrtd.errors.InvalidInputError: step_size must be positive; got -0.1; pass a number above 0
    """

    def __init__(self, must: str, got: Any, do: str) -> None:
        super().__init__(f"{must}; got {got}; {do}")
        self.must, self.got, self.do = must, got, do

    def __reduce__(self) -> Any:  # so that the error survives the trip back from a worker process
        return type(self), (self.must, self.got, self.do)


class ReducibleChainError(InvalidInputError):
    """The chain has several closed classes, so it has no single stationary distribution."""


class FeatureScaleError(InvalidInputError):
    """Features are longer than a theorem assumes: scaling them mends it."""


class SingularSystemError(InvalidInputError):
    """A linear system that must have one solution has none or many."""


class AccuracyError(VrtdError, ArithmeticError):
    """A numerical result missed the accuracy that is promised for it."""


class ResultFileError(VrtdError, ValueError):
    """A file is not a result that vrtd wrote, or it is damaged."""


class ModelFileError(VrtdError, ValueError):
    """A file is not a model that vrtd wrote, or it is damaged."""


class DataError(InvalidInputError):
    """A log or a data file cannot be used: the message names the file, the column and the row where it can."""


class NotFittedError(InvalidInputError):
    """Something was asked of an estimator that has not seen the rows for it."""


class DivergenceError(VrtdError, ArithmeticError):
    """The parameters left the finite numbers: the step size is too large for these data."""


class MissingExtraError(VrtdError, ImportError):
    """Optional libraries are not installed; the message names the pip command.

    >>> raise MissingExtraError("matplotlib", "plot")
    Traceback (most recent call last):
    vrtd.errors.MissingExtraError: matplotlib is needed for this; it is not installed; run: pip install 'vrtd[plot]'
    """

    def __init__(self, libraries: str | tuple[str, ...], extras: str | tuple[str, ...]) -> None:
        self.libraries = (libraries,) if isinstance(libraries, str) else libraries
        self.extras = (extras,) if isinstance(extras, str) else extras
        missing = "are needed for this; they are" if len(self.libraries) > 1 else "is needed for this; it is"
        run = f"run: pip install 'vrtd[{','.join(self.extras)}]'"
        super().__init__(f"{', '.join(self.libraries)} {missing} not installed; {run}")

    def __reduce__(self) -> Any:
        return type(self), (self.libraries, self.extras)


class StabilityWarning(UserWarning):
    """The step size lies beyond the mean-square stability limit: expect errors that grow without bound."""


class AccuracyWarning(UserWarning):
    """A result has fewer correct digits than usual, because the problem is ill-conditioned."""


class ConvergenceWarning(UserWarning):
    """A result or an interval cannot be trusted.

    The run diverged or has not converged, or the rows are too strongly correlated to show how uncertain the result is.
    """


class DataWarning(UserWarning):
    """The rows or the features make the answer doubtful: many rows were dropped, or no feature is constant."""

"""The result of `evaluate`: values with intervals, diagnostics and the paths of the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vrtd.errors import VrtdError
from vrtd.estimator.answers import Answer
from vrtd.estimator.comparison import PolicyComparison
from vrtd.estimator.diagnostics import Diagnostics, to_json
from vrtd.estimator.evaluator import Evaluator
from vrtd.estimator.means import ReturnCheck
from vrtd.estimator.model_file import feature_settings
from vrtd.estimator.state_values import n_states_of
from vrtd.features import Features, TargetFeatures
from vrtd.features.specs import describe_kind
from vrtd.files import advise
from vrtd.report.notebook import build_summary

FILES = {
    "report": "report.html",
    "model": "model.npz",
    "values": "values.parquet",
    "diagnostics": "diagnostics.json",
}


@dataclass(frozen=True)
class Evaluation:
    """Result of `evaluate`.

    Attributes
    ----------
    out : Path
        The folder with the report and its files.
    target : str or None
        The name of the target policy; None if the evaluated policy is the one that generated the rows.
    policy_value : Answer or None
        The value averaged over the first states of episodes; None if the log has fewer than two episodes.
    mean_value : Answer
        The value averaged over the visited states, weighted by visit counts.
    closed_form : Answer or None
        The same quantity as ``answer`` from the closed form, if another algorithm gave ``answer``.
    returns : ReturnCheck or None
        The comparison of the values of first states with the returns of their episodes; None if it is not possible.
    comparison : PolicyComparison or None
        The comparison with another policy, if one was passed.
    diagnostics : Diagnostics
        Convergence, error sources and warnings.
    interrupted : bool
        Whether Ctrl-C ended the evaluation before all rows were read.
    roles : mapping of str to tuple of str
        The columns of the log from which each field was read.
    evaluator : Evaluator
        The fitted evaluator.
    """

    out: Path
    target: str | None
    policy_value: Answer | None
    mean_value: Answer
    closed_form: Answer | None
    returns: ReturnCheck | None
    comparison: PolicyComparison | None
    diagnostics: Diagnostics
    interrupted: bool
    roles: Mapping[str, tuple[str, ...]]
    evaluator: Evaluator

    @property
    def answer(self) -> Answer:
        """The policy value, or the mean value if the log has no episodes."""
        return self.policy_value or self.mean_value

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the result.

        If two policies are compared, a warning about one of them begins with its name.
        """
        own, compared = self.diagnostics.warnings, self.comparison
        if compared is None:
            return own
        common = tuple(warning for warning in own if warning in compared.warnings)
        return (
            *common,
            *(f"{compared.name}: {warning}" for warning in own if warning not in common),
            *(f"{compared.other}: {warning}" for warning in compared.warnings if warning not in common),
        )

    @property
    def features(self) -> str:
        """The kind of the features, with the number of visited states or the rank."""
        kind, d = describe_kind(self.feature_settings), self.diagnostics
        n_states = n_states_of(self.evaluator.features)
        if n_states is not None:
            most = "" if d.lists_all_unseen else "at most "
            return f"{kind}, {most}{n_states - len(d.unseen):,} of {n_states:,} states visited"
        return f"{kind}, {d.n_features:,} of them" if d.rank is None else f"{kind}, rank {d.rank} of {d.n_features}"

    @property
    def feature_settings(self) -> dict[str, Any]:
        """The settings of the features as plain values; empty for features that are your own code."""
        features = self.evaluator.features
        settings = feature_settings(features)
        if settings is None and isinstance(features, TargetFeatures) and isinstance(features.features, Features):
            inside = feature_settings(features.features)
            return {} if inside is None else {"kind": "target", "features": inside, "n_actions": features.n_actions}
        return settings or {}

    @property
    def files(self) -> dict[str, Path]:
        """The paths of the files, by kind: "report", "model", "values" and "diagnostics"."""
        return {kind: self.out / name for kind, name in FILES.items()}

    @property
    def report(self) -> Path:
        """The path of the report."""
        return self.files["report"]

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain values that can be written as JSON.

        Returns
        -------
        dict
            The estimates, the comparison, the diagnostics and the paths of the files.
        """
        return {
            "target": self.target,
            "actions": list(self.evaluator.actions_),
            "policy_value": None if self.policy_value is None else to_json(asdict(self.policy_value)),
            "mean_value": to_json(asdict(self.mean_value)),
            "closed_form": None if self.closed_form is None else to_json(asdict(self.closed_form)),
            "returns": None if self.returns is None else _as_dict(self.returns),
            **({"against": None, "difference": None} if self.comparison is None else self.comparison.as_dict()),
            "interrupted": self.interrupted,
            "columns": {field: list(names) for field, names in self.roles.items()},
            "diagnostics": self.diagnostics.as_dict(),
            "files": {kind: str(path) for kind, path in self.files.items()},
        }

    def __repr__(self) -> str:
        verdict = {True: "converged", False: "not converged", None: "convergence unknown"}[self.diagnostics.converged]
        compared = "" if self.comparison is None else f"{self.comparison.verdict}; "
        return f"Evaluation({compared}{self.answer.name} {self.answer}; {verdict}; {self.report})"

    def _repr_html_(self) -> str:
        entries = {
            "comparison": "" if self.comparison is None else self.comparison.verdict,
            "policy value": "" if self.policy_value is None else str(self.policy_value),
            "mean value": str(self.mean_value),
            "diagnosis": self.diagnostics.text,
            "report": str(self.report),
        }
        return build_summary("Evaluation", entries, self.diagnostics.plot if self.diagnostics.curve else None)


class ReportError(VrtdError):
    """Raised by `evaluate` if the report cannot be drawn or written after the values were learned.

    Parameters
    ----------
    evaluation : Evaluation
        The evaluation.
    cause : Exception
        The error.
    kept : sequence of str
        The names of the files that were written before the error.
    """

    def __init__(self, evaluation: Evaluation, cause: Exception, kept: Sequence[str]) -> None:
        self.evaluation, self.cause, self.kept = evaluation, cause, tuple(kept)
        what = f"{', '.join(kept)} are in {evaluation.out}." if kept else f"{evaluation.out} is as it was before."
        advice = f" {advise(cause)}" if isinstance(cause, OSError) else ""
        super().__init__(f"The report could not be written: {_describe(cause)}. {what}{advice}")

    def __reduce__(self) -> Any:
        return type(self), (self.evaluation, self.cause, self.kept)


class EvaluationInterrupted(KeyboardInterrupt):
    """Raised by `evaluate` after Ctrl-C, once what was learned from the rows read so far is written.

    Parameters
    ----------
    evaluation : Evaluation
        The evaluation of the rows read so far.
    """

    def __init__(self, evaluation: Evaluation) -> None:
        super().__init__(f"interrupted after {evaluation.diagnostics.n_rows:,} rows")
        self.evaluation = evaluation


def _describe(cause: Exception) -> str:
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return f"{cause}".rstrip(".") if isinstance(cause, VrtdError) else f"{type(cause).__name__}: {cause}".rstrip(".: ")


def _as_dict(returns: ReturnCheck) -> dict[str, Any]:
    numbers = {"mean_return": returns.mean_return._asdict(), "difference": returns.difference._asdict()}
    plain: dict[str, Any] = to_json(returns._asdict() | numbers | {"agrees": returns.agrees})
    return plain

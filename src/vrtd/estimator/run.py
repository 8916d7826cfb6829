"""One fit: from the chunks of a log to features, settings, learned parameters and the sample beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError, DivergenceError, InvalidInputError, NotFittedError
from vrtd.estimator.chunks import check_chunk, copied, ends_of, fields_of, part_of, seen_in, without_final_states
from vrtd.estimator.learner import Learner
from vrtd.estimator.least_squares import LeastSquares
from vrtd.estimator.pilot import Pilot, rows_that_fit
from vrtd.estimator.rows import NO_WEIGHT, NotFiniteError, Rows, first_not_finite, is_finite, read_only, without_final
from vrtd.estimator.schedule import Schedule
from vrtd.features import Features, Identity, Tabular, from_settings
from vrtd.logs import Chunk

__all__ = ["Run"]

Floats = NDArray[np.float64]

# Features of so many bytes are computed at once; rows that are features already are only pointed at.
_PIECE_BYTES, _VIEW_BYTES = 1 << 23, 1 << 26
_FIELDS = {"phi": "observations", "phi_next": "next_observations", "reward": "rewards", "weight": "weight"}


class Run:
    """Rows received so far and what became of them. A piece that raises leaves no trace."""

    def __init__(
        self,
        schedule: Schedule,
        given: Features,
        discount: float,
        theta_0: Floats | None,
        closed_form: bool,
        seed: int,
    ) -> None:
        self.schedule, self._given, self._discount, self._theta_0 = schedule, given, discount, theta_0
        self._closed_form, self._seed = closed_form, seed
        self._is_weighted: bool | None = None
        self._clear()

    def _clear(self) -> None:
        """As before the first row."""
        self.features: Features | None = None  # when they are bound
        self.learner: Learner | None = None
        self.least_squares: LeastSquares | None = None
        self.visited: NDArray[np.bool_] | None = None  # states, where features are a table of them
        self.n_rows = self.n_sampled = self.n_distinct = 0
        self.repeats = False  # whether the rows that come are those of the first pass again
        self._terminates = False  # whether a transition has
        self._waiting: list[Chunk] = []  # rows before features or settings are decided
        self._room: Rows | None = None  # for the sample
        self._seen: list[tuple[NDArray[Any], NDArray[Any]]] = []  # observations of the sample
        self._is_checked = False
        self._most_sampled = 1  # until the number of features is known
        self._looked: Pilot | None = None  # the sample when it was looked at last
        self._first: Pilot | None = None  # the pilot rows, on which settings rest
        self.n_pilot: int | None = None  # how many rows waited before features and settings were decided

    def receive(self, chunk: Chunk, tell: Callable[[], None] | None = None) -> None:
        """Learn from the chunk, piece by piece; `tell` is called after each."""
        check_chunk(chunk)
        self._check_weight(chunk)
        if self.features is None and not self.schedule.needs_pilot and not self._given.needs_data:
            self._begin(self._given.bind(chunk.observations))
        if self.features is None:
            missing = self.schedule.pilot_rows - self.n_rows
            if not self._wait(part_of(chunk, 0, missing)):
                return
            chunk = part_of(chunk, missing, len(chunk.rewards))
        at, n = 0, len(chunk.rewards)
        while at < n:
            last = min(n, at + self._piece)
            self._learn(part_of(chunk, at, last))
            at = last
            if tell is not None:
                tell()

    def _begin(self, features: Features) -> None:
        d = features.n_features
        if self._theta_0 is not None and self._theta_0.shape != (d,):
            raise InvalidInputError(f"theta_0 must have the shape ({d},)", self._theta_0.shape, "one for each feature")
        self.features = features
        self.visited = np.zeros(d, bool) if isinstance(features, Tabular) else None
        room = _VIEW_BYTES if isinstance(features, Identity) else _PIECE_BYTES
        self._piece = max(1024, room // (8 * d))

    def _wait(self, chunk: Chunk) -> bool:
        """Keep the rows until the pilot is whole; then bind the features, decide on the settings, and learn. Returns
        whether it was whole."""
        self._check_finite(chunk)
        if self._waiting and chunk.observations.shape[1:] != self._waiting[0].observations.shape[1:]:
            raise DataError(
                f"observations must have one shape, {self._waiting[0].observations.shape[1:]} a row",
                chunk.observations.shape[1:],
                "keep observations of different shapes apart",
            )
        chunks = [*self._waiting, copied(chunk)]
        n_rows = self.n_rows + len(chunk.rewards)
        if n_rows < self.schedule.pilot_rows:
            self._waiting, self.n_rows = chunks, n_rows
            return False
        self._decide(chunks, n_rows)
        return True

    def decide(self) -> None:
        """Bind the features and decide on the settings with the rows that wait: no more will come."""
        if not self._waiting:
            return
        announced, self.schedule.n_samples = self.schedule.n_samples, self.n_rows
        try:
            self._decide(self._waiting, self.n_rows)
        except BaseException:
            self.schedule.n_samples = announced
            raise

    def _decide(self, chunks: list[Chunk], n_rows: int) -> None:
        """Bind the features, decide on the settings, and learn from rows that waited."""
        before, n_remarks = (self._waiting, self.n_rows), len(self.schedule.remarks)
        self._waiting, self.n_rows = [], 0
        try:
            self._begin(self._given.bind(seen_in(chunks)))
            self.n_pilot = n_rows
            if self.schedule.needs_pilot:
                for chunk in chunks:
                    rows = self._rows(chunk)
                    self._sample(without_final(rows) or rows, chunk)
                self._check_pilot()
            for chunk in chunks:
                self._learn(chunk)
        except BaseException:  # as if these rows had not come
            self._clear()
            self._waiting, self.n_rows = before
            del self.schedule.remarks[n_remarks:]
            raise

    def _check_finite(self, chunk: Chunk) -> None:
        """Of rows that wait, so that whoever brought a bad one is told."""
        used = chunk.next_observations if not chunk.terminated.any() else chunk.next_observations[~chunk.terminated]
        weight = NO_WEIGHT if chunk.weight is None else chunk.weight
        if all(np.isfinite(values).all() for values in (chunk.observations, used, chunk.rewards, weight)):
            return
        n = len(chunk.rewards)
        flat = (chunk.observations.reshape(n, -1), chunk.next_observations.reshape(n, -1))
        rows = Rows(*flat, chunk.rewards, chunk.terminated, chunk.terminated, weight)
        raise self._explained(without_final(rows) or rows, chunk)

    def _rows(self, chunk: Chunk) -> Rows:
        assert self.features is not None
        observations, successors = chunk.observations, chunk.next_observations
        if not isinstance(self.features, Identity):
            successors = without_final_states(chunk)  # a terminal state need not be one that features know
        phi = self._applied(self.features, observations, "observations", chunk)
        phi_next = self._applied(self.features, successors, "next_observations", chunk)
        weight = NO_WEIGHT if chunk.weight is None else chunk.weight
        return Rows(*map(read_only, (phi, phi_next, chunk.rewards, chunk.terminated, ends_of(chunk), weight)))

    def _applied(self, features: Features, observations: NDArray[Any], field: str, chunk: Chunk) -> NDArray[Any]:
        """Feature rows; what the features refuse is located in the log."""
        try:
            return features(observations)
        except DataError as error:
            low, high = 0, len(observations)  # rows before `low` are fine, those before `high` are not
            while high - low > 1:
                middle = (low + high) // 2
                try:
                    features(observations[:middle])
                    low = middle
                except DataError:
                    high = middle
            where = self._place(field, low, chunk)
            raise DataError(error.must, f"{error.got} of a piece of the log ({where})", error.do) from error

    def _learn(self, chunk: Chunk) -> None:
        rows = self._rows(chunk)
        if self._room is not None and rows.phi.dtype != self._room.phi.dtype:
            raise DataError(
                f"all parts of a log must be of one type, {self._room.phi.dtype}", rows.phi.dtype, "convert them"
            )
        try:
            self._feed(rows, chunk)
        except NotFiniteError:
            cleaned = without_final(rows)
            if cleaned is None:
                raise self._explained(rows, chunk) from None
            try:
                self._feed(cleaned, chunk)
            except NotFiniteError:
                raise self._explained(cleaned, chunk) from None
        if self.visited is not None:
            self.visited[chunk.observations.reshape(-1).astype(np.int64)] = True

    def _explained(self, rows: Rows, chunk: Chunk) -> Exception:
        place = first_not_finite(rows)
        if place is None:
            assert self.learner is not None
            if self.schedule.chooses_step:
                return DivergenceError(
                    f"the parameters must stay finite; got others after {self.n_rows:,} rows with the step that "
                    "'auto' chose; scale features and rewards, or take the closed form: algorithm='lstd'"
                )
            step = self.learner.legs[-1].algorithm.largest_step_size
            if step is None:
                return DivergenceError(
                    f"the parameters must stay finite; got {self.learner.legs[-1].algorithm!r}, with which they left "
                    f"them after {self.n_rows:,} rows; scale features and rewards, or change its settings"
                )
            return DivergenceError(
                f"the step size must let the parameters stay finite; got {step:g}, with which they left them after "
                f"{self.n_rows:,} rows; lower it, or let step_size='auto' choose"
            )
        field, row = _FIELDS[place[0]], place[1]
        where = self._place(field, row, chunk)
        return DataError("every number of a log must be finite", f"another in {field}: {where}", "repair or drop it")

    def _place(self, field: str, row: int, chunk: Chunk) -> str:
        return f"row {self.n_rows + row} of the log" if chunk.locate is None else chunk.locate(field, row)

    def _feed(self, rows: Rows, chunk: Chunk) -> None:
        """Nothing changes when it raises."""
        if self._discount == 1.0 and self.n_rows + len(rows.reward) >= self.schedule.pilot_rows:
            self.check_ends(rows.terminated[: max(0, self.schedule.pilot_rows - self.n_rows)])  # however they are split
        if self.schedule.is_closed_form:
            if not is_finite(rows):
                raise NotFiniteError
        else:
            self._feed_learner(rows, chunk)
        if self._closed_form and not self.repeats:
            if self.least_squares is None:
                self.least_squares = LeastSquares(self._discount, self.start())
            self.least_squares.feed(rows)
        self._sample_to(len(rows.reward), rows, chunk)
        self.n_rows += len(rows.reward)
        if self._discount == 1.0:
            self._terminates = self._terminates or bool(rows.terminated.any())
        if not self.repeats:
            self.n_distinct = self.n_rows
        if not self._is_checked and self.n_sampled >= min(self.schedule.pilot_rows, self._most_sampled):
            self._check_pilot()

    def _sample_to(self, last: int, rows: Rows, chunk: Chunk) -> None:
        """Keep rows up to `last` of the piece, but for those that are kept already, as pilot rows are."""
        if not self.repeats and self.n_sampled < min(self.n_rows + last, self._most_sampled):
            self._sample(rows, chunk, max(0, self.n_sampled - self.n_rows), last)

    def _feed_learner(self, rows: Rows, chunk: Chunk) -> None:
        if self.learner is None:
            self.learner = self.schedule.begin(
                self._look() if self.schedule.needs_pilot else None,
                self._discount,
                self.start(),
                self._seed,
                bool(rows.weight.size),
            )
        at, n = 0, len(rows.reward)
        while at < n:
            if self.learner.rows_left == 0:
                self._sample_to(at, rows, chunk)
                self.schedule.go_on(self.learner, self.pilot(), self.start())
            left = self.learner.rows_left
            if left is not None and left < n - at and not is_finite(rows):  # a leg must not end before a bad row
                raise NotFiniteError
            last = n if left is None else min(n, at + left)
            self.learner.feed(rows if last - at == n else rows.part(at, last))
            at = last

    def start(self) -> Floats:
        """theta_0"""
        if self._theta_0 is not None:
            return self._theta_0.copy()
        features = self.usable_features
        if features is None:
            raise NotFittedError("an evaluator must have seen rows", "none", "call fit or partial_fit, or pass theta_0")
        return np.zeros(features.n_features)

    @property
    def usable_features(self) -> Features | None:
        """The features, also before the pilot rows have come if they take nothing from data."""
        if self.features is None and self._waiting and not self._given.needs_data:
            return self._given.bind(self._waiting[0].observations)
        return self.features

    def _sample(self, rows: Rows, chunk: Chunk, skip: int = 0, last: int | None = None) -> None:
        """Keep the first rows, and their observations: of these the ones from `skip` to `last`."""
        if self._room is None:
            self._most_sampled = rows_that_fit(rows.phi.shape[1], chunk.observations[:1].nbytes)
            self._room = rows.empty_like(self._most_sampled)
        last = min(len(rows.reward) if last is None else last, skip + self._most_sampled - self.n_sampled)
        self._room.put(self.n_sampled, rows.part(skip, last))
        self._seen.append((chunk.observations[skip:last].copy(), without_final_states(chunk)[skip:last].copy()))
        self.n_sampled += last - skip

    def _look(self) -> Pilot:
        """The pilot rows, once they have come: settings rest on these and no others."""
        if self._first is None:
            self._first = self._as_pilot(min(self.schedule.pilot_rows, self.n_sampled))
        return self._first

    def check_ends(self, terminated: NDArray[np.bool_] | None = None) -> None:
        """Refuse a discount of 1 where nothing terminates, neither before nor in these rows."""
        if self._discount == 1.0 and not self._terminates and not (terminated is not None and terminated.any()):
            raise InvalidInputError(
                "discount 1 needs episodes that end: values of a process that goes on are infinite",
                "a log in which no transition terminates",
                "lower the discount, or mark the rows that terminate",
            )

    def _check_weight(self, chunk: Chunk) -> None:
        """Importance ratios are there for all rows, or for none."""
        if self._is_weighted is None:
            self._is_weighted = chunk.weight is not None
        if self._is_weighted != (chunk.weight is not None):
            has = "weights" if chunk.weight is not None else "no weights"
            raise DataError("all parts of a log must have weights, or none", f"a part with {has}", "add weights of 1")
        if chunk.weight is not None and (chunk.weight < 0.0).any():
            row = int(np.argmax(chunk.weight < 0.0))
            where = self._place("weight", row, chunk)
            raise DataError("weights must not be negative", f"{chunk.weight[row]}: {where}", "repair or drop that row")

    def _check_pilot(self) -> None:
        """What is warned of when the pilot rows have come."""
        rows = self.sample.part(0, self.schedule.pilot_rows)
        step = self.schedule.given_step
        if step is not None and not _is_surely_stable(step, rows, self._discount):
            self.schedule.check(step, self._look())
        self._is_checked = True

    def _as_pilot(self, n_rows: int) -> Pilot:
        if self._room is None:
            raise NotFittedError("an evaluator must have seen rows", "none", "call fit or partial_fit")
        self._seen = [tuple(np.concatenate(part) for part in zip(*self._seen, strict=True))]  # type: ignore[list-item]
        observations, next_observations = self._seen[0]
        seen = observations[:n_rows], next_observations[:n_rows]
        return Pilot(self._room.part(0, n_rows), seen, self._discount, self.start())

    def pilot(self) -> Pilot:
        """The sample as it is now."""
        if self._looked is None or len(self._looked) < self.n_sampled:
            self._looked = self._as_pilot(self.n_sampled)
        return self._looked

    def recent_pilot(self) -> Pilot:
        """The sample as it was when it had at least half of its present rows: renewed seldom, for frequent checks."""
        if self._looked is None or 2 * len(self._looked) < self.n_sampled:
            return self.pilot()
        return self._looked

    @property
    def sample(self) -> Rows:
        """The first rows, as many as are kept."""
        if self._room is None:
            raise NotFittedError("an evaluator must have seen rows", "none", "call fit or partial_fit")
        return self._room.part(0, self.n_sampled).sealed()

    def stored(self) -> dict[str, Any]:
        """Everything that it takes to go on as if it had never stopped."""
        return {
            "features": None if self.features is None else settings_of(self.features),
            "n_rows": self.n_rows,
            "n_distinct": self.n_distinct,
            "terminates": self._terminates,
            "is_weighted": self._is_weighted,
            "n_pilot": self.n_pilot,
            "decisions": self.schedule.remarks,
            "learner": None if self.learner is None else self.learner.stored(),
            "least_squares": None if self.least_squares is None else self.least_squares.stored(),
            "sample": None if self._room is None else self.sample._asdict() | self._stored_observations(),
            "waiting": {str(k): fields_of(chunk) for k, chunk in enumerate(self._waiting)},
            **({} if self.visited is None else {"visited": self.visited}),
        }

    def _stored_observations(self) -> dict[str, Any]:
        return dict(zip(("observations", "next_observations"), self.pilot().observations, strict=True))

    def restore(self, tree: Mapping[str, Any]) -> None:
        self.n_rows, self.n_distinct = int(tree["n_rows"]), int(tree["n_distinct"])
        self._terminates, self._is_weighted = bool(tree["terminates"]), tree["is_weighted"]
        self.n_pilot = None if tree["n_pilot"] is None else int(tree["n_pilot"])
        self.schedule.remarks[:] = [str(remark) for remark in tree["decisions"]]
        self._waiting = [Chunk(**chunk) for chunk in tree["waiting"].values()]
        for chunk in self._waiting:
            check_chunk(chunk)
        if tree["sample"] is None:  # nothing was begun
            return
        stored = tree["features"]
        seen = tree["sample"]["observations"], tree["sample"]["next_observations"]
        if stored is None:
            n_pilot = self.schedule.pilot_rows if self.n_pilot is None else self.n_pilot
            self._begin(self._given.bind(_pilot_of(tree["sample"], self._given, n_pilot)))
        else:
            self._begin(from_settings(stored))
        assert self.features is not None
        d = self.features.n_features
        rows = Rows.stored(tree["sample"], d).sealed()
        chunk = Chunk(seen[0], rows.reward, seen[1], rows.terminated, rows.terminated)
        check_chunk(chunk)
        self._sample(rows, chunk)
        self._is_checked = self.n_sampled >= min(self.schedule.pilot_rows, self._most_sampled)
        if tree["learner"] is not None:
            self.learner = Learner.restored(tree["learner"], self._discount, rows)
        if tree["least_squares"] is not None:
            self.least_squares = LeastSquares.restored(tree["least_squares"], self._discount, self.start())
        if self.visited is not None:
            self.visited[:] = tree["visited"]


def _is_surely_stable(step: float, rows: Rows, discount: float) -> bool:
    """A condition that costs little: if a |phi|^2 (1 + gamma)^2 <= 2 (1 - gamma), the second moment of TD does not grow
    on independent rows of the policy itself. What it does not settle is looked at closely."""
    largest = max(float(np.einsum("ni,ni->n", table, table).max()) for table in (rows.phi, rows.phi_next))
    return not rows.weight.size and step * largest * (1.0 + discount) ** 2 <= 2.0 * (1.0 - discount)


def settings_of(features: Features) -> dict[str, Any] | None:
    """As plain values, or None where they are of the user's own code."""
    try:
        return features.settings
    except InvalidInputError:
        return None


def _pilot_of(sample: Mapping[str, Any], features: Features, pilot_rows: int) -> NDArray[Any]:
    """What features of the user's own code took from data they take again, from the same rows."""
    n = len(sample["reward"])
    if features.needs_data and n < pilot_rows:
        raise InvalidInputError(
            "features of the user's own code must be fitted when a model with more pilot rows than it keeps is loaded",
            f"{n:,} of {pilot_rows:,} pilot rows",
            "pass features=evaluator.features of the evaluator that was saved",
        )
    names = ("observations", "reward", "next_observations", "terminated", "terminated")
    return seen_in([part_of(Chunk(*(sample[name] for name in names)), 0, pilot_rows)])

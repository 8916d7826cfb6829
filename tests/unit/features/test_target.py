"""Target policies, and features of states and actions against plain loops."""

import json

import numpy as np
import pytest

from vrtd.errors import DataError, InvalidInputError
from vrtd.features import (
    Fourier,
    FromFunction,
    FromPairs,
    Identity,
    ObservationSpace,
    RandomFourier,
    Selected,
    Stack,
    Standardised,
    Table,
    Tabular,
    TargetFeatures,
    as_pair_features,
    as_target,
    complete,
    from_settings,
)
from vrtd.features.specs import describe_kind

RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(700, 2))
ACTIONS = RNG.integers(0, 3, 700)
MATRIX = RNG.normal(size=(2, 3))
TABLE = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.1, 0.2, 0.7]])


def softmax(s):
    weights = np.exp(s @ MATRIX)
    return weights / weights.sum(axis=1, keepdims=True)


def greedy(s):
    return np.argmax(s @ MATRIX, axis=1)


def both(s, a):
    return np.column_stack([s, s * (1 + np.reshape(a, (len(s), -1))[:, :1])])


class Model:
    """Predicts as Stable-Baselines does."""

    def predict(self, observations):
        return greedy(observations), None


def make(policy, features=None):
    return TargetFeatures(as_pair_features(features), as_target(policy))


@pytest.mark.parametrize("policy", [greedy, Model()])
def test_actions_have_probability_one(policy):
    target = as_target(policy)
    p = np.eye(4)[greedy(POINTS)]
    assert np.array_equal(target.probabilities(POINTS, 4), p)
    assert np.array_equal(target.probability_of(POINTS, ACTIONS), p[np.arange(700), ACTIONS])
    assert target.probabilities(POINTS[:0], 4).shape == (0, 4)


def test_a_column_of_integers_has_actions():
    """Read as probabilities, ones would say that action 0 is always taken."""
    assert as_target([0, 0]).probability_of(np.arange(2), np.arange(2)).tolist() == [1.0, 0.0]
    ones = np.ones((700, 1), np.int64)
    for policy, observations in ((lambda s: ones[: len(s)], POINTS), (ones, np.arange(700))):
        target = as_target(policy)
        assert np.array_equal(target.probabilities(observations, 2), np.eye(2)[ones[:, 0]])
        assert np.array_equal(target.probability_of(observations, ACTIONS), ACTIONS == 1)


def test_probabilities_of_float32_may_miss_1():
    off = np.array([[0.5, 0.5 + 4.5e-6]])
    assert as_target(lambda s: np.repeat(off, len(s), axis=0)).probabilities(POINTS, 2).sum(axis=1).max() <= 1 + 1e-15


def test_probabilities_are_normalised_and_filled_with_zeros():
    target = as_target(lambda s: softmax(s).astype(np.float32))
    p = target.probabilities(POINTS, 5)
    assert p == pytest.approx(np.pad(softmax(POINTS), ((0, 0), (0, 2))), abs=1e-6)
    assert p.sum(axis=1) == pytest.approx(np.ones(700), abs=1e-15)
    beyond = np.where(ACTIONS == 2, 4, ACTIONS)  # an action that the policy does not know
    assert np.array_equal(target.probability_of(POINTS, beyond), p[np.arange(700), beyond])


def test_a_policy_sees_256_observations_at_a_time():
    seen = []

    def note(s):
        seen.append(len(s))
        return greedy(s)

    assert np.array_equal(as_target(note).probability_of(POINTS[:300], greedy(POINTS[:300])), np.ones(300))
    assert seen == [256, 256]


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.float64])
def test_a_table_is_looked_up(dtype):
    states = np.array([2, 0, 1, 2], dtype)
    assert np.array_equal(as_target(TABLE).probabilities(states, 3), TABLE[[2, 0, 1, 2]])
    assert np.array_equal(as_target([1, 0, 2]).probabilities(states, 3), np.eye(3)[[2, 1, 0, 2]])
    assert as_target(TABLE).probability_of(states, np.array([2, 2, 2, 5])).tolist() == [0.7, 0.0, 1.0, 0.0]


def test_discrete_actions_interact_with_features_of_states():
    features = make(softmax, Fourier(2)).bind_pairs(POINTS, ACTIONS[:500])
    phi, p = features.features(POINTS), softmax(POINTS)
    mean, pairs = features(POINTS), features.of_pairs(POINTS, ACTIONS)
    assert (features.n_actions, features.n_features) == (3, 27)
    assert features.largest_norm == 3.0
    for i in range(0, 700, 50):
        rows = np.zeros((3, 27))
        for a in range(3):
            rows[a, 9 * a : 9 * a + 9] = phi[i]
        assert np.array_equal(pairs[i], rows[ACTIONS[i]])
        assert mean[i] == pytest.approx(p[i] @ rows, rel=1e-12)


@pytest.mark.parametrize("policy", [softmax, greedy])
def test_a_function_of_both_is_averaged_over_the_actions(policy):
    features = make(policy, both).bind_pairs(POINTS, ACTIONS)
    p = features.target.probabilities(POINTS, 3)
    expected = sum(p[:, a, None] * both(POINTS, np.full(700, a)) for a in range(3))
    assert features(POINTS) == pytest.approx(expected, rel=1e-12)
    assert np.array_equal(features.of_pairs(POINTS, ACTIONS), both(POINTS, ACTIONS))
    assert (features.n_features, features.largest_norm) == (4, None)


@pytest.mark.parametrize("shape", [(700,), (700, 1), (700, 2)])
def test_one_continuous_action_stands_beside_the_observation(shape):
    actions = np.random.default_rng(1).normal(size=shape)
    width = actions[0].size
    features = make(lambda s: np.tanh(s[:, :width]).reshape(len(s), *shape[1:])).bind_pairs(POINTS, actions)
    assert (features.n_actions, features.n_features) == (0, 2 + width)
    assert np.array_equal(features.of_pairs(POINTS, actions), np.column_stack([POINTS, actions]))
    assert np.array_equal(features(POINTS), np.column_stack([POINTS, np.tanh(POINTS[:, :width])]))


@pytest.mark.parametrize("kind", [RandomFourier(20), both])
def test_draws_of_continuous_actions_are_averaged(kind):
    noise = np.array([-0.5, 0.0, 0.25])
    features = make(lambda s: (s[:, :1] + noise)[:, :, None], kind).bind_pairs(POINTS, POINTS[:, 1])
    each = [features.of_pairs(POINTS, POINTS[:, 0] + e) for e in noise]
    assert features(POINTS) == pytest.approx(np.mean(each, axis=0), rel=1e-12, abs=1e-14)


def test_bounds_cover_the_actions_of_the_log_and_of_the_target():
    features = make(lambda s: np.full((len(s), 1), 9.0), Fourier(1)).bind_pairs(POINTS, np.linspace(-3.0, 1.0, 700))
    assert (features.features.low[2], features.features.high[2]) == (-3.0, 9.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("policy", "kind", "actions"),
    [
        (softmax, Fourier(2), ACTIONS),
        (softmax, both, ACTIONS),
        (lambda s: np.tanh(s @ MATRIX[:, :1]), both, POINTS[:, 0]),
    ],
)
def test_any_split_has_the_same_bits(policy, kind, actions, dtype):
    observations = POINTS.astype(dtype)
    features = make(policy, kind).bind_pairs(observations, actions)
    whole, pairs = features(observations), features.of_pairs(observations, actions)
    assert whole.dtype == pairs.dtype == dtype
    assert whole.flags.c_contiguous
    assert pairs.flags.c_contiguous
    for cuts in ([0, 1, 2, 300], [255, 256, 257]):
        parts = list(zip(np.split(observations, cuts), np.split(actions, cuts), strict=True))
        assert np.array_equal(np.concatenate([features(s) for s, _ in parts]), whole)
        assert np.array_equal(np.concatenate([features.of_pairs(s, a) for s, a in parts]), pairs)


def test_the_number_of_actions_is_the_largest_that_is_seen():
    states = np.array([0, 1, 2, 2])
    space = ObservationSpace("states", sizes=(3,), actions=("a", "b", "c", "d", "e"))
    assert make(TABLE, "tabular").bind_pairs(states, np.array([0, 1])).n_actions == 3
    assert make(TABLE, "tabular").bind_pairs(states, np.array([0, 3])).n_actions == 4
    assert make([0, 1, 6], "tabular").bind_pairs(states, np.array([0, 3])).n_actions == 7
    assert make(lambda s: s == 1, "tabular").bind_pairs(states, np.array([0])).n_actions == 2
    assert complete(make(TABLE, "tabular"), space).bind_pairs(states, np.array([0])).n_actions == 5


def test_the_space_completes_features_of_states_but_not_of_pairs():
    states = np.array([0, 1, 2, 2])
    features = complete(make(TABLE, "auto"), ObservationSpace("states", sizes=(8,)))
    assert features.bind_pairs(states, states).features == Tabular(8)
    space = ObservationSpace("box", low=(-1.0, -1.0), high=(1.0, 1.0))
    policy, actions = (lambda s: s[:, :1] * 0.5), POINTS[:, 1]
    assert isinstance(complete(make(policy, "auto"), space).bind_pairs(POINTS, actions).features, Selected | Stack)
    bound = complete(make(policy, "fourier:2"), space).bind_pairs(POINTS, actions)
    assert (bound.features.low[0], bound.n_features) == (POINTS[:, 0].min(), 27)
    assert complete(bound, space) is bound


@pytest.mark.parametrize("space", [None, ObservationSpace("states", sizes=(3,), actions=("stay", "go", "no"))])
@pytest.mark.parametrize("is_bound", [False, True])
def test_features_of_a_table_come_back_from_their_settings(space, is_bound):
    table = np.random.default_rng(0).dirichlet(np.ones(9), 3) * (1 + 1e-7)  # to be normalised, but only once
    features, states = complete(make(table, "auto"), space), np.array([0, 1, 2, 1])
    if is_bound:
        features = features.bind_pairs(states, states)
    again = from_settings(json.loads(json.dumps(features.settings)))
    assert again.settings == features.settings
    bound = again.bind_pairs(states, states)
    assert np.array_equal(bound(states), features.bind_pairs(states, states)(states))
    assert (again is bound) == is_bound


def test_kinds_in_words():
    assert describe_kind(make(TABLE, "tabular").settings) == "tabular for each action"
    assert describe_kind(make(TABLE, "rff:9").settings | {"n_actions": 0}) == "rff of states and actions"


def test_what_becomes_features_of_pairs():
    assert as_pair_features(both) == FromPairs(both)
    assert as_pair_features(FromPairs(both)) == FromPairs(both)
    assert as_pair_features(softmax) == FromFunction(softmax)
    assert as_pair_features(np.tanh) == FromFunction(np.tanh)  # does not say what it takes
    assert as_pair_features("standardised") == Standardised()
    assert as_pair_features(None) == Identity()
    assert isinstance(as_pair_features(np.eye(2)), Table)


def test_logged_flags_are_actions():
    seen = set()

    def note(s, a):
        seen.add(a.dtype)
        return np.column_stack([s, a])

    features = make(greedy, note).bind_pairs(POINTS, ACTIONS > 0)
    assert np.array_equal(features.of_pairs(POINTS, ACTIONS > 0)[:, 2], ACTIONS > 0)
    assert (seen, features.n_actions) == ({np.dtype(np.int64)}, 3)


def fail(s):
    raise KeyError("weights")


def vary(s, rng=np.random.default_rng(0)):  # noqa: B008
    return rng.integers(0, 2, len(s))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (3, r"target must be \(S, A\) probabilities.*, but got 3. Pass one of them"),
        (Model, "got <class .*, and an instance instead of a class"),
        (np.zeros((2, 2, 2)), r"an array must hold \(S, A\) probabilities or .*, but is an array of float64"),
        ([[0.5, 0.5], [1.0]], r"an array must hold \(S, A\) probabilities"),
        ([0.5, 0.5], r"an array must hold \(S, A\) probabilities"),
        ([0, -1], "Actions of the target policy must be at least 0, but got -1 in row 1"),
        ([[0.5, 0.5], [0.5, 0.6]], r"sum to 1 within 1e-05, but those of state 1 are \[0.5, 0.6\] with the sum 1.1"),
        ([[1.5, -0.5]], r"must be at least 0 and sum to 1 .*, but those of state 0 are \[1.5, -0.5\]"),
        (fail, "failed for a batch of observations of shape .256, 2. with KeyError: 'weights'. Return probabilities"),
        (lambda s: s[:-1], r"one row of numbers for each of 256 observations, but returned .* of shape \(255, 2\)"),
        (lambda s: "left", "one row of numbers for each of 256 observations, but returned an array of <U4"),
        (
            lambda s: np.exp(s),
            r"must be at least 0 and sum to 1 within 1e-05, but those of row 0 are .*[.] Divide them",
        ),
        (lambda s: np.where(s > 0, np.nan, 1.0), "sum to 1"),
        (lambda s: -greedy(s) - 1, "Actions of the target policy must be at least 0, but got -[123] in row 0"),
        (
            lambda s: s[:, 0],
            r"probabilities \(n, A\) or integer actions \(n,\), but returned an array of float64 of shape",
        ),
        (lambda s: np.ones((len(s), 1)), "a column of probabilities per action, but returned 1 for 3 actions"),
        (lambda s: np.zeros((len(s), 2, 2)), r"probabilities \(n, A\) or integer actions \(n,\)"),
        (lambda s: (s[:, 0] > s[:, 0].mean()) * 1, "always return the same for the same observation, but returned"),
        (vary, r"returned [01] and [01] for row \d+[.] .*deterministic=True"),
        (lambda s: (greedy if s[0, 0] == POINTS[0, 0] else softmax)(s), "must always return the same kind of array"),
    ],
)  # fmt: skip
def test_policies_that_are_refused(policy, message):
    with pytest.raises(InvalidInputError, match=message):
        make(policy, "fourier:1").bind_pairs(POINTS, ACTIONS)(POINTS)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (greedy, r"continuous actions must return floats \(n,\), \(n, k\) or \(n, m, k\), but returned .* of int64"),
        (TABLE, "observations must be states, with one whole number each"),
        (lambda s: np.where(s[:, :1] > 1, np.inf, s[:, :1]), r"must be finite, but those for row \d+ are \[inf\]"),
        (lambda s: s, "The actions of the target policy must have 1 numbers, as those of the log, but have 2"),
    ],
)  # fmt: skip
def test_policies_that_are_refused_for_continuous_actions(policy, message):
    with pytest.raises(InvalidInputError, match=message):
        make(policy).bind_pairs(POINTS, POINTS[:, 0])


STATES = np.arange(3)
BOUND = make(TABLE, "tabular").bind_pairs(STATES, STATES)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: TargetFeatures(both, as_target(TABLE)),
            "features must be Features or FromPairs, but got function. Wrap",
        ),
        (
            lambda: TargetFeatures(Identity(), TABLE),
            "target must be a Target, but got ndarray. Wrap it with .*as_target",
        ),
        (lambda: FromPairs(3), "function must be callable, but got 3"),
        (lambda: FromPairs(both).n_features, "FromPairs must be bound before use, to determine the number of features"),
        (lambda: make(TABLE).n_features, r"to determine the number of actions. Call features.bind_pairs\(observations"),
        (lambda: make(TABLE)(STATES), "TargetFeatures must be bound before use, to determine the number of actions"),
        (
            lambda: make(TABLE).bind(STATES),
            "must be bound to observations and actions, but got only observations. Call features.bind_pairs",
        ),
        (lambda: make(TABLE).bind_pairs(STATES, STATES[:0]), "Pass the actions of the log"),
        (
            lambda: make(TABLE).bind_pairs(STATES[:2], STATES),
            "Every action needs an observation, but there are 2 observations for 3 actions",
        ),
        (lambda: make(TABLE).bind_pairs(STATES, STATES.astype(str)), "actions of the log must be integers of shape"),
        (
            lambda: make(TABLE).bind_pairs(STATES, STATES * 1.0),
            "actions must be a function, but is a table. Pass a func",
        ),
        (
            lambda: make(lambda s: s).bind_pairs(POINTS, POINTS * np.nan),
            r"log must be finite, but row 0 has \[nan nan\]",
        ),
        (
            lambda: make(np.eye(3), "tabular:2000").bind_pairs(STATES, STATES),
            "number of features must be at most 4096, but is 6000",
        ),
        (
            lambda: make(TABLE, both).bind_pairs(STATES, STATES + 10**6),
            "number of actions must be at most 4096, but is 1000003. Number the",
        ),
        (
            lambda: make(TABLE, both).bind_pairs(STATES, STATES + 2**62),
            "number of actions must be at most 4096, but is more than 10",
        ),
        (
            lambda: as_target(np.ones((3, 1))).probability_of(STATES, STATES),
            "a column of probabilities per action, but returned 1 for 3 actions",
        ),
        (lambda: make(lambda s: s, "tabular").settings, "A target policy that is a function cannot be stored"),
        (
            lambda: make(TABLE, both).settings,
            "FromPairs features cannot be stored, because they are made of your own code. Keep the code",
        ),
    ],
)  # fmt: skip
def test_what_features_of_pairs_refuse(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BOUND(np.array([0, 3])), r"Every observation must be a state in 0..2, but got 3 in row 1"),
        (lambda: BOUND(np.array([0, np.nan])), "must be finite to evaluate a policy, but got nan in row 1"),
        (
            lambda: BOUND.of_pairs(STATES, STATES[:2]),
            r"one entry per observation, but have shape \(2,\) for 3 observations",
        ),
        (
            lambda: BOUND.of_pairs(STATES, STATES + 1),
            r"in 0..2, but got 3 in row 2[.] .* probabilities of shape \(n, A\)",
        ),
        (
            lambda: BOUND.of_pairs(STATES, STATES * 1.0),
            r"must be integers of shape \(n,\), but are an array of float64",
        ),
        (lambda: as_target(greedy).probabilities(POINTS, 2), r"in 0..1, but got 2 in row \d+[.] .* shape \(n, A\)"),
        (lambda: as_target(softmax).probabilities(POINTS, 2), "returned probabilities of 3 actions, but only 2 exist"),
        (
            lambda: as_target(TABLE).probability_of(STATES[:2], STATES),
            r"have shape \(3,\) for 2 observations. Pass as many",
        ),
        (lambda: as_target(TABLE).probability_of(STATES, -STATES), "must be at least 0, but got -1 in row 1"),
    ],
)  # fmt: skip
def test_data_that_do_not_fit(call, message):
    with pytest.raises(DataError, match=message):
        call()


def test_bound_features_stay_as_they_are():
    assert BOUND.bind_pairs(STATES, STATES) is BOUND.bind(STATES) is BOUND
    assert not BOUND.needs_data
    assert BOUND(STATES[:0]).shape == BOUND.of_pairs(STATES[:0], STATES[:0]).shape == (0, 9)

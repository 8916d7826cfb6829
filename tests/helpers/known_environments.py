"""Values of Gymnasium's environments under the random policy, computed without vrtd."""

from __future__ import annotations

from typing import Any

import numpy as np

CARDS = np.array([1 / 13] * 9 + [4 / 13])  # ace, 2, ..., 10


def tabular_answer(env: Any, discount: float, n_steps: int | None) -> tuple[Any, Any]:
    """Return V(s) and the share of steps in each state, of an environment with a transition table.

    `n_steps`: after so many an episode is cut off; the value goes on.
    """
    table, start = env.unwrapped.P, np.asarray(env.unwrapped.initial_state_distrib)
    n = len(start)
    P, reward = np.zeros((n, n)), np.zeros(n)
    for s, actions in table.items():
        for outcomes in actions.values():
            for probability, successor, gain, is_end in outcomes:
                reward[s] += probability * gain / len(actions)
                P[s, successor] += 0.0 if is_end else probability / len(actions)
    values = np.linalg.solve(np.eye(n) - discount * P, reward)
    if n_steps is None:
        visits = np.linalg.solve(np.eye(n) - P.T, start)
    else:
        visits, now = np.zeros(n), start
        for _ in range(n_steps):
            visits, now = visits + now, now @ P
    return values, visits / visits.sum()


def blackjack_mean(discount: float) -> float:
    """Return the mean value over visited states of Blackjack-v1: hit or stick with probability 1/2."""
    dealer = np.array([_dealer(card) for card in range(1, 11)])  # (shown card, final score 0, 17..21)
    # From a small sum an ace becomes usable, later it may stop to be so: hands in an order in which none comes back.
    small, soft, hard = (
        [(t, False) for t in range(4, 11)],
        [(t, True) for t in range(12, 22)],
        [(t, False) for t in range(11, 22)],
    )
    hands = [*small, *soft, *hard]
    values: dict[tuple[int, bool, int], float] = {}
    follows: dict[tuple[int, bool], list[tuple[float, int, bool]]] = {}
    for total, ace in hands:
        follows[total, ace] = [(p, *_add(total, ace, card)) for card, p in enumerate(CARDS, 1)]
    for total, ace in reversed(hands):
        for shown in range(10):
            stick = sum(
                p * np.sign(total - score) for score, p in zip((0, 17, 18, 19, 20, 21), dealer[shown], strict=True)
            )
            hit = sum(p * (-1.0 if t > 21 else discount * values[t, a, shown]) for p, t, a in follows[total, ace])
            values[total, ace, shown] = 0.5 * float(stick) + 0.5 * hit
    visits = dict.fromkeys(hands, 0.0)
    for first, p in enumerate(CARDS, 1):
        for second, q in enumerate(CARDS, 1):
            has_ace = 1 in (first, second)
            visits[first + second + 10 * has_ace, has_ace] += p * q
    for hand in hands:
        for p, t, a in follows[hand]:
            if t <= 21:
                visits[t, a] += 0.5 * p * visits[hand]
    total_visits = sum(visits.values())
    return sum(
        visits[total, ace] / total_visits * CARDS[shown] * values[total, ace, shown]
        for total, ace in hands
        for shown in range(10)
    )


def _add(total: int, ace: bool, card: int) -> tuple[int, bool]:
    """Return the sum of a hand after a card, and whether an ace counts 11."""
    if card == 1 and not ace and total + 11 <= 21:
        return total + 11, True
    total += card
    return (total - 10, False) if total > 21 and ace else (total, ace)


def _dealer(shown: int) -> list[float]:
    """Return the probabilities of the dealer's final scores: 0 (bust), 17, ..., 21."""
    ends = dict.fromkeys((0, 17, 18, 19, 20, 21), 0.0)

    def draw(total: int, ace: bool, probability: float) -> None:
        for card, p in enumerate(CARDS, 1):
            t, a = _add(total, ace, card)
            if t < 17:
                draw(t, a, probability * p)
            else:
                ends[t if t <= 21 else 0] += probability * p

    draw(*((11, True) if shown == 1 else (shown, False)), 1.0)
    return list(ends.values())


def cart_pole_mean(discount: float, n_episodes: int, rng: Any) -> tuple[float, float]:
    """Return the mean discounted return from visited states of CartPole-v1, and its standard error."""
    x = rng.uniform(-0.05, 0.05, (4, n_episodes))
    lengths = np.zeros(n_episodes)
    alive = np.ones(n_episodes, bool)
    while alive.any():
        lengths += alive
        force = rng.choice([-10.0, 10.0], n_episodes)
        _, speed, angle, turn = x
        pull = (force + 0.05 * turn**2 * np.sin(angle)) / 1.1
        spin = (9.8 * np.sin(angle) - np.cos(angle) * pull) / (0.5 * (4.0 / 3.0 - 0.1 * np.cos(angle) ** 2 / 1.1))
        push = pull - 0.05 * spin * np.cos(angle) / 1.1
        x = x + 0.02 * np.array([speed, push, turn, spin])
        alive &= (np.abs(x[0]) <= 2.4) & (np.abs(x[2]) <= 12 * 2 * np.pi / 360)
    # A reward of 1 in each step: k steps before the end the return is (1 - discount^k) / (1 - discount).
    whole = (lengths - discount * (1.0 - discount**lengths) / (1.0 - discount)) / (1.0 - discount)
    return _ratio(whole, lengths)


def pendulum_mean(discount: float, n_episodes: int, rng: Any, n_steps: int = 200) -> tuple[float, float]:
    """Return the mean discounted return from the first `n_steps` states of episodes of Pendulum-v1 that go on, and its
    standard error."""
    tail = int(np.log(1e-6) / np.log(discount))
    angle, turn = rng.uniform(-np.pi, np.pi, n_episodes), rng.uniform(-1.0, 1.0, n_episodes)
    rewards = np.empty((n_steps + tail, n_episodes))
    for t in range(len(rewards)):
        torque = rng.uniform(-2.0, 2.0, n_episodes)
        rewards[t] = -(((angle + np.pi) % (2 * np.pi) - np.pi) ** 2 + 0.1 * turn**2 + 0.001 * torque**2)
        turn = np.clip(turn + (15.0 * np.sin(angle) + 3.0 * torque) * 0.05, -8.0, 8.0)
        angle = angle + turn * 0.05
    returns = np.zeros(n_episodes)
    total = np.zeros(n_episodes)
    for t in range(len(rewards) - 1, -1, -1):
        returns = rewards[t] + discount * returns
        total += returns if t < n_steps else 0.0
    return _ratio(total, np.full(n_episodes, float(n_steps)))


def _ratio(totals: Any, counts: Any) -> tuple[float, float]:
    """Return the ratio of the means, and its standard error."""
    mean = totals.sum() / counts.sum()
    error = np.std(totals - mean * counts, ddof=1) / counts.mean() / np.sqrt(len(counts))
    return float(mean), float(error)

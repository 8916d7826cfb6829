"""Finite environments whose transition tables are written by hand."""

from __future__ import annotations

from typing import Any

import gymnasium


class Table(gymnasium.Env[Any, Any]):
    """Two states, one action: 0 -> 1 -> end."""

    def __init__(self, P: Any, start: Any = (1.0, 0.0)) -> None:
        self.observation_space, self.action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(1)
        self.P, self.initial_state_distrib = P, start


GOOD = {0: {0: [(1.0, 1, 1.0, False)]}, 1: {0: [(1.0, 0, 2.0, True)]}}

"""What methods are evaluated on: chains with features, simulators, data sets, and a library of named problems."""

from vrtd.problems.environments import RestartChain, restart_chain
from vrtd.problems.library import (
    LIBRARY,
    baird,
    boyan_chain,
    frozen_lake,
    garnet,
    off_policy_garnet,
    random_mdp,
    random_walk,
)
from vrtd.problems.linear_problem import LinearProblem
from vrtd.problems.markov_reward_process import Edges, MarkovRewardProcess
from vrtd.problems.mdp import MDP
from vrtd.problems.mountain_car import mountain_car
from vrtd.problems.simulator import Simulator
from vrtd.problems.transitions import Transitions

__all__ = [
    "LIBRARY",
    "MDP",
    "Edges",
    "LinearProblem",
    "MarkovRewardProcess",
    "RestartChain",
    "Simulator",
    "Transitions",
    "baird",
    "boyan_chain",
    "frozen_lake",
    "garnet",
    "mountain_car",
    "off_policy_garnet",
    "random_mdp",
    "random_walk",
    "restart_chain",
]

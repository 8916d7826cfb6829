"""Exact finite problems: reward processes, decision processes and a library of named ones."""

from vrtd.problems.data_set import DataSet
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
from vrtd.problems.markov_reward_process import Edges, MarkovRewardProcess
from vrtd.problems.mdp import MDP
from vrtd.problems.tables import RestartChain, restart_chain

__all__ = [
    "LIBRARY",
    "MDP",
    "DataSet",
    "Edges",
    "MarkovRewardProcess",
    "RestartChain",
    "baird",
    "boyan_chain",
    "frozen_lake",
    "garnet",
    "off_policy_garnet",
    "random_mdp",
    "random_walk",
    "restart_chain",
]

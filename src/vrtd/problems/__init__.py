"""Problems on which methods are evaluated: chains with features, simulators, data sets, and a library by name."""

from vrtd.problems.environments import RestartChain as RestartChain
from vrtd.problems.environments import restart_chain as restart_chain
from vrtd.problems.library import LIBRARY as LIBRARY
from vrtd.problems.library import baird as baird
from vrtd.problems.library import boyan_chain as boyan_chain
from vrtd.problems.library import frozen_lake as frozen_lake
from vrtd.problems.library import garnet as garnet
from vrtd.problems.library import off_policy_garnet as off_policy_garnet
from vrtd.problems.library import random_mdp as random_mdp
from vrtd.problems.library import random_walk as random_walk
from vrtd.problems.linear_problem import LinearProblem as LinearProblem
from vrtd.problems.markov_reward_process import Edges as Edges
from vrtd.problems.markov_reward_process import MarkovRewardProcess as MarkovRewardProcess
from vrtd.problems.mdp import MDP as MDP
from vrtd.problems.mountain_car import mountain_car as mountain_car
from vrtd.problems.simulator import Simulator as Simulator
from vrtd.problems.transitions import Transitions as Transitions

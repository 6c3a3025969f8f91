"""Reinforcement-learning agents. They know nothing about federations.

An agent acts, observes, and learns when its caller ends a round or an episode. Its ``state_dict()`` holds everything
it knows (networks, optimisers, replay or buffer, counters). It draws only from streams that the caller passes in, so
an interrupted run resumes exactly.
"""

from fedtailor.agents.actions import Action, Categorical, Integer, Kind, MeanDeviation, Simplex
from fedtailor.agents.attention import Attention
from fedtailor.agents.base import Agent, AgentSettings
from fedtailor.agents.best import BestPolicy
from fedtailor.agents.ddpg import DDPG, DDPGSettings
from fedtailor.agents.embedding import MHAE, Embedding, PCAEmbedding, matrices
from fedtailor.agents.heads import (
    CategoricalHead,
    GaussianHead,
    Head,
    IntegerHead,
    Joint,
    MultiCategoricalHead,
    SimplexHead,
)
from fedtailor.agents.networks import MLP, Network, PerSlot, seen
from fedtailor.agents.normaliser import Normaliser
from fedtailor.agents.ppo import PPO, PPOSettings
from fedtailor.agents.replay import Replay
from fedtailor.agents.vdn import VDN, VDNSettings

__all__ = [
    "DDPG",
    "MHAE",
    "MLP",
    "PPO",
    "VDN",
    "Action",
    "Agent",
    "AgentSettings",
    "Attention",
    "BestPolicy",
    "Categorical",
    "CategoricalHead",
    "DDPGSettings",
    "Embedding",
    "GaussianHead",
    "Head",
    "Integer",
    "IntegerHead",
    "Joint",
    "Kind",
    "MeanDeviation",
    "MultiCategoricalHead",
    "Network",
    "Normaliser",
    "PCAEmbedding",
    "PPOSettings",
    "PerSlot",
    "Replay",
    "Simplex",
    "SimplexHead",
    "VDNSettings",
    "matrices",
    "seen",
]

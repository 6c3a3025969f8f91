"""Agents that learn to decide: pure reinforcement learning, which knows nothing of federations.

An agent acts, observes and learns when it is told to, by whoever owns it. What it knows is in its ``state_dict()``
(networks, optimisers, replay or buffer, counters), and every draw comes from a stream that the caller hands in, so a
run that was interrupted goes on as if it had not been.
"""

from fedtailor.agents.actions import Action, Simplex
from fedtailor.agents.attention import Attention
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
from fedtailor.agents.ppo import PPO, PPOSettings
from fedtailor.agents.replay import Replay

__all__ = [
    "DDPG",
    "MHAE",
    "MLP",
    "PPO",
    "Action",
    "Attention",
    "CategoricalHead",
    "DDPGSettings",
    "Embedding",
    "GaussianHead",
    "Head",
    "IntegerHead",
    "Joint",
    "MultiCategoricalHead",
    "Network",
    "PCAEmbedding",
    "PPOSettings",
    "PerSlot",
    "Replay",
    "Simplex",
    "SimplexHead",
    "matrices",
    "seen",
]

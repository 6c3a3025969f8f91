"""Agents that learn to decide: pure reinforcement learning, which knows nothing of federations.

An agent acts, observes and learns when it is told to, by whoever owns it. What it knows is in its ``state_dict()``
(networks, optimisers, replay, counters), and every draw comes from a stream that the caller hands in, so a run that
was interrupted goes on as if it had not been.
"""

from fedtailor.agents.actions import Action, Simplex
from fedtailor.agents.ddpg import DDPG, DDPGSettings
from fedtailor.agents.networks import MLP
from fedtailor.agents.replay import Replay

__all__ = ["DDPG", "MLP", "Action", "DDPGSettings", "Replay", "Simplex"]

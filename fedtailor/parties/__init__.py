"""What a method sees: client, server, memory, moment, replies, clock; and what it may ask for."""

from fedtailor.parties.client import Client
from fedtailor.parties.clock import Clock, Duration
from fedtailor.parties.memory import Memory
from fedtailor.parties.moment import Moment
from fedtailor.parties.policy import Policy, check_policy, read_policy
from fedtailor.parties.replies import Replies
from fedtailor.parties.requests import Ask, Decide, Reward, Steps
from fedtailor.parties.schema import Range, Schema, Tensors
from fedtailor.parties.server import Server
from fedtailor.parties.state import State

__all__ = [
    "Ask",
    "Client",
    "Clock",
    "Decide",
    "Duration",
    "Memory",
    "Moment",
    "Policy",
    "Range",
    "Replies",
    "Reward",
    "Schema",
    "Server",
    "State",
    "Steps",
    "Tensors",
    "check_policy",
    "read_policy",
]

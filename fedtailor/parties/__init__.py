"""What a method works with: client, server, memory, moment, replies, clock, and its requests."""

from fedtailor.parties.aggregation import Aggregation
from fedtailor.parties.client import Client
from fedtailor.parties.clock import Clock, Duration
from fedtailor.parties.decision import AgentTables, Decided, Decider, Decision, Feature, Question
from fedtailor.parties.decisions import Decisions
from fedtailor.parties.memory import Memory
from fedtailor.parties.moment import Moment
from fedtailor.parties.policy import (
    BUILT_IN,
    NO_POLICY,
    Policy,
    check_method,
    check_shape,
    read_policy,
    shipped_policies,
)
from fedtailor.parties.privacy import Privacy
from fedtailor.parties.replies import Replies, check_peers
from fedtailor.parties.requests import Ask, Decide, Key, Reward, Steps
from fedtailor.parties.schema import Range, Schema, Tensors
from fedtailor.parties.server import Server
from fedtailor.parties.state import State

__all__ = [
    "BUILT_IN",
    "NO_POLICY",
    "AgentTables",
    "Aggregation",
    "Ask",
    "Client",
    "Clock",
    "Decide",
    "Decided",
    "Decider",
    "Decision",
    "Decisions",
    "Duration",
    "Feature",
    "Key",
    "Memory",
    "Moment",
    "Policy",
    "Privacy",
    "Question",
    "Range",
    "Replies",
    "Reward",
    "Schema",
    "Server",
    "State",
    "Steps",
    "Tensors",
    "check_method",
    "check_peers",
    "check_shape",
    "read_policy",
    "shipped_policies",
]

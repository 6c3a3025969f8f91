"""Networks with a declared body and head, and the catalogue of those that come with FedTailor."""

from fedtailor.models.bf16 import in_bf16
from fedtailor.models.catalogue import CATALOGUE, narrower
from fedtailor.models.flops import TRAINING, Card, WorkCounter, cards, count_flops
from fedtailor.models.network import Inputs, Network, Part, SideBySide, build
from fedtailor.models.processor import avoid_broken_units
from fedtailor.models.settings import ModelFamily, ModelSettings, model_family

__all__ = [
    "CATALOGUE",
    "TRAINING",
    "Card",
    "Inputs",
    "ModelFamily",
    "ModelSettings",
    "Network",
    "Part",
    "SideBySide",
    "WorkCounter",
    "build",
    "cards",
    "count_flops",
    "in_bf16",
    "model_family",
    "narrower",
]

avoid_broken_units()  # here, because torch computes nothing before

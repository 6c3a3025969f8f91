"""Networks with a declared body and head, and the catalogue of those that come with FedTailor."""

from fedtailor.models.catalogue import CATALOGUE
from fedtailor.models.flops import Card, cards, count_flops
from fedtailor.models.network import Inputs, Network, Part, build
from fedtailor.models.settings import ModelSettings

__all__ = [
    "CATALOGUE",
    "Card",
    "Inputs",
    "ModelSettings",
    "Network",
    "Part",
    "build",
    "cards",
    "count_flops",
]

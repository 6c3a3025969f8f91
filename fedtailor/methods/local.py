from typing import ClassVar

from fedtailor.methods.base import Card, Method


class Local(Method):
    """Every client trains alone: the baseline that a federation must beat.

    Exchanged: nothing. Client: E epochs of SGD from its own last model. Server: nothing.
    """

    name: ClassVar = "local"
    averages: ClassVar = False
    shares: ClassVar = "none"


Local.card = Card(
    paper="no federation: the baseline of every comparison",
    year=0,
    exchanged="nothing",
    client_state="its model",
    server_state="nothing",
)

from typing import ClassVar

from fedtailor.methods.base import Method


class Local(Method):
    """Every client trains alone: the floor that a federation must beat.

    Exchanged: nothing. Client: E epochs of SGD from its own last model. Server: nothing.
    """

    name: ClassVar = "local"
    paper: ClassVar = "no federation"
    shares: ClassVar = "none"

"""The mixing weights of FedALA's clients: the same picture as FedAH's."""

from fedtailor.views.drawings.fedah import drawings

__all__ = ["drawings"]

"""What the agent of our form of pFedRLLA does: the same picture."""

from fedtailor.views.drawings.pfedrlla import drawings

__all__ = ["drawings"]

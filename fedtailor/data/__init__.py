"""Where samples come from, who gets which of them, and what a client trains and is tested on."""

from .federation import Federation, Shares, build
from .samples import Samples
from .settings import DataSettings
from .sources import SOURCES

__all__ = ["SOURCES", "DataSettings", "Federation", "Samples", "Shares", "build"]

"""Data: sources of samples, partitions among clients, and train, validation and test splits."""

from .federation import Federation, Shares, build, resolve
from .samples import Column, Samples
from .settings import DataSettings
from .sources import SOURCES

__all__ = ["SOURCES", "Column", "DataSettings", "Federation", "Samples", "Shares", "build", "resolve"]

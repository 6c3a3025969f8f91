"""The clients' devices: a virtual clock for their task times, and their availability. Nothing sleeps."""

from fedtailor.devices.availability import Availability
from fedtailor.devices.clock import Phase, RoundTimes, VirtualClock
from fedtailor.devices.profiles import Profile
from fedtailor.devices.settings import Devices, virtual_clock

__all__ = ["Availability", "Devices", "Phase", "Profile", "RoundTimes", "VirtualClock", "virtual_clock"]

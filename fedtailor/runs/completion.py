"""Fills what settings leave open: devices for methods that decide by times, and sizes of models."""

from collections.abc import Collection, Mapping
from typing import Any

from fedtailor.data import Federation
from fedtailor.devices import Devices
from fedtailor.learning.tensors import inputs_of
from fedtailor.methods import Method, spec
from fedtailor.runs.results import Note
from fedtailor.runs.settings import Experiment, method_dict

SPREAD = 3.0  # speed of the fastest device over that of the slowest
MILD: dict[str, Any] = {"profiles": {"kind": "uniform", "spread": SPREAD}}


def with_devices(values: Mapping[str, Any], methods: Collection[Method]) -> dict[str, Any]:
    """Settings with a table ``[devices]`` if one of these methods, which are compared, assumes that there is one."""
    assumed = any(method.assumes_devices for method in methods)
    return {**values, "devices": MILD} if assumed and values.get("devices") is None else dict(values)


def compared(settings: Experiment, methods: Collection[Method]) -> Experiment:
    """The settings of a comparison: what one method needs, validation data or devices, all of them have."""
    validation = settings.validation or any(method.needs_validation for method in methods)
    devices = with_devices({"devices": settings.devices}, methods)["devices"]
    devices = Devices.model_validate(devices) if devices == MILD else devices
    return settings.model_copy(update={"validation": validation, "devices": devices})


def own_settings(settings: Experiment) -> Experiment:
    """The settings of a comparison, in which the method of ``[method]`` has its settings where only its name stands."""
    own = settings.method
    if not own.model_dump(exclude_defaults=True):
        return settings
    table, name = method_dict(own), spec(own)
    table["label"] = name.rpartition(":")[2]
    methods = tuple(table if one == name else one for one in settings.compare.methods)
    return settings.model_copy(update={"compare": settings.compare.model_copy(update={"methods": methods})})


def completed(settings: Experiment, federation: Federation, remote: bool) -> Experiment:
    """The settings with all that they left open; a real federation measures times and needs no devices."""
    method = settings.method.completed(settings.model, inputs_of(federation.samples))
    devices = settings.devices
    if devices is None and settings.method.assumes_devices and not remote:
        devices = Devices.model_validate(MILD)
    return settings.model_copy(update={"method": method, "devices": devices})


def devices_note(settings: Experiment) -> str | None:
    """A sentence about the devices of a run that had none; None if it still has none."""
    if settings.devices is None:
        return None
    name = settings.method.name or spec(settings.method)
    return f"{name}: there is no table [devices]: they are taken to be up to {SPREAD:g} times apart in speed"


def about_devices(settings: Experiment, methods: Mapping[str, Method]) -> list[Note]:
    """A note for the rows of a comparison that decide by times: which devices all rows have."""
    timed = tuple(label for label, method in methods.items() if method.uses_clock)
    if not timed or settings.devices is None:
        return []
    kind = settings.devices.profiles
    apart = f", up to {kind.spread:g} times apart in speed" if kind.kind == "uniform" else ""
    return [Note(timed, f"decides by the times of devices: all rows have the same devices{apart}")]

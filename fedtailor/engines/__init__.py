"""Engines execute client tasks: in this process, in worker processes, or on a Ray cluster."""

import re
from importlib.util import find_spec
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from fedtailor.engines.attacks import Attack
from fedtailor.engines.base import Engine, Job, Result, Task
from fedtailor.engines.device import is_device, usable_device
from fedtailor.engines.inline import Inline
from fedtailor.engines.networks import family_network, run_network, shared_and_kept
from fedtailor.engines.processes import Processes, cores
from fedtailor.errors import UserError

__all__ = [
    "Attack",
    "Engine",
    "EngineSettings",
    "Inline",
    "Job",
    "Processes",
    "Result",
    "Task",
    "cores",
    "device_of",
    "family_network",
    "open_engine",
    "run_network",
    "shared_and_kept",
    "usable_device",
]


class EngineSettings(BaseModel):
    """Where client tasks run. The choice changes how long a run takes, not its results."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["inline", "processes", "ray", "flower"] = Field(
        "processes",
        description="inline: in this process; processes: one worker per core; ray: on a Ray cluster; "
        "flower: on the nodes of a federation, with 'fedtailor serve'",
    )
    workers: int | None = Field(None, ge=1, le=1024, description="number of workers; default: one per core")
    device: str = Field(
        "cpu",
        description="torch device of the workers: cpu, a GPU such as cuda or cuda:1, or auto: a GPU if there is one",
    )
    address: str = Field(
        "", description="address of the Ray cluster: auto, host:port or ray://host:port; empty: start a local Ray"
    )

    deadline: float = Field(
        600.0,
        gt=0,
        le=604_800,
        description="flower: seconds a node has for a task; a late node is left out of the round",
    )
    limit: int = Field(512, ge=1, le=2047, description="flower: largest message, in megabytes")

    @property
    def limit_bytes(self) -> int:
        """The largest message of a federation, in bytes."""
        return self.limit * 2**20

    @field_validator("device")
    @classmethod
    def _is_device(cls, device: str) -> str:
        if not is_device(device):
            raise ValueError("should be 'cpu', 'auto', or a GPU of torch such as 'cuda' or 'cuda:1'")
        return device

    @field_validator("address")
    @classmethod
    def _is_address(cls, address: str) -> str:
        if not re.fullmatch(r"|auto|(ray://)?(\[[0-9a-fA-F:]+\]|[^\s/:\[\]]+):\d{1,5}", address):
            raise ValueError("write 'auto', 'host:port' or 'ray://host:port'")
        return address


def device_of(settings: EngineSettings) -> str:
    """The torch device that the workers train on; ``auto`` is resolved for this machine.

    Raises
    ------
    UserError
        If torch cannot use the device on this machine.

    Examples
    --------
    >>> device_of(EngineSettings(kind="ray", device="auto"))
    'cpu'
    """
    return "cpu" if settings.kind == "ray" else usable_device(settings.device)


def open_engine(settings: EngineSettings) -> Engine:
    """Open the engine of these settings.

    Parameters
    ----------
    settings : EngineSettings
        The kind of engine and its options.

    Returns
    -------
    Engine
        The engine; the caller closes it.

    Raises
    ------
    UserError
        If the engine is unavailable here.

    Examples
    --------
    >>> with open_engine(EngineSettings(kind="inline")) as engine:
    ...     engine.remote
    False
    """
    if settings.kind == "inline":
        return Inline()
    if settings.kind == "processes":
        return Processes(settings.workers)
    if settings.kind == "flower":
        raise UserError("a federation is run by its coordinator: fedtailor serve EXPERIMENT.toml")
    if find_spec("ray") is None:
        raise UserError("engine.kind = 'ray' needs ray: pip install 'fedtailor[ray]'")
    if settings.device not in ("cpu", "auto"):
        raise UserError(f"engine.device = {settings.device!r}: workers of a Ray cluster train on its CPUs")
    from fedtailor.engines.ray import Ray

    return Ray(settings.workers, settings.address)

"""How client tasks are executed."""

import re
from importlib.util import find_spec
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from fedtailor.engines.base import Engine, Job, Result, Task
from fedtailor.engines.inline import Inline
from fedtailor.engines.processes import Processes, cores
from fedtailor.engines.worker import parts, relative
from fedtailor.errors import UserError

__all__ = [
    "Engine",
    "EngineSettings",
    "Inline",
    "Job",
    "Processes",
    "Result",
    "Task",
    "cores",
    "open_engine",
    "parts",
    "relative",
]


class EngineSettings(BaseModel):
    """Where client tasks run. It changes the time a run takes and nothing else."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["inline", "processes", "ray", "flower"] = Field(
        "processes",
        description="inline: in this process; processes: one worker per core; ray: on a Ray cluster; "
        "flower: with real nodes, by 'fedtailor serve'",
    )
    workers: int | None = Field(None, ge=1, le=1024, description="workers; one per core by default")
    device: str = Field("cpu", description="torch device of the workers")
    address: str = Field(
        "", description="of the Ray cluster: auto, host:port or ray://host:port; without one a local Ray is started"
    )

    deadline: float = Field(
        600.0, gt=0, le=604_800, description="flower: seconds a node has for a task; who is late is left out"
    )
    limit: int = Field(512, ge=1, le=2047, description="flower: megabytes of a message; a larger one is refused")

    @property
    def limit_bytes(self) -> int:
        return self.limit * 2**20

    @field_validator("address")
    @classmethod
    def _is_address(cls, address: str) -> str:
        if not re.fullmatch(r"|auto|(ray://)?(\[[0-9a-fA-F:]+\]|[^\s/:\[\]]+):\d{1,5}", address):
            raise ValueError("write 'auto', 'host:port' or 'ray://host:port'")
        return address


def open_engine(settings: EngineSettings) -> Engine:
    """The engine of these settings, to be closed by the caller; refused if it cannot be had here."""
    if settings.kind == "inline":
        return Inline()
    if settings.kind == "processes":
        return Processes(settings.workers)
    if settings.kind == "flower":
        raise UserError("a federation is run by its coordinator: fedtailor serve EXPERIMENT.toml")
    if find_spec("ray") is None:
        raise UserError("engine.kind = 'ray' needs ray: pip install 'fedtailor[ray]'")
    if settings.device != "cpu":
        raise UserError(f"engine.device = {settings.device!r}: workers of a Ray cluster train on its CPUs")
    from fedtailor.engines.ray import Ray

    return Ray(settings.workers, settings.address)

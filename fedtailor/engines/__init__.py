"""How client tasks are executed."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from fedtailor.engines.base import Engine, Job, Result, Task
from fedtailor.engines.inline import Inline
from fedtailor.engines.processes import Processes, cores
from fedtailor.engines.worker import parts, relative

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

    kind: Literal["inline", "processes"] = Field(
        "processes", description="inline: in this process; processes: one worker per core"
    )
    workers: int | None = Field(None, ge=1, le=1024, description="worker processes; one per core by default")
    device: str = Field("cpu", description="torch device of the workers")


def open_engine(settings: EngineSettings) -> Engine:
    """The engine of these settings, to be closed by the caller."""
    return Inline() if settings.kind == "inline" else Processes(settings.workers)

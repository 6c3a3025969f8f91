"""The trackers by name, and whether they are installed."""

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec

from fedtailor.errors import UserError
from fedtailor.runs.tracking.base import Tracker

HOMES: dict[str, tuple[str, str]] = {
    "tensorboard": ("fedtailor.runs.tracking.event_files", "TensorBoard"),
    "mlflow": ("fedtailor.runs.tracking.mlflow_store", "MLflow"),
    "wandb": ("fedtailor.runs.tracking.wandb_folder", "WandB"),
}
PACKAGES = {"tensorboard": ("tensorboard",), "mlflow": ("mlflow", "sqlalchemy", "alembic"), "wandb": ("wandb",)}


def check_trackers(names: Iterable[str]) -> None:
    """Raise a `UserError` if a tracker is not installed."""
    for name in names:
        if not all(map(_installed, PACKAGES[name])):
            raise UserError(f"track = [{name!r}] needs {name}: pip install 'fedtailor[{name}]'")


def tracker(name: str) -> type[Tracker]:
    """The class of a tracker. It imports its package when it is made."""
    module, attribute = HOMES[name]
    kind: type[Tracker] = getattr(import_module(module), attribute)
    return kind


def _installed(package: str) -> bool:
    found = find_spec(package)
    return found is not None and found.origin is not None  # a folder of this name, such as ./wandb, has no origin

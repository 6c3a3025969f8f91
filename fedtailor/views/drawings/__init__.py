"""Pictures of a run: curves for every method, and pictures of a method's own.

A method adds pictures with a file of its name in this folder (``-`` becomes ``_``) that has a function
``drawings(run)``: it returns, by name, a function for each picture that this run has data for.
The functions read ``run.server_state()``, ``run.agents()``, ``run.decisions()``, ``run.metrics()`` and so on.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fedtailor import imports
from fedtailor.errors import UserError
from fedtailor.methods import AgentMethod, find
from fedtailor.runs import Run
from fedtailor.views.curves import run_figure
from fedtailor.views.rewards import rewards_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawing = Callable[[Run], "Figure"]


def drawings(run: Run) -> dict[str, Drawing]:
    """Every picture that can be drawn of this run, by name."""
    found: dict[str, Drawing] = {"curves": run_figure}
    if run.rewards():
        found["rewards"] = rewards_figure
    module = _method_name(run).replace("-", "_")
    if module.isidentifier() and find_spec(f"{__name__}.{module}") is not None:
        found |= import_module(f"{__name__}.{module}").drawings(run)
    return found


def _method_name(run: Run) -> str:
    """The name of a run's method or, in a pre-training, of the method whose agents it pre-trains."""
    spec = str(run.settings["method"]["name"])
    try:
        with imports.foreign():
            kind = find(spec)
    except UserError:  # a method of the user's own that is not here
        return spec
    return ((kind.rehearses if issubclass(kind, AgentMethod) else None) or kind).name


def draw(run: Run, folder: Path, ending: str = "png") -> list[Path]:
    """Draw all pictures into a folder; the ending sets the format (png, svg, pdf)."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, drawing in drawings(run).items():
        written.append(folder / f"{name}.{ending}")
        drawing(run).savefig(written[-1])
    return written

"""Pictures of a run: curves for every method, and pictures of a method's own.

A method adds pictures with a file of its name in this folder (``-`` becomes ``_``) that has a function
``drawings(run)``: it returns, by name, a function for each picture that this run has data for.
What they draw, `fedtailor.views.panels` computes, for pages and pictures alike.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fedtailor.runs import Run
from fedtailor.views.curves import run_figure
from fedtailor.views.panels import method_name
from fedtailor.views.rewards import rewards_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawing = Callable[[Run], "Figure"]


def drawings(run: Run) -> dict[str, Drawing]:
    """Every picture that can be drawn of this run, by name."""
    found: dict[str, Drawing] = {"curves": run_figure}
    if run.rewards():
        found["rewards"] = rewards_figure
    module = method_name(run).replace("-", "_")
    if module.isidentifier() and find_spec(f"{__name__}.{module}") is not None:
        found |= import_module(f"{__name__}.{module}").drawings(run)
    return found


def draw(run: Run, folder: Path, ending: str = "png") -> list[Path]:
    """Draw all pictures into a folder; the ending sets the format (png, svg, pdf)."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, drawing in drawings(run).items():
        written.append(folder / f"{name}.{ending}")
        drawing(run).savefig(written[-1])
    return written

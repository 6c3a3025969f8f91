"""Runs in Jupyter and IPython: progress, and pictures of runs and comparisons."""

import html
import io
from typing import TYPE_CHECKING, Any

from fedtailor.errors import unknown
from fedtailor.runs import Comparison, RoundReport, Run
from fedtailor.runs.callbacks import defaults
from fedtailor.views.comparison import comparison_grid
from fedtailor.views.curves import comparison_figure, run_figure
from fedtailor.views.drawings import drawings
from fedtailor.views.html.markup import table
from fedtailor.views.progress import Display, Lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARPNESS = 70  # dots per inch: readable, and small in the file of a notebook


class Picture:
    """A picture that a notebook shows."""

    def __init__(self, figure: "Figure"):
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=SHARPNESS, metadata={"Software": None})
        self.png = file.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png


def picture(of: Run | Comparison, name: str = "curves") -> Picture:
    """A picture of a run or comparison for a notebook.

    Parameters
    ----------
    of : Run or Comparison
        What to draw.
    name : str
        One of the pictures that ``fedtailor draw`` writes: ``curves``, ``rewards``, and those of the method.

    Returns
    -------
    Picture
        A notebook shows it at the end of a cell.

    Examples
    --------
    >>> fedtailor.picture(fedtailor.Run("runs/first"), "curves").png[1:4]
    b'PNG'
    """
    if isinstance(of, Comparison):
        return Picture(comparison_figure(of))
    with Run(of.folder) as run:  # the caller may have closed his
        known = drawings(run)
        if name not in known:
            raise unknown("picture", name, known)
        return Picture(known[name](run))


class NotebookProgress(Display):
    """A bar below the cell. It needs no widgets."""

    def begin(self, name: str, rounds: int, done: int) -> None:
        super().begin(name, rounds, done)
        from IPython.display import HTML, display

        self._handle: Any = display(HTML(self._bar()), display_id=True)

    def round_done(self, report: RoundReport) -> None:
        super().round_done(report)
        self._show()

    def end(self) -> None:
        super().end()
        self._show()

    def _show(self) -> None:
        from IPython.display import HTML

        if self._handle is not None:
            self._handle.update(HTML(self._bar()))

    def _bar(self) -> str:
        facts = f"round {self.round}/{self.rounds}  {self.state()}"
        bar = f"<progress value='{self.round}' max='{self.rounds}'></progress>"
        return f"<div>{html.escape(self.name)} {bar} {html.escape(facts)}</div>"


def activate(shell: Any) -> None:
    """Show progress and pictures in this shell of IPython."""
    in_browser = hasattr(shell, "kernel")
    defaults[:] = [NotebookProgress if in_browser else Lines]
    formatters = shell.display_formatter.formatters
    formatters["image/png"].for_type(Run, _run_png)
    formatters["image/png"].for_type(Comparison, lambda comparison: picture(comparison).png)
    formatters["text/html"].for_type(Comparison, _comparison_html)


def _run_png(run: Run) -> bytes:
    with Run(run.folder) as found:
        return Picture(run_figure(found)).png


def _comparison_html(comparison: Comparison) -> str:
    return str(table(comparison_grid(comparison.summary())))

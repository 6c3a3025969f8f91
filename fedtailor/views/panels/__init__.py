"""What a method is doing, as panels: the numbers that a page draws, and that ``fedtailor draw`` draws too.

A method adds panels with a module here that has ``panels(run)``, which returns the panels that the run has data for
(`kinds`), and ``about(run, client)``, which says in sentences what was decided about a client, and why. Any method that
declares decisions has panels without that.
"""

from types import ModuleType

from fedtailor import imports
from fedtailor.errors import UserError
from fedtailor.methods import AgentMethod, find
from fedtailor.runs import Run
from fedtailor.views.panels import bwa, clock, decisions, fedalp, groups, hapfl, mixing, pfedrlla
from fedtailor.views.panels.kinds import Panel

OF_METHOD: dict[str, ModuleType] = {
    "pfedrlla": pfedrlla,
    "pfedrlla-after": pfedrlla,
    "fedalp": fedalp,
    "fedah": mixing,
    "fedala": mixing,
    "bwa": bwa,
    "adaptive-b": bwa,
    "adaptive-aw": bwa,
    "bo-bwa": bwa,
    "hapfl": hapfl,
    "cfl": groups,
    "ifca": groups,
}


def panels(run: Run) -> list[Panel]:
    """Everything that a run shows about its method; the method's own panels come first."""
    if run.rounds_done == 0:
        return []
    own = OF_METHOD.get(method_name(run))
    if own is None:
        rows = run.decisions()
        found = [*decisions.panels(run, rows), *decisions.rewards(run, rows)]
    else:
        found = own.panels(run)
    return [*found, *clock.panels(run)]


def about(run: Run, client: int) -> list[str]:
    """What the method decided about a client, and why, in sentences; the table of decisions says more."""
    own = OF_METHOD.get(method_name(run))
    found: list[str] = own.about(run, client) if own is not None and hasattr(own, "about") and run.rounds_done else []
    return found


def method_name(run: Run) -> str:
    """The name of a run's method or, in a pre-training, of the method whose agents it pre-trains."""
    spec = str(run.settings["method"]["name"])
    try:
        with imports.foreign():
            kind = find(spec)
    except UserError:  # a method of the user's own that is not here
        return spec
    return ((kind.rehearses if issubclass(kind, AgentMethod) else None) or kind).name

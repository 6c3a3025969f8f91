"""The groups of clients in methods that have them: FedALP, CFL, IFCA."""

from fedtailor.runs import Run
from fedtailor.views.panels.kinds import Panel, curves

STATES = {"groups": "member", "clusters": "member"}  # where a method keeps them: an entry, and the part of it


def groups(run: Run) -> dict[int, int]:
    """By client, its group; empty if there are none."""
    for key, part in STATES.items():
        kept = run.server_state(key).get(key)
        if isinstance(kept, dict) and isinstance(kept.get(part), dict):
            return dict(kept[part])
    chosen = run.server_state("chosen").get("chosen")
    return dict(chosen) if isinstance(chosen, dict) else {}


def panels(run: Run) -> list[Panel]:
    """How many clients every group has."""
    found = list(groups(run).values())
    if not found:
        return []
    names = sorted(set(found))
    line = {"clients": (names, [float(found.count(name)) for name in names])}
    return [curves("Clients in every group", "After the latest round.", line, x="group", y="clients")]


def about(run: Run, client: int) -> list[str]:
    found = groups(run)
    if client not in found:
        return []
    return [membership(found, client)]


def membership(found: dict[int, int], client: int) -> str:
    """The group of a client, in a sentence."""
    return f"It is in group {found[client]}, which has {list(found.values()).count(found[client])} of the clients."

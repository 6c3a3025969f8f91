"""States of earlier rounds that a run keeps beside its latest state: those of ``checkpoints.every`` and the best one.

They lie in the table ``state`` under scopes of their own: ``kept 10 client`` has the clients' states after round 10.
"""

from fedtailor.runs.store import Store

BEST = "best"
KEPT = "kept "
START = "start"  # the scope of what a run started from


def prefix(name: str) -> str:
    """What the scopes of a kept state begin with; empty for the latest state.

    >>> prefix("10") + "client", prefix("") + "client"
    ('kept 10 client', 'client')
    """
    return f"{KEPT}{name} " if name else ""


def live_scopes(store: Store) -> list[str]:
    """The scopes of the latest state; what slots stood for is history."""
    return [scope for scope in _scopes(store) if not scope.startswith(KEPT) and scope not in (START, "slots")]


def kept_scopes(store: Store, name: str) -> dict[str, str]:
    """The scopes of a kept state, or of the latest if the name is empty: what each was called when it was live."""
    if not name:
        return {scope: scope for scope in live_scopes(store)}
    begin = prefix(name)
    return {scope: scope.removeprefix(begin) for scope in _scopes(store) if scope.startswith(begin)}


def kept_rounds(store: Store) -> list[int]:
    """The rounds of the kept states, without the best one."""
    names = {scope.split(" ")[1] for scope in _scopes(store) if scope.startswith(KEPT)}
    return sorted(int(name) for name in names - {BEST})


def keep(store: Store, name: str) -> None:
    """Keep the latest state under a name. The caller has a transaction."""
    live = live_scopes(store)
    store.forget(*(scope for scope, was in kept_scopes(store, name).items() if was not in live))
    for scope in live:
        store.copy_states(scope, to=prefix(name) + scope)


def drop(store: Store, name: str) -> None:
    """Delete a kept state. The caller has a transaction."""
    store.forget(*kept_scopes(store, name))


def keep_round(store: Store, round: int, most: int) -> None:
    """Keep the latest state as that of a round, and only the ``most`` latest of such states."""
    known = [other for other in kept_rounds(store) if other < round]
    for old in known[: max(0, len(known) + 1 - most)]:  # first, so that their pages are used again
        drop(store, str(old))
    keep(store, str(round))


def _scopes(store: Store) -> list[str]:
    return [row["scope"] for row in store.rows("SELECT DISTINCT scope FROM state ORDER BY scope")]

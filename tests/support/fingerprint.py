"""Everything a run recorded that must not depend on how it was executed."""

from pathlib import Path
from typing import Any

from fedtailor.runs.store import Store

# measured wall times are the only thing that may differ
QUERIES = {
    "rounds": "SELECT episode, round, cohort, bytes_down, bytes_up FROM rounds ORDER BY 1, 2",
    "metrics": "SELECT episode, round, model, accuracy, pooled, deviation, worst, worst_tenth, loss, pooled_loss, "
    "clients, samples, untrained FROM metrics ORDER BY episode, round, model",
    "scores": "SELECT episode, round, model, client, correct, loss, samples FROM scores ORDER BY 1, 2, 3, 4",
    "tasks": "SELECT episode, round, client, steps, samples, loss, bytes_down, bytes_up FROM tasks ORDER BY 1, 2, 3",
    "clock": "SELECT episode, round, begin, seconds, latency, idle FROM clock ORDER BY episode, round",
    "times": "SELECT episode, round, client, compute, transfer FROM times ORDER BY episode, round, client",
    "events": "SELECT episode, round, client, kind, detail FROM events ORDER BY id",
    "decisions": "SELECT episode, round, name, observation, mask, action, reward FROM decisions ORDER BY id",
    "state": "SELECT scope, key, data FROM state ORDER BY scope, key",
}


def fingerprint(folder: Path) -> dict[str, list[dict[str, Any]]]:
    with Store(folder) as store:
        return {table: store.rows(query) for table, query in QUERIES.items()}


def assert_same(one: Path, other: Path) -> None:
    """Compare table by table, so that a difference names its table."""
    first, second = fingerprint(one), fingerprint(other)
    for table in QUERIES:
        assert first[table] == second[table], f"{table} differs"
    assert first["rounds"], "nothing was compared"

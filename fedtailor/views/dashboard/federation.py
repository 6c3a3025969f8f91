"""The nodes of a real federation, and the audit log of its coordinator."""

from collections import Counter
from pathlib import Path
from typing import Any

from fedtailor.errors import UserError
from fedtailor.flower import audit
from fedtailor.runs import Run
from fedtailor.views.numbers import NOTHING, size

EVENTS = 500  # latest events on the page


def federation_document(folder: Path, keys: Path | None) -> dict[str, Any]:
    """The nodes of a run, from what its coordinator stored; with its folder of keys, the audit log too."""
    with Run(folder) as run:
        names, described = run.nodes, run.node_facts()
        if not names:
            raise UserError(f"{folder} is a simulation: it has clients, but no nodes")
        tasks, events, rounds = run.tasks(), run.events(), run.rounds()
    log = None if keys is None else audit_document(keys)
    key_of = {} if log is None else log["keys"]
    refused: Counter[str] = Counter() if log is None else log["refused"]
    answered = {row["client"]: row["round"] for row in tasks}  # rows are in the order of rounds
    sent: Counter[int] = Counter()
    for row in tasks:
        sent[row["client"]] += row["bytes_down"] + row["bytes_up"]
    failed = Counter(row["client"] for row in events)
    rows = [
        [
            name,
            key_of.get(name, NOTHING),
            f"round {answered[client]} of {len(rounds)}" if client in answered else "never",
            str(described[client].get("environment", {}).get("fedtailor", NOTHING)),
            size(sent[client]),
            str(failed[client]),
            str(refused[name]) if log is not None else NOTHING,
        ]
        for client, name in enumerate(names)
    ]
    header = ["node", "key", "last answer", "version", "bytes", "failed tasks", "refused connections"]
    return {
        "nodes": {"title": "", "header": header, "rows": rows, "words": [0, 1, 2, 3]},
        "audit": None if log is None else {key: log[key] for key in ("whole", "said", "grid")},
    }


def audit_document(keys: Path) -> dict[str, Any]:
    """The audit log in a coordinator's folder of keys, and whether its chain of digests is whole."""
    file = keys / audit.FILE
    try:
        events = audit.verified(file) if file.exists() else []
        said = f"{len(events)} events. The chain is whole; the last digest is {_last(events)}."
        whole = True
    except UserError as error:
        events, said, whole = [], f"The chain is broken: {error}.", False
    rows = [[str(event.get(key, "")) for key in ("time", "event", "who", "key", "reason")] for event in events]
    return {
        "whole": whole,
        "said": said,
        "keys": {event["who"]: event["key"] for event in events if event["event"] == "registered"},
        "refused": Counter(event["who"] for event in events if event["event"] == "refused"),
        "grid": {
            "title": "",
            "header": ["time", "event", "who", "key", "reason"],
            "rows": rows[-EVENTS:][::-1],
            "words": [0, 1, 2, 3, 4],
        },
    }


def _last(events: list[dict[str, Any]]) -> str:
    return str(events[-1]["digest"]) if events else audit.FIRST

"""Digests of a short run of every method: the guard of ``fedtailor.version.RESULTS``.

``python -m tests.support.results`` writes the digests of this kind of machine into ``results.json``, and keeps those
of other kinds with the same results version. Do that only together with a change of ``RESULTS``, or on another kind of
machine: numbers with another results version are not comparable to the bit. ``... NAME`` replaces the digests of
some methods: those of other machines are then unknown, and left out.
"""

import json
import sys
import tempfile
from hashlib import blake2b
from pathlib import Path
from typing import Any

import fedtailor
from fedtailor.methods import AgentMethod, catalogue
from fedtailor.runs.environment import environment
from fedtailor.version import RESULTS
from tests.support.fingerprint import QUERIES, fingerprint

FILE = Path(__file__).parents[1] / "exactness" / "results.json"
SHORT: dict[str, Any] = {
    "name": "short",
    "rounds": 4,
    "seed": 3,
    "validation": True,
    "data": {"source": "digits", "clients": 8, "samples": 320, "partition": {"kind": "dirichlet", "alpha": 0.3}},
    "model": {"name": "mlp"},
    "training": {"lr": 0.05, "epochs": 2, "momentum": 0.5, "batch_size": 10},
    "participation": {"ratio": 0.5, "dropout": 0.1},
    "evaluation": {"every": 2},
    "engine": {"kind": "inline"},
}
DEVICES = {"speed": 0.001, "profiles": {"kind": "uniform", "spread": 10}}


def here() -> dict[str, Any]:
    """What bits depend on, besides the results version: versions, and the model of the processor."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return {**{key: value for key, value in environment().items() if key != "fedtailor"}, "processor": model}


def digest_of(name: str, folder: Path, policy: str = "none") -> str:
    """A digest of all that a short run of a method records, but for times that are measured and stored states.

    Agents learn from scratch: what is built-in may get better without a new results version.
    """
    devices = {"devices": DEVICES} if catalogue()[name].uses_clock else {}
    begins = {"policy": policy} if issubclass(catalogue()[name], AgentMethod) else {}
    sizes = {"sizes": []} if name == "hapfl" else {}
    fedtailor.run({**SHORT, **devices, "method": {"name": name, **begins, **sizes}}, folder=folder).close()
    tables = {table: rows for table, rows in fingerprint(folder).items() if table in QUERIES and table != "state"}
    return blake2b(repr(tables).encode(), digest_size=16).hexdigest()


def digests() -> dict[str, str]:
    """The known digests of this kind of machine by method; empty if there are none."""
    known = json.loads(FILE.read_text(encoding="utf-8"))
    return next((one["methods"] for one in known["machines"] if one["environment"] == here()), {})


def main(names: list[str]) -> None:
    """Write the digests of these methods, or of all."""
    with tempfile.TemporaryDirectory() as folder:
        made = {name: digest_of(name, Path(folder) / name) for name in names or catalogue()}
    known = json.loads(FILE.read_text(encoding="utf-8"))
    machines = known["machines"] if known["results"] == RESULTS else []
    others = [one for one in machines if one["environment"] != here()]
    for one in others:
        one["methods"] = {name: value for name, value in one["methods"].items() if name not in names}
    mine = {"environment": here(), "methods": dict(sorted({**(digests() if names else {}), **made}.items()))}
    known = {"results": RESULTS, "machines": [*others, mine]}
    FILE.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
    print(FILE)


if __name__ == "__main__":
    main(sys.argv[1:])

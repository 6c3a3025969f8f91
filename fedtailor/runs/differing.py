"""What differs between two runs: settings, versions, data and results."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedtailor.errors import UserError
from fedtailor.runs.checkpoints import KEPT
from fedtailor.runs.reading import Run
from fedtailor.runs.store import Store

# Settings that change no result. They are shown, but two runs are equal if only they differ.
FREE = ("name", "engine", "track", "checkpoints", "start.path", "start.digest", "evaluation.keep_models")


@dataclass(frozen=True)
class Difference:
    """A value that two runs do not share; None if one of them does not have it."""

    what: str
    one: Any
    other: Any
    counts: bool = True  # whether the runs are not equal because of it


@dataclass(frozen=True)
class Differences:
    """What differs between two runs."""

    settings: tuple[Difference, ...]
    versions: tuple[Difference, ...]
    data: tuple[Difference, ...]
    results: tuple[Difference, ...]
    clients: tuple[Difference, ...]

    @property
    def equal(self) -> bool:
        """Whether nothing differs but settings that change no result."""
        return not any(found.counts for group in vars(self).values() for found in group)

    def as_dict(self) -> dict[str, Any]:
        """The differences as one JSON document."""
        groups = {name: [asdict(found) for found in group] for name, group in vars(self).items()}
        return {"equal": self.equal, **groups}


def diff(one: str | Path, other: str | Path) -> Differences:
    """Compare two runs. Measured times are left out.

    Parameters
    ----------
    one, other : str or Path
        The folders of the runs.

    Returns
    -------
    Differences
        The settings, versions, facts about the data, results, and scores of clients that differ.

    Examples
    --------
    >>> fedtailor.diff("runs/first", "runs/first").equal
    True
    """
    with Run(one) as first, Run(other) as second:
        if first.pretrains != second.pretrains:
            raise UserError(f"{one if first.pretrains else other} pre-trains an agent, and the other run does not")
        states = (_states(first), _states(second))
        return Differences(
            settings=_settings(first, second),
            versions=_different(first.environment, second.environment),
            data=_different(_data(first), _data(second)),
            results=(
                *_different(_results(first), _results(second)),
                *_first(first, second),
                *(_different(*states) if all(states) else ()),
            ),
            clients=_different(_clients(first), _clients(second)),
        )


def _settings(first: Run, second: Run) -> tuple[Difference, ...]:
    if first.settings == second.settings:  # no need for the defaults of this version
        return ()
    return tuple(
        Difference(found.what, found.one, found.other, not found.what.startswith(FREE))
        for found in _different(*(dict(_flat(_recorded(run))) for run in (first, second)))
    )


def _recorded(run: Run) -> Mapping[str, Any]:
    """The settings with all defaults of this version; as they are if this version does not know them."""
    from fedtailor.runs.settings import recorded

    try:
        return recorded(run.settings).as_dict()
    except UserError:
        return run.settings


def _data(run: Run) -> dict[str, Any]:
    facts = {"digest": run.data_digest, "clients": run.client_count, "new clients": run.new_clients}
    samples = {f"samples of {row['name']}": [row[part] for part in ("train", "val", "test")] for row in run.clients()}
    return {**facts, **samples}


def _results(run: Run) -> dict[str, Any]:
    """The results of a run by name, without measured times."""
    facts = run.summary().as_dict()
    kept = ("status", "rounds_done", "bytes_down", "bytes_up", "failed_tasks", "warnings", "best", "stopped", "privacy")
    found = dict(_flat({key: facts[key] for key in kept if key in facts}))
    for model, measured in run.last().items():
        main = measured.main
        values = {run.headline: main.mean, "worst": main.worst, "worst tenth": main.worst_tenth, "loss": measured.loss}
        found |= {f"{model} {name}": value for name, value in values.items()}
    if not run.nodes and "clock" in facts:
        found |= dict(_flat({"clock": facts["clock"]}))
    found["start"] = (facts.get("start") or {}).get("digest")
    return found | {f"rewards of {name}": values for name, values in run.rewards().items()}


def _first(first: Run, second: Run) -> tuple[Difference, ...]:
    """The first round that both have evaluated, and that differs."""
    one, other = ({(r["episode"], r["round"], r["model"]): r for r in run.metrics()} for run in (first, second))
    for place in sorted(one.keys() & other.keys()):
        if any(not _same(one[place][key], other[place][key]) for key in ("accuracy", "loss", "worst")):
            _, round, model = place
            return (Difference(f"from round {round} on, {model} loss", one[place]["loss"], other[place]["loss"]),)
    return ()


def _states(run: Run) -> dict[str, Any]:
    """The digests of the latest states; empty if they were deleted."""
    with Store(run.folder) as store:
        rows = store.rows("SELECT scope, key, digest FROM state")
        return {f"state of {r['scope']} {r['key']}": r["digest"] for r in rows if not r["scope"].startswith(KEPT)}


def _clients(run: Run) -> dict[str, Any]:
    """Every client's latest score of every model, by client."""
    found: dict[str, Any] = {}
    for model in run.last():
        for row in run.scores(model):
            who = row.get("name", row["client"])
            values = {key: row[key] for key in ("accuracy", "loss", "samples")} | row.get("measures", {})
            found |= {f"{who} {model} {name}": value for name, value in values.items()}
    return found


def _different(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[Difference, ...]:
    names: Iterable[str] = dict.fromkeys([*one, *other])
    pairs = ((name, one.get(name), other.get(name)) for name in names)
    return tuple(Difference(name, a, b) for name, a, b in pairs if not _same(a, b))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other):
        return True
    return bool(one == other)


def _flat(values: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a tree by dotted name."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{place}{key}.")
        else:
            yield f"{place}{key}", value

"""Gives a run more rounds, with the result of a run that has had them from its start."""

import inspect
import os
from pathlib import Path
from typing import Any

from fedtailor.engines import Job
from fedtailor.errors import UserError
from fedtailor.methods import Method, catalogue, spec
from fedtailor.runs import toml
from fedtailor.runs.assembly import assemble
from fedtailor.runs.folders import SETTINGS_DRAFT
from fedtailor.runs.settings import Experiment
from fedtailor.runs.stopping import VALIDATION
from fedtailor.runs.store import Store

AT_THE_END = ("final", "new")  # models that are scored after the last round
WARNINGS_AT_THE_END = ("%in the final pass%", "% new clients failed%", "the attack ruined the model:%")


def check_rounds(place: Path, store: Store, rounds: int) -> None:
    """Raise a `UserError` unless a run can have this number of rounds."""
    before = store.meta("experiment")["rounds"]
    if store.meta("episodes") is not None:
        raise UserError(f"{place} pre-trains an agent: it can have more episodes (--episodes), not more rounds")
    if (stopped := store.meta("stopped")) is not None and rounds > before:
        raise UserError(
            f"{place} stopped early after round {stopped}, and would do so again; start a new run from "
            f"there: fedtailor run --from {place} --rounds {rounds} --set stopping.min_rounds={rounds}"
        )
    if not before <= rounds <= 1_000_000:
        raise UserError(f"{place} has {before} rounds: it can have more, up to 1000000, not {rounds}")


def check_extension(place: Path, settings: Experiment, job: Job) -> None:
    """Raise a `UserError` if what a run has done depends on its number of rounds."""
    if reason := _dependence(settings, job):
        raise UserError(f"{place} cannot get more rounds: {reason}; start it again with --rounds")


def extend(place: Path, store: Store, values: dict[str, Any]) -> None:
    """Store the settings with more rounds, and delete the results of its former end."""
    old, every = store.meta("experiment")["rounds"], values["evaluation"]["every"]
    with store.transaction():
        for table in ("scores", "metrics", "measures"):
            store.delete(table, "model IN (?, ?)", AT_THE_END)
            if every and old % every:  # it was evaluated as the last round
                held = "'held', " if table == "scores" else ""
                store.delete(table, f"round = ? AND model NOT IN ({held}'{VALIDATION}')", [old])
        store.delete("events", "kind IN (?, ?)", AT_THE_END)
        for text in WARNINGS_AT_THE_END:
            store.delete("warnings", "text LIKE ?", [text])
        for table in ("deployed", "models"):
            store.delete(table, "1")
        for key, value in (("experiment", values), ("finished", False), ("privacy", None)):
            store.set_meta(key, value)


def write_settings(place: Path, store: Store) -> None:
    """Write the file of a run's settings again if it is not that of the database, which has those that count."""
    file, draft, text = place / "experiment.toml", place / SETTINGS_DRAFT, toml.dumps(store.meta("experiment"))
    try:
        if not file.is_file() or file.read_bytes() != text.encode("utf-8"):
            draft.write_text(text, encoding="utf-8")
            os.replace(draft, file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise UserError(f"{file} cannot be written: {error.strerror}") from None


def _dependence(settings: Experiment, job: Job) -> str | None:
    """A clause about what depends on the number of rounds; None if nothing does."""
    method = settings.method
    if settings.training.schedule.kind == "cosine":
        return "training.schedule = 'cosine' ends with its last round"
    if reason := method.total():
        return f"method {spec(method)}: {reason}"
    ends = [d.name for d in assemble(settings, job).server().decisions.declared.values() if d.ends]
    if ends:
        return f"method {spec(method)}: the agent of {ends[0]} learns that the federation ends with its last round"
    if _reads_the_total(type(method)):
        return f"method {spec(method)} uses .rounds and does not say with total() that its results do not depend on it"
    return None


def _reads_the_total(kind: type[Method]) -> bool:
    """Whether the code of a user's own method reads the number of rounds and the method does not declare ``total``."""
    known = {*catalogue().values(), Method}
    for base in kind.__mro__:
        if base in known or "total" in vars(base):
            return False
        try:
            if ".rounds" in inspect.getsource(base):
                return True
        except (OSError, TypeError):  # no source, as for a class in a notebook
            continue
    return False

"""The database of a run: one SQLite file, one transaction per round, only the latest state.

Weights and states are safetensors bytes (see `fedtailor.messages.trees`); nothing is unpickled. After a crash the
file is at the last committed round.
"""

import fcntl
import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from fedtailor.errors import UserError, unknown
from fedtailor.messages.digests import digest
from fedtailor.records import Score
from fedtailor.runs.tables import READABLE, SCHEMA, TABLES, definitions, row_digest

DATABASE = "run.db"
OWN_FILE = 64 * 1024  # bytes for the file that SQLite makes beside a database, even to read it


class Store:
    """Reads and writes a run's database. One process writes at a time; others may read meanwhile.

    With ``still``, it reads one state of the database, and no byte in the run's folder changes. A run can also be read
    where nothing can be written: on a full disk, or on one that is read-only.
    """

    def __init__(self, folder: Path, *, write: bool = False, still: bool = False):
        self.path = folder / DATABASE
        if not self.path.is_file():
            raise UserError(f"{folder} is not a run: it has no {DATABASE}")
        self._lock: int | None = None
        self._writes = write
        with ExitStack() as opened, self._user_errors():
            mode = "mode=rw"
            if write or still:
                self._lock = lock(folder) if write else _shared_lock(folder)
                if self._lock is not None:
                    opened.callback(os.close, self._lock)
            if still:  # without a log of writes, and while no process writes, SQLite needs no files of its own
                quiet = self._lock is not None and not self._has_log()
                mode = "mode=ro&immutable=1" if quiet else "mode=ro"
            elif not write and not _holds_files(folder) and not self._has_log() and not in_use(folder):
                mode = "mode=ro&immutable=1"
            address = f"{self.path.absolute().as_uri()}?{mode}"
            self._db = sqlite3.connect(address, uri=True, isolation_level=None, timeout=30)
            opened.callback(self._db.close)
            if not still:
                self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("PRAGMA cache_size = -65536")  # kilobytes, so that the states of a round fit
            self._known: dict[str, bool] = {}  # by table: whether its rows have digests
            version = self.meta("schema")
            if version not in READABLE:
                raise UserError(f"{self.path} has schema {version}, this version of fedtailor reads schema {SCHEMA}")
            if version == SCHEMA and self._definitions() != definitions():
                raise sqlite3.DatabaseError("its tables are not those that were written")
            if write:
                self.check_version()
            if write and [row[0] for row in self._db.execute("PRAGMA quick_check(1)")] != ["ok"]:
                raise sqlite3.DatabaseError("its pages do not fit together")
            if write:
                self._check_labels()
            if still:
                self._db.execute("BEGIN")  # all reads see the state of the first
            opened.pop_all()

    @staticmethod
    def create(folder: Path, meta: dict[str, Any], clients: Iterable[dict[str, Any]] = ()) -> None:
        """Create an empty database in a folder. ``clients`` are rows for clients that have names of their own."""
        db = sqlite3.connect(folder / DATABASE, isolation_level=None)
        try:
            db.execute("PRAGMA page_size = 65536")  # for states of megabytes, twice as fast as 4 KB
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(f"BEGIN;{TABLES}COMMIT;")
            facts = [{"key": key, "value": json.dumps(value)} for key, value in {"schema": SCHEMA, **meta}.items()]
            _insert(db, "meta", facts)
            _insert(db, "clients", list(clients))
        finally:
            db.close()

    def check_version(self) -> None:
        """Raise a `UserError` if an earlier version of FedTailor wrote this run: its states are not read."""
        if (version := self.meta("schema")) != SCHEMA:
            raise UserError(
                f"{self.path} has schema {version} of an earlier version of fedtailor: this version shows the run "
                "but cannot resume, export or adapt it; start it again under another name"
            )

    def close(self) -> None:
        self._db.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction: all changes inside are stored, or none."""
        with self._user_errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk has already ended the transaction
                    self._db.execute("ROLLBACK")
                raise

    def rows(self, query: str, parameters: Iterable[Any] = ()) -> list[dict[str, Any]]:
        """The rows of a query as dicts."""
        with self._user_errors():
            cursor = self._db.execute(query, tuple(parameters))
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def read(self, table: str, where: str = "", parameters: Iterable[Any] = ()) -> list[dict[str, Any]]:
        """The rows of a table, checked against their digests; ``where`` may also order them.

        A table that an earlier version did not have is empty.
        """
        if table not in self._known:
            names = {row["name"] for row in self.rows(f"PRAGMA table_info({table})")}
            if not names:
                return []
            self._known[table] = "digest" in names
        rows = self.rows(f"SELECT * FROM {table} {where}", parameters)
        if self._known[table]:
            for row in rows:
                if row_digest(row) != row.pop("digest"):
                    raise self._damaged(f"a row of {table} differs from what was written")
        return rows

    def insert(self, table: str, rows: Iterable[dict[str, Any]]) -> None:
        """Add rows, all with the same columns."""
        with self._user_errors():
            _insert(self._db, table, list(rows))

    def delete(self, table: str, where: str, parameters: Iterable[Any] = ()) -> None:
        """Delete rows of a table."""
        with self._user_errors():
            self._db.execute(f"DELETE FROM {table} WHERE {where}", tuple(parameters))

    def reward(self, rewards: Iterable[tuple[float, int, int, str, int | None]]) -> None:
        """Store the rewards of earlier rounds' decisions: value, episode, round, name, client."""
        for value, *which in rewards:
            found = self.read("decisions", "WHERE episode = ? AND round = ? AND name = ? AND about IS ?", which)
            self.insert("decisions", [{**row, "reward": value} for row in found])

    def meta(self, key: str) -> Any:
        rows = self.read("meta", "WHERE key = ?", [key])
        try:
            return json.loads(rows[0]["value"]) if rows else None
        except ValueError as error:
            raise self._damaged(error) from None

    def set_meta(self, key: str, value: Any) -> None:
        self.insert("meta", [{"key": key, "value": json.dumps(value)}])

    def state(self, scope: str, key: str | int) -> bytes | None:
        """The latest state stored under this name."""
        rows = self.rows("SELECT data, digest FROM state WHERE scope = ? AND key = ?", [scope, str(key)])
        if rows and digest(rows[0]["data"]) != rows[0]["digest"]:
            raise self._damaged(f"the state of {scope} {key} differs from what was written")
        return rows[0]["data"] if rows else None

    def model(self, name: str) -> bytes:
        """A stored model of a client by its name, which is the digest of its bytes."""
        rows = self.rows("SELECT data FROM models WHERE name = ?", [name])
        if not rows or digest(rows[0]["data"]) != name:
            raise self._damaged("the stored model of a client differs from what was written")
        return rows[0]["data"]  # type: ignore[no-any-return]

    def insert_model(self, name: str, data: bytes) -> None:
        with self._user_errors():
            self._db.execute("INSERT INTO models VALUES (?, ?)", (name, data))

    def state_keys(self, scope: str) -> list[str]:
        return [row["key"] for row in self.rows("SELECT key FROM state WHERE scope = ?", [scope])]

    def set_state(self, scope: str, key: str | int, data: bytes | None, name: str = "") -> None:
        """Replace a state; None deletes it. A state that has not changed is not written.

        ``name`` is the digest of the data, if the caller knows it.
        """
        if data is None:
            self._db.execute("DELETE FROM state WHERE scope = ? AND key = ?", (scope, str(key)))
            return
        name = name or digest(data)
        known = self.rows("SELECT 1 FROM state WHERE scope = ? AND key = ? AND digest = ?", [scope, str(key), name])
        if not known:
            label = row_digest({"scope": scope, "key": str(key), "data": name})
            with self._user_errors():
                self._db.execute(
                    "INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?)", (scope, str(key), name, label, data)
                )

    def copy_states(self, scope: str, to: str) -> None:
        """Replace the states ``to`` by those of another scope. What has not changed is not written."""
        known = {row["key"]: row["digest"] for row in self._names(to)}
        names = {row["key"]: row["digest"] for row in self._names(scope)}
        for key in known.keys() - names.keys():
            self.set_state(to, key, None)
        for key, name in names.items():
            if known.get(key) != name:
                label = row_digest({"scope": to, "key": key, "data": name})
                values = "SELECT ?, key, digest, ?, data FROM state WHERE scope = ? AND key = ?"
                with self._user_errors():
                    self._db.execute(f"INSERT OR REPLACE INTO state {values}", (to, label, scope, key))

    def _names(self, scope: str) -> list[dict[str, Any]]:
        return self.rows("SELECT key, digest FROM state WHERE scope = ?", [scope])

    def forget(self, *scopes: str) -> None:
        """Delete every state of these scopes."""
        self._db.executemany("DELETE FROM state WHERE scope = ?", [(scope,) for scope in scopes])

    def shrink(self) -> None:
        """Give the pages of deleted rows back to the disk; this briefly needs as much room as is left in the file."""
        try:
            for step in ("PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
                self._db.execute(step)
        except sqlite3.OperationalError as error:
            raise UserError(
                f"{self.path} could not shrink ({error}): what was deleted is gone, but only this run can use its room"
            ) from None

    def scores(self, model: str, episode: int, round: int) -> dict[int, Score]:
        """Every client's score of a model in a round."""
        rows = self.read("scores", "WHERE episode = ? AND round = ? AND model = ?", [episode, round, model])
        return {row["client"]: _score(row) for row in rows}

    def latest_scores(self, model: str, episode: int) -> dict[int, Score]:
        """Every client's last score of a model."""
        # SQLite takes the other columns from the row that has the maximum.
        which = "WHERE episode = ? AND model = ? GROUP BY client HAVING MAX(round) >= 0"
        return {row["client"]: _score(row) for row in self.read("scores", which, [episode, model])}

    def set_scores(self, place: dict[str, Any], scores: Iterable[tuple[int, Score]]) -> None:
        """Store the scores of clients; ``place`` has episode, round and model."""
        rows = [
            {
                **place,
                "client": client,
                "correct": score.correct,
                "loss": score.loss,
                "samples": score.samples,
                "measures": json.dumps(score.values) if score.values else None,
                "sums": json.dumps(score.sums) if score.sums else None,
            }
            for client, score in scores
        ]
        self.insert("scores", rows)

    def _definitions(self) -> set[str]:
        return {row["sql"] for row in self.rows("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}

    def _check_labels(self) -> None:
        """Check that every state is stored under its own name; its data are checked when they are read."""
        cursor = self._db.execute("SELECT scope, key, digest, label FROM state")
        for scope, key, name, label in cursor:
            if row_digest({"scope": scope, "key": key, "data": name}) != label:
                raise self._damaged(f"the name of the state of {scope} {key} differs from what was written")

    @contextmanager
    def _user_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise UserError(self._unusable(" ".join(str(error).split())[:200])) from None
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from None

    def _has_log(self) -> bool:
        """Whether there are writes that are not in the database file yet."""
        log = self.path.with_name(f"{DATABASE}-wal")
        return log.exists() and log.stat().st_size > 0

    def _unusable(self, reason: str) -> str:
        if self._writes and ("disk" in reason or "full" in reason):
            done = "the run is at its last complete round"
            return f"{self.path} cannot be written ({reason}): {done}; make room, then {self._how_to_resume()}"
        if self._has_log() and not _holds_files(self.path.parent):
            why = "a process that writes, or that was killed, has its latest writes in a file beside it"
            return f"{self.path} cannot be read where nothing can be written ({why}): copy the run to another disk"
        return f"{self.path} cannot be used: {reason}"

    def _how_to_resume(self) -> str:
        with suppress(Exception):  # the error that is being reported may stop this too
            if any(row[0] != "null" for row in self._db.execute("SELECT value FROM meta WHERE key = 'nodes'")):
                return "start the same 'fedtailor serve' again"
        return f"resume it: fedtailor resume {self.path.parent}"

    def _damaged(self, reason: object) -> UserError:
        said = " ".join(str(reason).split())[:200]
        return UserError(
            f"{self.path} is damaged ({said}): restore it from a copy or start the run again under another name"
        )


def _score(row: dict[str, Any]) -> Score:
    """A row as a score. SQLite stores NaN, the loss of a model that has diverged, as NULL."""
    more = {"values": row.get("measures"), "sums": row.get("sums")}
    return Score(
        row["correct"],
        float("nan") if row["loss"] is None else row["loss"],
        row["samples"],
        **{name: json.loads(text) for name, text in more.items() if text is not None},
    )


def _insert(db: sqlite3.Connection, table: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        names = [*rows[0], "digest"]
        marks = ", ".join(f":{name}" for name in names)
        checked = [{**row, "digest": row_digest(row)} for row in rows]
        db.executemany(f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({marks})", checked)


def _holds_files(folder: Path) -> bool:
    """Whether a file can be made in a folder."""
    return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > OWN_FILE


def in_use(folder: Path) -> bool:
    """Whether a process runs this run now."""
    try:
        file = os.open(folder / "run.lock", os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _shared_lock(folder: Path) -> int | None:
    """Keep other processes from running this run; None if one runs it now, or if none ever did."""
    try:
        file = os.open(folder / "run.lock", os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


def lock(folder: Path) -> int:
    """Lock the run for this process. The lock always ends with the process."""
    try:
        file = os.open(folder / "run.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise UserError(f"{folder} is in use: another process runs it") from None
    return file


def find_client(store: Store, which: int | str) -> int:
    """The number of a client of a run, by its number or name; raises a `UserError` if there is none."""
    count = store.meta("clients") + (store.meta("new") or 0)
    names = [row["name"] for row in store.read("clients", "ORDER BY client")]
    if which in names:
        return names.index(str(which))
    text = str(which)
    if text.isascii() and text.isdecimal() and int(text) < count:
        return int(text)
    if names and not isinstance(which, int):
        raise unknown("client", text, names)
    raise UserError(f"there is no client {text}: this run has clients 0 to {count - 1}")

"""The database of a run: one SQLite file, one transaction per round, only the latest state.

Weights and states are safetensors bytes (see `fedtailor.messages.trees`); nothing is unpickled. After a crash the
file is at the last committed round.
"""

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fedtailor.errors import UserError
from fedtailor.learning import Score
from fedtailor.messages.trees import digest

SCHEMA = 3
READABLE = (1, 2, SCHEMA)  # earlier versions kept agents and methods' states in another layout
DATABASE = "run.db"

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE rounds (
    episode INTEGER, round INTEGER, cohort TEXT NOT NULL, bytes_down INTEGER NOT NULL, bytes_up INTEGER NOT NULL,
    seconds REAL NOT NULL, PRIMARY KEY (episode, round)) WITHOUT ROWID;
CREATE TABLE metrics (
    episode INTEGER, round INTEGER, model TEXT, accuracy REAL, pooled REAL, deviation REAL, worst REAL,
    worst_tenth REAL, loss REAL, pooled_loss REAL, clients INTEGER NOT NULL, samples INTEGER NOT NULL,
    untrained INTEGER NOT NULL, PRIMARY KEY (episode, round, model)) WITHOUT ROWID;
CREATE TABLE scores (
    episode INTEGER, round INTEGER, model TEXT, client INTEGER, correct INTEGER NOT NULL, loss REAL,
    samples INTEGER NOT NULL, PRIMARY KEY (episode, round, model, client)) WITHOUT ROWID;
CREATE TABLE tasks (
    episode INTEGER, round INTEGER, client INTEGER, steps INTEGER NOT NULL, samples INTEGER NOT NULL,
    loss REAL, bytes_down INTEGER NOT NULL, bytes_up INTEGER NOT NULL, seconds REAL NOT NULL,
    PRIMARY KEY (episode, round, client)) WITHOUT ROWID;
CREATE TABLE clock (
    episode INTEGER, round INTEGER, begin REAL NOT NULL, seconds REAL NOT NULL, latency REAL, idle REAL,
    PRIMARY KEY (episode, round)) WITHOUT ROWID;
CREATE TABLE times (
    episode INTEGER, round INTEGER, client INTEGER, compute REAL NOT NULL, transfer REAL NOT NULL,
    PRIMARY KEY (episode, round, client)) WITHOUT ROWID;
CREATE TABLE events (
    id INTEGER PRIMARY KEY, episode INTEGER, round INTEGER, client INTEGER, kind TEXT NOT NULL, detail TEXT NOT NULL);
CREATE TABLE decisions (
    id INTEGER PRIMARY KEY, episode INTEGER, round INTEGER, name TEXT NOT NULL, observation BLOB NOT NULL,
    mask BLOB, action BLOB NOT NULL, reward REAL, about INTEGER);
CREATE TABLE state (
    scope TEXT, key TEXT, digest TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (scope, key)) WITHOUT ROWID;
"""


class Store:
    """Reads and writes a run's database. One process writes at a time; others may read meanwhile."""

    def __init__(self, folder: Path, *, write: bool = False):
        self.path = folder / DATABASE
        if not self.path.is_file():
            raise UserError(f"{folder} is not a run: it has no {DATABASE}")
        self._lock: int | None = None
        with ExitStack() as opened, self._user_errors():
            if write:
                self._lock = _lock(folder)
                opened.callback(os.close, self._lock)
            address = f"{self.path.absolute().as_uri()}?mode=rw"
            self._db = sqlite3.connect(address, uri=True, isolation_level=None, timeout=30)
            opened.callback(self._db.close)
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("PRAGMA cache_size = -65536")  # kilobytes, so that the states of a round fit
            version = self.meta("schema")
            if version not in READABLE:
                raise UserError(f"{self.path} has schema {version}, this version of fedtailor reads schema {SCHEMA}")
            if write and version != SCHEMA:
                raise UserError(
                    f"{self.path} has schema {version} of an earlier version of fedtailor: this version shows the run "
                    "but cannot resume or export it; start it again under another name"
                )
            if write and [row[0] for row in self._db.execute("PRAGMA quick_check(1)")] != ["ok"]:
                raise sqlite3.DatabaseError("its pages do not fit together")
            opened.pop_all()

    @staticmethod
    def create(folder: Path, meta: dict[str, Any]) -> None:
        """Create an empty database in a folder."""
        db = sqlite3.connect(folder / DATABASE, isolation_level=None)
        try:
            db.execute("PRAGMA page_size = 65536")  # for states of megabytes, twice as fast as 4 KB
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(f"BEGIN;{_TABLES}COMMIT;")
            rows = [(key, json.dumps(value)) for key, value in {"schema": SCHEMA, **meta}.items()]
            db.executemany("INSERT INTO meta VALUES (?, ?)", rows)
        finally:
            db.close()

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

    def insert(self, table: str, rows: Iterable[dict[str, Any]]) -> None:
        """Add rows, all with the same columns."""
        rows = list(rows)
        if rows:
            marks = ", ".join(f":{name}" for name in rows[0])
            with self._user_errors():
                self._db.executemany(f"INSERT OR REPLACE INTO {table} ({', '.join(rows[0])}) VALUES ({marks})", rows)

    def reward(self, rewards: Iterable[tuple[float, int, int, str, int | None]]) -> None:
        """Store the rewards of earlier rounds' decisions: value, episode, round, name, client."""
        with self._user_errors():
            self._db.executemany(
                "UPDATE decisions SET reward = ? WHERE episode = ? AND round = ? AND name = ? AND about IS ?", rewards
            )

    def meta(self, key: str) -> Any:
        rows = self.rows("SELECT value FROM meta WHERE key = ?", [key])
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

    def state_keys(self, scope: str) -> list[str]:
        return [row["key"] for row in self.rows("SELECT key FROM state WHERE scope = ?", [scope])]

    def set_state(self, scope: str, key: str | int, data: bytes | None) -> None:
        """Replace a state; None deletes it. A state that has not changed is not written."""
        if data is None:
            self._db.execute("DELETE FROM state WHERE scope = ? AND key = ?", (scope, str(key)))
            return
        name = digest(data)
        known = self.rows("SELECT 1 FROM state WHERE scope = ? AND key = ? AND digest = ?", [scope, str(key), name])
        if not known:
            self.insert("state", [{"scope": scope, "key": str(key), "digest": name, "data": data}])

    def copy_states(self, scope: str, to: str) -> None:
        """Replace the states of a scope by those of another one."""
        self._db.execute("DELETE FROM state WHERE scope = ?", (to,))
        self._db.execute("INSERT INTO state SELECT ?, key, digest, data FROM state WHERE scope = ?", (to, scope))

    def forget(self, *scopes: str) -> None:
        """Delete every state of these scopes."""
        self._db.executemany("DELETE FROM state WHERE scope = ?", [(scope,) for scope in scopes])

    def scores(self, model: str, episode: int, round: int) -> dict[int, Score]:
        """Every client's score of a model in a round."""
        rows = self.rows(
            "SELECT client, correct, loss, samples FROM scores WHERE episode = ? AND round = ? AND model = ?",
            [episode, round, model],
        )
        return {row["client"]: _score(row) for row in rows}

    def latest_scores(self, model: str, episode: int) -> dict[int, Score]:
        """Every client's last score of a model."""
        rows = self.rows(
            "SELECT client, correct, loss, samples, MAX(round) AS round FROM scores "
            "WHERE episode = ? AND model = ? GROUP BY client",
            [episode, model],
        )
        return {row["client"]: _score(row) for row in rows}

    @contextmanager
    def _user_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "disk" in str(error) or "full" in str(error):
                raise UserError(
                    f"{self.path} cannot be written ({error}): the run is at its last complete round; "
                    f"make room, then: fedtailor resume {self.path.parent}"
                ) from None
            raise UserError(f"{self.path} cannot be used: {error}") from None
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from None

    def _damaged(self, reason: object) -> UserError:
        return UserError(
            f"{self.path} is damaged ({reason}): restore it from a copy or start the run again under another name"
        )


def _score(row: dict[str, Any]) -> Score:
    """A row as a score. SQLite stores NaN, the loss of a model that has diverged, as NULL."""
    return Score(row["correct"], float("nan") if row["loss"] is None else row["loss"], row["samples"])


def in_use(folder: Path) -> bool:
    """Whether a process runs this run now."""
    try:
        file = os.open(folder / "run.lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _lock(folder: Path) -> int:
    """Lock the run for this process. The lock always ends with the process."""
    try:
        file = os.open(folder / "run.lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise UserError(f"{folder} is in use: another process runs it") from None
    return file

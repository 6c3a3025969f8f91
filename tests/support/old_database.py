"""A run's database as schema 3 had it: no digests of rows, fewer tables."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from fedtailor.runs.store import DATABASE

TABLES = """
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


def create(folder: Path, meta: dict[str, Any], version: int = 3) -> None:
    """Write an empty database of an earlier version."""
    with sqlite3.connect(folder / DATABASE) as db:
        db.executescript(TABLES)
        rows = [(key, json.dumps(value)) for key, value in {"schema": version, **meta}.items()]
        db.executemany("INSERT INTO meta VALUES (?, ?)", rows)
    db.close()


def downgrade(folder: Path) -> None:
    """Turn the database of a run into one of schema 3 with the same rows."""
    new = folder / "new.db"
    (folder / DATABASE).rename(new)
    for extra in folder.glob(f"{DATABASE}-*"):
        extra.rename(folder / extra.name.replace(DATABASE, "new.db"))
    with sqlite3.connect(folder / DATABASE) as db:
        db.executescript(TABLES)
        db.execute("ATTACH ? AS new", [str(new)])
        for (table,) in db.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'").fetchall():
            columns = ", ".join(row[1] for row in db.execute(f"PRAGMA main.table_info({table})"))
            db.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM new.{table}")
        db.execute("UPDATE main.meta SET value = '3' WHERE key = 'schema'")
    db.close()

"""The tables of a run's database, and the digest that every row carries.

A row's digest covers the names and values of its columns. It is checked whenever the row is read, so a damaged byte
is noticed instead of used.
"""

import sqlite3
from collections.abc import Mapping
from functools import cache
from typing import Any
from zlib import crc32

SCHEMA = 4
READABLE = (1, 2, 3, SCHEMA)  # earlier versions had fewer tables and no digests of rows

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, digest INTEGER) WITHOUT ROWID;
CREATE TABLE clients (
    client INTEGER PRIMARY KEY, name TEXT NOT NULL, train INTEGER NOT NULL, val INTEGER NOT NULL,
    test INTEGER NOT NULL, digest INTEGER);
CREATE TABLE warnings (id INTEGER PRIMARY KEY, text TEXT NOT NULL, digest INTEGER);
CREATE TABLE rounds (
    episode INTEGER, round INTEGER, cohort TEXT NOT NULL, bytes_down INTEGER NOT NULL, bytes_up INTEGER NOT NULL,
    seconds REAL NOT NULL, digest INTEGER, PRIMARY KEY (episode, round)) WITHOUT ROWID;
CREATE TABLE phases (
    episode INTEGER, round INTEGER, phase TEXT, seconds REAL NOT NULL, digest INTEGER,
    PRIMARY KEY (episode, round, phase)) WITHOUT ROWID;
CREATE TABLE metrics (
    episode INTEGER, round INTEGER, model TEXT, accuracy REAL, pooled REAL, deviation REAL, worst REAL,
    worst_tenth REAL, loss REAL, pooled_loss REAL, clients INTEGER NOT NULL, samples INTEGER NOT NULL,
    untrained INTEGER NOT NULL, digest INTEGER, PRIMARY KEY (episode, round, model)) WITHOUT ROWID;
CREATE TABLE measures (
    episode INTEGER, round INTEGER, model TEXT, measure TEXT, mean REAL, pooled REAL, deviation REAL, worst REAL,
    worst_tenth REAL, clients INTEGER NOT NULL, undefined INTEGER NOT NULL, digest INTEGER,
    PRIMARY KEY (episode, round, model, measure)) WITHOUT ROWID;
CREATE TABLE scores (
    episode INTEGER, round INTEGER, model TEXT, client INTEGER, correct INTEGER NOT NULL, loss REAL,
    samples INTEGER NOT NULL, measures TEXT, sums TEXT, digest INTEGER,
    PRIMARY KEY (episode, round, model, client)) WITHOUT ROWID;
CREATE TABLE tasks (
    episode INTEGER, round INTEGER, client INTEGER, steps INTEGER NOT NULL, samples INTEGER NOT NULL,
    loss REAL, bytes_down INTEGER NOT NULL, bytes_up INTEGER NOT NULL, seconds REAL NOT NULL, digest INTEGER,
    PRIMARY KEY (episode, round, client)) WITHOUT ROWID;
CREATE TABLE clock (
    episode INTEGER, round INTEGER, begin REAL NOT NULL, seconds REAL NOT NULL, latency REAL, idle REAL,
    digest INTEGER, PRIMARY KEY (episode, round)) WITHOUT ROWID;
CREATE TABLE times (
    episode INTEGER, round INTEGER, client INTEGER, compute REAL NOT NULL, transfer REAL NOT NULL, digest INTEGER,
    PRIMARY KEY (episode, round, client)) WITHOUT ROWID;
CREATE TABLE events (
    id INTEGER PRIMARY KEY, episode INTEGER, round INTEGER, client INTEGER, kind TEXT NOT NULL, detail TEXT NOT NULL,
    digest INTEGER);
CREATE TABLE decisions (
    id INTEGER PRIMARY KEY, episode INTEGER, round INTEGER, name TEXT NOT NULL, observation BLOB NOT NULL,
    mask BLOB, action BLOB NOT NULL, reward REAL, about INTEGER, digest INTEGER);
CREATE TABLE deployed (client INTEGER PRIMARY KEY, network TEXT NOT NULL, model TEXT NOT NULL, digest INTEGER);
CREATE TABLE models (name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE state (
    scope TEXT, key TEXT, digest TEXT NOT NULL, label INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (scope, key)) WITHOUT ROWID;
"""


@cache
def definitions() -> frozenset[str]:
    """The definitions of the tables as SQLite stores them."""
    db = sqlite3.connect(":memory:")
    try:
        db.executescript(TABLES)
        return frozenset(row[0] for row in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"))
    finally:
        db.close()


def row_digest(row: Mapping[str, Any]) -> int:
    """A digest of a row's names and values, the same before it is written and after it is read.

    SQLite numbers the rows itself and stores NaN as NULL, a whole number in a column of reals as a real, and -0 as 0.

    Examples
    --------
    >>> row_digest({"round": 1, "loss": float("nan")}) == row_digest({"loss": None, "round": 1.0, "id": 7})
    True
    """
    found = []
    for name in sorted(row):
        value = row[name]
        if value is None or name in ("id", "digest"):
            continue
        if isinstance(value, int | float):
            value = float(value) + 0.0
            if value != value:
                continue
        found.append((name, value))
    return crc32(repr(found).encode())

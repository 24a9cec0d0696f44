"""Which files have projections with personal values: a list beside the log, so that an erasure finds them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson

from headwater.log import Log
from headwater.sourcing.event_rows import SUFFIX

FOLDER = "projections"
#: The table with the offsets, and what the model was made of and by. Other tables are the user's.
OFFSETS = "headwater_offsets"
#: How long another process may hold the file while it applies events.
WAIT_SECONDS = 60.0


def note_projection(log: Log, path: str, entities: str) -> None:
    """Remember that a file has a projection of entities whose personal fields are revealed."""
    if log.read_only or path == ":memory:":
        return
    folder = log.home / FOLDER
    body = orjson.dumps({"path": os.path.realpath(path), "entities": entities})
    note = folder / f"{hashlib.sha256(body).hexdigest()[:16]}.json"
    if not note.exists():
        folder.mkdir(parents=True, exist_ok=True)
        temporary = note.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_bytes(body)
        os.replace(temporary, note)


def projection_files(log: Log) -> list[Path]:
    """The files of all projections with personal values, with what SQLite keeps beside them."""
    return [Path(path + suffix) for path, _ in _noted(log) for suffix in ("", "-wal", "-shm", "-journal")]


def clear_projections(log: Log, topics: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Empty the projections of these topics of events, byte by byte; yields each path, and why it could not be.

    A projection is built again from all events by the next program that opens or queries it.
    """
    kinds = {topic.removesuffix(SUFFIX) for topic in topics}
    for path, entities in _noted(log):
        if entities in kinds and Path(path).exists():
            try:
                with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=WAIT_SECONDS)) as database:
                    is_ours = _clear(database, entities)
            except sqlite3.Error as error:
                yield path, str(error)
            else:
                if is_ours:
                    yield path, None


def _noted(log: Log) -> list[tuple[str, str]]:
    bodies = [orjson.loads(note.read_bytes()) for note in sorted((log.home / FOLDER).glob("*.json"))]
    return [(body["path"], body["entities"]) for body in bodies]


def _clear(database: sqlite3.Connection, entities: str) -> bool:
    """Drop the tables, and rewrite the file; False if it has no projection of these entities."""
    database.execute("BEGIN IMMEDIATE")
    try:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        if OFFSETS not in names:
            return False
        if not database.execute(f"SELECT 1 FROM {OFFSETS} WHERE entities = ?", (entities,)).fetchone():
            return False
        drop_tables(database, keep=(OFFSETS,))
        database.execute(f"UPDATE {OFFSETS} SET topic = ''")  # of no topic: it is built again
        database.execute("COMMIT")
    except sqlite3.Error:
        database.execute("ROLLBACK")
        raise
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")
    database.execute("VACUUM")  # free pages hold what was there
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return True


def drop_tables(database: sqlite3.Connection, *, keep: tuple[str, ...] = ()) -> None:
    """Drop all tables and views."""
    # A virtual table drops the tables that it is made of.
    query = (
        "SELECT type, name FROM sqlite_master WHERE type IN ('view', 'table') AND name NOT LIKE 'sqlite_%' "
        "ORDER BY sql LIKE 'CREATE VIRTUAL%' DESC"
    )
    for kind, name in database.execute(query).fetchall():
        if name not in keep:
            database.execute(f'DROP {kind} IF EXISTS "{name}"')

"""`python -m benchmarks.capture`: captures of PostgreSQL, MariaDB and SQLite, beside limits, in one run.

    make bench NAME=capture ARGS="--quick"    small sizes, to see that it runs

The servers are real, on free ports of this machine, and sync what they commit; the log syncs once per piece.
"""

from __future__ import annotations

from benchmarks.capture.backlog import postgres_insert, postgres_small, postgres_update
from benchmarks.capture.delay import postgres_delay
from benchmarks.capture.large import postgres_memory, postgres_snapshot
from benchmarks.capture.mariadb import mariadb_changes
from benchmarks.capture.sqlite import sqlite_cost
from benchmarks.capture.sync import sync_postgres
from benchmarks.harness import main

PARTS = {
    "postgres.insert": postgres_insert,
    "postgres.update": postgres_update,
    "postgres.small": postgres_small,
    "postgres.memory": postgres_memory,
    "postgres.snapshot": postgres_snapshot,
    "postgres.delay": postgres_delay,
    "mariadb": mariadb_changes,
    "sqlite.cost": sqlite_cost,
    "sync.postgres": sync_postgres,
}

if __name__ == "__main__":
    main("capture", PARTS)

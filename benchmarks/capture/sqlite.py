"""What the triggers of a capture cost a SQLite database: writes with them beside writes without."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from benchmarks.harness import Bar, Bench, Result, Sample, Stopwatch, median_cpu_rate, median_rate
from headwater.capture.sqlite import SqliteSource

ROWS_PER_TRANSACTION = 1_000
TABLE = "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, price REAL, item TEXT, note TEXT, at TEXT)"


def sqlite_cost(bench: Bench) -> list[Result]:
    """A third each of insertions, updates and deletions, 1,000 in a transaction that is synced."""
    rows = bench.size(60_000, 3_000)
    with bench.scratch("sqlite.cost") as folder:
        numbers = iter(range(1_000))
        samples = bench.interleave(
            "sqlite.cost",
            {
                "with triggers": lambda: _writes(folder / f"{next(numbers)}.db", rows, captured=True),
                "without": lambda: _writes(folder / f"{next(numbers)}.db", rows, captured=False),
            },
            rounds=bench.size(5, 1),
        )
    ours, bare = samples["with triggers"], samples["without"]
    return [
        Result(
            name="sqlite.cost",
            value=median_rate(ours),
            unit="writes/s",
            peer="the same without triggers",
            peer_value=median_rate(bare),
            more={"cpu_ratio": median_cpu_rate(ours) / median_cpu_rate(bare)},
            bars=[Bar(figure="ratio", least=0.5)],
        )
    ]


def _writes(path: Path, rows: int, *, captured: bool) -> Sample:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute(TABLE)
    if captured:
        source = SqliteSource(path, capture="shop", tables=["orders"])
        source.prepare()
        source.close()
    each = rows // 3
    with Stopwatch() as watch:
        for first in range(0, each, ROWS_PER_TRANSACTION):
            ids = range(first, min(each, first + ROWS_PER_TRANSACTION))
            for statement in (
                "INSERT INTO orders VALUES (?, 7, 2.5, 'tea', 'a note of some length', '2026-01-01')",
                "UPDATE orders SET price = price + 1 WHERE id = ?",
                "DELETE FROM orders WHERE id = ?",
            ):
                database.execute("BEGIN")
                database.executemany(statement, [(one,) for one in ids])
                database.execute("COMMIT")
    database.close()
    path.unlink()
    return watch.sample(each * 3)

"""Changes per second from the binary log of a MariaDB, into a synced log."""

from __future__ import annotations

import contextlib

from benchmarks.harness import Bar, Bench, Result, Sample, Stopwatch, median_cpu_rate, median_rate
from headwater.capture import Capture, CaptureConfig, CaptureStore
from headwater.log import Log
from headwater.log import open as open_log
from tests.servers import Mariadb, mariadb_server

SETTINGS = {"innodb-flush-log-at-trx-commit": "1", "sync-binlog": "1", "innodb-buffer-pool-size": "128M"}
ROWS_PER_TRANSACTION = 1_000
TABLE = """
CREATE TABLE orders (
    id BIGINT PRIMARY KEY, customer INT NOT NULL, price DOUBLE, item VARCHAR(40), note VARCHAR(80), at DATETIME NOT NULL
)
"""
_VALUES = (
    "seq, seq % 1000, seq * 0.25, concat('item ', seq % 5000), concat('a note of some length, for order ', seq), now()"
)


def mariadb_changes(bench: Bench) -> list[Result]:
    """Insertions, 1,000 in a transaction, from a backlog."""
    rows = bench.size(200_000, 2_000)
    samples: list[Sample] = []
    with (
        bench.scratch("mariadb") as folder,
        mariadb_server(settings=SETTINGS) as server,
        open_log(folder / "log") as log,
    ):
        name = server.new_database()
        _run(server, name, [TABLE])
        CaptureStore(log).create(CaptureConfig(name="shop", url=server.url(name), tables=("orders",)))
        _captured(log, 0)
        for number in range(bench.size(3, 1) + 1):
            first = number * rows + 1
            steps = range(first, first + rows, ROWS_PER_TRANSACTION)
            _run(server, name, [_insertion(step, min(step + ROWS_PER_TRANSACTION, first + rows)) for step in steps])
            sample = _captured(log, rows)
            if number:  # the first round warms up
                samples.append(sample)
                bench.say(f"mariadb {number}: {sample.rate:,.0f} changes/s")
    return [
        Result(
            name="mariadb",
            value=median_rate(samples),
            unit="changes/s",
            more={"changes_per_cpu_second": median_cpu_rate(samples)},
            bars=[Bar(figure="value", least=10_000)],
        )
    ]


def _insertion(first: int, behind: int) -> str:
    return f"INSERT INTO orders SELECT {_VALUES} FROM seq_{first}_to_{behind - 1}"


def _run(server: Mariadb, database: str, statements: list[str]) -> None:
    with contextlib.closing(server.connect(database)) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _captured(log: Log, count: int) -> Sample:
    """Connect and capture the backlog, as a capture does that was down."""
    with Stopwatch() as watch, Capture.open(log, "shop") as capture:
        found = capture.catch_up()
    if found != count:
        raise RuntimeError(f"{count} changes were committed, {found} were captured")
    return watch.sample(max(count, 1))

"""What the query should have written, computed from the input topic by DuckDB alone, beside what it has written."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from headwater.engine.side_outputs import read_side_output
from headwater.engine.state_folder import open_folder
from headwater.log import Log

_EXPECTED = """
CREATE TABLE passed AS
    SELECT * FROM (
        SELECT *, epoch_us("at") AS at_us,
            epoch_us("at") - lag(epoch_us("at")) OVER (PARTITION BY id ORDER BY "at", _offset) AS since_us
        FROM orders
    ) WHERE since_us IS NULL OR since_us >= $within_us;

CREATE TABLE kept AS SELECT * FROM passed WHERE amount >= 0;

CREATE TABLE expected AS
    SELECT 'order' AS kind, user, id, _partition AS read_partition, _offset AS read_offset, NULL::BIGINT AS window_us,
        row_number() OVER (PARTITION BY user ORDER BY _offset) AS n,
        (sum(amount) OVER (PARTITION BY user ORDER BY _offset ROWS UNBOUNDED PRECEDING))::BIGINT AS total
    FROM kept
    UNION ALL
    SELECT 'window', user, NULL, NULL, NULL, at_us // $window_us * $window_us AS start_us, count(*), sum(amount)::BIGINT
    FROM kept GROUP BY user, start_us
    HAVING start_us + $window_us <= (
        SELECT min(last_us) FROM (SELECT max(at_us) AS last_us FROM passed GROUP BY _partition)
    ) - $late_by_us;
"""
_GOT = """
CREATE TABLE got AS
    SELECT kind, user, id, read_partition, read_offset, "window" AS window_us, n, total, _partition, _offset FROM bills
"""
_NAME = "kind, user, id, read_partition, read_offset, window_us"
_LOST = f"SELECT {_NAME}, n, total FROM expected EXCEPT ALL SELECT {_NAME}, n, total FROM got"
_DOUBLED = f"SELECT {_NAME}, count(*) FROM got GROUP BY ALL HAVING count(*) > 1"
_FOREIGN = f"SELECT {_NAME}, n, total FROM (SELECT DISTINCT {_NAME}, n, total FROM got) EXCEPT SELECT {_NAME}, n, total FROM expected"
_DISORDERED = """
SELECT user, n FROM (
    SELECT user, n, lag(n) OVER (PARTITION BY user ORDER BY _partition, _offset) AS before FROM got WHERE kind = 'order'
) WHERE n <= before
"""
_REFUSED = "SELECT id, _partition AS read_partition, _offset AS read_offset FROM passed WHERE amount < 0"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How the output compares with what it should be; the lists have examples by key and offset."""

    read: int
    repeated: int
    expected: int
    windows: int
    got: int
    lost: int
    doubled: int
    wrong: int
    disordered: int
    refused: int
    refused_got: int
    refused_wrong: int
    examples: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.wrong or self.disordered or self.refused_wrong)

    def __str__(self) -> str:
        lines = [
            f"orders read {self.read}, of them repetitions {self.repeated}",
            f"expected {self.expected} rows ({self.windows} of them by timers), got {self.got}, lost {self.lost}, "
            f"doubled {self.doubled}, with other values {self.wrong}, out of order {self.disordered}",
            f"side output: expected {self.refused} rows, got {self.refused_got}, lost or doubled {self.refused_wrong}",
            *self.examples,
        ]
        return "\n".join(lines)


def check(log: Log, *, state: str | Path, within_us: int, window_us: int, late_by_us: int) -> Verdict:
    """Compare the topic `bills` with a recomputation over the topic `orders`."""
    database = recomputed(all_rows(log, "orders"), within_us=within_us, window_us=window_us, late_by_us=late_by_us)
    return compare(database, all_rows(log, "bills"), refused_rows(state))


def all_rows(log: Log, topic: str) -> pa.Table:
    """The rows of a topic, each with its place."""
    columns = [*log.topic(topic).schema.names, "_partition", "_offset", "_tombstone"]
    return log.read(topic, columns=columns).table()


def recomputed(orders: pa.Table, *, within_us: int, window_us: int, late_by_us: int) -> duckdb.DuckDBPyConnection:
    """A database with the table `expected`: what the orders should have come to."""
    database = duckdb.connect()
    database.register("orders", orders)
    settings = {"within_us": within_us, "window_us": window_us, "late_by_us": late_by_us}
    for statement in _EXPECTED.split(";\n"):
        if statement.strip():
            used = {name: value for name, value in settings.items() if f"${name}" in statement}
            database.execute(statement, used)
    return database


def compare(database: duckdb.DuckDBPyConnection, bills: pa.Table, refused: pa.Table) -> Verdict:
    """Compare bills, and what was refused, with what the orders should have come to."""
    database.register("bills", bills)
    database.execute(_GOT)
    database.register("refused", refused)
    lost, doubled = database.sql(_LOST).fetchall(), database.sql(_DOUBLED).fetchall()
    wrong, disordered = database.sql(_FOREIGN).fetchall(), database.sql(_DISORDERED).fetchall()
    missing = database.sql(f"{_REFUSED} EXCEPT ALL SELECT * FROM refused").fetchall()
    extra = database.sql(f"SELECT * FROM refused EXCEPT ALL {_REFUSED}").fetchall()
    found = {
        "lost": lost,
        "doubled": doubled,
        "with other values": wrong,
        "out of order": disordered,
        "side, lost": missing,
        "side, doubled": extra,
    }
    read = _count(database, "orders")
    return Verdict(
        read=read,
        repeated=read - _count(database, "passed"),
        expected=_count(database, "expected"),
        windows=_count(database, "expected WHERE kind = 'window'"),
        got=_count(database, "got"),
        lost=len(lost),
        doubled=sum(int(row[-1]) - 1 for row in doubled),
        wrong=len(wrong),
        disordered=len(disordered),
        refused=_count(database, "passed WHERE amount < 0"),
        refused_got=_count(database, "refused"),
        refused_wrong=len(missing) + len(extra),
        examples=[f"  {name}: {row}" for name, rows in found.items() for row in rows[:5]],
    )


# Any: DuckDB has no types.
def _count(database: Any, what: str) -> int:
    [(count,)] = database.sql(f"SELECT count(*) FROM {what}").fetchall()
    return int(count)


def refused_rows(state: str | Path) -> pa.Table:
    """The side output, as its files lie in the state folder."""
    columns = ["id", "read_partition", "read_offset"]
    tables = []
    for query in open_folder(state).folders():
        tables += [table.select(columns) for table in read_side_output(state, query, "billed", "refused")]
    empty = pa.table({"id": pa.array([], pa.string()), "read_partition": pa.array([], pa.int32()),
                      "read_offset": pa.array([], pa.int64())})  # fmt: skip
    return pa.concat_tables([empty, *tables])

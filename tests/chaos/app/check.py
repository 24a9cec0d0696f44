"""Compares every output of the app with the expected one, which DuckDB computes from the input topic alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa

from tests.chaos.app.declaration import DELETED_BY, TIERS
from tests.chaos.check import Verdict, compare, recomputed
from tests.chaos.query import LATE_BY_SECONDS, WINDOW_US, WITHIN_SECONDS

_EXPECTED = f"""
CREATE TABLE expected_spend AS
    SELECT user, count(*) AS n, (sum(amount) * $tariff)::BIGINT AS total FROM orders GROUP BY user;
CREATE TABLE expected_tiers AS
    SELECT user, n, total,
        CASE WHEN total >= {TIERS["gold"]} THEN 'gold' WHEN total >= {TIERS["silver"]} THEN 'silver' ELSE 'new' END AS tier
    FROM expected_spend WHERE total % {DELETED_BY} <> 0;
CREATE TABLE expected_bills AS
    SELECT kind, user, id, read_partition, read_offset, window_us AS "window", n, total FROM expected;
"""
_KEYS = {"bills": 'kind, user, id, read_partition, read_offset, "window"', "spend": "user", "tiers": "user"}
_COLUMNS = {"bills": f"{_KEYS['bills']}, n, total", "spend": "user, n, total", "tiers": "user, n, total, tier"}
_CURRENT = """
SELECT * FROM (
    SELECT *, row_number() OVER (PARTITION BY user ORDER BY _partition, _offset DESC) AS place FROM {changes}
) WHERE place = 1 AND NOT coalesce(_tombstone, false)
"""
# Each change of a view counts more orders than the one before. Only a replay corrects a total at the same number.
_CHANGES = """
SELECT user, n, total, n < before_n AS back, n = before_n AND total = before_total AS again, FROM (
    SELECT user, n, total, lag(n) OVER w AS before_n, lag(total) OVER w AS before_total FROM {changes}
    WHERE NOT coalesce(_tombstone, false) WINDOW w AS (PARTITION BY user ORDER BY _partition, _offset)
) WHERE back OR again
"""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One output, compared with the expected one."""

    name: str
    expected: int
    got: int
    lost: int
    doubled: int
    wrong: int
    disordered: int = 0
    examples: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.wrong or self.disordered)

    def __str__(self) -> str:
        counts = f"{self.expected:>9}{self.got:>9}{self.lost:>9}{self.doubled:>9}{self.wrong:>9}{self.disordered:>9}"
        return "\n".join([f"{self.name:24}{counts}", *self.examples])


@dataclass(frozen=True, kw_only=True)
class AppVerdict:
    """All outputs, compared with the expected ones."""

    bills: Verdict
    outputs: tuple[Compared, ...]
    problems: tuple[str, ...] = field(default=())

    @property
    def good(self) -> bool:
        return self.bills.good and all(one.good for one in self.outputs) and not self.problems

    def __str__(self) -> str:
        titles = ("expected", "got", "lost", "doubled", "wrong", "disorder")
        head = f"{'output':24}" + "".join(f"{title:>9}" for title in titles)
        return "\n".join([str(self.bills), "", head, *map(str, self.outputs), *self.problems])


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Everything that the app has read and written."""

    orders: pa.Table
    bills: pa.Table
    refused: pa.Table
    spend: pa.Table
    tiers: pa.Table
    tables: Mapping[str, tuple[str, pa.Table]]
    """Outputs outside of topics: a title, which of `bills`, `spend` and `tiers` it must be equal to, and its rows."""


def check(outputs: Outputs, *, tariff: int, problems: tuple[str, ...] = ()) -> AppVerdict:
    """Compare every output of the app with a recomputation from the orders."""
    database = recomputed(
        outputs.orders,
        within_us=WITHIN_SECONDS * 1_000_000,
        window_us=WINDOW_US,
        late_by_us=LATE_BY_SECONDS * 1_000_000,
    )
    expect(database, tariff=tariff)
    compared = [
        _changelog(database, "spend", outputs.spend),
        _changelog(database, "tiers", outputs.tiers),
        *(_compared(database, name, kind, rows) for name, (kind, rows) in outputs.tables.items()),
    ]
    verdict = compare(database, outputs.bills, outputs.refused)
    return AppVerdict(bills=verdict, outputs=tuple(compared), problems=problems)


def expect(database: duckdb.DuckDBPyConnection, *, tariff: int) -> None:
    """Compute the expected views and archive from the tables `orders` and `expected`."""
    for statement in _EXPECTED.split(";\n"):
        if statement.strip():
            database.execute(statement, {"tariff": tariff} if "$tariff" in statement else None)


def _changelog(database: duckdb.DuckDBPyConnection, view: str, changes: pa.Table) -> Compared:
    """Compare the current rows of a view's topic, and check that its changes are in order."""
    database.register(f"{view}_changes", changes)
    current = database.sql(_CURRENT.format(changes=f"{view}_changes")).to_arrow_table()
    found = _compared(database, f"{view}, its topic", view, current)
    steps = database.sql(_CHANGES.format(changes=f"{view}_changes")).fetchall()
    again = sum(bool(step[-1]) for step in steps)
    examples = (*found.examples, *(f"  twice or back: {step}" for step in steps[:5]))
    return Compared(
        name=found.name,
        expected=found.expected,
        got=found.got,
        lost=found.lost,
        doubled=found.doubled + again,
        wrong=found.wrong,
        disordered=len(steps) - again,
        examples=examples,
    )


def _compared(database: duckdb.DuckDBPyConnection, name: str, kind: str, rows: pa.Table) -> Compared:
    key, columns = _KEYS[kind], _COLUMNS[kind]
    database.register("output", rows)
    lost = database.sql(f"SELECT {key} FROM expected_{kind} EXCEPT SELECT {key} FROM output").fetchall()
    doubled = database.sql(f"SELECT {key}, count(*) FROM output GROUP BY ALL HAVING count(*) > 1").fetchall()
    wrong = database.sql(f"SELECT {columns} FROM output EXCEPT SELECT {columns} FROM expected_{kind}").fetchall()
    [(expected,)] = database.sql(f"SELECT count(*) FROM expected_{kind}").fetchall()
    found = {"lost": lost, "doubled": doubled, "with other values": wrong}
    return Compared(
        name=name,
        expected=int(expected),
        got=rows.num_rows,
        lost=len(lost),
        doubled=sum(int(row[-1]) - 1 for row in doubled),
        wrong=len(wrong),
        examples=tuple(f"  {what}: {row}" for what, some in found.items() for row in some[:5]),
    )

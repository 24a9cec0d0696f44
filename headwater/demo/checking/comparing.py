"""Outputs beside their recomputation, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from headwater.demo.checking.expected import EXPECTED, LATE


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One output beside its recomputation. A row that is wrong is lost once, and there once too often."""

    name: str
    kind: str
    expected: int
    got: int
    lost: int
    doubled: int

    @property
    def holds(self) -> bool:
        """Whether it is right; an output without rows proves nothing, and so is not."""
        return self.lost == 0 and self.doubled == 0 and self.got > 0


def compare(
    inputs: Mapping[str, pa.Table], outputs: Mapping[str, pa.Table], *, late: Mapping[str, pa.Table]
) -> list[Outcome]:
    """Recompute the outputs that are given, by name. `late` has the record of late rows by the name of the query."""
    with duckdb.connect() as database:
        database.execute("set TimeZone = 'UTC'")
        for name, rows in inputs.items():
            database.register(name, rows)
        for name in LATE:
            database.register(f"late_{name}", late[name])
        for name, rows in outputs.items():
            database.register(f"found_{name}", rows)
        outcomes = []
        for name, output in EXPECTED.items():
            database.execute(f"create table expected_{name} as {output.statement}")
            if name in outputs:
                outcomes.append(_compared(database, name))
        outcomes += [_recorded(database, name) for name in LATE]
    return outcomes


def _compared(database: duckdb.DuckDBPyConnection, name: str) -> Outcome:
    output = EXPECTED[name]
    expected = f"select * from expected_{name}"
    found = f"select {output.columns} from found_{name} where {output.where}"
    return Outcome(name=name, kind=output.kind, **_counts(database, expected, found))


def _recorded(database: duckdb.DuckDBPyConnection, name: str) -> Outcome:
    """The record of late rows itself: each of them was appended, and none is recorded twice."""
    columns = {"live_sessions": 'visitor, page, "at"', "visitors_per_minute": 'city, visitor, "at"'}[name]
    found = f"select {columns} from late_{name}"
    expected = f"{found} intersect all select {columns} from page_views"
    return Outcome(name=f"{name}.late", kind="late rows", **_counts(database, expected, found))


def _counts(database: duckdb.DuckDBPyConnection, expected: str, found: str) -> dict[str, int]:
    statements = {
        "expected": expected,
        "got": found,
        "lost": f"({expected}) except all ({found})",
        "doubled": f"({found}) except all ({expected})",
    }
    return {name: _count(database, statement) for name, statement in statements.items()}


def _count(database: duckdb.DuckDBPyConnection, statement: str) -> int:
    ((number,),) = database.execute(f"select count(*) from ({statement})").fetchall()
    return int(number)

"""Outputs beside their recomputation, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from headwater.demo.checking.expected import EXPECTED, LATE
from headwater.demo.checking.people import KNOWN

#: All columns of a page view.
PAGE = 'visitor, city, page, "at"'


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
            database.register(f"recorded_{name}", late[name])
            database.execute(f"create table late_{name} as {_allowed(name)}")
        for name, output in EXPECTED.items():
            database.execute(f"create table expected_{name} as {output.statement}")
        # Only now: no statement can look at what it is to be compared with.
        for name, rows in outputs.items():
            database.register(f"found_{name}", rows)
        outcomes = [_compared(database, name) for name in EXPECTED if name in outputs]
        return outcomes + [_recorded(database, name) for name in LATE]


def _allowed(name: str) -> str:
    """The rows of a record that were appended, as often as they were, and that can have been late."""
    can_be_late = f"select {PAGE} from ({KNOWN}) where {LATE[name]}"
    return f"select {PAGE} from recorded_{name} intersect all {can_be_late}"


def _compared(database: duckdb.DuckDBPyConnection, name: str) -> Outcome:
    output = EXPECTED[name]
    expected = f"select * from expected_{name}"
    found = f"select {output.columns} from found_{name} where {output.where}"
    return Outcome(name=name, kind=output.kind, **_counts(database, expected, found))


def _recorded(database: duckdb.DuckDBPyConnection, name: str) -> Outcome:
    """The record of late rows itself: a row that nobody appended, or that was in time, is there once too often."""
    found = f"select {PAGE} from recorded_{name}"
    expected = f"select * from late_{name}"
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

"""Whether the changes that a query gives come to what DuckDB answers over the same events."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark.answers import ANSWERS
from headwater.testing.nexmark import NexmarkEvents

#: The query whose windows are those of the clock: only their sum is known.
CLOCK = "q12"
_WITHDRAWALS = ("-U", "-D")

# Any: values of rows.
Row = Mapping[str, Any]


class AnswerWrong(Exception):
    """An engine gives other rows than DuckDB."""


def wanted(events: NexmarkEvents, query: str) -> list[dict[str, Any]]:
    """The rows that a query gives, with times in milliseconds."""
    with duckdb.connect() as duck:
        for name, table in events._asdict().items():
            duck.register(name, _without_zones(table))
        rows = duck.sql(re.sub(r"\bat\b", '"at"', ANSWERS[query])).to_arrow_table()
    columns = [
        pc.divide(column.cast(pa.timestamp("us")).cast(pa.int64()), 1_000)
        if pa.types.is_timestamp(column.type)
        else column
        for column in rows.columns
    ]
    found: list[dict[str, Any]] = pa.table(columns, names=rows.column_names).to_pylist()
    return found


def _without_zones(table: pa.Table) -> pa.Table:
    columns = [
        column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def given(path: Path, key: Sequence[str]) -> list[Row]:
    """The rows that the changes of a query come to; with a key, a row replaces the one before that has the same."""
    changes = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if key:
        return list({tuple(row[name] for name in key): row for _, row in changes}.values())
    found: Counter[str] = Counter()
    for op, row in changes:
        found[json.dumps(row)] += -1 if op in _WITHDRAWALS else 1
    return [json.loads(row) for row in (+found).elements()]


def check(query: str, ours: Iterable[Row], theirs: Sequence[Row]) -> int:
    """Raise unless both are the same rows, in any order, by the columns that both have; how many they are.

    >>> check("q2", [{"auction": 7, "price": 2.0, "rank": 1}], [{"price": 2, "auction": 7}])
    1
    """
    rows = list(ours)
    if not theirs or not rows:
        raise AnswerWrong(f"{len(rows)} rows, and {len(theirs)} in DuckDB")
    if query == CLOCK:
        found, expected = _sums(rows), _sums(theirs)
    else:
        names = sorted(set(rows[0]) & set(theirs[0]))
        found, expected = (Counter(_text(row, names) for row in side) for side in (rows, theirs))
    if found != expected:
        more, less = found - expected, expected - found
        examples = f"for example {[*more][:2]} and not {[*less][:2]}"
        raise AnswerWrong(
            f"{more.total()} rows of {found.total()} are not in DuckDB, {less.total()} are missing, {examples}"
        )
    return len(rows)


def _sums(rows: Iterable[Row]) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in rows:
        found[str(row["bidder"])] += row["bids"]
    return found


def _text(row: Row, names: Sequence[str]) -> str:
    """A row such that two that are equal are the same text, whichever engine they come from."""
    values = {name: row[name] for name in names if row.get(name) is not None}
    plain = {name: value if isinstance(value, str) else round(float(value), 4) for name, value in values.items()}
    return json.dumps(plain, sort_keys=True)

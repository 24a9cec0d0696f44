"""Some seconds of the world as a log would hold them: every row with its place."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from company.check import LATE
from company.topics import INPUTS
from company.world import Row, Rows, World

from headwater.schema import parse_schema

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


def happened(seconds: int, *, seed: int = 7) -> Rows:
    """All rows by topic, with the time when they were sent: those from before, and those of some seconds."""
    world = World(seed=seed)
    rows: Rows = {name: [] for name in INPUTS}
    moments = [START + timedelta(seconds=second) for second in range(seconds + 1)]
    for topic, some in world.begin(START).items():
        rows[topic] += [{**row, "_sent_at": START} for row in some]
    for begin, end in itertools.pairwise(moments):
        for topic, some in world.between(begin, end).items():
            rows[topic] += [{**row, "_sent_at": end} for row in some]
    return rows


def placed(rows: Rows) -> Rows:
    """The rows with their places, all in one partition."""
    return {
        topic: [{"_tombstone": False, **row, "_partition": 0, "_offset": number} for number, row in enumerate(some)]
        for topic, some in rows.items()
    }


def tables(rows: Rows) -> dict[str, pa.Table]:
    """Rows with their places as tables of the topics' columns."""
    places = pa.schema(
        [
            ("_partition", pa.int32()),
            ("_offset", pa.int64()),
            ("_sent_at", pa.timestamp("us", "UTC")),
            ("_tombstone", pa.bool_()),
        ]
    )
    return {topic: pa.Table.from_pylist(some, pa.schema([*_columns(topic), *places])) for topic, some in rows.items()}


def _columns(topic: str) -> pa.Schema:
    return parse_schema(INPUTS[topic]["schema"])


def late_ones(rows: Rows, *, hours: int = 1) -> dict[str, list[Row]]:
    """The rows that would be too late for the queries that keep a record of them: those of the phones in pockets."""
    late = [row for row in rows["page_views"] if row["at"] < START - timedelta(hours=hours)]
    return {name: [row for row in late if name != "live_sessions" or row["visitor"] is not None] for name in LATE}


def late_tables(late: dict[str, list[Row]]) -> dict[str, pa.Table]:
    schema = _columns("page_views")
    return {
        name: pa.Table.from_pylist([{c: row[c] for c in schema.names} for row in some], schema)
        for name, some in late.items()
    }

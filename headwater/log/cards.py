"""A log, a topic and a read in a notebook: cards with topics, with columns or partitions, and with the first rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.notebook import card, grid
from headwater.schema.notation import format_type
from headwater.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from headwater.log.port import Description, Log, Reader
    from headwater.log.topic import Topic

TOPICS_MAX = 20
ROWS_MAX = 10
COLUMNS_MAX = 50
PARTITIONS_MAX = 20


def log_html(log: Log) -> str:
    """A log with its topics. Reads no rows."""
    names = log.topics()
    described = [log.describe(name) for name in names[: TOPICS_MAX + 1]]
    rows = [
        [one.topic.name, one.rows, format_bytes(one.bytes), one.topic.partitions, ", ".join(one.topic.key)]
        for one in described
    ]
    body = grid(["topic", "rows", "size", "partitions", "key"], rows, rows_max=TOPICS_MAX) if rows else ""
    note = "" if rows else "It has no topics yet; `log.create(…)` makes one."
    return card("log", str(log.home), facts={"topics": len(names)}, body=body, note=note)


def reader_html(reader: Reader) -> str:
    """The first rows of a read. Reads the batches that hold them, and no others."""
    rows: list[dict[str, object]] = []
    for batch in reader:
        rows += batch.slice(0, ROWS_MAX + 1 - len(rows)).to_pylist(maps_as_pydicts="strict")
        if len(rows) > ROWS_MAX:
            break
    offsets = sum(stop - start for start, stop in reader.ranges.values())
    names = reader.schema.names
    body = grid(names, [[row[name] for name in names] for row in rows], rows_max=ROWS_MAX)
    note = "`.rows()`, `.table()` and `.pandas()` return all of them." if offsets > ROWS_MAX else ""
    return card("read", "", facts={"offsets": f"{offsets:,}", "partitions": len(reader.ranges)}, body=body, note=note)


def topic_html(topic: Topic) -> str:
    """A topic with its columns and settings."""
    return card("topic", topic.name, facts=_facts(topic), body=_columns(topic))


def description_html(described: Description) -> str:
    """A topic with the offsets and sizes of its partitions."""
    topic = described.topic
    facts = {"rows": f"{described.rows:,}", "size": format_bytes(described.bytes), **_facts(topic)}
    rows = [
        [one.partition, one.offset_start, one.offset_next, one.rows, format_bytes(one.bytes)]
        for one in described.partitions[: PARTITIONS_MAX + 1]
    ]
    held = grid(["partition", "oldest offset", "next offset", "rows", "size"], rows, rows_max=PARTITIONS_MAX)
    return card("topic", topic.name, facts=facts, body=held)


def _facts(topic: Topic) -> dict[str, object]:
    kept = topic.retention
    limits = [
        format_seconds(kept.seconds_max) if kept.seconds_max is not None else "",
        f"{format_bytes(kept.bytes_max)} per partition" if kept.bytes_max is not None else "",
        "the last row per key" if topic.compact else "",
    ]
    return {
        "partitions": topic.partitions,
        "key": ", ".join(topic.key) or None,
        "time": None if topic.time is None else str(topic.time),
        "keeps": ", ".join(filter(None, limits)) or "everything",
        "schema version": topic.schema_version if topic.schema_version > 1 else None,
    }


def _columns(topic: Topic) -> str:
    rows = [
        [field.name, format_type(field.type), "" if field.nullable else "not null"]
        for field in list(topic.schema)[: COLUMNS_MAX + 1]
    ]
    return grid(["column", "type", ""], rows, rows_max=COLUMNS_MAX)

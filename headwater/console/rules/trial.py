"""Texts of rules and searches before they go live: whether they can be used, and what they would have found.

A text is tried with the engines that run it in a stream, over the newest rows of a topic, in this process and without
Spark. So what a trial finds is what the query would have found, had these rows been all there are.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.console.rules.matches import Event, MatchRow, MatchTopic, as_events, drawn_column, matches_in, tail
from headwater.console.rules.rule_tables import Kind, RuleTable
from headwater.engine.finder import Finder
from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.log import Log
from headwater.operators.errors import PatternInvalid, QueryInvalid
from headwater.schema.event_time import EventTime

TRIED = "tried"
SHOWN_MAX = 200


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a text finds among past rows."""

    rows: int
    first_us: int | None
    last_us: int | None
    seconds: float
    count: int
    matches: list[MatchRow]
    events: dict[tuple[str, int, int], list[Event]]
    column: str | None
    """The column of the events that is drawn."""


@dataclass(frozen=True, kw_only=True)
class TrialInput:
    """What a text is read and tried for: rows of a topic, with their time and key."""

    kind: Kind
    topic: str
    schema: pa.Schema
    time: str | None
    by: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)


def bench_of(log: Log, table: RuleTable, events: str) -> TrialInput:
    """The bench for a table and a topic: the time and the key are those of its query, or else the topic's own."""
    topic, finder = log.topic(events), table.finder
    known = finder is not None and {*finder.by, *([finder.time] if finder.time else [])} <= set(topic.schema.names)
    return TrialInput(
        kind=table.kind,
        topic=events,
        schema=topic.schema,
        time=finder.time if known and finder is not None else topic.time_column,
        by=finder.by if known and finder is not None and finder.by else tuple(topic.key),
        settings={} if finder is None or not known else finder.settings,
    )


def check(bench: TrialInput, text: str) -> None:
    """Refuse a text that could not be used, with one clear error."""
    if bench.kind == "searches":
        _percolate(bench, {}).check(text, bench.schema)
        return
    from headwater.operators.match.run.match_rules import rule_of

    time, by = _timed(bench)
    rule_of(text, schema=bench.schema, time=time, by=by)


def _timed(bench: TrialInput) -> tuple[str, tuple[str, ...]]:
    if bench.time is None:
        raise ArgumentInvalid(name="topic", value=bench.topic, expected="a topic with a column of event time")
    if not bench.by:
        raise ArgumentInvalid(name="topic", value=bench.topic, expected="a topic with a key")
    return bench.time, bench.by


# Any: an operator, imported when it is needed.
def _percolate(bench: TrialInput, queries: Mapping[str, str]) -> Any:
    from headwater.operators import percolate

    kinds = {
        name: getattr(percolate, kind)(
            **{key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()}
        )
        for name, (kind, facts) in bench.settings.get("fields", {}).items()
    }
    defaults = bench.settings.get("default_fields")
    time = bench.time if bench.time in bench.schema.names else None
    return percolate.Percolate(
        queries=queries,
        fields=kinds,
        default_fields=None if defaults is None else tuple(defaults),
        time=time,
        name=TRIED,
    )


def told(error: HeadwaterError) -> str:
    """What is wrong with a text, in one line."""
    if isinstance(error, PatternInvalid):
        meant = f" {error.meant}" if error.meant else ""
        return f"Line {error.line}, column {error.column}: {error.why}.{meant} Give {error.expected}."
    if isinstance(error, QueryInvalid):
        return f"At {error.position}: {error.why}."
    return str(error)


def spot(text: str, error: HeadwaterError) -> tuple[int, int] | None:
    """Where a text is wrong.

    >>> spot("a:b )", QueryInvalid(query="a:b )", position="column 5", why="a bracket is closed"))
    (4, 5)
    """
    if isinstance(error, PatternInvalid):
        lines = text.split("\n")
        start = sum(len(line) + 1 for line in lines[: error.line - 1]) + error.column - 1
    elif isinstance(error, QueryInvalid) and (found := re.search(r"column (\d+)", error.position)):
        start = int(found[1]) - 1
    else:
        return None
    start = max(0, min(start, len(text) - 1))
    word = re.match(r"\w+", text[start:])
    return start, start + (len(word[0]) if word else 1)


# -- trials -----------------------------------------------------------------------------------------------------------


def tried(log: Log, bench: TrialInput, text: str, *, rows: int) -> Trial:
    """What a text finds among the newest rows of a topic."""
    check(bench, text)
    table = _newest(tail(log, bench.topic, rows=rows), rows)
    began = time.perf_counter()
    output = _searched(bench, table, text) if bench.kind == "searches" else _matched(bench, table, text)
    seconds = time.perf_counter() - began
    appended = pc.min_max(table.column("_appended_at")).as_py() if table.num_rows else {"min": None, "max": None}
    bounds = [None if one is None else round(one.timestamp() * 1e6) for one in (appended["min"], appended["max"])]
    newest = output.slice(max(0, output.num_rows - SHOWN_MAX))
    by = bench.by if bench.kind == "rules" else ()
    finder = Finder(kind=bench.kind, operator=TRIED, time=bench.time, by=by, text=text)
    source = MatchTopic(topic=bench.topic, kind=bench.kind, reads=(bench.topic,), finder=finder)
    found = matches_in(source, _placed(newest))
    events = _events(table, finder, found) if bench.kind == "rules" else {}
    return Trial(
        rows=table.num_rows,
        first_us=bounds[0],
        last_us=bounds[1],
        seconds=seconds,
        count=output.num_rows,
        matches=list(reversed(found)),
        events=events,
        column=drawn_column(source, bench.schema),
    )


def _newest(table: pa.Table, rows: int) -> pa.Table:
    order = table.sort_by([("_appended_at", "ascending"), ("_partition", "ascending"), ("_offset", "ascending")])
    return order.slice(max(0, order.num_rows - rows)).combine_chunks()


def _matched(bench: TrialInput, table: pa.Table, text: str) -> pa.Table:
    from headwater.engine.columns import HASH, SLOT
    from headwater.engine.contract import Broadcast
    from headwater.engine.step import run_bounded
    from headwater.operators.match import MatchRules
    from headwater.schema.partitioner import key_hash

    column, by = _timed(bench)
    rows = table.drop_columns(["_appended_at"])
    operator = MatchRules(rules=Broadcast(log="", topic=TRIED), time=EventTime(column, future_max=None), by=by)
    contract = operator.contract(rows.schema)
    rules = pa.table({"id": [TRIED], "text": [text], "enabled": [True], "_offset": pa.array([0], pa.int64())})
    hashes = key_hash([rows.column(name).combine_chunks() for name in by])
    placed = rows.append_column(HASH, pa.array(np.asarray(hashes).view(np.int64), pa.int64()))
    placed = placed.append_column(SLOT, pa.array(np.zeros(rows.num_rows, np.int32), pa.int32()))
    output, sides = run_bounded(contract, placed, {"rules": rules})
    refused = sides.get("refused")
    if refused is not None and refused.num_rows:
        raise ArgumentInvalid(name="text", value=text[:80], expected=str(refused.column("error")[0].as_py()))
    return output.sort_by([("ended_at", "ascending")]) if output.num_rows else output


def _searched(bench: TrialInput, table: pa.Table, text: str) -> pa.Table:
    own = table.select([name for name in table.column_names if not name.startswith("_")])
    task = _percolate(bench, {TRIED: text}).task(own.schema)
    return pa.Table.from_batches(list(task.run(iter(own.to_batches()))), schema=task.output)


def _placed(output: pa.Table) -> pa.Table:
    """Rows that have no place in a log, with one that tells them apart."""
    count = output.num_rows
    ended = output.column("ended_at") if "ended_at" in output.column_names else None
    now = pa.array([0] * count, pa.timestamp("us", "UTC"))
    columns = {
        "_partition": pa.array([0] * count, pa.int32()),
        "_offset": pa.array(range(count), pa.int64()),
        "_appended_at": now if ended is None else ended.cast(pa.timestamp("us", "UTC")),
    }
    for name, values in columns.items():
        output = output.append_column(name, values)
    return output


def _events(table: pa.Table, finder: Finder, found: list[MatchRow]) -> dict[tuple[str, int, int], list[Event]]:
    keys = {one.key_values for one in found}
    if not keys:
        return {}
    for at, name in enumerate(finder.by):
        values = pa.array(sorted({key[at] for key in keys}, key=str)).cast(table.schema.field(name).type)
        table = table.filter(pc.is_in(table.column(name), values))
    by_key: dict[tuple[Any, ...], list[Event]] = {}
    for event, key in as_events(table.drop_columns(["_appended_at"]), finder):
        by_key.setdefault(key, []).append(event)
    return {
        one.place: [
            event
            for event in by_key.get(one.key_values, ())
            if (one.first_us or 0) <= event.at_us <= (one.last_us or 0)
        ]
        for one in found
    }

"""Trials of rules and stored searches: whether a text is valid, and what it matches among past rows.

A trial runs the engine that runs the text in a stream, over the newest rows of a topic, in this process and without Spark.
So its matches are those that the query would have found if there were only these rows.
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

from headwater.console.matches.model import (
    Event,
    MatchRow,
    MatchTopic,
    drawn_column,
    events_between,
    matches_in,
    tail,
    with_keys,
)
from headwater.console.rules.rule_tables import Kind, RuleTable
from headwater.engine.finder import Finder
from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.log import Log
from headwater.operators.errors import PatternInvalid, QueryInvalid
from headwater.schema.event_time import EventTime

#: The id of the rule in a trial.
TRIED = "tried"
SHOWN_MAX = 200


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The matches of a text among past rows."""

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
    """What a text is checked and tried against: the rows of a topic, with their time and key."""

    kind: Kind
    topic: str
    schema: pa.Schema
    time: str | None
    by: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)


def trial_input(log: Log, table: RuleTable, events: str) -> TrialInput:
    """The input for a table and a topic: the time and the key are those of its query, or else the topic's own."""
    topic, finder = log.topic(events), table.finder
    if finder is None or not {*finder.by, *([finder.time] if finder.time else [])} <= set(topic.schema.names):
        return TrialInput(
            kind=table.kind, topic=events, schema=topic.schema, time=topic.time_column, by=tuple(topic.key), settings={}
        )
    by = finder.by or tuple(topic.key)
    return TrialInput(
        kind=table.kind, topic=events, schema=topic.schema, time=finder.time, by=by, settings=finder.settings
    )


def check(target: TrialInput, text: str) -> None:
    """Raise an error unless the text is valid for these rows."""
    if target.kind == "searches":
        _percolate(target, {}).check(text, target.schema)
        return
    from headwater.operators.match.run.match_rules import rule_of

    time, by = _timed(target)
    rule_of(text, schema=target.schema, time=time, by=by)


def _timed(target: TrialInput) -> tuple[str, tuple[str, ...]]:
    if target.time is None:
        raise ArgumentInvalid(name="topic", value=target.topic, expected="a topic with a column of event time")
    if not target.by:
        raise ArgumentInvalid(name="topic", value=target.topic, expected="a topic with a key")
    return target.time, target.by


# Any: an operator, imported when it is needed.
def _percolate(target: TrialInput, queries: Mapping[str, str]) -> Any:
    from headwater.operators import percolate

    kinds = {
        name: getattr(percolate, kind)(
            **{key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()}
        )
        for name, (kind, facts) in target.settings.get("fields", {}).items()
    }
    defaults = target.settings.get("default_fields")
    column = target.time if target.time in target.schema.names else None
    return percolate.Percolate(
        queries=queries,
        fields=kinds,
        default_fields=None if defaults is None else tuple(defaults),
        time=column,
        name=TRIED,
    )


def problem_of(error: HeadwaterError) -> str:
    """What is wrong with a text, in one line."""
    if isinstance(error, PatternInvalid):
        meant = f" {error.meant}" if error.meant else ""
        return f"Line {error.line}, column {error.column}: {error.why}.{meant} Give {error.expected}."
    if isinstance(error, QueryInvalid):
        return f"At {error.position}: {error.why}."
    return str(error)


def spot(text: str, error: HeadwaterError) -> tuple[int, int] | None:
    """The range of characters in which a text is wrong; None if the error does not say.

    >>> spot("a:b )", QueryInvalid(query="a:b )", position="column 5", why="a bracket is closed"))
    (4, 5)
    """
    if isinstance(error, PatternInvalid):
        lines = text.split("\n")
        start = sum(len(line) + 1 for line in lines[: error.line - 1]) + error.column - 1
    elif isinstance(error, QueryInvalid) and (column := re.search(r"column (\d+)", error.position)):
        start = int(column[1]) - 1
    else:
        return None
    start = max(0, min(start, len(text) - 1))
    word = re.match(r"\w+", text[start:])
    return start, start + (len(word[0]) if word else 1)


# -- trials -----------------------------------------------------------------------------------------------------------


def try_text(log: Log, target: TrialInput, text: str, *, rows: int) -> Trial:
    """Run a text over the newest rows of a topic."""
    check(target, text)
    order = [("_appended_at", "ascending"), ("_partition", "ascending"), ("_offset", "ascending")]
    table = tail(log, target.topic, rows=rows).sort_by(order)
    table = table.slice(max(0, table.num_rows - rows)).combine_chunks()
    began = time.perf_counter()
    output = _searched(target, table, text) if target.kind == "searches" else _matched(target, table, text)
    seconds = time.perf_counter() - began
    appended = pc.min_max(table.column("_appended_at")).as_py() if table.num_rows else {"min": None, "max": None}
    bounds = [None if at is None else round(at.timestamp() * 1e6) for at in (appended["min"], appended["max"])]
    newest = output.slice(max(0, output.num_rows - SHOWN_MAX))
    by = target.by if target.kind == "rules" else ()
    finder = Finder(kind=target.kind, operator=TRIED, time=target.time, by=by, text=text)
    source = MatchTopic(topic=target.topic, kind=target.kind, reads=(target.topic,), finder=finder)
    matches = matches_in(source, _placed(newest))
    events: dict[tuple[str, int, int], list[Event]] = {}
    if target.kind == "rules":
        read = with_keys(table.drop_columns(["_appended_at"]), finder, {match.key_values for match in matches})
        spans = {match.place: (match.first_us or 0, match.last_us or 0) for match in matches}
        events = events_between(read, finder, matches, spans)
    return Trial(
        rows=table.num_rows,
        first_us=bounds[0],
        last_us=bounds[1],
        seconds=seconds,
        count=output.num_rows,
        matches=list(reversed(matches)),
        events=events,
        column=drawn_column(source, target.schema),
    )


def _matched(target: TrialInput, table: pa.Table, text: str) -> pa.Table:
    from headwater.engine.columns import HASH, SLOT
    from headwater.engine.contract import Broadcast
    from headwater.engine.step import run_bounded
    from headwater.operators.match import MatchRules
    from headwater.schema.partitioner import key_hash

    column, by = _timed(target)
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


def _searched(target: TrialInput, table: pa.Table, text: str) -> pa.Table:
    own = table.select([name for name in table.column_names if not name.startswith("_")])
    task = _percolate(target, {TRIED: text}).task(own.schema)
    return pa.Table.from_batches(list(task.run(iter(own.to_batches()))), schema=task.output)


def _placed(output: pa.Table) -> pa.Table:
    """Give matches of a trial, which are in no log, places that differ."""
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

"""Matches: the topics that hold them, their rows, and the events that they are made of.

How the console knows which topics hold matches: an app records what its queries look for when it starts them
(`finders.json` in its folder), so that `Match`, `MatchRules` and `Percolate` are known, with their key and time, whether
the app runs or not. Other topics are recognised by the columns that `MatchRules` and `Percolate` give their rows.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.apps.home import Home
from headwater.console.kit.values import NULL, is_number, rows_of
from headwater.engine.finder import Finder, FinderKind
from headwater.errors import HeadwaterError
from headwater.log import Log

#: The columns by which topics are recognised that no app has recorded.
RULES_COLUMNS = {"rule", "version", "match", "started_at", "ended_at", "measures"}
SEARCHES_COLUMNS = {"query_id", "score", "highlights", "queries_version"}
#: At most so many rows of a topic are read for the events of some matches; with more, no timeline is drawn.
EVENTS_SCANNED_MAX = 200_000
EVENTS_MAX = 200
#: Rows are appended after their event time; clocks may differ by this much.
SKEW_US = 3_600_000_000


@dataclass(frozen=True, kw_only=True)
class MatchTopic:
    """A topic that holds matches, with the query and the operator that write them, as far as they are known."""

    topic: str
    kind: FinderKind
    query: str = ""
    app: str = ""
    reads: tuple[str, ...] = ()
    finder: Finder | None = field(default=None, repr=False)

    def events_topic(self, log: Log) -> str | None:
        """The topic of the events: the one that the query reads besides its rules, with the columns of the key and the time."""
        rules = None if self.finder is None else self.finder.rules
        wanted = set() if self.finder is None else {*self.finder.by, *([self.finder.time] if self.finder.time else [])}
        for name in self.reads:
            with contextlib.suppress(HeadwaterError):
                if name != rules and wanted <= set(log.topic(name).schema.names):
                    return name
        return None


@dataclass(frozen=True, kw_only=True)
class MatchRow:
    """One match: its row, and the first and the last time that it names."""

    source: MatchTopic
    partition: int
    offset: int
    rule: str
    key: dict[str, str]
    # Any: the values of the key, in their own types.
    key_values: tuple[Any, ...]
    values: dict[str, str]
    appended_us: int
    first_us: int | None
    last_us: int | None

    @property
    def place(self) -> tuple[str, int, int]:
        return self.source.topic, self.partition, self.offset


@dataclass(frozen=True)
class Event:
    """A row that a match is made of. Any: its values."""

    at_us: int
    partition: int
    offset: int
    row: dict[str, Any]
    texts: dict[str, str]


def sources_of(log: Log, known: dict[str, FinderKind | None] | None = None) -> list[MatchTopic]:
    """All topics that hold matches. With `known`, the schema of each topic is read once: there may be ten thousand."""
    known = {} if known is None else known
    names = log.topics()
    sources: dict[str, MatchTopic] = {}
    for app, query, body in recorded_finders(log):
        if body["topic"] in names and body["finders"]:
            finder = Finder.from_json(body["finders"][0])
            source = MatchTopic(
                topic=body["topic"], kind=finder.kind, query=query, app=app, reads=tuple(body["reads"]), finder=finder
            )
            sources[source.topic] = source
    for name in names:
        if name not in sources:
            if name not in known:
                with contextlib.suppress(HeadwaterError):
                    known[name] = kind_of(log.topic(name).schema)
            if (kind := known.get(name)) is not None:
                sources[name] = MatchTopic(topic=name, kind=kind)
    return sorted(sources.values(), key=lambda source: source.topic)


def kind_of(schema: pa.Schema) -> FinderKind | None:
    """What kind of matches a topic holds, by its columns alone. The columns of `Match` are what its pattern says."""
    names = set(schema.names)
    return "rules" if names >= RULES_COLUMNS else "searches" if names >= SEARCHES_COLUMNS else None


# Any: JSON.
def recorded_finders(log: Log) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What apps have recorded: app, query, and what it reads, writes and looks for."""
    folder = log.home / "apps"
    for home in sorted(folder.iterdir()) if folder.is_dir() else ():
        for query, body in Home(home).finders().items():
            yield home.name, query, body


# -- rows -------------------------------------------------------------------------------------------------------------


def tail(log: Log, topic: str, *, rows: int) -> pa.Table:
    """The last rows of each partition."""
    ends, starts = log.end_offsets(topic), log.start_offsets(topic)
    begin = {number: max(starts[number], end - rows) for number, end in ends.items()}
    names = [*log.topic(topic).schema.names, "_partition", "_offset", "_appended_at"]
    return log.read(topic, start=begin, stop=ends, columns=names).table()


def matches_of(log: Log, source: MatchTopic, *, rows: int) -> list[MatchRow]:
    """The newest matches of a topic, the newest first."""
    table = tail(log, source.topic, rows=rows)
    if (
        source.finder is None and kind_of(table.schema) != source.kind
    ):  # the topic was deleted, and another one has its name
        return []
    return sorted(matches_in(source, table), key=lambda match: -match.appended_us)[:rows]


def match_at(log: Log, source: MatchTopic, partition: int, offset: int) -> MatchRow | None:
    """One match by its partition and offset."""
    names = [*log.topic(source.topic).schema.names, "_partition", "_offset", "_appended_at"]
    with contextlib.suppress(HeadwaterError):
        table = log.read(
            source.topic, start={partition: offset}, stop={partition: offset + 1}, partitions=[partition], columns=names
        ).table()
        return next(iter(matches_in(source, table)), None)
    return None


def matches_in(source: MatchTopic, table: pa.Table) -> list[MatchRow]:
    """Rows as matches."""
    own = [name for name in table.column_names if not name.startswith("_")]
    by = _key(source, own)
    texts = rows_of(table.select(own))
    keys = table.select(list(by)).to_pylist() if by else [{}] * table.num_rows
    times = [name for name in own if pa.types.is_timestamp(table.schema.field(name).type)]
    moments = [_micros(table.column(name)) for name in times]
    places = zip(*(table.column(name).to_pylist() for name in ("_partition", "_offset")), strict=True)
    matches = []
    for at, (partition, offset) in enumerate(places):
        known = [when for column in moments if (when := column[at]) is not None]
        values = _named(own, texts[at])
        matches.append(
            MatchRow(
                source=source,
                partition=partition,
                offset=offset,
                rule=_rule(source, values),
                key={name: values[name] for name in by},
                key_values=tuple(keys[at].values()),
                values={name: value for name, value in values.items() if name not in by},
                appended_us=round(table.column("_appended_at")[at].as_py().timestamp() * 1e6),
                first_us=min(known, default=None),
                last_us=max(known, default=None),
            )
        )
    return matches


def _named(names: Sequence[str], texts: Sequence[str | None]) -> dict[str, str]:
    return {name: NULL if text is None else text for name, text in zip(names, texts, strict=True)}


def _key(source: MatchTopic, names: Sequence[str]) -> tuple[str, ...]:
    if source.finder is not None and source.finder.by:
        return tuple(name for name in source.finder.by if name in names)
    if source.kind == "rules":  # the columns between those that all rules have
        return tuple(names[names.index("version") + 1 : names.index("match")]) if "match" in names else ()
    return ()


def _rule(source: MatchTopic, values: dict[str, str]) -> str:
    return values.get({"rules": "rule", "searches": "query_id"}.get(source.kind, ""), source.query or source.topic)


def _micros(column: pa.ChunkedArray) -> list[int | None]:
    return list(pc.cast(pc.cast(column, pa.timestamp("us", column.type.tz)), pa.int64()).to_pylist())


# -- events -----------------------------------------------------------------------------------------------------------


def within_us(source: MatchTopic) -> int | None:
    """How long a match of a pattern may last, if the pattern says so."""
    if source.finder is None or not source.finder.text:
        return None
    from headwater.operators.match.language import parse

    with contextlib.suppress(HeadwaterError):
        return parse(source.finder.text).within_us
    return None


def span_of(match: MatchRow) -> tuple[int, int] | None:
    """The event times between which the events of a match lie. A match that names one time began at most WITHIN before."""
    if match.first_us is None or match.last_us is None:
        return None
    if match.first_us < match.last_us:
        return match.first_us, match.last_us
    return match.last_us - (within_us(match.source) or 0), match.last_us


def events_of(log: Log, matches: Iterable[MatchRow]) -> dict[tuple[str, int, int], list[Event]]:
    """The events of each match: the rows of its key, in the topic that its query reads, from its first time to its last.

    A pattern of MATCH_RECOGNIZE is made of all rows of its key between its first and its last, so these are the events.
    """
    by_source: dict[str, list[MatchRow]] = {}
    for match in matches:
        source = match.source
        if source.finder is not None and source.kind != "searches" and match.key_values and span_of(match):
            by_source.setdefault(source.topic, []).append(match)
    events: dict[tuple[str, int, int], list[Event]] = {}
    for group in by_source.values():
        events |= _events(log, group)
    return events


def _events(log: Log, group: list[MatchRow]) -> dict[tuple[str, int, int], list[Event]]:
    source = group[0].source
    topic, finder = source.events_topic(log), source.finder
    if topic is None or finder is None or finder.time is None:
        return {}
    spans = {match.place: span for match in group if (span := span_of(match)) is not None}
    since, until = min(first for first, _ in spans.values()), max(last for _, last in spans.values()) + 1
    table = _scanned(log, topic, finder, since=since, until=until, keys={match.key_values for match in group})
    if table is None:
        return {}
    return {place: events[:EVENTS_MAX] for place, events in events_between(table, finder, group, spans).items()}


def events_between(
    table: pa.Table,
    finder: Finder,
    matches: Sequence[MatchRow],
    spans: Mapping[tuple[str, int, int], tuple[int, int]],
) -> dict[tuple[str, int, int], list[Event]]:
    """The events of each match, among rows that were read: those of its key, within its span."""
    by_key: dict[tuple[Any, ...], list[Event]] = {}
    for event, key in _as_events(table, finder):
        by_key.setdefault(key, []).append(event)
    return {
        match.place: [
            event
            for event in by_key.get(match.key_values, ())
            if spans[match.place][0] <= event.at_us <= spans[match.place][1]
        ]
        for match in matches
    }


def _scanned(
    log: Log, topic: str, finder: Finder, *, since: int, until: int, keys: set[tuple[Any, ...]]
) -> pa.Table | None:
    """The rows of some keys in a range of event times; None if too many rows would have to be read."""
    names = [*log.topic(topic).schema.names, "_partition", "_offset"]
    begin, ends = log.offset_at(topic, since - SKEW_US), log.end_offsets(topic)
    parts, seen = [], 0
    for partition, end in ends.items():
        start = min(begin.get(partition, 0), end)
        for batch in log.read_range(
            topic, partition, start=start, stop=end, columns=names, since_us=since, until_us=until
        ):
            seen += batch.data.num_rows
            if seen > EVENTS_SCANNED_MAX:
                return None
            parts.append(with_keys(pa.Table.from_batches([batch.data]), finder, keys))
    return pa.concat_tables(parts, promote_options="default") if parts else None


def with_keys(rows: pa.Table, finder: Finder, keys: set[tuple[Any, ...]]) -> pa.Table:
    """The rows whose columns of the key have values of these keys."""
    for at, name in enumerate(finder.by):
        values = pa.array(sorted({key[at] for key in keys}, key=str)).cast(rows.schema.field(name).type)
        rows = rows.filter(pc.is_in(rows.column(name), values))
    return rows


def _as_events(table: pa.Table, finder: Finder) -> Iterator[tuple[Event, tuple[Any, ...]]]:
    own = [name for name in table.column_names if not name.startswith("_")]
    texts, rows, times = rows_of(table.select(own)), table.to_pylist(), _micros(table.column(str(finder.time)))
    order = sorted(range(table.num_rows), key=lambda at: (times[at] or 0, rows[at]["_partition"], rows[at]["_offset"]))
    for at in order:
        row, when = rows[at], times[at]
        if when is not None:
            values = {name: row[name] for name in own}
            event = Event(when, row["_partition"], row["_offset"], values, _named(own, texts[at]))
            yield event, tuple(row[name] for name in finder.by)


def drawn_column(source: MatchTopic, schema: pa.Schema) -> str | None:
    """The column whose values are drawn as heights: the first number that the pattern names, or else the first number."""
    by = set() if source.finder is None else {*source.finder.by, source.finder.time}
    numbers = [column.name for column in schema if is_number(column.type) and column.name not in by]
    # The conditions of a pattern stand after DEFINE, its measures before.
    _, _, conditions = ("" if source.finder is None else source.finder.text).rpartition("DEFINE")
    named = [name for name in numbers if re.search(rf"\b{re.escape(name)}\b", conditions)]
    named.sort(key=lambda name: (name.lower() == "id", numbers.index(name)))
    numbers.sort(key=lambda name: name.lower() == "id")
    return named[0] if named else numbers[0] if numbers else None


def column_for(log: Log, source: MatchTopic) -> str | None:
    """The column that is drawn of the events of a topic of matches."""
    topic = source.events_topic(log)
    with contextlib.suppress(HeadwaterError):
        return None if topic is None else drawn_column(source, log.topic(topic).schema)
    return None


def points_of(events: list[Event], column: str | None) -> list[tuple[int, float | None, str]]:
    """Events as a timeline draws them: time, height and description."""
    points = []
    for event in events:
        value = event.row.get(column) if column else None
        text = ", ".join(f"{name} {text}" for name, text in event.texts.items())
        points.append((event.at_us, float(value) if isinstance(value, int | float | Decimal) else None, text))
    return points

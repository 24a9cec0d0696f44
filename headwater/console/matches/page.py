"""One match: its events on a timeline, its values, and the rule that found it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field

import orjson
from nicegui import ui

from headwater.console.context import Visit, context
from headwater.console.kit.controls import button
from headwater.console.kit.layout import block, card, code, empty, facts, heading, html, note, subtitle
from headwater.console.kit.live import read
from headwater.console.kit.table import Column, Row, Table, link
from headwater.console.kit.values import NULL
from headwater.console.kit.words import ago, moment, offset_number, span
from headwater.console.matches import model
from headwater.console.matches.list_page import highlighted
from headwater.console.matches.model import Event, MatchRow, MatchTopic
from headwater.console.matches.timeline import large
from headwater.console.pages import screen
from headwater.console.rules.rule_tables import rule_path
from headwater.console.topics.frame import row_path
from headwater.errors import NotFound

KINDS = {"pattern": "pattern", "rules": "rule", "searches": "stored search"}
#: The columns of a match of a stored search that are not of the document.
SEARCH_COLUMNS = ("query_id", "score", "metadata", "queries_version")


@screen("/matches/{topic}/{partition}/{offset}", under="/matches")
async def match(visit: Visit, topic: str, partition: str, offset: str) -> None:
    visit.caller.require("read", topic)
    number, at = offset_number(partition, name="partition"), offset_number(offset)
    content = await read(lambda: _load(visit, topic, number, at))
    if content.match is None:
        heading("A match", under=f"Offset {at} of partition {number} of `{topic}`.")
        empty("This match is gone", "Retention has deleted it, or it was never there.", icon="history")
        return
    _build(content, content.match)


@dataclass(frozen=True, kw_only=True)
class MatchContent:
    """A match, and its events with their topic and the column that is drawn."""

    source: MatchTopic
    match: MatchRow | None
    topic: str | None = None
    column: str | None = None
    events: list[Event] = field(default_factory=list)


def _load(visit: Visit, topic: str, partition: int, offset: int) -> MatchContent:
    log = context().log
    source = next((source for source in model.sources_of(log) if source.topic == topic), None)
    if source is None:
        raise NotFound(kind="topic", name=topic)
    match = model.match_at(log, source, partition, offset)
    events_topic = source.events_topic(log)
    if match is None or events_topic is None or not visit.caller.may("read", events_topic):
        return MatchContent(source=source, match=match, topic=events_topic)
    events = model.events_of(log, [match]).get(match.place, [])
    return MatchContent(
        source=source, match=match, topic=events_topic, column=model.column_for(log, source), events=events
    )


def _build(content: MatchContent, match: MatchRow) -> None:
    source, events = content.source, content.events
    finder, is_search = source.finder, source.kind == "searches"
    key = ", ".join(match.key.values())
    under = f"A match of the {KINDS[source.kind]}{f' for {key}' if key else ''}, found {ago(match.appended_us)}."
    with heading(match.rule, under=under, why="matches"):
        if finder is not None and finder.rules is not None:
            rule = rule_path(finder.rules, match.rule)
            button("Its rule", lambda: ui.navigate.to(rule), icon="rule")
        row = row_path(*match.place)
        button("Its row", lambda: ui.navigate.to(row), icon="view_stream", kind="ghost")
    if events:
        lasted = span((events[-1].at_us - events[0].at_us) / 1e6)
        with card(f"{len(events)} events in {lasted}"):
            label = f"{len(events)} events of {match.rule} in {lasted}"
            html(large(model.points_of(events, content.column), label=label, measure=content.column or "")).classes(
                "timeline-box"
            )
            text = f"The rows of {content.topic} with this key, from the first time of the match to its last; times are UTC."
            ui.label(text).classes("quiet small")
    elif not is_search:
        note(_why_no_events(content, match))
    with block("split start"):
        if events:
            _events_table(content, match)
        elif is_search:
            with card("The document"):
                facts(
                    (name, value) for name, value in match.values.items() if name not in (*SEARCH_COLUMNS, "highlights")
                )
                highlights = match.values.get("highlights", NULL)
                if highlights != NULL:
                    subtitle("Where it fits", level=3)
                    html(highlighted(highlights))
        with block("stack wide"):
            with card("What it says"):
                facts({**match.key, **_values(match), "Found": moment(match.appended_us)}.items())
            if finder is not None and finder.text:
                with card("The pattern"):
                    code(textwrap.dedent(finder.text).strip())


def _events_table(content: MatchContent, match: MatchRow) -> None:
    events = content.events
    names = list(events[0].texts)
    numbers = {name for name in names if isinstance(events[0].row[name], int | float) and name not in match.key}
    columns = [Column(name=name, align="right" if name in numbers else "left") for name in names]
    rows = []
    for event in events:
        place = f"{event.partition}:{event.offset}"
        path = row_path(str(content.topic), event.partition, event.offset)
        rows.append(Row([*(event.texts[name] for name in names), link(place, path)], key=place))
    with card("The events", flush=True, classes="whole-cells"):
        Table([*columns, Column(name="Row", align="right")], label="The events").set_rows(rows)


def _values(match: MatchRow) -> dict[str, str]:
    if match.source.kind == "searches":
        return {name: match.values[name] for name in SEARCH_COLUMNS if name in match.values}
    values = {name: value for name, value in match.values.items() if name != "highlights"}
    if "measures" in values:
        try:
            measures = orjson.loads(values.pop("measures"))
        except orjson.JSONDecodeError:
            return values
        values |= {name: NULL if value is None else str(value) for name, value in (measures or {}).items()}
    return values


def _why_no_events(content: MatchContent, match: MatchRow) -> str:
    if match.source.finder is None:
        return "No app has written down how this was found, so that its events cannot be looked up. Its row says what it says."
    if model.span_of(match) is None:
        return "The match names no time, so that its events cannot be looked up. Add one, such as FIRST(a.at), to its MEASURES."
    if content.topic is None:
        return "The topic that was looked at is gone, or has its key or its time no more."
    return "The events are no longer in their topic, or there are too many rows to look through."

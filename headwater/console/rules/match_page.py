"""One match: the events that made it on a line of time, what it says, and the rule that found it."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from urllib.parse import quote

import orjson
from nicegui import ui

from headwater.console.context import context
from headwater.console.kit.layout import block, button, card, empty, heading, note
from headwater.console.kit.live import read
from headwater.console.kit.table import Column, Row, Table, link
from headwater.console.kit.words import ago, moment, span
from headwater.console.pages import screen
from headwater.console.rules.match_timeline import large
from headwater.console.rules.matches import (
    Event,
    MatchRow,
    MatchTopic,
    column_for,
    events_of,
    match_at,
    points_of,
    sources_of,
    span_of,
)
from headwater.console.rules.matches_page import KINDS, highlighted
from headwater.console.views.page import facts
from headwater.console.visit import Visit
from headwater.errors import ArgumentInvalid, NotFound


@screen("/matches/{topic}/{partition}/{offset}", under="/matches")
async def match(visit: Visit, topic: str, partition: str, offset: str) -> None:
    visit.caller.require("read", topic)
    number, at = _number("partition", partition), _number("offset", offset)
    look = await read(lambda: _look(visit, topic, number, at))
    if look.found is None:
        heading("A match", under=f"Offset {at} of partition {number} of `{topic}`.")
        empty("This match is gone", "Retention has deleted it, or it was never there.", icon="history")
        return
    _page(look, look.found)


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ArgumentInvalid(name=name, value=text, expected="a whole number")
    return int(text)


@dataclass(frozen=True, kw_only=True)
class MatchContent:
    """A match, and the events that made it with the topic that they lie in."""

    source: MatchTopic
    found: MatchRow | None
    topic: str | None = None
    column: str | None = None
    events: list[Event] = field(default_factory=list)


def _look(visit: Visit, topic: str, partition: int, offset: int) -> MatchContent:
    log = context().log
    source = next((one for one in sources_of(log) if one.topic == topic), None)
    if source is None:
        raise NotFound(kind="topic", name=topic)
    found = match_at(log, source, partition, offset)
    events_topic = source.events_topic(log)
    if found is None or events_topic is None or not visit.caller.may("read", events_topic):
        return MatchContent(source=source, found=found, topic=events_topic)
    events = events_of(log, [found]).get(found.place, [])
    return MatchContent(source=source, found=found, topic=events_topic, column=column_for(log, source), events=events)


def _page(look: MatchContent, found: MatchRow) -> None:
    source, events = look.source, look.events
    key = ", ".join(found.key.values())
    under = f"A match of the {KINDS[source.kind]}{f' for {key}' if key else ''}, found {ago(found.appended_us)}."
    with heading(found.rule, under=under, why="matches"):
        rules = None if source.finder is None else source.finder.rules
        if rules is not None:
            place = f"/console/rules/{quote(rules, safe='')}/edit?id={quote(found.rule, safe='')}"
            button("Its rule", lambda: ui.navigate.to(place), icon="rule")
        record = f"/console/topics/{quote(source.topic, safe='')}/{found.partition}/{found.offset}"
        button("Its row", lambda: ui.navigate.to(record), icon="view_stream", kind="ghost")
    if events:
        _timeline(look, found)
    elif source.kind != "searches":
        note(_why_no_events(look, found))
    with block("split start"):
        if events:
            _events_table(look, found)
        elif source.kind == "searches":
            _document(found)
        with block("stack wide"):
            with card("What it says"):
                facts({**found.key, **_values(found), "Found": moment(found.appended_us)})
            if source.finder is not None and source.finder.text:
                with card("The pattern"):
                    ui.html(f'<pre class="code">{escape(_dedented(source.finder.text))}</pre>', sanitize=False)


def _timeline(look: MatchContent, found: MatchRow) -> None:
    events = look.events
    lasted = span((events[-1].at_us - events[0].at_us) / 1e6)
    with card(f"{len(events)} events in {lasted}"):
        told = f"{len(events)} events of {found.rule} in {lasted}"
        ui.html(large(points_of(events, look.column), label=told, measure=look.column or ""), sanitize=False).classes(
            "timeline-box"
        )
        ui.label(
            f"The rows of {look.topic} with this key, from the first time of the match to its last; times are UTC."
        ).classes("quiet small")


def _events_table(look: MatchContent, found: MatchRow) -> None:
    topic, events = str(look.topic), look.events
    names = list(events[0].texts)
    numbers = {name for name in names if isinstance(events[0].row[name], int | float) and name not in found.key}
    columns = [Column(name=name, align="right" if name in numbers else "left") for name in names]
    with card("The events", flush=True, classes="whole-cells"):
        table = Table([*columns, Column(name="Row", align="right")], label="The events")
    table.set_rows(
        [
            Row(
                [
                    *(event.texts[name] for name in names),
                    link(
                        f"{event.partition}:{event.offset}",
                        f"/console/topics/{quote(topic, safe='')}/{event.partition}/{event.offset}",
                    ),
                ],
                key=f"{event.partition}:{event.offset}",
            )
            for event in events
        ]
    )


def _document(found: MatchRow) -> None:
    """The document that a stored search has found, with what it was found by."""
    own = {"query_id", "score", "highlights", "metadata", "queries_version"}
    with card("The document"):
        facts({name: value for name, value in found.values.items() if name not in own})
        marked = found.values.get("highlights", "null")
        if marked != "null":
            ui.html("<h3>Where it fits</h3>", sanitize=False)
            ui.html(highlighted(marked), sanitize=False)


def _values(found: MatchRow) -> dict[str, str]:
    values = {name: value for name, value in found.values.items() if name not in ("highlights",)}
    if "measures" in values:
        try:
            measures = orjson.loads(values.pop("measures"))
        except orjson.JSONDecodeError:
            return values
        values |= {name: "null" if one is None else str(one) for name, one in measures.items()}
    if found.source.kind == "searches":
        return {name: values[name] for name in ("query_id", "score", "metadata", "queries_version") if name in values}
    return values


def _why_no_events(look: MatchContent, found: MatchRow) -> str:
    if found.source.finder is None:
        return "No app has written down how this was found, so that its events cannot be looked up. Its row says what it says."
    if span_of(found) is None:
        return "The match names no time, so that its events cannot be looked up. Add one, such as FIRST(a.at), to its MEASURES."
    if look.topic is None:
        return "The topic that was looked at is gone, or has its key or its time no more."
    return "The events are no longer in their topic, or there are too many rows to look through."


def _dedented(text: str) -> str:
    import textwrap

    return textwrap.dedent(text).strip()

"""Matches of patterns, rules and stored searches, as they come: the rule, the key, and the events that made them."""

from __future__ import annotations

import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from html import escape
from urllib.parse import quote

import orjson
from nicegui import ui

from headwater.console.context import context
from headwater.console.kit.chart import BarChart
from headwater.console.kit.layout import block, card, empty, heading, search_box, select
from headwater.console.kit.live import every
from headwater.console.kit.table import Column, Pages, Row, Table, drawn, mark
from headwater.console.kit.words import ago, count, moment
from headwater.console.pages import screen
from headwater.console.rules.match_timeline import Point, small
from headwater.console.rules.matches import (
    Event,
    MatchRow,
    MatchTopic,
    column_for,
    events_of,
    matches_of,
    points_of,
    sources_of,
)
from headwater.console.visit import Visit
from headwater.engine.finder import FinderKind
from headwater.errors import HeadwaterError
from headwater.log import Log

COLUMNS = (
    Column(name="when", label="Found"),
    Column(name="rule", label="Rule"),
    Column(name="key", label="Key"),
    Column(name="events", label="Events that made it", width="190px"),
    Column(name="what", label="What was found", clip=True),
)
#: So many newest matches of each topic are listed.
NEWEST = 200
#: So many rows of each topic are counted at first; from then on every one that comes.
COUNTED_FIRST = 100_000
EVENTS_KEPT = 5_000
BARS_MAX = 12
EVERYTHING = "All"
KINDS = {"pattern": "pattern", "rules": "rule", "searches": "stored search"}


@screen("/matches", title="Matches", group="Processing", icon="troubleshoot", key="m", order=40)
def matches(visit: Visit, rule: str = "") -> None:
    page = MatchList(visit, rule)
    every(2.0, page.look, page.show)


@dataclass
class MatchCounts:
    """What all visitors share: how often each rule matched, and the events of the matches that were shown."""

    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    is_part: set[str] = field(default_factory=set)
    events: dict[tuple[str, int, int], list[Event]] = field(default_factory=dict)
    kinds: dict[str, FinderKind | None] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, log: Log, source: MatchTopic) -> Counter[str]:
        """Matches by rule. The first look counts the newest rows, later ones what has come since."""
        with self.lock:
            topic, ends = source.topic, log.end_offsets(source.topic)
            if topic not in self.offsets:
                starts = log.start_offsets(topic)
                self.offsets[topic] = {at: max(starts[at], end - COUNTED_FIRST) for at, end in ends.items()}
                if any(self.offsets[topic][at] > starts[at] for at in ends):
                    self.is_part.add(topic)
            counts = self.counts.setdefault(topic, Counter())
            column = {"rules": "rule", "searches": "query_id"}.get(source.kind)
            begin = {at: min(offset, ends.get(at, 0)) for at, offset in self.offsets[topic].items()}
            if column is None or column not in log.topic(topic).schema.names:  # a query may leave it out
                counts[source.query or topic] += sum(end - begin.get(at, 0) for at, end in ends.items())
            elif begin != ends:
                rows = log.read(topic, start=begin, stop=ends, columns=[column]).table()
                counts.update(Counter(str(one) for one in rows.column(column).to_pylist()))
            self.offsets[topic] = dict(ends)
            return Counter(counts)

    def events_for(self, log: Log, found: list[MatchRow]) -> dict[tuple[str, int, int], list[Event]]:
        """The events of these matches; those of matches that were shown before are remembered."""
        fresh = events_of(log, [one for one in found if one.place not in self.events])
        with self.lock:
            if len(self.events) > EVENTS_KEPT:
                self.events.clear()
            self.events |= {place: events for place, events in fresh.items() if events}
            return {one.place: self.events.get(one.place, fresh.get(one.place, [])) for one in found}


@dataclass(frozen=True)
class MatchesContent:
    sources: list[MatchTopic]
    found: list[MatchRow]
    total: int
    counts: Counter[str]
    points: dict[tuple[str, int, int], list[Point]]
    is_part: bool


class MatchList:
    """The feed, its filters, and the bars."""

    def __init__(self, visit: Visit, rule: str) -> None:
        self._visit, self._rule, self._first = visit, rule, 0
        self._seen = context().share("matches", MatchCounts)
        with heading(
            "Matches", under="What patterns, rules and stored searches have found, the newest first.", why="matches"
        ):
            self._box = search_box("Filter by key or value", self._turned)
            self._chosen = select([EVERYTHING], value=EVERYTHING, label="Rule", on_change=self._turned)
            self._chosen.style("min-width: 160px")
        self._body = block("stack wide")
        with self._body:
            with card("Matches by rule"):
                self._chart = BarChart(label="Matches by rule", dark=visit.dark, height=160, sideways=True)
                self._counted = ui.label("").classes("quiet small")
            with card(flush=True, classes="whole-cells"):
                self._table = Table(COLUMNS, label="Matches", none="No match fits.", on_row=self._open)
                self._pages = Pages(self._turned, size=25)
        self._nothing = empty(
            "Nothing was found yet",
            "A query with Match, MatchRules or Percolate looks for patterns; what it finds shows here.",
            icon="troubleshoot",
        )
        self._body.set_visibility(False)
        self._nothing.set_visibility(False)

    async def _turned(self) -> None:
        from headwater.console.kit.live import read

        self.show(await read(self.look))

    def _open(self, key: str) -> None:
        ui.navigate.to(key)

    # -- looking ------------------------------------------------------------------------------------------------------

    def look(self) -> MatchesContent:
        log = context().log
        sources = [one for one in sources_of(log, self._seen.kinds) if self._visit.caller.may("read", one.topic)]
        chosen = str(self._chosen.value or EVERYTHING)
        rule = self._rule or ("" if chosen == EVERYTHING else chosen)
        text = (self._box.value or "").lower()
        found: list[MatchRow] = []
        counts: Counter[str] = Counter()
        for source in sources:
            try:
                counts.update(self._seen.count(log, source))
                found += matches_of(log, source, rows=NEWEST)
            except HeadwaterError:  # deleted while we looked
                continue
        fit = [one for one in found if (not rule or one.rule == rule) and text in _text(one)]
        fit.sort(key=lambda one: -one.appended_us)
        first = self._pages.first if self._pages.first < len(fit) else 0
        page = fit[first : first + self._pages.size]
        readable = [one for one in page if self._may_see_events(one)]
        events = self._seen.events_for(log, readable)
        columns = {source.topic: column_for(log, source) for source in sources}
        points = {one.place: points_of(events.get(one.place, []), columns[one.source.topic]) for one in readable}
        return MatchesContent(sources, fit, len(found), counts, points, bool(self._seen.is_part))

    def _may_see_events(self, one: MatchRow) -> bool:
        topic = one.source.events_topic(context().log)
        return topic is not None and self._visit.caller.may("read", topic)

    # -- showing ------------------------------------------------------------------------------------------------------

    def show(self, look: MatchesContent) -> None:
        has_any = bool(look.total or look.counts)
        self._body.set_visibility(has_any)
        self._nothing.set_visibility(not has_any)
        rules = [EVERYTHING, *sorted(look.counts)]
        if self._chosen.options != rules:
            self._chosen.set_options(rules, value=self._rule or self._chosen.value)
        self._rule = ""
        most = look.counts.most_common(BARS_MAX)
        self._chart.set([name[:40] for name, _ in most], {"matches": [number for _, number in most]})
        rules_told = "one rule" if len(look.counts) == 1 else f"{count(len(look.counts))} rules"
        told = f"{count(sum(look.counts.values()))} matches of {rules_told}"
        self._counted.set_text(
            f"{told}; counted from the newest {count(COUNTED_FIRST)} of each topic on." if look.is_part else told
        )
        self._table.set_rows([self._row(one, look) for one in self._pages.part(look.found)])

    def _row(self, one: MatchRow, look: MatchesContent) -> Row:
        points = look.points.get(one.place, [])
        lined = drawn(small(points)) if points else {"text": "–", "tone": "quiet"}
        cells = [
            {"text": ago(one.appended_us), "under": moment(one.appended_us)},
            mark(one.rule, "accent"),
            ", ".join(one.key.values()) or "–",
            lined,
            drawn(marked) if (marked := highlighted(one.values.get("highlights", "null"))) else told_of(one),
        ]
        return Row(cells, key=address_of(one))


def told_of(one: MatchRow) -> str:
    """What a match says, in one line."""
    if one.values.get("measures", "null") != "null":
        # As text: numbers keep all their digits.
        return re.sub(r'"([^"]*)": ?', r"\1 ", one.values["measures"].strip("{}")).replace('"', "")
    left = {"rule", "version", "match", "query_id", "score", "metadata", "queries_version"}
    return ", ".join(f"{name} {value}" for name, value in one.values.items() if name not in left and value != "null")


def highlighted(text: str) -> str:
    """Highlights as our own HTML: everything is escaped, and only their marks are marks again.

    >>> highlighted('[{"field": "title", "fragment": "<em>Storm</em> <script>"}]')
    '<span class="quiet">title</span> <mark>Storm</mark> &lt;script&gt;'
    """
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ""
    lines = []
    for one in found if isinstance(found, list) else ():
        shown = escape(str(one.get("fragment"))).replace("&lt;em&gt;", "<mark>").replace("&lt;/em&gt;", "</mark>")
        lines.append(f'<span class="quiet">{escape(str(one.get("field")))}</span> {shown}')
    return "<br>".join(lines)


def address_of(one: MatchRow) -> str:
    return f"/console/matches/{quote(one.source.topic, safe='')}/{one.partition}/{one.offset}"


def _text(one: MatchRow) -> str:
    return " ".join([*one.key.values(), *one.values.values(), one.rule]).lower()

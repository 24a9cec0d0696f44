"""Matches of patterns, rules and stored searches, the newest first: the rule, the key, and the events of each."""

from __future__ import annotations

import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from html import escape

import orjson
from nicegui import ui

from headwater.console.context import Visit, context
from headwater.console.kit.chart import BarChart
from headwater.console.kit.controls import search_box, select
from headwater.console.kit.layout import block, card, empty, heading
from headwater.console.kit.live import LivePage
from headwater.console.kit.table import Column, Pages, Row, Table, drawn, mark, toned
from headwater.console.kit.values import NULL
from headwater.console.kit.words import ago, count, counted, moment
from headwater.console.matches import model
from headwater.console.matches.model import Event, MatchRow, MatchTopic
from headwater.console.matches.timeline import Point, small
from headwater.console.pages import path_to, screen
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
#: How many of the newest matches of each topic are listed.
NEWEST = 200
#: How many rows of each topic are counted at first; later rows are all counted.
COUNTED_FIRST = 100_000
EVENTS_KEPT = 5_000
BARS_MAX = 12
ALL_RULES = "All"


@screen("/matches", title="Matches", group="Processing", icon="troubleshoot", key="m", order=40)
def matches(visit: Visit, rule: str = "") -> None:
    MatchList(visit, rule).start()


@dataclass
class MatchCounts:
    """What all visitors share: how often each rule matched, and the events of matches that were shown."""

    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    is_part: set[str] = field(default_factory=set)
    """The topics of which only the newest rows were counted."""
    events: dict[tuple[str, int, int], list[Event]] = field(default_factory=dict)
    kinds: dict[str, FinderKind | None] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, log: Log, source: MatchTopic) -> Counter[str]:
        """Matches by rule. The first call counts the newest rows, later ones the rows that have come since."""
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
                counts.update(str(rule) for rule in rows.column(column).to_pylist())
            self.offsets[topic] = dict(ends)
            return Counter(counts)

    def events_for(self, log: Log, matches: list[MatchRow]) -> dict[tuple[str, int, int], list[Event]]:
        """The events of these matches; those of matches that were shown before are not read again."""
        new = model.events_of(log, [match for match in matches if match.place not in self.events])
        with self.lock:
            if len(self.events) > EVENTS_KEPT:
                self.events.clear()
            self.events |= {place: events for place, events in new.items() if events}
            return {match.place: self.events.get(match.place, new.get(match.place, [])) for match in matches}


def match_counts() -> MatchCounts:
    """The counts that all visitors share."""
    return context().share("matches", MatchCounts)


@dataclass(frozen=True)
class MatchesContent:
    """The matches that the filters leave, how often each rule matched, and the timelines of one page."""

    matches: list[MatchRow]
    total: int
    counts: Counter[str]
    points: dict[tuple[str, int, int], list[Point]]
    is_part: bool


class MatchList(LivePage[MatchesContent]):
    """The list of matches, its filters, and the bars."""

    def __init__(self, visit: Visit, rule: str) -> None:
        self._visit, self._wanted_rule = visit, rule
        under = "What patterns, rules and stored searches have found, the newest first."
        with heading("Matches", under=under, why="matches"):
            self._filter = search_box("Filter by key or value", self.refresh)
            self._rule = select([ALL_RULES], value=ALL_RULES, label="Rule", on_change=self.refresh)
            self._rule.style("min-width: 160px")
        self._body = block("stack wide")
        with self._body:
            with card("Matches by rule"):
                self._chart = BarChart(label="Matches by rule", dark=visit.dark, height=160, sideways=True)
                self._summary = ui.label("").classes("quiet small")
            with card(flush=True, classes="whole-cells"):
                self._table = Table(
                    COLUMNS, label="Matches", none="No match fits.", on_row=lambda path: ui.navigate.to(path)
                )
                self._pages = Pages(self.refresh, size=25)
        self._nothing = empty(
            "Nothing was found yet",
            "A query with Match, MatchRules or Percolate looks for patterns; what it finds shows here.",
            icon="troubleshoot",
        )
        self._loading = empty(
            "Matches are being counted", "The first look at a large topic takes a while.", icon="hourglass_top"
        )
        self._body.set_visibility(False)
        self._nothing.set_visibility(False)

    def load(self) -> MatchesContent:
        log, caller, shared = context().log, self._visit.caller, match_counts()
        sources = [source for source in model.sources_of(log, shared.kinds) if caller.may("read", source.topic)]
        matches: list[MatchRow] = []
        counts: Counter[str] = Counter()
        for source in sources:
            try:
                counts.update(shared.count(log, source))
                matches += model.matches_of(log, source, rows=NEWEST)
            except HeadwaterError:  # deleted meanwhile
                continue
        chosen = str(self._rule.value or ALL_RULES)
        rule = self._wanted_rule or ("" if chosen == ALL_RULES else chosen)
        text = (self._filter.value or "").lower()
        fitting = [match for match in matches if (not rule or match.rule == rule) and text in _text(match)]
        fitting.sort(key=lambda match: -match.appended_us)
        first = self._pages.first if self._pages.first < len(fitting) else 0
        event_topics = {source.topic: source.events_topic(log) for source in sources}
        readable = [
            match
            for match in fitting[first : first + self._pages.size]
            if (topic := event_topics[match.source.topic]) is not None and caller.may("read", topic)
        ]
        events = shared.events_for(log, readable)
        columns = {source.topic: model.column_for(log, source) for source in sources}
        points = {match.place: model.points_of(events[match.place], columns[match.source.topic]) for match in readable}
        return MatchesContent(fitting, len(matches), counts, points, bool(shared.is_part))

    def show(self, content: MatchesContent) -> None:
        has_any = bool(content.total or content.counts)
        self._loading.set_visibility(False)
        self._body.set_visibility(has_any)
        self._nothing.set_visibility(not has_any)
        rules = [ALL_RULES, *sorted(content.counts)]
        if self._rule.options != rules:
            self._rule.set_options(rules, value=self._wanted_rule or self._rule.value)
        self._wanted_rule = ""
        most = content.counts.most_common(BARS_MAX)
        self._chart.set([name[:40] for name, _ in most], {"matches": [number for _, number in most]})
        of_rules = "one rule" if len(content.counts) == 1 else counted(len(content.counts), "rule")
        summary = f"{count(content.counts.total())} matches of {of_rules}"
        if content.is_part:
            summary += f"; counted from the newest {count(COUNTED_FIRST)} of each topic on."
        self._summary.set_text(summary)
        self._table.set_rows([self._row(match, content) for match in self._pages.part(content.matches)])

    def _row(self, match: MatchRow, content: MatchesContent) -> Row:
        points = content.points.get(match.place, [])
        marked = highlighted(match.values.get("highlights", NULL))
        cells = [
            {"text": ago(match.appended_us), "under": moment(match.appended_us)},
            mark(match.rule, "accent"),
            ", ".join(match.key.values()) or "–",
            drawn(small(points)) if points else toned("–", "quiet"),
            drawn(marked) if marked else match_text(match),
        ]
        return Row(cells, key=path_to("matches", *match.place))


def match_text(match: MatchRow) -> str:
    """The values of a match, in one line."""
    if match.values.get("measures", NULL) != NULL:
        # As text: numbers keep all their digits.
        return re.sub(r'"([^"]*)": ?', r"\1 ", match.values["measures"].strip("{}")).replace('"', "")
    others = {"rule", "version", "match", "query_id", "score", "metadata", "queries_version"}
    return ", ".join(f"{name} {value}" for name, value in match.values.items() if name not in others and value != NULL)


def highlighted(text: str) -> str:
    """Highlights as HTML of our own: everything is escaped except their marks.

    >>> highlighted('[{"field": "title", "fragment": "<em>Storm</em> <script>"}]')
    '<span class="quiet">title</span> <mark>Storm</mark> &lt;script&gt;'
    """
    try:
        highlights = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ""
    lines = []
    for highlight in highlights if isinstance(highlights, list) else ():
        fragment = escape(str(highlight.get("fragment")))
        marked = fragment.replace("&lt;em&gt;", "<mark>").replace("&lt;/em&gt;", "</mark>")
        lines.append(f'<span class="quiet">{escape(str(highlight.get("field")))}</span> {marked}')
    return "<br>".join(lines)


def _text(match: MatchRow) -> str:
    return " ".join([*match.key.values(), *match.values.values(), match.rule]).lower()

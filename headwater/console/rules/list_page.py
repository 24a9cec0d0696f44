"""Rules and stored searches: what is looked for now, how often it is found and what that costs; paused, changed, removed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from nicegui import ui

from headwater.console.context import context
from headwater.console.kit.dialog import Question
from headwater.console.kit.layout import button, card, empty, heading, search_box, tabs
from headwater.console.kit.live import every, read, tell
from headwater.console.kit.table import Column, Pages, Row, Table, act, link, mark, toned
from headwater.console.kit.words import ago, count, span
from headwater.console.pages import screen
from headwater.console.rules.matches import MatchTopic
from headwater.console.rules.matches_page import MatchCounts
from headwater.console.rules.rule_tables import (
    Kind,
    RuleTable,
    StoredRule,
    costs_of,
    remove,
    stored_in,
    tables_of,
    write,
)
from headwater.console.rules.trial import bench_of, check, told
from headwater.console.visit import Visit
from headwater.errors import HeadwaterError, NotFound

NAMES = {"rules": "Rules", "searches": "Stored searches"}
NOUNS = {"rules": "rule", "searches": "stored search"}
#: What may be done to a rule: the verb, what it then is, and what that means.
WORDS = {
    "pause": (
        "Pause",
        "paused",
        "From the next batch on it finds nothing. What it has begun is forgotten; all other rules go on.",
    ),
    "resume": ("Resume", "resumed", "From the next batch on it is looked for again, beginning afresh."),
    "remove": (
        "Remove",
        "removed",
        "From the next batch on it is gone. Its matches stay, and its text in the history of the topic.",
    ),
}


@screen("/rules", title="Rules", group="Processing", icon="rule", key="r", order=50)
async def rules(visit: Visit) -> None:
    await _table_page(visit, None)


@screen("/rules/{topic}", under="/rules")
async def rules_of(visit: Visit, topic: str) -> None:
    await _table_page(visit, topic)


async def _table_page(visit: Visit, topic: str | None) -> None:
    tables = [
        one
        for one in await read(lambda: tables_of(context().log, shared_kinds()))
        if visit.caller.may("read", one.topic)
    ]
    if topic is None and not tables:
        heading(
            "Rules",
            under="Patterns and searches that are kept in a table and may change while the stream runs.",
            why="rules",
        )
        empty(
            "No table of rules yet",
            "MatchRules reads patterns from a topic with id, text and enabled; Percolate reads searches from one with id and query.",
            icon="rule",
        )
        return
    chosen = next((one for one in tables if topic in (None, one.topic)), None)
    if chosen is None:
        raise NotFound(kind="topic", name=str(topic))
    page = RuleList(visit, chosen, tables)
    every(2.0, page.look, page.show)


@dataclass(frozen=True)
class RulesContent:
    stored: dict[str, StoredRule]
    fit: list[StoredRule]
    matches: Counter[str]
    costs: dict[str, tuple[int, float]]
    refused: dict[str, str]


class RuleList:
    """One table of rules."""

    def __init__(self, visit: Visit, table: RuleTable, tables: list[RuleTable]) -> None:
        self._visit, self._table_of = visit, table
        self._found = RulesContent({}, [], Counter(), {}, {})
        self._checked: dict[str, str] = {}
        self._stored: dict[str, StoredRule] = {}
        self._ends: dict[int, int] = {}
        self._may_write = visit.caller.may("write", table.topic)
        with heading(NAMES[table.kind], under=_under(table), why="rules"):
            self._box = search_box("Filter rules", self._again)
            if self._may_write:
                place = f"/console/rules/{quote(table.topic, safe='')}/edit"
                button(f"New {NOUNS[table.kind]}", lambda: ui.navigate.to(place), icon="add", kind="primary")
        if len(tables) > 1:
            tabs({one.topic: f"/console/rules/{quote(one.topic, safe='')}" for one in tables}, current=table.topic)
        with card(flush=True, classes="whole-cells"):
            self._table = Table(_columns(table), label=NAMES[table.kind], none="No rule yet.", on_act=self._act)
            self._pages = Pages(self._again)

    def look(self) -> RulesContent:
        log, table = context().log, self._table_of
        ends = log.end_offsets(table.topic)
        if ends != self._ends:  # there may be very many, and mostly they stay as they are
            self._stored, self._ends = stored_in(log, table), ends
        stored = self._stored
        text = (self._box.value or "").lower()
        fit = sorted((one for one in stored.values() if text in f"{one.id} {one.text}".lower()), key=lambda one: one.id)
        matches: Counter[str] = Counter()
        if table.matches is not None:
            source = MatchTopic(topic=table.matches, kind=table.kind, query=table.query)
            matches = context().share("matches", MatchCounts).count(log, source)
        first = self._pages.first if self._pages.first < len(fit) else 0
        return RulesContent(
            stored, fit, matches, costs_of(log, table), self._refused(fit[first : first + self._pages.size])
        )

    def _refused(self, shown: list[StoredRule]) -> dict[str, str]:
        """Why rules that are shown cannot be used; each text is looked at once."""
        log, table = context().log, self._table_of
        if table.events is None:
            return {}
        bench = bench_of(log, table, table.events)
        for one in shown:
            if one.text not in self._checked:
                try:
                    check(bench, one.text)
                    self._checked[one.text] = ""
                except HeadwaterError as error:
                    self._checked[one.text] = told(error)
        return {one.id: self._checked[one.text] for one in shown if self._checked[one.text]}

    async def _again(self) -> None:
        self.show(await read(self.look))

    def show(self, found: RulesContent) -> None:
        self._found = found
        self._table.set_rows([self._row(one, found) for one in self._pages.part(found.fit)])

    def _row(self, one: StoredRule, found: RulesContent) -> Row:
        table = self._table_of
        state = (
            mark("refused", "bad") if one.id in found.refused else mark("on", "good") if one.enabled else mark("paused")
        )
        why = found.refused.get(one.id)
        cells = [
            link(one.id, f"/console/rules/{quote(table.topic, safe='')}/edit?id={quote(one.id, safe='')}"),
            state,
            toned(why, "bad", under=" ".join(one.text.split())) if why else " ".join(one.text.split()),
            str(one.version),
            count(found.matches[one.id]),
        ]
        if table.kind == "searches":
            tried, seconds = found.costs.get(one.id, (0, 0.0))
            cells.append(
                {"text": f"{seconds * 1000:,.1f} ms" if tried else "–", "under": f"{count(tried)} documents"}
                if tried
                else "–"
            )
        cells.append(ago(one.appended_us))
        if self._may_write:
            pausing = act("Pause", "pause") if one.enabled else act("Resume", "resume")
            cells += [pausing] if table.can_pause else []
            cells += [act("Remove", "remove", tone="bad")] if table.compact else []
        return Row(cells, key=one.id)

    # -- changes ------------------------------------------------------------------------------------------------------

    async def _act(self, action: str, rule_id: str) -> None:
        one = self._found.stored.get(rule_id)
        if one is None or action not in WORDS:
            return
        verb, done, meaning = WORDS[action]
        question = Question(f"{verb} {one.id}?", yes=verb, danger=action == "remove")
        with question:
            ui.html(f'<pre class="code">{escape(one.text)}</pre>', sanitize=False)
            found = self._found.matches[one.id]
            ui.label(f"{meaning} It has matched {count(found)} {'time' if found == 1 else 'times'} so far.")
        if not await question.answered():
            return
        table, caller = self._table_of, self._visit.caller
        try:
            caller.require("write", table.topic)
            version = await read(lambda: changed(table, action, one))
        except HeadwaterError as error:
            tell(str(error), good=False)
            return
        context().note(caller, f"rule.{action}", f"{table.topic}/{one.id}")
        tell(f"{one.id} is {done}, from the next batch on (version {version}).")
        await self._again()


def shared_kinds() -> dict[str, Kind | None]:
    """Which topics are known to hold rules, by their columns; shared by all visitors."""
    kinds: dict[str, Kind | None] = context().share("rule kinds", dict)
    return kinds


def changed(table: RuleTable, action: str, one: StoredRule) -> int:
    """Write a change of a rule, and say its version."""
    if action == "remove":
        return remove(context().log, table, one)
    return write(context().log, table, one.id, one.text, enabled=action == "resume", known=one)


def _columns(table: RuleTable) -> list[Column]:
    cost = [Column(name="cost", label="Cost", align="right")] if table.kind == "searches" else []
    return [
        Column(name="id", label="Rule"),
        Column(name="state", label="State"),
        Column(name="text", label="Looks for", clip=True, mono=True),
        Column(name="version", label="Version", align="right"),
        Column(name="matches", label="Matches", align="right"),
        *cost,
        Column(name="changed", label="Changed", align="right"),
        *([Column(name="pause", label=" ", align="right")] if table.can_pause else []),
        *([Column(name="remove", label=" ", align="right")] if table.compact else []),
    ]


def _under(table: RuleTable) -> str:
    looked = f" It looks at `{table.events}`." if table.events else ""
    used = (
        f"Read by the query `{table.query}`, as they are when a batch begins."
        if table.query
        else "No app has used them yet."
    )
    return f"The rows of the topic `{table.topic}`. {used}{looked}"


def shown_seconds(seconds: float) -> str:
    return span(seconds) if seconds >= 1 else f"{seconds * 1000:.0f} ms"

"""Rules and stored searches: what each looks for, how often it matched and its cost; paused, resumed and removed."""

from __future__ import annotations

from collections import Counter

from nicegui import ui

from headwater.console.context import Visit, context
from headwater.console.kit.controls import button
from headwater.console.kit.dialog import Question
from headwater.console.kit.layout import code, empty, heading, tabs
from headwater.console.kit.list_page import ListPage
from headwater.console.kit.live import attempt, notify, read
from headwater.console.kit.table import Column, Row, act, link, mark, toned
from headwater.console.kit.words import ago, count, counted, duration
from headwater.console.matches.list_page import match_counts
from headwater.console.matches.model import MatchTopic
from headwater.console.pages import path_to, screen
from headwater.console.rules.rule_tables import (
    Kind,
    RuleTable,
    StoredRule,
    costs_of,
    remove,
    rule_path,
    stored_in,
    tables_of,
    write,
)
from headwater.console.rules.trial import TrialInput, check, problem_of, trial_input
from headwater.errors import HeadwaterError, NotFound

TITLES = {"rules": "Rules", "searches": "Stored searches"}
NOUNS = {"rules": "rule", "searches": "stored search"}
#: What may be done to a rule: the verb, the state after it, and what it means.
ACTIONS = {
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
    tables = await read(lambda: visible_tables(visit))
    if tables:
        RuleList(visit, tables[0], tables).start()
        return
    under = "Patterns and searches that are kept in a table and may change while the stream runs."
    heading("Rules", under=under, why="rules")
    empty(
        "No table of rules yet",
        "MatchRules reads patterns from a topic with id, text and enabled; Percolate reads searches from one with id and query.",
        icon="rule",
    )


@screen("/rules/{topic}", under="/rules")
async def rules_of(visit: Visit, topic: str) -> None:
    tables = await read(lambda: visible_tables(visit))
    chosen = next((table for table in tables if table.topic == topic), None)
    if chosen is None:
        raise NotFound(kind="topic", name=topic)
    RuleList(visit, chosen, tables).start()


def visible_tables(visit: Visit) -> list[RuleTable]:
    """The tables of rules that the caller may read."""
    kinds: dict[str, Kind | None] = context().share("rule kinds", dict)
    return [table for table in tables_of(context().log, kinds) if visit.caller.may("read", table.topic)]


class RuleList(ListPage[StoredRule]):
    """The rules of one table."""

    why = "rules"
    none = "No rule yet."
    placeholder = "Filter rules"
    classes = "whole-cells"

    def __init__(self, visit: Visit, table: RuleTable, tables: list[RuleTable]) -> None:
        self._rules, self._tables = table, tables
        #: What is wrong with each text, "" if nothing is; a text is checked once.
        self._problems: dict[str, str] = {}
        self._stored: dict[str, StoredRule] = {}
        self._ends: dict[int, int] = {}
        self._matches: Counter[str] = Counter()
        self._costs: dict[str, tuple[int, float]] = {}
        self._target: TrialInput | None = None
        self._may_write = visit.caller.may("write", table.topic)
        self.title, self.under, self.columns = TITLES[table.kind], _description(table), _columns(table)
        super().__init__(visit)
        if self._may_write:
            with self.buttons:
                path = rule_path(table.topic)
                button(f"New {NOUNS[table.kind]}", lambda: ui.navigate.to(path), icon="add", kind="primary")

    def build_above(self) -> None:
        if len(self._tables) > 1:
            addresses = {table.topic: path_to("rules", table.topic) for table in self._tables}
            tabs(addresses, current=self._rules.topic)

    def items(self) -> list[StoredRule]:
        log, table = context().log, self._rules
        ends = log.end_offsets(table.topic)
        if ends != self._ends:  # there may be very many rules, and they seldom change
            self._stored, self._ends = stored_in(log, table), ends
        if table.matches is not None:
            source = MatchTopic(topic=table.matches, kind=table.kind, query=table.query)
            self._matches = match_counts().count(log, source)
        self._costs = costs_of(log, table)
        self._target = None if table.events is None else trial_input(log, table, table.events)
        return sorted(self._stored.values(), key=lambda rule: rule.id)

    def text(self, item: StoredRule) -> str:
        return f"{item.id} {item.text}"

    def row(self, item: StoredRule) -> Row:
        table, problem, text = self._rules, self._problem(item.text), " ".join(item.text.split())
        state = mark("on", "good") if item.enabled else mark("paused")
        cells = [
            link(item.id, rule_path(table.topic, item.id)),
            mark("refused", "bad") if problem else state,
            toned(problem, "bad", under=text) if problem else text,
            str(item.version),
            count(self._matches[item.id]),
        ]
        if table.kind == "searches":
            tried, seconds = self._costs.get(item.id, (0, 0.0))
            cost = {"text": duration(seconds), "under": f"{count(tried)} documents"}
            cells.append(cost if tried else "–")
        cells.append(ago(item.appended_us))
        if self._may_write:
            pause = act("Pause", "pause") if item.enabled else act("Resume", "resume")
            cells += [pause] if table.can_pause else []
            cells += [act("Remove", "remove", tone="bad")] if table.compact else []
        return Row(cells, key=item.id)

    def _problem(self, text: str) -> str:
        if self._target is None:
            return ""
        if text not in self._problems:
            try:
                check(self._target, text)
                self._problems[text] = ""
            except HeadwaterError as error:
                self._problems[text] = problem_of(error)
        return self._problems[text]

    async def act(self, action: str, key: str) -> None:
        rule = self._stored.get(key)
        if rule is None or action not in ACTIONS:
            return
        verb, done, meaning = ACTIONS[action]
        with Question(f"{verb} {rule.id}?", yes=verb, danger=action == "remove") as question:
            code(rule.text)
            ui.label(f"{meaning} It has matched {counted(self._matches[rule.id], 'time')} so far.")
        if not await question.answered():
            return
        version = await attempt(lambda: self._change(action, rule))
        if version is not None:
            notify(f"{rule.id} is {done}, from the next batch on (version {version}).")
            await self.refresh()

    def _change(self, action: str, rule: StoredRule) -> int:
        """Write a change of a rule, and return its version."""
        log, table, caller = context().log, self._rules, self.visit.caller
        caller.require("write", table.topic)
        if action == "remove":
            version = remove(log, table, rule)
        else:
            version = write(log, table, rule.id, rule.text, enabled=action == "resume", known=rule)
        context().audit_change(caller, f"rule.{action}", f"{table.topic}/{rule.id}")
        return version


def _columns(table: RuleTable) -> list[Column]:
    return [
        Column(name="id", label="Rule"),
        Column(name="state", label="State"),
        Column(name="text", label="Looks for", clip=True, mono=True),
        Column(name="version", label="Version", align="right"),
        Column(name="matches", label="Matches", align="right"),
        *([Column(name="cost", label="Cost", align="right")] if table.kind == "searches" else []),
        Column(name="changed", label="Changed", align="right"),
        *([Column(name="pause", label=" ", align="right")] if table.can_pause else []),
        *([Column(name="remove", label=" ", align="right")] if table.compact else []),
    ]


def _description(table: RuleTable) -> str:
    used = "No app has used them yet."
    if table.query:
        used = f"Read by the query `{table.query}`, as they are when a batch begins."
    events = f" It looks at `{table.events}`." if table.events else ""
    return f"The rows of the topic `{table.topic}`. {used}{events}"

"""Tables of rules and of stored searches: the topics that hold them, their rows, their cost, and changes to them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import quote

from headwater.apps.home import Home
from headwater.console.matches.model import MatchTopic, recorded_finders
from headwater.console.pages import path_to
from headwater.engine.finder import Finder
from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.log import Log

Kind = Literal["rules", "searches"]
#: The column that holds the text of a rule, by kind.
TEXTS: dict[Kind, str] = {"rules": "text", "searches": "query"}


def rule_path(topic: str, rule_id: str = "") -> str:
    """The address at which a rule of a table is edited, or a new one."""
    return path_to("rules", topic, "edit") + (f"?id={quote(rule_id, safe='')}" if rule_id else "")


@dataclass(frozen=True, kw_only=True)
class RuleTable:
    """A topic whose rows are rules, with the query that uses them and its topics."""

    topic: str
    kind: Kind
    columns: tuple[str, ...]
    compact: bool
    query: str = ""
    app: str = ""
    matches: str | None = None
    events: str | None = None
    finder: Finder | None = field(default=None, repr=False)

    @property
    def text_column(self) -> str:
        return TEXTS[self.kind]

    @property
    def can_pause(self) -> bool:
        return "enabled" in self.columns


@dataclass(frozen=True, kw_only=True)
class StoredRule:
    """The newest row of a rule; `version` is its offset. Any: its values."""

    id: str
    text: str
    enabled: bool
    version: int
    appended_us: int
    row: dict[str, Any] = field(repr=False)


def tables_of(log: Log, known: dict[str, Kind | None] | None = None) -> list[RuleTable]:
    """All tables of rules: those that apps have recorded, and those that are recognised by their columns.

    With `known`, the schema of each topic is read once: there may be ten thousand.
    """
    known = {} if known is None else known
    tables: dict[str, RuleTable] = {}
    topics = set(log.topics())
    for app, query, body in recorded_finders(log):
        for each in body["finders"]:
            finder = Finder.from_json(each)
            if finder.rules is not None and finder.rules in topics and finder.kind != "pattern":
                source = MatchTopic(
                    topic=str(body["topic"]), kind=finder.kind, reads=tuple(body["reads"]), finder=finder
                )
                tables[finder.rules] = replace(
                    _table(log, finder.rules, finder.kind),
                    query=query,
                    app=app,
                    matches=body["topic"] if body["topic"] in topics else None,
                    events=source.events_topic(log),
                    finder=finder,
                )
    for name in topics - tables.keys():
        with contextlib.suppress(HeadwaterError):
            if name not in known:
                topic = log.topic(name)
                columns = set(topic.schema.names) if topic.key == ("id",) else set()
                is_rules, is_searches = {"id", "text", "enabled"} <= columns, {"id", "query"} <= columns
                known[name] = "rules" if is_rules else "searches" if is_searches else None
            if (kind := known[name]) is not None:
                tables[name] = _table(log, name, kind)
    return sorted(tables.values(), key=lambda table: table.topic)


def _table(log: Log, name: str, kind: Kind) -> RuleTable:
    topic = log.topic(name)
    return RuleTable(topic=name, kind=kind, columns=tuple(topic.schema.names), compact=topic.compact)


def stored_in(log: Log, table: RuleTable) -> dict[str, StoredRule]:
    """The newest row of each rule, without those that were removed."""
    columns = [*table.columns, "_offset", "_appended_at", "_tombstone"]
    rules: dict[str, StoredRule] = {}
    for row in log.read(table.topic, columns=columns).table().to_pylist(maps_as_pydicts="strict"):
        key, text = row["id"], row[table.text_column]
        if key is None:
            continue
        rules.pop(key, None)
        if not row.pop("_tombstone") and text is not None:
            offset, appended = row.pop("_offset"), row.pop("_appended_at")
            rules[key] = StoredRule(
                id=key,
                text=text,
                enabled=row.get("enabled") is not False,
                version=offset,
                appended_us=round(appended.timestamp() * 1e6),
                row=row,
            )
    return rules


def costs_of(log: Log, table: RuleTable) -> dict[str, tuple[int, float]]:
    """Of stored searches: how many documents were matched against each, and the seconds that took."""
    if table.kind != "searches" or table.finder is None:
        return {}
    from headwater.operators.percolate import costs

    state = Home(log.home / "apps" / table.app).state
    return {cost.query_id: (cost.candidates, cost.seconds) for cost in costs(state, table.finder.operator)}


# -- changes ----------------------------------------------------------------------------------------------------------


def write(log: Log, table: RuleTable, rule_id: str, text: str, *, enabled: bool, known: StoredRule | None) -> int:
    """Append a rule to its table, and return its version. Refused if the rule was changed since `known` was read."""
    if not rule_id.strip():
        raise ArgumentInvalid(name="id", value=rule_id, expected="a name for the rule")
    row = {**({} if known is None else known.row), "id": rule_id, table.text_column: text}
    if table.can_pause:
        row["enabled"] = enabled
    return _append(log, table, row, known)


def remove(log: Log, table: RuleTable, known: StoredRule) -> int:
    """Remove a rule from its table, and return the version of its tombstone."""
    return _append(log, table, {"id": known.id, "_tombstone": True}, known)


def _append(log: Log, table: RuleTable, row: dict[str, Any], known: StoredRule | None) -> int:
    version = -1 if known is None else known.version
    expected = version if log.topic(table.topic).key else None
    appended = log.append(table.topic, [row], expected_key_offset=expected)
    return max(appended.offsets_next.values()) - 1

"""`MatchRules`: many patterns at once, from a table that may change while the stream runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.finding import Finder, note_finder
from headwater.operators.keyed import Broadcast, Contract, Policy, apply
from headwater.operators.keyed.plan import default_name
from headwater.operators.match.expression import Rule
from headwater.operators.match.operator import PARTIALS_MAX, check_settings, checked, read, timed_and_keyed
from headwater.operators.match.program import STEPS_MAX
from headwater.operators.match.rules_step import MARKS, RULES, RulesStep
from headwater.operators.match.step import state_schema
from headwater.operators.process import LATE_SAMPLE_ROWS, Late, policy
from headwater.operators.windowed.operator import late_schema
from headwater.operators.windowed.prepared import PLACES, check_columns, check_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@runtime_checkable
class TableOfRules(Protocol):
    """A keyed topic as a table: `hw.Table` is one."""

    @property
    def name(self) -> str: ...
    @property
    def log(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class MatchRules:
    """Find many patterns at once among the rows of each key: those of a table, as it is when a batch begins.

    `rules` is a table of the app, or a topic (`Broadcast(log=…, topic=…)`), with the columns `id`, `text` (of a
    MATCH_RECOGNIZE) and `enabled`. A row replaces the rule of its id; a tombstone, or `enabled` false, removes it. That
    takes effect with the next batch. A rule that has changed begins afresh, all others keep what they have begun. A rule
    that cannot be understood goes to the side `refused`, and the others do not notice.

    Each match is a row: `rule`, `version` (the offset of the rule in its topic), `match` (its number for the rule and
    key), the key, `started_at`, `ended_at` and `measures`, as JSON. State: the rows of a key since the first start that
    is undecided for any rule, and one row for each rule that has begun there or has had a match.

    >>> from headwater.operators.keyed import Broadcast
    >>> MatchRules(rules=Broadcast(log="log", topic="rules"), on="at", by="card").by
    'card'
    """

    rules: Broadcast | TableOfRules = field(repr=False)
    on: str
    by: str | tuple[str, ...]
    late_by: str | float = 0.0
    late: Late = "drop"
    idle: str | float | None = None
    ahead: str | float | None = "1 day"
    partials_max: int = PARTIALS_MAX
    steps_max: int = STEPS_MAX
    timed_out: Literal["drop", "side"] = "drop"
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.keys:
            raise ArgumentInvalid(name="by", value=self.by, expected="the columns of the key")
        rules: object = self.rules
        if not isinstance(rules, (Broadcast, TableOfRules)):
            expected = "a table of the app, or `Broadcast(log=…, topic=…)`"
            raise ArgumentInvalid(name="rules", value=rules, expected=expected)
        self.policy()

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.by,) if isinstance(self.by, str) else tuple(self.by)

    def policy(self) -> Policy:
        return policy(late_by=self.late_by, idle=self.idle, ahead=self.ahead)

    def __call__(self, rows: DataFrame) -> DataFrame:
        name = self.name or default_name(self)
        note_finder(Finder(kind="rules", operator=name, on=self.on, by=self.keys, rules=self._table().topic))
        return apply(self.contract, self._checked(rows), partitions=self.partitions)

    def side(self, name: str, rows: DataFrame) -> DataFrame:
        """The rows of a side of bounded input. In a stream they lie in the state folder, computed once."""
        return apply(self.contract, self._checked(rows), partitions=self.partitions, side=name)

    def contract(self, rows: pa.Schema) -> Contract:
        own = [one.name for one in rows if not one.name.startswith("_")]
        columns = (*own, *(name for name in PLACES if name in rows.names))
        schema = pa.schema([rows.field(name) for name in own])
        state = state_schema(rows, columns, self.keys, MARKS)
        named = [pa.field("rule", pa.string()), pa.field("version", pa.int64()), *map(rows.field, self.keys)]
        started = pa.field("started_at", rows.field(self.on).type)
        ended = pa.field("ended_at", rows.field(self.on).type)
        match = pa.schema([*named, pa.field("match", pa.int64()), started, ended, pa.field("measures", pa.string())])
        texts = [pa.field(name, pa.string()) for name in ("text", "error")]
        return Contract(
            name=self.name or default_name(self),
            step=RulesStep(
                on=self.on,
                by=self.keys,
                columns=columns,
                schema=schema,
                state=state,
                read=partial(rule_of, schema=schema, on=self.on, by=self.keys),
                partials_max=self.partials_max,
                steps_max=self.steps_max,
                timed_out=self.timed_out == "side",
            ),
            key=self.keys,
            rows=rows,
            state=state,
            output=match,
            sides={
                "late": late_schema(rows),
                "dropped": pa.schema([*named, started, pa.field("reason", pa.string())]),
                "refused": pa.schema([*named[:2], *texts]),
                **({"timed_out": match} if self.timed_out == "side" else {}),
            },
            time=self.on,
            policy=self.policy(),
            late="step",
            prompt=True,
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
            broadcast={RULES: self._table()},
        )

    def _table(self) -> Broadcast:
        if isinstance(self.rules, Broadcast):
            return self.rules
        return Broadcast(log=self.rules.log, topic=self.rules.name)

    def _checked(self, rows: DataFrame) -> DataFrame:
        called = self.name or "MatchRules"
        check_time(called, rows, self.on)
        check_columns(called, rows, *self.keys)
        return rows


def rule_of(text: str, *, schema: pa.Schema, on: str, by: tuple[str, ...]) -> Rule:
    """The rule of a text, checked against the rows."""
    return checked(timed_and_keyed(read(text, schema), on=on, by=by), schema)

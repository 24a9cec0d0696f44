"""The rules of a table, ready to run together: what several of them ask of a row is computed once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from headwater.errors import HeadwaterError
from headwater.operators.match.language.rule import Expression, Rule
from headwater.operators.match.plan.evaluation import over_rows
from headwater.operators.match.plan.formula import Formulas
from headwater.operators.match.plan.program import Program, program
from headwater.operators.match.plan.rule_plan import PlanBuilder, planned
from headwater.operators.match.run.measures import measure_kinds

#: So many sets of rules, and texts as rules, are remembered in a process.
SETS_MAX = 4
READ_MAX = 100_000


@dataclass(frozen=True)
class StoredRule:
    """A rule as the table has it: `version` is its offset in the topic, `since_us` when it came there."""

    id: str
    version: int
    text: str
    since_us: int


@dataclass(frozen=True)
class RunningRule:
    id: str
    version: int
    program: Program


@dataclass(frozen=True)
class InvalidRule:
    """A rule that cannot run, and why."""

    id: str
    version: int
    text: str
    since_us: int
    error: str


@dataclass(frozen=True)
class RuleSet:
    """All rules that hold in a batch."""

    running: tuple[RunningRule, ...]
    invalid: tuple[InvalidRule, ...]
    masks: tuple[Expression, ...]
    derived: dict[str, Expression]
    whole_columns: tuple[str, ...]
    real_columns: tuple[str, ...]
    texts: tuple[str, ...]

    @property
    def looks_back(self) -> int:
        return max((one.program.looks_back for one in self.running), default=0)


def stored_rules(table: pa.Table) -> tuple[StoredRule, ...]:
    """The newest version of each rule that is there and enabled, by its id."""
    newest: dict[str, StoredRule | None] = {}
    for row in table.to_pylist():
        gone = row.get("_tombstone") or row.get("text") is None or row.get("enabled") is False
        if row.get("id") is not None:
            since = row.get("_appended_at")
            since_us = 0 if since is None else round(since.timestamp() * 1e6)
            kept = StoredRule(row["id"], int(row.get("_offset") or 0), row.get("text") or "", since_us)
            newest[row["id"]] = None if gone else kept
    return tuple(sorted((one for one in newest.values() if one is not None), key=lambda one: one.id))


@dataclass(frozen=True)
class RuleReader:
    """Reads the text of a rule for rows of a schema, with the time and the key that all rules have."""

    schema: pa.Schema
    time_column: str
    by: tuple[str, ...]
    read: Callable[[str], Rule]

    @property
    def about(self) -> tuple[object, ...]:
        """What the rule of a text depends on, to be remembered by."""
        return self.schema.to_string(), self.time_column, self.by


_sets: OrderedDict[tuple[object, ...], RuleSet] = OrderedDict()
_read: dict[tuple[object, ...], Rule] = {}


def rule_set(stored: tuple[StoredRule, ...], reader: RuleReader, *, limits: tuple[int, int]) -> RuleSet:
    """The rules as they run over rows of a schema; made once for each version of the table in a process."""
    key = (stored, *reader.about, limits)
    if key not in _sets:
        _sets[key] = _made(stored, reader, limits)
        if len(_sets) > SETS_MAX:
            _sets.popitem(last=False)
    _sets.move_to_end(key)
    return _sets[key]


def _made(stored: tuple[StoredRule, ...], reader: RuleReader, limits: tuple[int, int]) -> RuleSet:
    builder, formulas = PlanBuilder(), Formulas(reader.schema)
    running: list[RunningRule] = []
    invalid: list[InvalidRule] = []
    texts: dict[str, None] = {}
    for one in stored:
        try:
            made = _program(_rule(one.text, reader), reader.schema, builder, formulas)
        except Exception as error:
            why = str(error) if isinstance(error, HeadwaterError) else f"{type(error).__name__}: {error}"
            invalid.append(InvalidRule(one.id, one.version, one.text, one.since_us, why))
            continue
        running.append(RunningRule(one.id, one.version, made.bounded(rows_max=limits[0], steps_max=limits[1])))
        texts |= dict.fromkeys(made.named)
    return RuleSet(
        tuple(running),
        tuple(invalid),
        tuple(builder.masks),
        builder.columns(),
        tuple(formulas.whole_columns),
        tuple(formulas.real_columns),
        tuple(texts),
    )


def _rule(text: str, reader: RuleReader) -> Rule:
    """The rule of a text, read once in a process: a table of a thousand rules mostly stays as it is."""
    key = (text, *reader.about)
    if key not in _read:
        if len(_read) >= READ_MAX:
            _read.clear()
        _read[key] = reader.read(text)
    return _read[key]


def _program(rule: Rule, schema: pa.Schema, builder: PlanBuilder, formulas: Formulas) -> Program:
    """The program; tried on no rows at all first, so that what cannot be computed is found out alone."""
    alone = PlanBuilder()
    plan = planned(rule, alone)
    empty = schema.empty_table()
    for name, tree in alone.columns().items():
        empty = empty.append_column(name, over_rows(tree, empty))
    for tree in alone.masks:
        over_rows(tree, empty).cast(pa.bool_())
    measure_kinds(program(plan, empty.schema, numbered=True), empty.schema)
    together = planned(rule, builder)
    for name, tree in builder.columns().items():
        if name not in schema.names:
            schema = schema.append(pa.field(name, over_rows(tree, schema.empty_table()).type))
    return program(together, schema, formulas, numbered=True)

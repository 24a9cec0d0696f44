"""`Match`: patterns in the order of events, as SQL's MATCH_RECOGNIZE says them or as the builder builds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.finding import Finder, note_finder
from headwater.operators.keyed import Contract, Policy, apply
from headwater.operators.keyed.direct import Direct, direct_read, read_with
from headwater.operators.keyed.plan import default_name, partitions_of
from headwater.operators.match.expression import Rule
from headwater.operators.match.keeping import MARKS
from headwater.operators.match.masking import Masking, masking
from headwater.operators.match.measuring import leaf_kinds, measure_kinds
from headwater.operators.match.plan import BITS, Plan, planned
from headwater.operators.match.program import STEPS_MAX, Program, program
from headwater.operators.match.spark_text import row_text, spark_text
from headwater.operators.match.step import MatchStep, dropped_schema, state_schema
from headwater.operators.process import LATE_SAMPLE_ROWS, Late, check_late, policy
from headwater.operators.windowed.operator import late_schema
from headwater.operators.windowed.prepared import ALL, PLACES, check_columns, check_time, keys_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PARTIALS_MAX = 10_000


@runtime_checkable
class Ruled(Protocol):
    """What can say its rule: a pattern of the builder."""

    def rule(self) -> Rule: ...


@dataclass(frozen=True, kw_only=True)
class Match:
    """Find a pattern among the rows of each key, in the order of event time.

    `pattern` is the text of a MATCH_RECOGNIZE, or a pattern of the builder. Rows are matched up to the watermark; a match
    comes out as soon as its rows are there and no row that may still come could be preferred. `on` and `by` stand in for
    ORDER BY and PARTITION BY where the pattern has none. With `timed_out="side"`, partial matches that ran out of their
    WITHIN go to the side `timed_out`; no further event is needed for that. State: of each key the rows since the first
    start that is undecided, at most `partials_max`; beyond, the oldest start is given up, counted, and told in the side
    `dropped`. So is a search of more than `steps_max` steps.

    >>> Match("PATTERN (small{2,} big) DEFINE small AS amount < 5, big AS amount > 500", on="at", by="card").by
    'card'
    """

    pattern: str | Rule | Ruled = field(kw_only=False)
    on: str | None = None
    by: str | tuple[str, ...] | None = None
    late_by: str | float = 0.0
    late: Late = "drop"
    idle: str | float | None = None
    ahead: str | float | None = "1 day"
    partials_max: int = PARTIALS_MAX
    steps_max: int = STEPS_MAX
    timed_out: Literal["drop", "side"] = "drop"
    flink: bool = False
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_settings(self)
        self.policy()
        self.rule()

    def policy(self) -> Policy:
        return policy(late_by=self.late_by, idle=self.idle, ahead=self.ahead)

    def rule(self, schema: pa.Schema | None = None) -> Rule:
        """The pattern as a rule, with the key and the time that hold; with a schema, checked against it."""
        made = timed_and_keyed(read(self.pattern, schema), on=self.on, by=self.by, flink=self.flink)
        return made if schema is None else checked(made, schema)

    def __call__(self, rows: DataFrame) -> DataFrame:
        rule, plan = self._planned(rows)
        note_finder(self.finder(rule))
        make = partial(self.contract, plan=plan, raw=True)
        read = self._read(rows, plan)
        if read is None:
            return finished(apply(make, self._prepared(rows, plan), partitions=self._count(rule)), plan)
        direct, masked = read
        packed = read_with(rows, masked, direct.options)
        return finished(apply(make, packed, packed=masked.packs, partitions=masked.partitions), plan)

    def finder(self, rule: Rule) -> Finder:
        """What it looks for, for whoever shows what it finds."""
        from headwater.operators.match.sql import render

        text = self.pattern if isinstance(self.pattern, str) else render(rule)
        name = self.name or default_name(self)
        return Finder(kind="pattern", operator=name, on=rule.on, by=tuple(rule.by), text=text)

    def side(self, name: str, rows: DataFrame) -> DataFrame:
        """The rows of a side of bounded input. In a stream they lie in the state folder, computed once."""
        rule, plan = self._planned(rows)
        make = partial(self.contract, plan=plan, raw=True)
        return apply(make, self._prepared(rows, plan), partitions=self._count(rule), side=name)

    def contract(self, rows: pa.Schema, *, plan: Plan, raw: bool = False) -> Contract:
        """How the engine runs it; `rows` has the columns that the plan makes."""
        rule = plan.rule
        keys, on = keys_of(rule.by), str(rule.on)
        made = program(plan, rows).bounded(rows_max=self.partials_max, steps_max=self.steps_max)
        needed = (*keys, on, *(name for name in PLACES if name in rows.names), *plan.columns, *plan.mask_columns)
        own = [one.name for one in rows if not one.name.startswith("_")]
        columns = tuple(dict.fromkeys(needed if rule.rows == "one" else (*needed, *own)))
        by = () if keys == (ALL,) else keys
        shown = by if rule.rows == "one" else tuple(own)
        state = state_schema(rows, columns, keys, MARKS)
        step = MatchStep(
            program=made,
            on=on,
            by=by,
            columns=columns,
            shown=shown,
            state=state,
            raw=raw,
            timed_out=self.timed_out == "side",
        )
        return Contract(
            name=self.name or default_name(self),
            step=step,
            key=keys,
            rows=rows,
            state=state,
            output=pa.schema([*(rows.field(name) for name in shown), *_measured(made, rows, raw)]),
            sides=self._sides(made, rows, by, on),
            time=on,
            policy=self.policy(),
            late="step",
            prompt=True,
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
            hidden=tuple(name for name in rows.names if name in (ALL, *plan.mask_columns, *plan.derived)),
        )

    def _sides(self, made: Program, rows: pa.Schema, by: tuple[str, ...], on: str) -> Mapping[str, pa.Schema]:
        sides = {"late": late_schema(rows), "dropped": dropped_schema(rows, by, on)}
        if self.timed_out == "side":
            sides["timed_out"] = pa.schema([*(rows.field(name) for name in by), *measure_kinds(made, rows)])
        return sides

    def _planned(self, rows: DataFrame) -> tuple[Rule, Plan]:
        from pyspark.sql.pandas.types import to_arrow_schema

        rule = self.rule()
        called = self.name or "Match"
        check_time(called, rows, str(rule.on))
        check_columns(called, rows, *rule.by)
        return rule, planned(self.rule(to_arrow_schema(rows.schema, timezone="UTC")))

    def _read(self, rows: DataFrame, plan: Plan) -> tuple[Direct, Masking] | None:
        """What the reader of a topic computes and packs; None where that is Spark's to do."""
        from pyspark.sql.pandas.types import to_arrow_schema

        direct = direct_read(rows) if plan.rule.by else None
        if direct is None:
            return None
        found = masking(
            direct,
            plan,
            name=self.name or default_name(self),
            rows=to_arrow_schema(rows.schema, timezone="UTC"),
            kept=self._carried(rows, plan),
            keys=keys_of(plan.rule.by),
            partitions=partitions_of(rows, self._count(plan.rule)),
        )
        return None if found is None else (direct, found)

    def _carried(self, rows: DataFrame, plan: Plan) -> list[str]:
        """The columns of the rows that go to the search."""
        if self.late == "side" or plan.rule.rows != "one":
            return list(rows.columns)
        needed = [*keys_of(plan.rule.by), str(plan.rule.on), *PLACES, *plan.columns]
        return list(dict.fromkeys(name for name in needed if name in rows.columns))

    def _prepared(self, rows: DataFrame, plan: Plan) -> DataFrame:
        """The rows with what is computed of each by itself, and only the columns that are needed."""
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        keys = keys_of(plan.rule.by)
        kept = self._carried(rows, plan)
        more = {name: F.expr(row_text(tree)) for name, tree in plan.derived.items()}
        more |= {name: _mask(plan, word) for word, name in enumerate(plan.mask_columns)}
        more |= {ALL: F.lit(0)} if ALL in keys else {}
        return rows.select(*(F.col(f"`{name}`") for name in kept), *(one.alias(name) for name, one in more.items()))

    def _count(self, rule: Rule) -> int | None:
        return self.partitions if rule.by else 1


class Bounded(Protocol):
    """The settings that one pattern and many have in common."""

    @property
    def late(self) -> Late: ...
    @property
    def timed_out(self) -> str: ...
    @property
    def partials_max(self) -> int: ...
    @property
    def steps_max(self) -> int: ...


def check_settings(given: Bounded) -> None:
    check_late(given.late)
    if given.timed_out not in ("drop", "side"):
        raise ArgumentInvalid(name="timed_out", value=given.timed_out, expected='"drop" or "side"')
    for name, value in (("partials_max", given.partials_max), ("steps_max", given.steps_max)):
        if value < 1:
            raise ArgumentInvalid(name=name, value=value, expected="at least 1")


def read(pattern: str | Rule | Ruled, schema: pa.Schema | None = None) -> Rule:
    """The rule of a text, of a pattern of the builder, or as it is. What in a text does not fit a schema is shown there."""
    if isinstance(pattern, Rule):
        return pattern
    if isinstance(pattern, str):
        from headwater.operators.match.sql import parse

        return parse(pattern, schema)
    if isinstance(pattern, Ruled):
        return pattern.rule()
    raise ArgumentInvalid(name="pattern", value=pattern, expected="the text of a MATCH_RECOGNIZE, or a pattern")


def checked(rule: Rule, schema: pa.Schema) -> Rule:
    """Refuse what does not fit the rows."""
    from headwater.operators.match.sql import check

    return check(rule, schema)


def timed_and_keyed(rule: Rule, *, on: str | None, by: str | tuple[str, ...] | None, flink: bool = False) -> Rule:
    """The rule with its key and time; what it says itself may only be said again."""
    wanted = None if by is None else ((by,) if isinstance(by, str) else tuple(by))
    if wanted is not None and rule.by and tuple(rule.by) != wanted:
        raise ArgumentInvalid(name="by", value=by, expected=f"what PARTITION BY says: {', '.join(rule.by)}")
    if on is not None and rule.on is not None and on != rule.on:
        raise ArgumentInvalid(name="on", value=on, expected=f"what ORDER BY says: {rule.on}")
    made = replace(rule, by=tuple(rule.by) or wanted or (), on=rule.on or on)
    if made.on is None:
        raise ArgumentInvalid(name="on", value=on, expected="the column of event time, here or as ORDER BY")
    if flink:
        # To Flink a match may last less than WITHIN, and not exactly as long.
        within = None if made.within_us is None else made.within_us - 1
        between = None if made.between_us is None else made.between_us - 1
        made = replace(made, within_us=within, between_us=between)
    return made


def finished(rows: DataFrame, plan: Plan) -> DataFrame:
    """The measures, made by Spark of what the search found for them."""
    from pyspark.sql import functions as F  # noqa: N812

    from headwater.operators.match.measuring import leaves_of

    names = leaves_of(plan)
    own = [F.col(f"`{name}`") for name in rows.columns if name not in names.values()]
    measures = [F.expr(spark_text(one.tree, lambda leaf: names[leaf])).alias(one.name) for one in plan.rule.measures]
    return rows.select(*own, *measures)


def _mask(plan: Plan, word: int) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    mask = F.lit(0).cast("long")
    for bit, tree in enumerate(plan.masks[word * BITS : (word + 1) * BITS]):
        held = F.when(F.expr(row_text(tree)), F.lit(1 << bit).cast("long")).otherwise(F.lit(0).cast("long"))
        mask = mask.bitwiseOR(held)
    return mask


def _measured(made: Program, rows: pa.Schema, raw: bool) -> list[pa.Field]:
    return leaf_kinds(made, rows) if raw else measure_kinds(made, rows)

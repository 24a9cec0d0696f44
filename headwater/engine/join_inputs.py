"""Two inputs as one: their keys under one name, their times under one name, and every other column under the name that it
has in the result. So a late or a rejected row looks like a result of which one half is missing.

A row with a null in its key meets no other, as in SQL. Where its input's rows leave alone when they meet none, it is one of
them; else it is left out before the join.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headwater.engine.columns import PLACES
from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.schema.event_time import EventTime

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The time of a row, whichever column of its input it comes from.
AT = "_at"
#: Part of the key where rows leave alone: 0 for those that may meet, else a number that no row of the other input has.
SPREAD = "_spread"
#: Kinds of whole numbers, which may meet as keys.
WHOLE = ("byte", "short", "integer", "long")
TIMES = ("timestamp", "timestamp_ntz")

On = str | tuple[str, ...] | Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of a join's result: the key, and what each input adds to it. `shown` has them in their order."""

    key: tuple[str, ...]
    left: tuple[str, ...]
    right: tuple[str, ...]
    shown: tuple[str, ...]
    #: Whether rows with a null in their key take part.
    null_keys: bool = False

    @property
    def group(self) -> tuple[str, ...]:
        """The engine's key: rows that differ in it never meet."""
        return (*self.key, SPREAD) if self.null_keys else self.key

    @property
    def data(self) -> tuple[str, ...]:
        """Everything but the key."""
        return (*self.left, *self.right)


@dataclass(frozen=True, kw_only=True)
class JoinInputs:
    """Two inputs that are to meet: which columns are the key, and under which names the columns of both stand side by side."""

    operator: str
    left: DataFrame
    right: DataFrame
    on: Mapping[str, str]
    #: Columns of the right input by the names that they have in the result.
    renamed: Mapping[str, str]
    #: The inputs whose rows leave alone when they meet none: 0 is the left, 1 the right.
    alone: tuple[int, ...] = ()

    @staticmethod
    def of(
        operator: str,
        left: DataFrame,
        right: DataFrame,
        *,
        on: On,
        suffix: str | None = None,
        alone: tuple[int, ...] = (),
        key_only: bool = False,
        called: str = "other",
    ) -> JoinInputs:
        """The inputs, checked. With `key_only` the right one adds nothing to the result."""
        pairs = pairs_of(on)
        for mine, other in pairs.items():
            check_key(operator, left, right, mine, other)
        if left.isStreaming != right.isStreaming:
            kinds = ["a stream" if one.isStreaming else "bounded" for one in (left, right)]
            expected = "two streams or two bounded inputs; a stream meets a bounded DataFrame in Spark's own `join`"
            raise ArgumentInvalid(name=called, value=f"{kinds[1]} beside {kinds[0]}", expected=expected)
        taken = set(left.columns)
        renamed: dict[str, str] = {}
        for name in right.columns:
            if name in pairs.values() or name.startswith("_") or key_only:
                continue
            result = name if name not in taken else f"{name}{suffix or ''}"
            if result in taken or result in renamed:
                expected = f"one such as '_other' for the second input: two columns would be called {result!r}"
                raise ArgumentInvalid(name="suffix", value=suffix, expected=expected)
            renamed[result] = name
        return JoinInputs(operator=operator, left=left, right=right, on=pairs, renamed=renamed, alone=alone)

    def columns(self, *, places: bool = False) -> Columns:
        """The columns of the result; with `places`, the row's place in its topic is one of the left input's."""
        kept = tuple(one for one in self.left.columns if not one.startswith("_") or (places and one in PLACES[:3]))
        return Columns(
            key=tuple(self.on),
            left=tuple(name for name in kept if name not in self.on),
            right=tuple(self.renamed),
            shown=(*kept, *self.renamed),
            null_keys=bool(self.alone),
        )

    def times(self, left: EventTime, right: EventTime | None = None) -> tuple[EventTime, ...]:
        """The columns of the result that are event time: those of both inputs, under the names that they have there."""
        names = [name for name, source in self.renamed.items() if right is not None and source == right.column]
        return (left, *(replace(right, column=name) for name in names if right is not None))

    def left_rows(self, at: Column | None = None, *, extra: Mapping[str, Column] | None = None) -> DataFrame:
        """The left input with its time and place, and `extra` columns of the operator's own."""
        names = [name for name in self.left.columns if name in self.on or not name.startswith("_")]
        return self._selected(0, {name: name for name in names}, at, extra or {})

    def right_rows(self, at: Column | None = None, *, more: tuple[str, ...] = ()) -> DataFrame:
        """The right input under the names of the result, with its time and place, and `more` of its own."""
        return self._selected(1, {**self.on, **self.renamed, **{name: name for name in more}}, at, {})

    def _selected(
        self, number: int, names: Mapping[str, str], at: Column | None, extra: Mapping[str, Column]
    ) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        rows = (self.left, self.right)[number]
        has_key = F.lit(True)
        for name in (self.on.keys(), self.on.values())[number]:
            has_key = has_key & F.col(f"`{name}`").isNotNull()
        places = [F.col(name) for name in PLACES if name in rows.columns]
        made = dict(extra) if at is None else {AT: at, **extra}
        if number in self.alone:
            apart = F.pmod(F.xxhash64(*places), F.lit(2**40)) + 1 if places else F.lit(1)
            made[SPREAD] = F.when(has_key, F.lit(0)).otherwise(apart if number == 0 else -apart).cast("long")
        else:
            rows = rows.where(has_key)
            made |= {SPREAD: F.lit(0).cast("long")} if self.alone else {}
        named = [F.col(f"`{source}`").alias(name) for name, source in names.items()]
        return rows.select(*named, *(column.alias(name) for name, column in made.items()), *places)


def pairs_of(on: On) -> dict[str, str]:
    """The columns of the key, those of the left input with those of the right.

    >>> pairs_of("card"), pairs_of(("shop", "day")), pairs_of({"buyer": "user"})
    ({'card': 'card'}, {'shop': 'shop', 'day': 'day'}, {'buyer': 'user'})
    """
    if isinstance(on, str):
        return {on: on}
    pairs = dict(on) if isinstance(on, Mapping) else {name: name for name in on}
    if not pairs or not all(isinstance(name, str) for pair in pairs.items() for name in pair):
        raise ArgumentInvalid(name="on", value=on, expected='a column, columns, or pairs such as {"buyer": "user"}')
    return pairs


def check_key(operator: str, left: DataFrame, right: DataFrame, mine: str, other: str) -> None:
    """Raise on keys that are not there, or could never be equal."""
    for rows, name in ((left, mine), (right, other)):
        if name not in rows.columns:
            raise ColumnUnknown(topic=operator, column=name, columns=", ".join(rows.columns))
    kinds = [rows.schema[name].dataType for rows, name in ((left, mine), (right, other))]
    if kinds[0] != kinds[1] and not all(kind.typeName() in WHOLE for kind in kinds):
        value = f"{mine} ({kinds[0].simpleString()}) = {other} ({kinds[1].simpleString()})"
        raise ArgumentInvalid(name="on", value=value, expected="columns of one type: cast one of them")


def check_times(operator: str, left: DataFrame, right: DataFrame, mine: str, other: str) -> None:
    """Raise unless both times are timestamp columns, and both or none of them have a time zone."""
    kinds = []
    for rows, name in ((left, mine), (right, other)):
        if name not in rows.columns:
            raise ColumnUnknown(topic=operator, column=name, columns=", ".join(rows.columns))
        kinds.append(rows.schema[name].dataType.typeName())
        if kinds[-1] not in TIMES:
            raise ArgumentInvalid(name="time", value=f"{name} ({kinds[-1]})", expected="a column of timestamps")
    if kinds[0] != kinds[1]:
        value = f"{mine} ({kinds[0]}) beside {other} ({kinds[1]})"
        raise ArgumentInvalid(name="time", value=value, expected="times of one type: cast one of them")


def check_appends(name: str, rows: DataFrame) -> None:
    """Raise on changes of a table, where only rows are allowed that stay as they are."""
    if "_op" in rows.columns:
        expected = "rows that are only added; changes of tables (`_op`) are joined by `Enrich` or `TableJoin`"
        raise ArgumentInvalid(name=name, value="a changelog", expected=expected)

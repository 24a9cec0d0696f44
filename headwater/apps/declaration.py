"""The declarations of an app: a query is a function whose arguments name its inputs, and whose result is its output."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headwater.apps.errors import DeclarationInvalid
from headwater.apps.status import Kind
from headwater.errors import ArgumentInvalid
from headwater.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.sinks import Sink


Mode = Literal["append", "update"]
OPERATION = "_op"
_OWN = ("_appended_at", "_sent_at", "_headers", "_tombstone")


@dataclass(frozen=True, kw_only=True)
class Input:
    """An argument of a query: the topic or view that it names, and whether it is passed as rows or as a table."""

    parameter: str
    name: str
    kind: Literal["rows", "table"] = "rows"


@dataclass(frozen=True, kw_only=True)
class Query:
    """A declared query: its function, its inputs and its outputs."""

    name: str
    kind: Kind
    function: Callable[..., DataFrame] = field(repr=False)
    inputs: tuple[Input, ...]
    where: str
    key: tuple[str, ...] = ()
    sinks: tuple[Sink, ...] = ()
    mode: Mode | None = None
    trigger: str | None = None
    tick: str | None = None
    rows_max: int | None = None
    side_outputs: Mapping[str, str] = field(default_factory=dict)
    """The side outputs of its operators that are written, with their topics; late rows are one of them."""
    ask: bool = False
    # Any: settings of a topic, as `Log.create` takes them.
    topic: Mapping[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> str | None:
        """The output topic; None for a query that only writes to sinks."""
        return None if self.kind == "sink" else self.name

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.name for each in self.inputs))

    def _repr_html_(self) -> str:
        from headwater.apps.notebook import query_html

        return query_html(self)


@dataclass(frozen=True, kw_only=True)
class InputTopic:
    """A topic that an app reads and other programs write; created if it is missing."""

    name: str
    # Any: whatever `Log.create` takes for a schema and for its settings.
    schema: Any
    where: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    bounded: bool = False
    """Whether nothing is appended to it any more."""


def inputs_of(function: Callable[..., Any], names: Mapping[str, str], *, query: str) -> tuple[Input, ...]:
    """Return the arguments of a function as inputs; `names` has the topics of arguments with other names."""
    parameters = inspect.signature(function).parameters
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            why = f"its argument `{parameter}` has no name that could say what to read"
            raise DeclarationInvalid(query=query, where=where_of(function), why=why)
    unknown = set(names) - set(parameters)
    if unknown:
        why = f"`inputs` names {', '.join(sorted(unknown))}, which the function has no argument for"
        raise DeclarationInvalid(query=query, where=where_of(function), why=why)
    if not parameters:
        why = "it has no arguments, so it reads nothing"
        raise DeclarationInvalid(query=query, where=where_of(function), why=why)
    hints = _hints(function)
    return tuple(
        Input(parameter=name, name=names.get(name, name), kind="table" if hints.get(name) is Table else "rows")
        for name in parameters
    )


def where_of(function: Callable[..., Any]) -> str:
    """Return the file and line of a function, such as `fraud.py:12`."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "?" if code is None else f"{Path(code.co_filename).name}:{code.co_firstlineno}"


# Any: an annotation may be anything.
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):  # a name that is imported for type checkers only
        found = getattr(function, "__annotations__", {})
        return {name: Table if str(kind).split(".")[-1] == "Table" else kind for name, kind in found.items()}


@dataclass(frozen=True, kw_only=True)
class Table:
    """A keyed topic, as an argument of a query: `def query(payments: DataFrame, cards: hw.Table) -> DataFrame`.

    `changes` is the table as it moves: a stream in which `_op` says of each row whether it replaces the row of its key
    (`+U`) or deletes it (`-D`). `current()` is the table as it stands when a batch begins: an ordinary bounded
    DataFrame, to join a stream with. `history()` has every row that the topic holds, with `_appended_at`. Operators on tables take
    the table itself; `Enrich` finds what held at a time, by `time`: the column that says from when a row holds, where the topic
    has declared one.

    `where` and `select` give a table of some of the rows and columns. A row that no longer meets the condition is deleted from it:
    `auctions.where("category = 10").transform(TableJoin(sellers, on=("seller", "id")))`.
    """

    name: str
    key: tuple[str, ...]
    log: str
    state: str = field(repr=False)
    changes: DataFrame = field(repr=False)
    time: str | None = None
    #: The column by whose time rows of a key replace one another, and how long a deletion is remembered; see `versioned`.
    versions: tuple[str, Duration] | None = None
    #: What `where` and `select` have added, the first first.
    steps: tuple[Callable[[DataFrame], DataFrame], ...] = field(default=(), repr=False)

    def where(self, condition: str | Column) -> Table:
        """The rows that meet a condition; one that no longer does is deleted."""
        return self._then(lambda rows: rows.where(condition))

    def select(self, *columns: str | Column) -> Table:
        """Some columns, chosen or computed. Operators need those of the key."""
        return self._then(lambda rows: rows.select(*columns, *(name for name in rows.columns if name.startswith("_"))))

    def versioned(self, by: str | None = None, *, history: Duration = "1 day") -> Table:
        """The table whose rows replace one another by a time of theirs, and not as they come: an update that is older than what its
        key has is ignored.

        `by` is a timestamp column, by default the event time of the topic. A deletion is remembered for `history` of that time, so that an
        older update does not bring its row back. `TableJoin`, `AggregateTable` and `TopN` go by it.
        """
        column = by or self.time
        if column is None:
            expected = f"a timestamp column of table {self.name!r}, which has declared no event time"
            raise ArgumentInvalid(name="by", value=by, expected=expected)
        return replace(self, versions=(column, history))

    def transform(self, operator: Callable[[Table], DataFrame]) -> DataFrame:
        """The result of an operator on tables over this one."""
        return operator(self)

    def current(self) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        newest = Window.partitionBy(*self.key).orderBy(F.col("_offset").desc())
        rows = self._bounded().withColumn("_place", F.row_number().over(newest))
        kept = rows.where((F.col("_place") == 1) & ~F.coalesce(F.col("_tombstone"), F.lit(False)))
        return self._stepped(kept.drop("_place", "_partition", "_offset", *_OWN))

    def history(self) -> DataFrame:
        return self._stepped(as_changes(self._bounded(), keep=("_appended_at",)))

    def _then(self, step: Callable[[DataFrame], DataFrame]) -> Table:
        return replace(self, changes=step(self.changes), steps=(*self.steps, step))

    def _stepped(self, rows: DataFrame) -> DataFrame:
        for step in self.steps:
            rows = step(rows)
        return rows

    def _bounded(self) -> DataFrame:
        reader = self.changes.sparkSession.read.format("headwater").option("log", self.log)
        reader = reader.option("metadata", "all").option("stop", "now").option("state", self.state)
        return reader.load(self.name)


def changes_of(spark: SparkSession, *, log: str, topic: str, options: dict[str, str]) -> DataFrame:
    """Read a keyed topic as a stream of changes."""
    reader = spark.readStream.format("headwater").option("log", log).options(**options).option("metadata", "all")
    return as_changes(reader.load(topic))


def as_changes(rows: DataFrame, *, keep: tuple[str, ...] = ()) -> DataFrame:
    """Replace the system columns of a keyed topic's rows by `_op`; partition and offset stay."""
    from pyspark.sql import functions as F  # noqa: N812

    gone = F.coalesce(F.col("_tombstone"), F.lit(False))
    told = rows.withColumn(OPERATION, F.when(gone, F.lit("-D")).otherwise(F.lit("+U")))
    return told.drop(*[name for name in _OWN if name not in keep])

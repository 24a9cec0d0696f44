"""A topic that is read as a table, with columns chosen and rows filtered behind the read.

Each row of a keyed topic replaces the one before it with the same key. A filter that drops the newer of two rows would leave
the older one in place for ever; a projection may drop what says that a row deletes its key, and which of two rows is newer.
So an operator on tables plans its input once more from the read on: no row is dropped, a row that does not meet the
condition deletes its key instead, and what the operator needs of the row travels with it under names of its own.

Columns, filters and names that follow one another behind one read can be planned like this. Where anything else stands among them,
such as Spark's own join, a filter is refused. What comes from an operator of Headwater says itself which rows it retracts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.engine.analyzed_plan import analyzed_plan
from headwater.engine.changelog import DELETE, OP, UPDATE_AFTER
from headwater.engine.open_logs import shared_log
from headwater.engine.spark_expressions import listed
from headwater.errors import ArgumentInvalid, NotFound, NotPossible
from headwater.log.topic import Topic

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TOMBSTONE = "_tombstone"
APPENDED_AT = "_appended_at"
#: The system columns that an operator needs of a row, whatever columns the user has chosen.
NEEDED = ("_partition", "_offset", APPENDED_AT)
#: Under these names they travel, beside columns of the user that may be called the same.
PREFIX = "_table"
#: Whether a row stands in the table: it is no tombstone, and it meets all conditions so far.
HOLDS = "_table_holds"
LOG_SETTING = "spark.headwater.log"
#: Nodes of Spark's plan that leave rows and attributes as they are.
NAMES = ("SubqueryAlias", "View")
#: Nodes that drop rows of their input.
DROPPING = ("Filter", "Join", "Deduplicate", "GlobalLimit", "LocalLimit", "Sample", "Except", "Intersect")
#: Nodes whose output is no longer rows that replace one another: operators, aggregates, rankings.
MADE = ("MapInArrow", "MapInPandas", "PythonMapInArrow", "Aggregate", "Window")


def as_table(rows: DataFrame, key: tuple[str, ...] | None, *, operator: str, setting: str = "key") -> DataFrame:
    """The changes of a table with this key: with `_op`, and the place and time of each row in the topic.

    Rows that are not read from a topic, or from one with another key, are returned as they are. `setting` is what the operator
    calls its key.
    """
    read = TableRead.of(rows)
    if read is None:
        if key is not None:
            _check_filters(rows, key, operator=operator)
        return rows
    names = None if key is None else read.sources(key)
    if names is not None and set(names) == set(read.topic.key):
        return read.changes()
    if read.is_table:
        expected = (
            f"the key of topic {read.topic.name!r}, which is {', '.join(read.topic.key)}: its rows replace one another"
        )
        raise ArgumentInvalid(name=setting, value=None if key is None else ", ".join(key), expected=expected)
    return rows


def table_output(rows: DataFrame, key: tuple[str, ...], *, query: str) -> DataFrame:
    """The rows of a query whose output has this key, with deletions where the query only chooses rows and columns of a table.

    Rows of a topic that is read as a stream are left alone: a filter of a stream chooses events.
    """
    read = TableRead.of(rows)
    if read is None:
        _check_filters(rows, key, operator=query, only_compacted=True)
    elif key and read.is_table and set(read.sources(key)) == set(read.topic.key):
        return read.changes().drop(APPENDED_AT)
    return rows


# Any, here and below: nodes and expressions of Spark's plan, which have no Python face.
@dataclass(frozen=True)
class TableRead:
    """A DataFrame as one read of a keyed topic, and what chooses columns and rows behind it, the last first."""

    rows: DataFrame
    topic: Topic
    relation: Any
    options: Mapping[str, str]
    steps: tuple[Any, ...]

    @staticmethod
    def of(rows: DataFrame) -> TableRead | None:
        """The read, if the DataFrame is one of a single topic that has a key."""
        steps = []
        plan = analyzed_plan(rows)
        while _kind(plan) in ("Project", "Filter", *NAMES):
            if _kind(plan) not in NAMES:
                steps.append(plan)
            plan = plan.child()
        options = _options(plan)
        topic = None if options is None else _keyed_topic(rows, options)
        if options is None or topic is None:
            return None
        return TableRead(rows, topic, plan, options, tuple(steps))

    @property
    def is_table(self) -> bool:
        """Whether the topic was read as a table: it is compacted, or `_op` was made of its tombstones."""
        if self.topic.compact:
            return True
        return any(
            one.name() == OP for step in self.steps if _kind(step) == "Project" for one in listed(step.projectList())
        )

    def sources(self, names: tuple[str, ...]) -> list[str | None]:
        """The columns of the topic that columns of the DataFrame are; None for one that is computed."""
        known: dict[int, str | None] = {one.exprId().id(): str(one.name()) for one in listed(self.relation.output())}
        for step in reversed(self.steps):
            if _kind(step) == "Project":
                chosen = {one.exprId().id(): _plain(one) for one in listed(step.projectList())}
                known = {number: None if of is None else known[of.exprId().id()] for number, of in chosen.items()}
        plan = analyzed_plan(self.rows)
        by_name = {str(one.name()): known[one.exprId().id()] for one in listed(plan.output())}
        return [by_name.get(name) for name in names]

    def changes(self) -> DataFrame:
        """The same columns of every row, with `_op`, which deletes where a row does not meet the conditions."""
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        rows = self._base()
        kept = [f"{PREFIX}{name}" for name in NEEDED]
        for step in reversed(self.steps):
            if _kind(step) == "Filter":
                meets = F.when(F.col(HOLDS), self._column(step.condition()))
                rows = rows.withColumn(HOLDS, F.coalesce(meets, F.lit(False)))
            else:
                holds = next(one for one in _output(rows) if one.name() == HOLDS)
                rows = rows.select(*(self._guarded(one, holds) for one in listed(step.projectList())), *kept, HOLDS)
        told = F.coalesce(F.col(OP), F.lit(UPDATE_AFTER)) if OP in rows.columns else F.lit(UPDATE_AFTER)
        hidden = {OP, TOMBSTONE, HOLDS, *NEEDED, *kept}
        own = [F.col(f"`{name}`") for name in rows.columns if name not in hidden]
        places = [F.col(f"{PREFIX}{name}").alias(name) for name in NEEDED]
        return rows.select(*own, F.when(F.col(HOLDS), told).otherwise(F.lit(DELETE)).alias(OP), *places)

    def _base(self) -> DataFrame:
        """What was read, under Spark's numbers for its columns, and with what is needed besides."""
        from pyspark.sql import functions as F  # noqa: N812

        before = listed(self.relation.output())
        names = [str(one.name()) for one in before]
        missing = [name for name in (TOMBSTONE, *NEEDED) if name not in names]
        read = self._read_again([*names, *missing]) if missing else self._frame(self.relation)
        now = {str(one.name()): one for one in _output(read)}
        same = [
            self._column(self._named(now[name], name, one.exprId())) for name, one in zip(names, before, strict=True)
        ]
        needed = [F.col(name).alias(f"{PREFIX}{name}") for name in NEEDED]
        holds = ~F.coalesce(F.col(TOMBSTONE), F.lit(False))
        return read.select(*(same if missing else ["*"]), *needed, holds.alias(HOLDS))

    def _read_again(self, columns: list[str]) -> DataFrame:
        spark = self.rows.sparkSession
        reader = (spark.readStream if self.rows.isStreaming else spark.read).format("headwater")
        for name, value in self.options.items():
            if name not in ("path", "topics", "columns", "metadata"):
                reader = reader.option(name, value)
        return reader.option("columns", ",".join(columns)).load(self.topic.name)

    def _guarded(self, expression: Any, holds: Any) -> Column:
        """A computed column is null where the row does not hold: what is computed there might fail."""
        if _plain(expression) is not None:
            return self._column(expression)
        spark = self._catalyst()
        nothing = spark.Literal.create(None, expression.dataType())
        computed = expression.child()
        return self._column(expression.withNewChildInternal(spark.If(holds, computed, nothing)))

    def _named(self, attribute: Any, name: str, number: Any) -> Any:
        jvm = self._jvm()
        nothing = jvm.PythonUtils.toSeq([])
        return self._catalyst().Alias(attribute, name, number, nothing, jvm.scala.Option.empty(), nothing)

    def _column(self, expression: Any) -> Column:
        from pyspark.sql.classic.column import Column

        return Column(self._jvm().org.apache.spark.sql.classic.ExpressionUtils.column(expression))

    def _frame(self, plan: Any) -> DataFrame:
        from pyspark.sql import DataFrame

        made = self._jvm().org.apache.spark.sql.classic.Dataset.ofRows(self.rows.sparkSession._jsparkSession, plan)
        return DataFrame(made, self.rows.sparkSession)

    def _catalyst(self) -> Any:
        return self._jvm().org.apache.spark.sql.catalyst.expressions

    def _jvm(self) -> Any:
        return self.rows.sparkSession._jvm


def _check_filters(rows: DataFrame, key: tuple[str, ...], *, operator: str, only_compacted: bool = False) -> None:
    """Raise on a filter of a table that stands among steps which cannot be planned once more."""
    for plan, drops in _reads(analyzed_plan(rows), streaming=rows.isStreaming):
        topic = _keyed_topic(rows, _options(plan) or {}) if drops else None
        if topic is not None and set(topic.key) == set(key) and (topic.compact or not only_compacted):
            why = (
                f"{operator} follows topic {topic.name!r} as a table, but rows are dropped before it in a way that does not "
                "say which rows of the table are gone: what they replace would stay for ever"
            )
            instead = "Filter the topic directly behind its read, or behind the operator; or join it by `TableJoin` or `Enrich`"
            raise NotPossible(why=why, instead=instead)


def _reads(plan: Any, *, streaming: bool, drops: bool = False) -> Iterator[tuple[Any, bool]]:
    """The reads of topics below, each with whether rows are dropped on the way from it."""
    kind = _kind(plan)
    if kind in MADE:
        return
    drops = drops or kind in DROPPING
    children = listed(plan.children())
    if not children and plan.isStreaming() == streaming and _options(plan) is not None:
        yield plan, drops
    for child in children:
        yield from _reads(child, streaming=streaming, drops=drops)


def _options(plan: Any) -> dict[str, str] | None:
    """The options of a read of topics, by their names in lower case; None for any other node."""
    kind = _kind(plan)
    if kind == "StreamingRelationV2" and plan.sourceName() == "headwater":
        given = plan.extraOptions()
    elif kind == "DataSourceV2Relation" and plan.table().name() == "headwater":
        given = plan.options()
    else:
        return None
    found = given.asCaseSensitiveMap()
    return {str(name).lower(): str(found[name]) for name in found}


def _keyed_topic(rows: DataFrame, options: Mapping[str, str]) -> Topic | None:
    """The topic of a read, if it is one topic that has a key, and all of its rows are read as they are."""
    name = options.get("path", "")
    log = options.get("log") or rows.sparkSession.conf.get(LOG_SETTING, None)
    others = {"topics", "pattern", "format", "since", "until", "reader_stage"} & set(options)
    if log is None or others or not name or set(name) & set("*?[,"):
        return None
    try:
        topic = shared_log(log).topic(name)
    except NotFound:
        return None
    return topic if topic.key else None


def _plain(expression: Any) -> Any | None:
    """The attribute that an expression of a projection is, under its own or another name; None if it is computed."""
    of = expression.child() if _kind(expression) == "Alias" else expression
    return of if _kind(of) == "AttributeReference" else None


def _output(rows: DataFrame) -> list[Any]:
    return listed(analyzed_plan(rows).output())


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())

"""Questions to a running operator, answered by each partition from the state that a batch has left.

A question names a query, perhaps one of its operators, perhaps a key, perhaps what to compute over all rows. Every
partition answers for the keys it has; the driver puts the parts together. A question that makes no sense gets an error
for an answer: it never disturbs the stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import ARGUMENT, Aggregate, Computation, Groups, Order
from headwater.engine.columns import HASH, KEY, LIVE
from headwater.engine.contract import Contract
from headwater.engine.state_store import key_groups
from headwater.errors import ArgumentInvalid, ColumnUnknown, LogError, NotFound

#: The side output that holds what a partition answers.
ANSWERS = "answers"
ROWS_MAX = 10_000
#: What may be computed over all rows of an answer, by name. The operators' aggregates enter themselves here.
FUNCTIONS: dict[str, Callable[[str | None], Aggregate]] = {}
PART = pa.schema(
    [
        pa.field("question", pa.string()),
        pa.field("rows", pa.binary()),
        pa.field("shape", pa.binary()),
        pa.field("complete", pa.bool_()),
        pa.field("error", pa.string()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question to a query: the rows of a key, or of all, or what they amount to."""

    id: str
    query: str
    operator: str | None = None
    # Any: values of key columns, as JSON has them. The name "" stands for the only column of a key.
    key: Mapping[str, Any] | None = None
    compute: Mapping[str, tuple[str, str | None]] | None = None
    rows_max: int = ROWS_MAX
    #: Why it cannot be understood: any process may write to a topic.
    invalid: str | None = None

    @staticmethod
    def of_row(row: Mapping[str, Any]) -> Question:
        """A question as it stands in its topic."""
        bare = Question(id=str(row["id"]), query=row["query"], operator=row["operator"])
        try:
            key, compute = (None if row[name] is None else dict(json.loads(row[name])) for name in ("key", "compute"))
            pairs = None if compute is None else {name: (one[0], one[1]) for name, one in compute.items()}
        except (ValueError, TypeError, LookupError) as error:
            return replace(bare, invalid=f"the question cannot be read: {error}")
        return replace(bare, key=key, compute=pairs, rows_max=max(1, row["rows_max"] or ROWS_MAX))

    def to_row(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "query": self.query,
            "operator": self.operator,
            "key": None if self.key is None else json.dumps(self.key),
            "compute": None if self.compute is None else json.dumps(self.compute),
            "rows_max": self.rows_max,
        }


# Any: whatever kind of log it is, and the record that a source has made of the questions of a batch.
def read_questions(log: Any, asked: Mapping[str, Any]) -> list[Question]:
    """The questions of a batch that are for its query. Those that retention has deleted are left out."""
    topic = asked["topic"]
    start, stop = ({int(number): offset for number, offset in asked[name].items()} for name in ("start", "stop"))
    try:
        oldest = log.start_offsets(topic)
        start = {number: min(max(start.get(number, 0), oldest[number]), end) for number, end in stop.items()}
        rows = log.read(topic, start=start, stop=stop).rows()
    except (NotFound, LogError):  # the topic was deleted, or created again
        return []
    return [Question.of_row(row) for row in rows if row["query"] == asked["query"]]


def answers_of(
    contract: Contract, look: Callable[[Callable[[pa.Table], pa.Table]], pa.Table], questions: Sequence[Question]
) -> pa.Table:
    """The answers of a partition. `look` gives the state, of which the function it is given has chosen rows."""
    parts = [_answered(contract, look, question) for question in questions]
    return pa.Table.from_pylist(parts, schema=PART)


def answer_of(contract: Contract, state: pa.Table) -> pa.Table:
    """What a state stands for, as its step says it; of a step that does not, the state itself."""
    step: Any = contract.step  # Any: a step is a function; some can do more
    if hasattr(step, "answer"):
        found: pa.Table = step.answer(state)
        return found
    shown = state.select([name for name in state.column_names if name == KEY or not name.startswith("_")])
    partials = getattr(getattr(step, "computation", None), "partials", None)
    if partials is None or not set(partials.names) <= set(shown.column_names):
        return shown
    results = step.computation.finish(shown)  # partial results say little to people
    shown = shown.drop_columns(partials.names)
    return pa.table([*shown.columns, *results.columns], names=[*shown.column_names, *results.column_names])


# Any: a row of `PART`.
def _answered(contract: Contract, look: Callable[..., pa.Table], question: Question) -> dict[str, Any]:
    part: dict[str, Any] = {"question": question.id, "rows": None, "shape": None, "complete": True, "error": None}
    if question.invalid is not None:
        return {**part, "error": question.invalid}
    try:
        state = look(_chooser(contract, question))
        if not state.num_rows:
            return part
        rows = _results(contract, state)
        if question.compute is not None:
            computed = Computed.over(question.compute, rows.schema)
            return {**part, "rows": packed(computed.partials(rows)), "shape": packed(rows.slice(0, 0))}
        some = rows.slice(0, question.rows_max)
        return {**part, "rows": packed(some), "complete": some.num_rows == rows.num_rows}
    except Exception as error:  # the caller gets the error for an answer, and the stream goes on
        return {**part, "error": str(error) or type(error).__name__}


def _chooser(contract: Contract, question: Question) -> Callable[[pa.Table], pa.Table]:
    """Which rows of the state belong to the key that is asked for; a part of a key stands for all keys that have it."""
    key = question.key
    if key is None:
        return lambda table: table
    if set(key) == {""}:
        names = [name for name in contract.key if not name.startswith("_")] or contract.key
        if len(names) > 1:
            expected = f"a value for each of {', '.join(names)}, by name"
            raise ArgumentInvalid(name="key", value=key[""], expected=expected)
        key = {names[0]: key[""]}
    wanted = {}
    for name, value in key.items():
        if name not in contract.key:
            raise ColumnUnknown(topic=contract.name, column=name, columns=", ".join(contract.key))
        kind = contract.key_schema.field(name).type
        try:
            wanted[name] = pa.scalar(value).cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ArgumentInvalid(name=f"key[{name!r}]", value=value, expected=f"a value of type {kind}") from error

    def choose(table: pa.Table) -> pa.Table:
        for name, value in wanted.items():
            table = table.filter(pc.equal(table.column(name), value))
        return table

    return choose


def _results(contract: Contract, state: pa.Table) -> pa.Table:
    """The rows of an answer, in the order of their keys' hashes: the key's columns, then the others."""
    hashes = np.asarray(state.column(HASH).combine_chunks())
    numbers = key_groups(state, hashes, contract.key)
    firsts = np.unique(numbers, return_index=True)[1]
    keys = state.select(list(contract.key)).take(pa.array(firsts))
    state = state.drop_columns([HASH, LIVE]).append_column(KEY, pa.array(numbers, pa.int64()))
    if len(numbers) > 1 and (numbers[1:] < numbers[:-1]).any():
        state = state.take(pa.array(np.argsort(numbers, kind="stable")))
    found = answer_of(contract, state)
    own = keys.take(found.column(KEY).combine_chunks())
    shown = [name for name in contract.key if not name.startswith("_")]
    others = [name for name in found.column_names if name != KEY and name not in contract.key]
    return pa.table(
        [*(own.column(name) for name in shown), *(found.column(name) for name in others)], names=[*shown, *others]
    ).combine_chunks()


class Computed(NamedTuple):
    """Aggregates over all rows of an answer."""

    computation: Computation
    compute: Mapping[str, tuple[str, str | None]]

    @staticmethod
    def over(compute: Mapping[str, tuple[str, str | None]], rows: pa.Schema) -> Computed:
        aggregates, fields = {}, []
        for name, (function, column) in compute.items():
            if function not in FUNCTIONS or (column is None and function != "count"):
                expected = f"one of {', '.join(FUNCTIONS)}, with a column"
                raise ArgumentInvalid(name=f"compute[{name!r}]", value=function, expected=expected)
            if column is not None and column not in rows.names:
                raise ColumnUnknown(topic="the answer", column=column, columns=", ".join(rows.names))
            aggregates[name] = FUNCTIONS[function](column)
            if column is not None:
                fields.append(pa.field(f"{ARGUMENT}{name}", rows.field(column).type))
        return Computed(Computation.over(aggregates, pa.schema(fields)), compute)

    def partials(self, rows: pa.Table) -> pa.Table:
        for name, (_, column) in self.compute.items():
            if column is not None:
                rows = rows.append_column(f"{ARGUMENT}{name}", rows.column(column))
        nowhere = np.zeros(rows.num_rows, np.int64)
        one = Groups(np.zeros(1, np.int64), rows.num_rows)
        return self.computation.lift(rows, Order(nowhere, nowhere), one)

    def finished(self, parts: Sequence[pa.Table]) -> pa.Table:
        together = pa.concat_tables(parts).combine_chunks()
        merged = self.computation.merge(together, Groups(np.zeros(1, np.int64), together.num_rows))
        return self.computation.finish(merged)


def merged_parts(question: Question, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One answer from the parts of all partitions: `rows`, whether they are `complete`, and an `error` if there is one."""
    if not parts:
        return {"rows": None, "complete": False, "error": "the question was deleted before all had read it"}
    error = next((part["error"] for part in parts if part["error"] is not None), None)
    if error is not None:
        return {"rows": None, "complete": False, "error": error}
    held = [part for part in parts if part["rows"] is not None]
    if question.compute is not None:
        if not held:
            nothing = {
                name: 0 if one[0] in ("count", "count_distinct") else None for name, one in question.compute.items()
            }
            return {"rows": packed(pa.Table.from_pylist([nothing])), "complete": True, "error": None}
        computed = Computed.over(question.compute, unpacked(held[0]["shape"]).schema)
        rows = computed.finished([unpacked(part["rows"]) for part in held])
        return {"rows": packed(rows), "complete": True, "error": None}
    if not held:
        return {"rows": None, "complete": True, "error": None}
    rows = pa.concat_tables([unpacked(part["rows"]) for part in held])
    some = rows.slice(0, question.rows_max)
    complete = some.num_rows == rows.num_rows and all(part["complete"] for part in held)
    return {"rows": packed(some), "complete": complete, "error": None}


def packed(table: pa.Table) -> bytes:
    """A table as bytes that keep its types."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def unpacked(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()

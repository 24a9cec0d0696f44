"""Interactive queries: a question is an event, and the operators of a query answer it from their state, exactly once.

Questions lie in the topic `<app>.questions`. The query's source takes them up with its rows, so a batch has definite
questions as it has definite rows; each partition of the operator answers from the state which that batch leaves, and the
answer is written to `<app>.answers` in the batch's own transaction. It says which offsets it reflects.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.engine.micro_batch import MicroBatch, questions_of
from headwater.engine.open_logs import shared_log
from headwater.engine.questions import ANSWERS, FUNCTIONS, ROWS_MAX, Question, merged_parts, read_questions, unpacked
from headwater.engine.side_outputs import read_side_output
from headwater.errors import ArgumentInvalid, NotPossible, Overdue
from headwater.log import Log
from headwater.log.errors import TopicExists
from headwater.schema.encodings import json as json_lines
from headwater.spark.batch_offsets import source_offsets
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from headwater.apps.app import App

#: How long questions and answers are kept; no caller waits longer.
RETENTION = "1 day"
QUESTION = {
    "id": "string",
    "query": "string",
    "operator": "string",
    "key": "string",
    "compute": "string",
    "rows_max": "int64",
}
ANSWER = pa.schema(
    [
        pa.field("question", pa.string()),
        pa.field("query", pa.string()),
        pa.field("operator", pa.string()),
        pa.field("batch", pa.int64()),
        pa.field("offsets", pa.string()),
        pa.field("rows", pa.binary()),
        pa.field("complete", pa.bool_()),
        pa.field("error", pa.string()),
    ]
)
Parts = Callable[[MicroBatch], Iterable[tuple[str, pa.RecordBatch]]]


def questions_topic(app: str) -> str:
    return f"{app}.questions"


def answers_topic(app: str) -> str:
    return f"{app}.answers"


def prepare_topics(log: Log, app: str) -> None:
    """Create the topics of questions and answers if they are missing."""
    for name, schema in ((questions_topic(app), QUESTION), (answers_topic(app), ANSWER)):
        if name not in log.topics():
            with contextlib.suppress(TopicExists):
                log.create(name, schema, retention=RETENTION)


# -- the caller's side -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The state of a query at definite offsets of its inputs."""

    query: str
    operator: str
    batch: int
    #: For each topic that the query reads, the first offset of each partition that the answer does not reflect.
    offsets: Mapping[str, Mapping[int, int]]
    #: Whether these are all rows: an answer has `rows_max` of them at most.
    complete: bool
    table: pa.Table = field(repr=False)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows as dictionaries."""
        found: list[dict[str, Any]] = self.table.to_pylist()
        return found

    def as_json(self) -> dict[str, Any]:
        """The answer as JSON."""
        lines = [line for batch in self.table.to_batches() for line in json_lines.encode_rows(batch)]
        return {
            "query": self.query,
            "operator": self.operator,
            "batch": self.batch,
            "offsets": self.offsets,
            "complete": self.complete,
            "rows": [json.loads(line) for line in lines],
        }


# Any: a key's value, or its columns by name.
def ask(
    app: App,
    query: str,
    *,
    key: Any = None,
    compute: Mapping[str, str | tuple[str, str]] | None = None,
    operator: str | None = None,
    rows_max: int = ROWS_MAX,
    seconds: Duration = 30.0,
) -> Answer:
    """Append a question to a query of a running app, and wait for the answer."""

    if not app.query(query).ask:
        expected = "a query that is declared with `ask=True`"
        raise ArgumentInvalid(name="query", value=query, expected=expected)
    if isinstance(rows_max, bool) or rows_max < 1:
        raise ArgumentInvalid(name="rows_max", value=rows_max, expected="at least 1")
    question = Question(
        id=uuid.uuid4().hex,
        query=query,
        operator=operator,
        key=_key(key),
        compute=None if compute is None else _compute(compute),
        rows_max=rows_max,
    )
    with app.open_log() as log:
        prepare_topics(log, app.name)
        after = log.end_offsets(answers_topic(app.name))
        log.append(questions_topic(app.name), [question.to_row()])
        return _awaited(log, app.name, question, after, parse_seconds(seconds, name="seconds"))


def _awaited(log: Log, app: str, question: Question, after: dict[int, int], seconds: float) -> Answer:
    deadline = time.monotonic() + seconds
    topic = answers_topic(app)
    while (left := deadline - time.monotonic()) > 0:
        log.wait(topic, after=after, seconds=left)
        ends = log.end_offsets(topic)
        for row in log.read(topic, start=after, stop=ends).rows():
            if row["question"] == question.id:
                return _told(row)
        after = ends
    raise Overdue(
        what=f"The query {question.query!r} of app {app!r} has not answered",
        seconds=seconds,
        instead="See with `headwater query list` that the app runs and keeps up, and allow more `seconds`",
    )


def _told(row: Mapping[str, Any]) -> Answer:
    if row["error"] is not None:
        why = f"The query {row['query']!r} cannot answer: {row['error'].rstrip('.')}"
        raise NotPossible(why=why, instead="Ask again with what it names; the stream is not disturbed")
    offsets = json.loads(row["offsets"])
    return Answer(
        query=row["query"],
        operator=row["operator"],
        batch=row["batch"],
        offsets={topic: {int(number): offset for number, offset in found.items()} for topic, found in offsets.items()},
        complete=row["complete"],
        table=pa.table({}) if row["rows"] is None else unpacked(row["rows"]),
    )


def _key(key: Any) -> dict[str, Any] | None:
    if key is None:
        return None
    named = dict(key) if isinstance(key, Mapping) else {"": key}
    try:
        found: dict[str, Any] = json.loads(json.dumps(named, default=str))
    except (TypeError, ValueError):
        raise ArgumentInvalid(name="key", value=key, expected="a value, or columns with their values") from None
    return found


def _compute(compute: Mapping[str, str | tuple[str, str]]) -> dict[str, tuple[str, str | None]]:
    """`{"total": "sum(spent)"}`, or the function and the column as a pair."""
    found: dict[str, tuple[str, str | None]] = {}
    for name, told in compute.items():
        function, column = told if not isinstance(told, str) else _parted(told)
        if function not in FUNCTIONS:
            expected = f'one of {", ".join(FUNCTIONS)} of a column, such as "sum(amount)"'
            raise ArgumentInvalid(name=f"compute[{name!r}]", value=told, expected=expected)
        found[name] = (function, column)
    return found


def _parted(text: str) -> tuple[str, str | None]:
    function, _, rest = text.partition("(")
    return function.strip(), rest.rstrip().removesuffix(")").strip(" *") or None


# -- the query's side -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AnswerWriter:
    """Writes the answers of a batch: for each question, the merged parts of all partitions."""

    app: str
    log: str
    state: Path
    checkpoint: Path
    operators: tuple[str, ...]

    def __call__(self, batch: MicroBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        asked = questions_of(self.state, batch)
        if asked is None:
            return
        offsets = offsets_of(source_offsets(str(self.checkpoint), batch.number))
        rows = [self._answer(question, batch, offsets) for question in read_questions(shared_log(self.log), asked)]
        if rows:
            yield answers_topic(self.app), pa.RecordBatch.from_pylist(rows, schema=ANSWER)

    def _answer(self, question: Question, batch: MicroBatch, offsets: Mapping[str, Any]) -> dict[str, Any]:
        operator = question.operator or self.operators[-1]
        body = {"question": question.id, "query": question.query, "operator": operator, "batch": batch.number}
        if operator not in self.operators:
            error = f"it has no operator {operator!r}; there are {', '.join(self.operators)}"
            return {**body, "offsets": json.dumps(offsets), "rows": None, "complete": False, "error": error}
        parts = [
            part
            for table in read_side_output(self.state, batch.query, operator, ANSWERS, batch=batch.number)
            for part in table.to_pylist()
            if part["question"] == question.id
        ]
        return {**body, "offsets": json.dumps(offsets), **merged_parts(question, parts)}


def offsets_of(sources: Iterable[Any]) -> dict[str, dict[str, int]]:
    """Return the offsets to which the sources of a batch have read, by topic and partition.

    >>> offsets_of([{"topics": {"orders": {"0": 7}}, "at_us": 1}, "-"])
    {'orders': {'0': 7}}
    """
    found: dict[str, dict[str, int]] = {}
    for source in sources:
        if isinstance(source, dict):
            for topic, offsets in source.get("topics", {}).items():
                found.setdefault(topic, {}).update(offsets)
    return found


def combined_parts(*parts: Parts | None) -> Parts | None:
    """Combine several kinds of rows that a batch writes beside its output."""
    given = [one for one in parts if one is not None]

    def every(batch: MicroBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        for one in given:
            yield from one(batch)

    return every if given else None

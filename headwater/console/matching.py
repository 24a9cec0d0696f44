"""Which rows of a batch are meant: by a text, by a regular expression (RE2: linear time), or by a condition in SQL.

What is searched is what is shown: the key and the value as text, and each header as `name: value`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.console.records import headers_of, keys_of, lines_of
from headwater.errors import ArgumentInvalid, StatementExceeded, StatementInvalid
from headwater.log.port import Topic
from headwater.server.statements import Asked, Statements
from headwater.units import MIB
from headwater.views.batch_condition import offsets_where
from headwater.views.bounds import Bounds

Part = Literal["key", "value", "headers"]
PARTS: tuple[Part, ...] = ("key", "value", "headers")
Mask = npt.NDArray[np.bool_]
#: One batch may take so long; a condition that counts to infinity is stopped.
CONDITION_SECONDS_MAX = 5.0
#: What DuckDB counts. What it does not count is bounded by the process that a condition runs in.
CONDITION_MEMORY_MAX = 512 * MIB


class Matcher(Protocol):
    """Says which rows of a batch are meant."""

    def mask(self, topic: Topic, data: pa.RecordBatch) -> Mask: ...
    def cancel(self) -> None: ...


class TextMatcher:
    """Rows that hold a text, or fit a pattern, in one of some parts."""

    def __init__(
        self, text: str, *, is_pattern: bool = False, match_case: bool = False, parts: Sequence[Part] = PARTS
    ) -> None:
        if not text:
            raise ArgumentInvalid(name="text", value=text, expected="something to look for")
        if not parts:
            raise ArgumentInvalid(name="where", value="nowhere", expected="the key, the value or the headers")
        self._text, self._is_pattern, self._ignore_case = text, is_pattern, not match_case
        self._parts = tuple(parts)
        self._fits(pa.array([""]))  # a pattern that is wrong is refused here

    def mask(self, topic: Topic, data: pa.RecordBatch) -> Mask:
        found = np.zeros(data.num_rows, dtype=np.bool_)
        own = data.select([name for name in topic.schema.names if name in data.schema.names])
        for part in self._parts:
            texts = self._texts(part, topic, own, data)
            if texts is not None:
                found |= self._fits(texts)
        return found

    def cancel(self) -> None:
        """Nothing to interrupt: a batch takes no longer than its length."""

    def _texts(self, part: Part, topic: Topic, own: pa.RecordBatch, data: pa.RecordBatch) -> pa.Array | None:
        if part == "value":
            return pa.array(lines_of(topic, own), pa.large_string())
        if part == "key":
            if not topic.schemaless and not topic.key:
                return None
            return pa.array(keys_of(topic, own), pa.large_string())
        headers = data.column("_headers")
        if headers.null_count == len(headers):
            return None
        lines = ["\n".join(f"{name}: {text}" for name, text in headers_of(pairs)) for pairs in headers.to_pylist()]
        return pa.array(lines, pa.large_string())

    def _fits(self, texts: pa.Array) -> Mask:
        try:
            find = pc.match_substring_regex if self._is_pattern else pc.match_substring
            found = find(texts, self._text, ignore_case=self._ignore_case)
        except pa.ArrowInvalid as error:
            why = str(error).split(": ", 1)[-1]
            expected = f"a regular expression as RE2 reads them ({why})"
            raise ArgumentInvalid(name="pattern", value=self._text, expected=expected) from error
        return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)


class ConditionMatcher:
    """Rows for which a condition in SQL is true. It sees the row's columns, `_partition`, `_offset` and the others.

    It runs in a process of `statements`, which the kernel bounds; in this one where there are none.
    """

    def __init__(self, topic: Topic, condition: str, *, statements: Statements | None = None) -> None:
        if not condition.strip():
            raise ArgumentInvalid(name="condition", value=condition, expected="SQL, such as amount > 100")
        self._condition, self._statements = condition, statements
        self._stop: Callable[[], None] | None = None
        self.mask(topic, _empty(topic))  # a condition that is wrong is refused here

    def mask(self, topic: Topic, data: pa.RecordBatch) -> Mask:
        rows = pa.Table.from_batches([_readable(topic, data)])
        bounds = Bounds(seconds_max=CONDITION_SECONDS_MAX, memory_max=CONDITION_MEMORY_MAX, threads_max=1)
        try:
            if self._statements is None:
                found = offsets_where(rows, self._condition, bounds=bounds, stoppable=self._stoppable)
            else:
                asked = Asked(rows=rows, where=self._condition, bounds=bounds)
                found = self._statements.query(asked, stoppable=self._stoppable)
        except StatementExceeded as error:
            is_late = error.bound.endswith("seconds")
            raise self._refused("it takes too long" if is_late else f"it takes more than {error.bound}") from error
        except StatementInvalid as error:
            raise self._refused(error.why) from error
        return np.isin(np.asarray(data.column("_offset")), np.asarray(found.column(0)))

    def cancel(self) -> None:
        if self._stop is not None:
            self._stop()

    def _stoppable(self, stop: Callable[[], None]) -> None:
        self._stop = stop

    def _refused(self, why: str) -> ArgumentInvalid:
        return ArgumentInvalid(
            name="condition", value=self._condition, expected=f"SQL that is true or false for a row ({why})"
        )


def _readable(topic: Topic, data: pa.RecordBatch) -> pa.RecordBatch:
    """Bytes without a schema as text, so that a condition can be written about them."""
    if not topic.schemaless:
        return data
    texts: dict[str, Any] = {
        "key": pa.array(keys_of(topic, data), pa.large_string()),
        "value": pa.array(lines_of(topic, data), pa.large_string()),
    }
    names = data.schema.names
    return pa.RecordBatch.from_arrays(
        [texts.get(name, data.column(at)) for at, name in enumerate(names)], names=list(names)
    )


def _empty(topic: Topic) -> pa.RecordBatch:
    from headwater.log.embedded.reader import Projection

    schema = Projection.of(topic, None).output
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)

"""Which rows of a batch are meant: by a text, by a regular expression (RE2: linear time), or by a condition in SQL.

What is searched is what is shown: the key and the value as text, and each header as `name: value`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.console.records import headers_of, keys_of, lines_of
from headwater.errors import ArgumentInvalid, StatementInvalid
from headwater.log.port import Topic
from headwater.views.duck_types import ingestible
from headwater.views.packages import required
from headwater.views.statements import check_single, invalid

if TYPE_CHECKING:
    import duckdb

Part = Literal["key", "value", "headers"]
PARTS: tuple[Part, ...] = ("key", "value", "headers")
Mask = npt.NDArray[np.bool_]
#: One batch may take so long; a condition that counts to infinity is stopped.
CONDITION_SECONDS_MAX = 5.0
CONDITION_MEMORY = "512MB"


class Matcher(Protocol):
    """Says which rows of a batch are meant."""

    def mask(self, topic: Topic, data: pa.RecordBatch) -> Mask: ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...


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

    def close(self) -> None:
        """Nothing is held."""

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
    """Rows for which a condition in SQL is true. It sees the row's columns, `_partition`, `_offset` and the others."""

    def __init__(self, topic: Topic, condition: str) -> None:
        if not condition.strip():
            raise ArgumentInvalid(name="condition", value=condition, expected="SQL, such as amount > 100")
        self._condition = condition
        # The line's end closes a comment that the condition may end with.
        self._statement = f'SELECT "_offset" FROM batch WHERE (\n{condition}\n) ORDER BY 1'
        self._connection: duckdb.DuckDBPyConnection = required("duckdb").connect(":memory:")
        try:
            for setting in _SETTINGS:
                self._connection.execute(setting)
            check_single(self._connection, self._statement)
            self.mask(topic, _empty(topic))
        except StatementInvalid as error:
            self.close()
            raise self._refused(error.why) from error
        except ArgumentInvalid:
            self.close()
            raise

    def mask(self, topic: Topic, data: pa.RecordBatch) -> Mask:
        duckdb = required("duckdb")
        self._connection.register("batch", ingestible(pa.Table.from_batches([_readable(topic, data)])))
        watchdog = threading.Timer(CONDITION_SECONDS_MAX, self.cancel)
        watchdog.start()
        try:
            found = self._connection.sql(self._statement).to_arrow_table().column(0)
        except duckdb.InterruptException as error:
            raise self._refused("it takes too long") from error
        except duckdb.Error as error:
            raise self._refused(invalid(self._statement, error).why) from error
        finally:
            watchdog.cancel()
        offsets = np.asarray(data.column("_offset"))
        return np.isin(offsets, np.asarray(found))

    def cancel(self) -> None:
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()

    def _refused(self, why: str) -> ArgumentInvalid:
        return ArgumentInvalid(
            name="condition", value=self._condition, expected=f"SQL that is true or false for a row ({why})"
        )


_SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET python_enable_replacements = false",
    f"SET memory_limit = '{CONDITION_MEMORY}'",
    "SET threads = 1",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
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

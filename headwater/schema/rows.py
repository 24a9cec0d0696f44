"""Rows in any form, as Arrow batches of the topic's schema.

Three invariants. A batch that already fits is returned unchanged, in about a microsecond. A row that does not fit raises
an error with its number (from 0), its column and the reason, and nothing of the call is used. Frames store every column
as nullable, so that a tombstone (the deletion of a key) can have null in all other columns; `not null` is checked here
instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ArgumentInvalid, RowInvalid
from headwater.schema.cast import Misfit, cast_array
from headwater.schema.nested import breach, holds_not_null
from headwater.schema.notation import nearest
from headwater.schema.types import SCHEMALESS
from headwater.schema.values import as_mapping, to_array

HEADERS_TYPE: pa.DataType = pa.map_(pa.string(), pa.binary())

#: Columns that the log adds to rows when they are read; they are ignored in rows to append.
ASSIGNED_COLUMNS = frozenset({"_partition", "_offset", "_appended_at", "_sent_at"})
SPECIAL_COLUMNS = frozenset({"_headers", "_tombstone"})

Column: TypeAlias = list[Any] | pa.Array


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows ready to be stored: their columns, and the headers and tombstones of each row, if there are any."""

    data: pa.RecordBatch
    headers: pa.Array | None = None
    tombstones: pa.Array | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is derived from a schema once, for all its rows."""

    schema: pa.Schema
    stored: pa.Schema
    names: list[str]
    required: tuple[int, ...]
    deep: tuple[int, ...]
    schemaless: bool


@dataclass(frozen=True, slots=True)
class _Job:
    """One call: its plan, and the names that its errors and tombstones need."""

    plan: _Plan
    topic: str
    key: tuple[str, ...]

    def invalid(self, row: int, column: str, why: str) -> RowInvalid:
        return RowInvalid(topic=self.topic, row=row, column=column, why=why)


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The schema as it is stored in frames: the same columns, all nullable, without metadata.

    >>> stored_schema(pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    id: int64
    """
    return _plan(schema).stored


_PLANS: dict[int, _Plan] = {}


def _plan(schema: pa.Schema) -> _Plan:
    # Cached by identity, since hashing a schema costs more than checking a batch. A plan holds its schema, so that no
    # other schema can have the same identity while the plan is cached.
    plan = _PLANS.get(id(schema))
    if plan is None or plan.schema is not schema:
        if len(_PLANS) >= 1024:
            _PLANS.clear()
        plan = _PLANS[id(schema)] = _make_plan(schema)
    return plan


def _make_plan(schema: pa.Schema) -> _Plan:
    stored = pa.schema([pa.field(column.name, column.type) for column in schema])
    return _Plan(
        schema=schema,
        stored=schema if schema.equals(stored, check_metadata=True) else stored,
        names=schema.names,
        required=tuple(i for i, column in enumerate(schema) if not column.nullable),
        deep=tuple(i for i, column in enumerate(schema) if holds_not_null(column.type)),
        schemaless=stored.equals(SCHEMALESS),
    )


def to_batches(
    rows: Any, schema: pa.Schema, *, topic: str, key: tuple[str, ...] = (), rows_max: int = 65_536
) -> list[RowBatch]:
    """Rows in any form as batches of at most `rows_max` rows in the stored schema.

    Takes one mapping or dataclass instance, an iterable of them, a pandas or polars frame, any Arrow table, batch,
    reader or list of batches; for a topic without a schema also a text or bytes, a `(key, value)` pair, and iterables
    of them, where `(key, None)` is a tombstone. Missing columns are null, columns may be in any order, times without
    a zone are UTC, integers in a time column are microseconds, and times may be ISO 8601 text.

    >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    >>> [batch] = to_batches([{"id": 1, "name": "Ada"}, {"id": 2}], schema, topic="people")
    >>> batch.data.to_pylist()
    [{'id': 1, 'name': 'Ada'}, {'id': 2, 'name': None}]
    """
    if isinstance(rows, pa.RecordBatch) and (rows.schema.equals(schema) or rows.schema.equals(_plan(schema).stored)):
        job = _Job(_plan(schema), topic, key)
        if 0 < rows.num_rows <= rows_max:
            return [_passed(rows, 0, job)]
        return _passed_table(pa.Table.from_batches([rows]), job, max(rows_max, 1))
    if rows_max < 1:
        raise ArgumentInvalid(name="rows_max", value=rows_max, expected="at least 1")
    plan = _plan(schema)
    job = _Job(plan, topic, key or (("key",) if plan.schemaless else ()))
    if isinstance(rows, pa.Table) and (rows.schema.equals(schema) or rows.schema.equals(plan.stored)):
        return _passed_table(rows, job, rows_max)
    batches: list[RowBatch] = []
    row = 0
    for columns, count in _column_sets(rows, job, rows_max):
        if count:
            batches.append(_row_batch(columns, count, row, job))
        row += count
    return batches


def to_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch as mappings, with maps as mappings too.

    >>> to_rows(pa.record_batch([pa.array([[("a", b"1")]], HEADERS_TYPE)], names=["_headers"]))
    [{'_headers': {'a': b'1'}}]
    """
    rows: list[dict[str, Any]] = batch.to_pylist(maps_as_pydicts="lossy")
    return rows


# -- a batch that fits already ----------------------------------------------------------------------------------------


def _passed(batch: pa.RecordBatch, row: int, job: _Job) -> RowBatch:
    plan = job.plan
    if plan.required or plan.deep:
        _check_nulls(batch.columns, None, row, job)
        if not batch.schema.equals(plan.stored):
            batch = pa.RecordBatch.from_arrays(batch.columns, schema=plan.stored)
    return RowBatch(batch)


def _passed_table(table: pa.Table, job: _Job, rows_max: int) -> list[RowBatch]:
    batches, row = [], 0
    for batch in _gathered(table).to_batches(max_chunksize=rows_max):
        if batch.num_rows:
            batches.append(_passed(batch, row, job))
        row += batch.num_rows
    return batches


def _gathered(table: pa.Table) -> pa.Table:
    """The table with fewer chunks if they are small: each chunk would become a frame of its own."""
    chunks = max((column.num_chunks for column in table.columns), default=0)
    return table.combine_chunks() if chunks > 1 and table.num_rows < chunks * 1_024 else table


# -- any form of rows as sets of columns ------------------------------------------------------------------------------


def _column_sets(rows: Any, job: _Job, rows_max: int) -> Iterator[tuple[dict[str, Column], int]]:
    """The rows column by column, at most `rows_max` at a time."""
    if isinstance(rows, pa.RecordBatch):
        return _of_arrow([rows], job, rows_max)
    if isinstance(rows, pa.Table):
        return _of_arrow(_gathered(rows).to_batches(), job, rows_max)
    if _is_pandas(rows):
        return _of_pandas(rows, job, rows_max)
    if hasattr(rows, "__arrow_c_stream__"):
        return _of_arrow(pa.RecordBatchReader.from_stream(rows), job, rows_max)
    if _is_row(rows, job.plan):
        return _of_rows([rows], job, rows_max)
    if isinstance(rows, list):
        if rows and isinstance(rows[0], pa.RecordBatch):
            return _of_arrow(rows, job, rows_max)
        return _of_rows(rows, job, rows_max)
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes | bytearray | memoryview):
        return _of_iterable(rows, job, rows_max)
    raise _not_rows(rows)


def _not_rows(value: Any) -> ArgumentInvalid:
    expected = "mappings, dataclass instances, a pandas or polars frame, or Arrow batches"
    return ArgumentInvalid(name="rows", value=type(value).__name__, expected=expected)


def _is_pandas(rows: Any) -> bool:
    return type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "iloc") and hasattr(rows, "columns")


def _is_row(value: Any, plan: _Plan) -> bool:
    """Whether this is a single row."""
    if isinstance(value, Mapping) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return True
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return True
    return plan.schemaless and (isinstance(value, str | bytes | bytearray | memoryview) or _is_pair(value))


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, str | bytes | None) for part in value)


def _of_iterable(rows: Iterable[Any], job: _Job, rows_max: int) -> Iterator[tuple[dict[str, Column], int]]:
    iterator = iter(rows)
    while chunk := list(islice(iterator, rows_max)):
        if isinstance(chunk[0], pa.RecordBatch):
            yield from _of_arrow(chunk, job, rows_max)
        else:
            yield from _of_rows(chunk, job, rows_max)


def _of_arrow(batches: Iterable[pa.RecordBatch], job: _Job, rows_max: int) -> Iterator[tuple[dict[str, Column], int]]:
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            raise _not_rows(batch)
        names = batch.schema.names
        _check_unique(names, job)
        for start in range(0, batch.num_rows, rows_max):
            part = batch.slice(start, rows_max) if batch.num_rows > rows_max else batch
            yield dict(zip(names, part.columns, strict=True)), part.num_rows


def _of_pandas(frame: Any, job: _Job, rows_max: int) -> Iterator[tuple[dict[str, Column], int]]:
    """The columns of a frame without its index. pandas' missing values (None, NaN, NaT, NA) are null."""
    _check_unique([str(name) for name in frame.columns], job)
    for start in range(0, len(frame), rows_max):
        part = frame.iloc[start : start + rows_max]
        yield {str(name): _of_series(part.iloc[:, i]) for i, name in enumerate(part.columns)}, len(part)


def _check_unique(names: list[str], job: _Job) -> None:
    if len(set(names)) < len(names):
        raise job.invalid(0, next(name for name in names if names.count(name) > 1), "exists twice")


def _of_series(series: Any) -> Column:
    if series.dtype == object:
        missing = series.isna().tolist()
        return [None if absent else value for value, absent in zip(series.tolist(), missing, strict=True)]
    array = pa.array(series, from_pandas=True)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _of_rows(rows: Sequence[Any], job: _Job, rows_max: int) -> Iterator[tuple[dict[str, Column], int]]:
    for start in range(0, len(rows), rows_max):
        chunk = rows if len(rows) <= rows_max else rows[start : start + rows_max]
        yield _columns_of(chunk, job), len(chunk)


def _columns_of(rows: Sequence[Any], job: _Job) -> dict[str, Column]:
    classes = set(map(type, rows))
    if classes == {dict} and set(map(len, rows)) == {len(job.plan.names)}:
        try:
            return {name: list(map(itemgetter(name), rows)) for name in job.plan.names}
        except KeyError:
            return _columns_of_mappings(rows)
    if len(classes) == 1 and dataclasses.is_dataclass(kind := classes.pop()):
        return {part.name: list(map(attrgetter(part.name), rows)) for part in dataclasses.fields(kind)}
    if job.plan.schemaless:
        rows = [_mapping_of_value(value) for value in rows]
    return _columns_of_mappings([_mapping_of(value) for value in rows])


def _columns_of_mappings(rows: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """The columns of rows that do not all have the same keys; missing values are null."""
    names = dict.fromkeys(chain.from_iterable(rows))
    return {name: [row.get(name) for row in rows] for name in names}


def _mapping_of(value: Any) -> Mapping[str, Any]:
    try:
        return as_mapping(value)
    except Misfit:
        raise _not_rows(value) from None


def _mapping_of_value(value: Any) -> Any:
    """A row of a topic without a schema, from a pair or from a bare value."""
    if isinstance(value, str | bytes | bytearray | memoryview):
        return {"value": value}
    if _is_pair(value):
        return {"key": value[0], "value": value[1], "_tombstone": value[1] is None and value[0] is not None}
    return value


# -- columns as a batch -----------------------------------------------------------------------------------------------


def _row_batch(columns: dict[str, Column], count: int, row: int, job: _Job) -> RowBatch:
    plan = job.plan
    if len(columns) != len(plan.names) or columns.keys() != set(plan.names):
        _check_known(columns, row, job)
    arrays = [
        _fitted(columns[column.name], column.name, column.type, row, job)
        if column.name in columns
        else pa.nulls(count, column.type)
        for column in plan.stored
    ]
    headers = tombstones = None
    if len(columns) > len(plan.names) or not SPECIAL_COLUMNS.isdisjoint(columns):
        headers = _headers(columns, row, job)
        tombstones = _tombstones(columns, row, job)
    if plan.required or plan.deep or tombstones is not None:
        _check_nulls(arrays, tombstones, row, job)
    return RowBatch(pa.RecordBatch.from_arrays(arrays, schema=plan.stored), headers, tombstones)


def _check_known(columns: Mapping[str, Column], row: int, job: _Job) -> None:
    for name in columns:
        if name not in job.plan.names and name not in SPECIAL_COLUMNS and name not in ASSIGNED_COLUMNS:
            first = _first_present(columns[name])
            raise job.invalid(row + first, str(name), f"is not in the schema{nearest(str(name), job.plan.names)}")


def _first_present(column: Column) -> int:
    values = column if isinstance(column, list) else column.is_valid().to_pylist()
    return next((i for i, value in enumerate(values) if value is not None and value is not False), 0)


def _fitted(column: Column, name: str, kind: pa.DataType, row: int, job: _Job) -> pa.Array:
    convert: Callable[[Any, pa.DataType], pa.Array] = to_array if isinstance(column, list) else cast_array
    try:
        return convert(column, kind)
    except Misfit:
        first, why = _first_misfit(lambda start, stop: convert(column[start:stop], kind), len(column))
        raise job.invalid(row + first, name, why) from None


def _first_misfit(convert: Callable[[int, int], pa.Array], count: int) -> tuple[int, str]:
    """The first row that does not fit, found by halving: all rows before `low` fit, those before `high` do not."""
    low, high, why = 0, count, "does not fit"
    while low < high:
        middle = (low + high) // 2
        try:
            convert(low, middle + 1)
            low = middle + 1
        except Misfit as error:
            high, why = middle, str(error)
    return low, why


def _headers(columns: Mapping[str, Column], row: int, job: _Job) -> pa.Array | None:
    if "_headers" not in columns:
        return None
    headers = _fitted(columns["_headers"], "_headers", HEADERS_TYPE, row, job)
    return None if headers.null_count == len(headers) else headers


def _tombstones(columns: Mapping[str, Column], row: int, job: _Job) -> pa.Array | None:
    if "_tombstone" not in columns:
        return None
    tombstones = _fitted(columns["_tombstone"], "_tombstone", pa.bool_(), row, job).fill_null(False)
    first = pc.index(tombstones, True).as_py()
    if first < 0:
        return None
    if not job.key:
        raise job.invalid(row + first, "_tombstone", "is true, but the topic has no key that it could delete")
    return tombstones


def _check_nulls(arrays: Sequence[pa.Array], tombstones: pa.Array | None, row: int, job: _Job) -> None:
    plan = job.plan
    for i in plan.required:
        if arrays[i].null_count:
            missing = arrays[i].is_null()
            if tombstones is not None and plan.names[i] not in job.key:
                missing = pc.and_not(missing, tombstones)
            _raise_any(missing, plan.names[i], "is null or missing, and the schema says not null", row, job)
    for i in plan.deep:
        found = breach(arrays[i])
        if found is not None:
            raise job.invalid(
                row + found.row, plan.names[i], f"has a null in {found.where}, which the schema calls not null"
            )
    for name in job.key if tombstones is not None else ():
        missing = pc.and_(arrays[plan.names.index(name)].is_null(), tombstones)
        _raise_any(missing, name, "is null or missing, and a tombstone needs its key", row, job)


def _raise_any(rows: pa.Array, name: str, why: str, row: int, job: _Job) -> None:
    first = pc.index(rows, True).as_py()
    if first >= 0:
        raise job.invalid(row + first, name, why)


def with_headers(batches: list[RowBatch], headers: Any) -> list[RowBatch]:
    """The rows with further headers: one mapping for all, or one for each."""
    total = sum(batch.data.num_rows for batch in batches)
    given = [headers] * total if isinstance(headers, Mapping) else list(headers)
    if len(given) != total:
        raise ArgumentInvalid(
            name="headers", value=f"{len(given)} mappings", expected=f"one mapping, or one for each of {total} rows"
        )
    result = []
    start = 0
    for batch in batches:
        count = batch.data.num_rows
        own = batch.headers.to_pylist() if batch.headers is not None else [None] * count
        merged = [
            [*(theirs or []), *((name, _header_bytes(value)) for name, value in (ours or {}).items())] or None
            for theirs, ours in zip(own, given[start : start + count], strict=True)
        ]
        result.append(RowBatch(batch.data, pa.array(merged, type=HEADERS_TYPE), batch.tombstones))
        start += count
    return result


def _header_bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise ArgumentInvalid(name="headers", value=value, expected="text or bytes as the value of each header")

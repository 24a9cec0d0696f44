"""The Parquet files of a lake: written by tasks, in types that Delta has, and reported to the driver as plain data.

Tasks do not load `deltalake`: its runtime does not survive the fork by which Spark makes them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow as pa

from headwater.engine.micro_batch import MicroBatch
from headwater.errors import ColumnMisfit
from headwater.sinks.parquet import sync

_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"

# -- types ------------------------------------------------------------------------------------------------------------

_WIDENED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.null(): pa.string(),
}


def lake_type(sink: str, column: str, kind: pa.DataType) -> pa.DataType:
    """The type that holds all values of a type in a Delta table.

    >>> lake_type("lake", "n", pa.list_(pa.uint32())), lake_type("lake", "at", pa.timestamp("ms", "Europe/Berlin"))
    (ListType(list<item: int64>), TimestampType(timestamp[us, tz=UTC]))
    """
    types = pa.types
    inner = partial(lake_type, sink, column)
    if kind in _WIDENED:
        return _WIDENED[kind]
    if types.is_dictionary(kind):
        return inner(kind.value_type)
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_timestamp(kind) and kind.unit != "ns":
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_decimal(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_struct(kind):
        return pa.struct([pa.field(part.name, inner(part.type)) for part in kind])
    if types.is_map(kind):
        return pa.map_(inner(kind.key_type), inner(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(inner(kind.value_type))
    if (types.is_primitive(kind) and not types.is_temporal(kind)) or types.is_date32(kind):
        return kind
    if types.is_string(kind) or types.is_binary(kind):
        return kind
    raise ColumnMisfit(target=sink, column=column, why=f"is {kind}, for which Delta has no type")


def is_same_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types are equal, whatever their inner fields are called and whether these may be null."""
    types = pa.types
    if types.is_struct(one) and types.is_struct(other):
        names = [part.name for part in one] == [part.name for part in other]
        return names and all(is_same_type(a.type, b.type) for a, b in zip(one, other, strict=True))
    if types.is_map(one) and types.is_map(other):
        return is_same_type(one.key_type, other.key_type) and is_same_type(one.item_type, other.item_type)
    if types.is_list(one) and types.is_list(other):
        return is_same_type(one.value_type, other.value_type)
    return bool(one == other)


def may_name_folders(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_integer(kind) or types.is_date(kind) or types.is_boolean(kind))


# -- files --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A Parquet file that is written and synced: its path inside of the table, and the values of its folders."""

    path: str
    rows: int
    bytes: int
    values: dict[str, str | None]


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a task tells the driver: its files, and rows that it would not take."""

    files: tuple[DataFile, ...]
    refused: pa.Table | None = None
    why: tuple[str, ...] = ()

    def to_batch(self) -> pa.RecordBatch:
        """One row for the driver: the files and reasons as JSON, the rows that were refused as Arrow."""
        about = orjson.dumps({"files": [asdict(file) for file in self.files], "why": self.why})
        refused = None
        if self.refused is not None:
            stream = pa.BufferOutputStream()
            with pa.ipc.new_stream(stream, self.refused.schema) as writer:
                writer.write_table(self.refused)
            refused = stream.getvalue().to_pybytes()
        columns = [pa.array([about], pa.binary()), pa.array([refused], pa.binary())]
        return pa.record_batch(columns, names=["written", "refused"])

    @classmethod
    def of(cls, written: bytes, refused: bytes | None) -> Written:
        """What `to_batch` made."""
        about = orjson.loads(written)
        return cls(
            files=tuple(DataFile(**file) for file in about["files"]),
            refused=None if refused is None else pa.ipc.open_stream(refused).read_all(),
            why=tuple(about["why"]),
        )


def write_files(
    folder: Path, rows: Iterable[pa.RecordBatch], columns: pa.Schema, by: Sequence[str], batch: MicroBatch
) -> list[DataFile]:
    """Write rows to new files, safe on disk when this returns. No reader sees them before a commit names them."""
    import pyarrow.dataset as ds

    filled = (part.cast(columns) for part in rows if part.num_rows)
    first = next(filled, None)
    if first is None:
        return []
    written: list[Any] = []

    def all_rows() -> Iterator[pa.RecordBatch]:
        yield first
        yield from filled

    ds.write_dataset(
        pa.RecordBatchReader.from_batches(columns, all_rows()),
        str(folder),
        format="parquet",
        file_options=ds.ParquetFileFormat().make_write_options(compression="zstd"),
        partitioning=ds.partitioning(pa.schema([columns.field(name) for name in by]), flavor="hive"),
        basename_template=f"batch-{batch.number:010d}-{secrets.token_hex(8)}-{{i}}.parquet",
        existing_data_behavior="overwrite_or_ignore",
        file_visitor=written.append,
        max_partitions=100_000,
        use_threads=False,
    )
    return [_synced(folder, one) for one in written]


# Any: Arrow's WrittenFile has no types.
def _synced(folder: Path, written: Any) -> DataFile:
    path = Path(written.path)
    sync(path)
    sync(path.parent)
    relative = path.relative_to(folder)
    named = dict(part.split("=", 1) for part in relative.parts[:-1])
    values = {name: None if text == _NULL_FOLDER else unquote(text) for name, text in named.items()}
    size = os.stat(path).st_size
    return DataFile(path=relative.as_posix(), rows=written.metadata.num_rows, bytes=size, values=values)

"""The files of a lake: written under names that say who wrote them, so that whoever sweeps knows which are nobody's."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from headwater.batches import MicroBatch
from headwater.sinks.lake import DataFile, sync_folder

_NAME = re.compile(r"b(\d+)\.([^.]+)\.([^.]+)\.")


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Who wrote a file: a batch of a query, in one of its runs."""

    batch: int
    query: str
    run: str

    @classmethod
    def of(cls, batch: MicroBatch) -> Self:
        return cls(batch=batch.number, query=short(batch.query), run=short(batch.run or "run"))

    @classmethod
    def from_name(cls, name: str) -> Self | None:
        """Read back from a file's name; None for files of other origin.

        >>> origin = Origin(batch=7, query="q", run="r")
        >>> Origin.from_name(origin.name()) == origin
        True
        """
        found = _NAME.match(name)
        return None if found is None else cls(batch=int(found[1]), query=found[2], run=found[3])

    def name(self) -> str:
        return f"b{self.batch:010d}.{self.query}.{self.run}.{secrets.token_hex(4)}"


def short(name: str) -> str:
    """An id as part of a file's name."""
    return "".join(letter for letter in name if letter.isalnum() or letter in "-_")[:36] or "none"


def file_schema(columns: pa.Schema) -> pa.Schema:
    """The columns as files hold them: all nullable, and without what only Spark or Arrow understand."""
    return pa.schema([pa.field(column.name, column.type) for column in columns])


def write_files(
    lake: Path, rows: Iterator[pa.RecordBatch], columns: pa.Schema, by: Sequence[str], origin: Origin
) -> list[DataFile]:
    """Write rows to new files, safe on disk when this returns. Nobody reads them before a record names them."""
    import pyarrow.dataset as ds

    first = next((batch for batch in rows if batch.num_rows), None)
    if first is None:
        return []
    written: list[Any] = []

    def all_rows() -> Iterator[pa.RecordBatch]:
        yield first.cast(columns)
        for batch in rows:
            if batch.num_rows:
                yield batch.cast(columns)

    ds.write_dataset(
        pa.RecordBatchReader.from_batches(columns, all_rows()),
        str(lake),
        format="parquet",
        file_options=ds.ParquetFileFormat().make_write_options(compression="zstd"),
        partitioning=ds.partitioning(pa.schema([columns.field(name) for name in by]), flavor="hive"),
        basename_template=origin.name() + ".{i}.parquet",
        existing_data_behavior="overwrite_or_ignore",
        file_visitor=written.append,
        max_partitions=100_000,
        use_threads=False,
    )
    return [_synced(lake, one) for one in written]


# Any: Arrow's WrittenFile has no types.
def _synced(lake: Path, written: Any) -> DataFile:
    path = Path(written.path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(path.parent)
    relative = path.relative_to(lake).as_posix()
    return DataFile(path=relative, rows=written.metadata.num_rows, bytes=path.stat().st_size)

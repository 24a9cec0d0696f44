"""The Parquet sink: each batch becomes one Parquet file in a folder, exactly once.

A file is written under a hidden name, synced, and published by a hard link, which fails where the batch is there
already. So readers see whole batches, and a batch that is done again changes nothing. For tables with folders by value,
maintenance and large batches, see the lake sink.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from headwater.engine.micro_batch import MicroBatch
from headwater.errors import ArgumentInvalid, ColumnMisfit
from headwater.faults import reach
from headwater.sinks.changes import Changes, without_own
from headwater.sinks.driver import DriverSink, Progress, Refusals
from headwater.sinks.port import Guarantee
from headwater.spark.changelog import OPERATION

_PROGRESS = "_headwater"


@dataclass(frozen=True, kw_only=True)
class ParquetSink(DriverSink):
    """Rows into a folder of Parquet files, one for each batch; exactly once.

    All rows are kept; those of a changelog keep their `_op`. Whatever reads Parquet reads the folder: Arrow, DuckDB
    (`read_parquet('folder/*.parquet')`), Spark, polars, pandas.

    >>> import tempfile, pyarrow.dataset
    >>> folder = tempfile.mkdtemp()
    >>> ParquetSink(path=folder).commit([pa.record_batch({"id": [1, 2]})], MicroBatch(query="q", number=0))
    >>> pyarrow.dataset.dataset(folder).to_table().to_pydict()
    {'id': [1, 2]}
    """

    path: str | Path

    guarantee: ClassVar[Guarantee] = "exactly once"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "path", local_folder(self.path))
        if self.keys:
            raise ArgumentInvalid(name="key", value=self.key, expected="none: a folder of files keeps all rows")

    @property
    def name(self) -> str:
        return f"parquet:{self.path}"

    @property
    def folder(self) -> Path:
        return Path(self.path)

    def examine(self, columns: pa.Schema) -> None:
        """Refuse columns that the files there could not be read together with."""
        import pyarrow.parquet as pq

        super().examine(columns)
        newest = max(self.folder.glob("*.parquet"), default=None)
        known = pa.schema([]) if newest is None else pq.read_schema(newest)
        for column in without_own(columns, keep=(OPERATION,)):
            if column.name in known.names and known.field(column.name).type != column.type:
                why = f"is {column.type}, and the files have {known.field(column.name).type}"
                raise ColumnMisfit(target=self.name, column=column.name, why=why)

    def begin(self, batch: MicroBatch) -> bool:
        before = self._progress(batch)
        progress = before.admit(self.name, batch)
        if progress != before:
            self._remember(batch, progress)
            for left in self.folder.glob(f".{_safe(batch.query)}-*.tmp"):  # by a run that was killed
                left.unlink(missing_ok=True)
        return progress.has(batch)

    def apply(self, changes: Changes, batch: MicroBatch, refusals: Refusals) -> None:
        progress = self._progress(batch).admit(self.name, batch)
        if progress.has(batch):
            return
        written = None
        if changes.rows.num_rows:
            self.examine(changes.rows.schema)
            written = self._written(changes.rows, batch)
        reach("delivery.written")
        refusals.post()
        if written is not None:
            _publish(written, self.folder / f"batch-{batch.number:010d}-{_safe(batch.query)}.parquet")
            reach("parquet.published")
        self._remember(batch, progress.after(batch))

    def _written(self, rows: pa.Table, batch: MicroBatch) -> Path:
        import pyarrow.parquet as pq

        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f".{_safe(batch.query)}-{secrets.token_hex(8)}.tmp"
        # All nullable, and without what only Spark or Arrow understand.
        plain = pa.schema([pa.field(column.name, column.type) for column in rows.schema])
        pq.write_table(rows.cast(plain), path, compression="zstd")
        sync(path)
        return path

    def _progress(self, batch: MicroBatch) -> Progress:
        try:
            return Progress.from_json((self.folder / _PROGRESS / f"{_safe(batch.query)}.json").read_bytes())
        except FileNotFoundError:
            return Progress()

    def _remember(self, batch: MicroBatch, progress: Progress) -> None:
        folder = self.folder / _PROGRESS
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{secrets.token_hex(8)}.tmp"
        temporary.write_bytes(progress.as_json())
        sync(temporary)
        temporary.replace(folder / f"{_safe(batch.query)}.json")
        sync(folder)


def _publish(temporary: Path, path: Path) -> None:
    """Give a file its name, unless another file has it. The temporary name is gone afterwards."""
    try:
        os.link(temporary, path)
    except FileExistsError:  # an earlier attempt at this batch
        pass
    finally:
        temporary.unlink()
    sync(path.parent)


def sync(path: Path) -> None:
    """Have a file's bytes, or the names in a folder, on the disk before this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def local_folder(path: str | Path) -> Path:
    """Return a folder of this machine as an absolute path; raise for an address of another kind."""
    if "://" in str(path):
        raise ArgumentInvalid(name="path", value=str(path), expected="a folder, on a disk that all tasks see")
    return Path(path).absolute()


def _safe(name: str) -> str:
    """A query's id as part of a file's name."""
    return "".join(letter for letter in name if letter.isalnum() or letter in "-_")[:64] or "none"

"""A lake: a folder of Parquet files, and the record of which of them count.

The files of a batch count from the moment at which a record names them. Records are numbered from 1; each says which
files were added and removed and how far each query is, and is published under its number by a hard link, which fails
where somebody else was first. So a reader sees whole batches or nothing of them, and two writers never lose each
other's files. From time to time a snapshot sums up all records before it, so that a reader reads few of them.

    lake/_headwater/00000000000000000012.json            record 12
    lake/_headwater/00000000000000000010.snapshot.json   all that counts after record 10
    lake/country=DE/….parquet                            rows
"""

from __future__ import annotations

import base64
import contextlib
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import orjson
import pyarrow as pa

from headwater.clock import Clock, SystemClock
from headwater.errors import ArgumentInvalid, SinkRefused, TargetNotFound
from headwater.faults import reach
from headwater.sinks.commits import Progress

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

RECORDS = "_headwater"
SNAPSHOT_EVERY = 32
_DIGITS = 20


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A Parquet file of the lake, by its path inside of it."""

    path: str
    rows: int
    bytes: int

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, kw_only=True)
class Record:
    """One step of a lake."""

    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()
    progress: Mapping[str, Progress] = field(default_factory=dict)
    schema: pa.Schema | None = None
    partition_by: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A lake as it was after one record: a list of files that nobody changes any more.

    Files that compaction has replaced stay on disk for an hour, so that a reader may take its time.
    """

    path: Path
    version: int = 0
    parts: tuple[DataFile, ...] = ()
    removed: Mapping[str, int] = field(default_factory=dict)
    progress: Mapping[str, Progress] = field(default_factory=dict)
    schema: pa.Schema | None = None
    partition_by: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def files(self) -> list[str]:
        """The paths of all files, for whoever reads Parquet: DuckDB, pandas, Spark, polars."""
        return [str(self.path / part.path) for part in self.parts]

    def dataset(self) -> Dataset:
        """The lake as an Arrow dataset, which reads only the columns and folders that a query needs."""
        import pyarrow.dataset as ds

        schema = self.schema if self.schema is not None else pa.schema([])
        by = ds.partitioning(pa.schema([schema.field(name) for name in self.partition_by]), flavor="hive")
        return ds.dataset(
            self.files, schema=schema, format="parquet", partitioning=by, partition_base_dir=str(self.path)
        )

    def table(self) -> pa.Table:
        """All rows."""
        schema = self.schema if self.schema is not None else pa.schema([])
        return self.dataset().to_table() if self.parts else schema.empty_table()

    def after(self, record: Record, *, at_us: int) -> Self:
        """The lake one record later."""
        gone = set(record.remove)
        return replace(
            self,
            version=self.version + 1,
            parts=(*(part for part in self.parts if part.path not in gone), *record.add),
            removed={**self.removed, **dict.fromkeys(record.remove, at_us)},
            progress={**self.progress, **record.progress},
            schema=self.schema if record.schema is None else record.schema,
            partition_by=self.partition_by if record.partition_by is None else record.partition_by,
        )


def read_lake(path: str | Path) -> Snapshot:
    """A lake as it is now: whole batches, each once, whoever writes or compacts meanwhile.

    >>> import tempfile
    >>> from headwater.batches import MicroBatch
    >>> from headwater.sinks import ParquetSink
    >>> folder = tempfile.mkdtemp()
    >>> ParquetSink(path=folder).commit([pa.record_batch({"id": [1, 2]})], MicroBatch(query="q", number=0))
    >>> read_lake(folder).table().to_pylist()
    [{'id': 1}, {'id': 2}]
    """
    found = current(Path(path))
    if found.version == 0:
        raise TargetNotFound(kind="lake", path=str(path))
    return found


def current(path: Path) -> Snapshot:
    """The newest state of a lake; an empty one where there is no record."""
    for _ in range(100):
        try:
            return _read(path)
        except FileNotFoundError:  # records that were summed up went away while we read: begin anew
            continue
    raise SinkRefused(sink=f"lake:{path}", why="its records do not hold together", what="Restore its folder _headwater")


def publish(path: Path, step: Callable[[Snapshot], Record | None], *, clock: Clock | None = None) -> Snapshot:
    """Take one step from the newest state, again where somebody else was first. None takes no step."""
    folder = path / RECORDS
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        before = current(path)
        record = step(before)
        if record is None:
            return before
        at_us = (clock or SystemClock()).now_us()
        after = before.after(record, at_us=at_us)
        if _link(folder, _name(after.version), _as_json(record, at_us)):
            reach("lake.recorded")
            if after.version % SNAPSHOT_EVERY == 0:
                _sum_up(folder, after)
            return after


def _read(path: Path) -> Snapshot:
    try:
        names = os.listdir(path / RECORDS)
    except FileNotFoundError:
        return Snapshot(path=path)
    sums = [int(name[:_DIGITS]) for name in names if name.endswith(".snapshot.json")]
    steps = sorted(int(name[:_DIGITS]) for name in names if len(name) == _DIGITS + 5 and name.endswith(".json"))
    base = max(sums, default=0)
    found = _summed(path, base) if base else Snapshot(path=path)
    for number in (step for step in steps if step > base):
        if number != found.version + 1:
            raise FileNotFoundError(number)
        record, at_us = _from_json((path / RECORDS / _name(number)).read_bytes())
        found = found.after(record, at_us=at_us)
    return found


def _sum_up(folder: Path, after: Snapshot) -> None:
    body = {
        "version": after.version,
        "files": [asdict(part) for part in after.parts],
        "removed": {path: at for path, at in after.removed.items() if (after.path / path).exists()},
        "progress": {query: orjson.Fragment(one.as_json()) for query, one in after.progress.items()},
        "schema": _schema_text(after.schema),
        "partition_by": list(after.partition_by),
    }
    _link(folder, f"{after.version:0{_DIGITS}d}.snapshot.json", orjson.dumps(body))
    for name in os.listdir(folder):
        # The last sum and the records since stay: a reader may have listed them just now.
        if name[:_DIGITS].isdigit() and int(name[:_DIGITS]) < after.version - SNAPSHOT_EVERY:
            with contextlib.suppress(FileNotFoundError):
                (folder / name).unlink()


def _summed(path: Path, version: int) -> Snapshot:
    body = orjson.loads((path / RECORDS / f"{version:0{_DIGITS}d}.snapshot.json").read_bytes())
    return Snapshot(
        path=path,
        version=body["version"],
        parts=tuple(DataFile(**one) for one in body["files"]),
        removed=body["removed"],
        progress=_progress(body["progress"]),
        schema=_schema(body["schema"]),
        partition_by=tuple(body["partition_by"]),
    )


def _name(version: int) -> str:
    return f"{version:0{_DIGITS}d}.json"


def _link(folder: Path, name: str, body: bytes) -> bool:
    """Publish a file under a name that nobody has, with its bytes safe before its name is."""
    temporary = folder / f".{uuid.uuid4().hex}.tmp"
    with temporary.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, folder / name)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    sync_folder(folder)
    return True


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _as_json(record: Record, at_us: int) -> bytes:
    return orjson.dumps(
        {
            "add": [asdict(part) for part in record.add],
            "remove": list(record.remove),
            "progress": {query: orjson.Fragment(one.as_json()) for query, one in record.progress.items()},
            "schema": _schema_text(record.schema),
            "partition_by": None if record.partition_by is None else list(record.partition_by),
            "at_us": at_us,
        }
    )


def _from_json(text: bytes) -> tuple[Record, int]:
    body = orjson.loads(text)
    record = Record(
        add=tuple(DataFile(**one) for one in body["add"]),
        remove=tuple(body["remove"]),
        progress=_progress(body["progress"]),
        schema=_schema(body["schema"]),
        partition_by=None if body["partition_by"] is None else tuple(body["partition_by"]),
    )
    return record, body["at_us"]


# Any: what JSON holds.
def _progress(body: Mapping[str, Any]) -> dict[str, Progress]:
    return {query: Progress.from_json(orjson.dumps(one)) for query, one in body.items()}


def _schema_text(schema: pa.Schema | None) -> str | None:
    return None if schema is None else base64.b64encode(schema.serialize().to_pybytes()).decode()


def _schema(text: str | None) -> pa.Schema | None:
    return None if text is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def check_path(path: str | Path) -> Path:
    """A folder of this machine; a lake on an object store would need another way to publish a record."""
    if "://" in str(path):
        raise ArgumentInvalid(name="path", value=str(path), expected="a folder, on a disk that all tasks see")
    return Path(path).absolute()


def folders_of(parts: Iterable[DataFile]) -> dict[str, list[DataFile]]:
    found: dict[str, list[DataFile]] = {}
    for part in parts:
        found.setdefault(part.folder, []).append(part)
    return found

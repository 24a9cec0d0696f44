"""A lake in order: small files joined to larger ones, and files swept away that no longer count or never did."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.faults import reach
from headwater.sinks.lake import RECORDS, DataFile, Record, Snapshot, current, folders_of, publish, sync_folder
from headwater.sinks.lake_files import Origin, short

#: A file that is in no record, and of whose writer nothing is known, may be one that somebody is about to record.
STRAY_SECONDS_MIN = 600.0


def compact(
    lake: Path,
    *,
    files_min: int,
    small_bytes: int,
    file_bytes: int,
    keep_seconds: float,
    folders: set[str] | None = None,
) -> int:
    """Join small files, folder by folder; returns how many were replaced.

    Rows keep their order. A record takes the old files out and the new one in, so that a reader sees either.
    """
    replaced = 0
    found = current(lake)
    for folder, parts in folders_of(found.parts).items():
        if folders is not None and folder not in folders:
            continue
        small = [part for part in parts if part.bytes < small_bytes]
        if len(small) >= files_min:
            replaced += sum(_join(found, group) for group in _groups(small, file_bytes))
    if replaced:
        sweep(current(lake), keep_seconds=keep_seconds)
    return replaced


def _groups(parts: Sequence[DataFile], file_bytes: int) -> Iterator[list[DataFile]]:
    """Neighbours that fill a file together."""
    group: list[DataFile] = []
    for part in parts:
        if group and sum(one.bytes for one in group) + part.bytes > file_bytes:
            yield group
            group = []
        group.append(part)
    if group:
        yield group


def _join(lake: Snapshot, parts: Sequence[DataFile]) -> int:
    if len(parts) < 2:
        return 0
    tables = [pq.ParquetFile(lake.path / part.path).read() for part in parts]
    rows = pa.concat_tables(tables, promote_options="default")
    folder = parts[0].folder
    name = Origin(batch=lake.version, query="compacted", run="lake").name() + ".parquet"
    path = lake.path / folder / name
    with path.open("wb") as file:
        pq.write_table(rows, file, compression="zstd")
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)
    reach("lake.compacted")
    joined = DataFile(path=path.relative_to(lake.path).as_posix(), rows=rows.num_rows, bytes=path.stat().st_size)
    old = {part.path for part in parts}

    def step(now: Snapshot) -> Record | None:
        if not old <= {part.path for part in now.parts}:  # somebody else has compacted meanwhile
            return None
        return Record(add=(joined,), remove=tuple(sorted(old)))

    after = publish(lake.path, step)
    if joined not in after.parts:
        path.unlink()
        return 0
    return len(parts)


def sweep(lake: Snapshot, *, keep_seconds: float) -> int:
    """Delete files that nobody can need any more; returns how many.

    These are files replaced longer than `keep_seconds` ago, files of runs that another has replaced, files of failed
    attempts at batches that are done, and whatever else is in no record and as old as that.
    """
    counted = {part.path for part in lake.parts}
    oldest = time.time() - keep_seconds
    # Only what was replaced when the list was read: a run that began since then is at work on files of its own.
    queries = {
        short(query): (progress.batch, set(map(short, progress.past))) for query, progress in lake.progress.items()
    }
    swept = 0
    for path in _data_files(lake.path):
        relative = path.relative_to(lake.path).as_posix()
        if relative not in counted and _is_nobodys(path, lake.removed.get(relative), queries, oldest):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                swept += 1
    reach("lake.swept")
    return swept


def _is_nobodys(path: Path, removed_us: int | None, queries: dict[str, tuple[int, set[str]]], oldest: float) -> bool:
    if removed_us is not None:
        return removed_us / 1_000_000 <= oldest
    origin = Origin.from_name(path.name)
    if origin is not None and origin.query in queries:
        batch, replaced = queries[origin.query]
        return origin.batch <= batch or origin.run in replaced
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime <= min(oldest, time.time() - STRAY_SECONDS_MIN)
    return False


def _data_files(lake: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(lake):
        if RECORDS in folders:
            folders.remove(RECORDS)
        yield from (Path(folder, name) for name in names if name.endswith(".parquet"))

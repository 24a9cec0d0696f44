"""Look into the state of queries, spread it over another number of partitions, or compute it again from the input."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.engine.columns import HASH, LIVE
from headwater.engine.errors import StateFolderUnknown, StateMissing
from headwater.engine.event_time import EVER, NEVER, SourceProgress, merge_learnt, merge_progress
from headwater.engine.micro_batch import record_once, recorded, time_folder
from headwater.engine.spark_plan import REBUILD_SETTING, STATE_SETTING
from headwater.engine.state_folder import LocalFolder
from headwater.engine.state_store import Manifest, Run, latest_of_inputs, merge_runs, write_run
from headwater.engine.time_metadata import ORIGIN
from headwater.engine.watermark_origin import Origin, SourceRecord
from headwater.errors import ArgumentInvalid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, kw_only=True)
class OperatorState:
    """What one partition of an operator holds."""

    query: str
    operator: str
    partition: int
    batch: int
    rows: int
    runs: int
    bytes: int
    watermark_us: int | None
    counts: dict[str, int]
    progress: SourceProgress = field(default_factory=dict)
    """The latest event time of each input and source partition, and when it was seen."""

    @property
    def has_ended(self) -> bool:
        """Whether all input has ended: the watermark is then no time."""
        return self.watermark_us is not None and self.watermark_us >= EVER


def states(folder: Path, *, query: str | None = None, operator: str | None = None) -> Iterator[OperatorState]:
    """Every partition of every operator under a state folder."""
    for name in _folders(folder):
        if query is not None and name != query:
            continue
        for kind in _folders(folder / name):
            if kind not in ("batches", "operators") and operator in (None, kind):
                yield from _partitions_of(folder, name, kind)


def rows_of(folder: Path, *, query: str, operator: str) -> pa.Table:
    """All live state of an operator: its keys, and what is kept for each."""
    place = folder / query / operator
    tables = []
    for number in _numbers(place):
        manifest = _newest(LocalFolder(place / number), operator)
        table = _everything(LocalFolder(place / number), manifest, _key_of(folder, query, operator))
        tables.append(table.drop_columns([HASH, LIVE]) if table.num_columns else table)
    if not tables:
        raise StateMissing(operator=operator, batch=-1)
    return pa.concat_tables([table for table in tables if table.num_columns] or tables[:1])


def rescale(folder: Path, *, query: str, operator: str, partitions: int) -> int:
    """Spread an operator's state over another number of partitions; returns how many rows moved house.

    The query must be stopped. The new state is written beside the old one and takes its place by one rename.
    """
    place = folder / query / operator
    numbers = _numbers(place)
    if not numbers:
        raise StateMissing(operator=operator, batch=-1)
    key = _key_of(folder, query, operator)
    fresh = folder / query / f".{operator}.rescaled"
    shutil.rmtree(fresh, ignore_errors=True)
    moved = 0
    for batch in sorted(set.intersection(*(set(_versions(place / number)) for number in numbers))):
        moved = _spread(place, fresh, numbers, batch, key, partitions, operator)
    old = folder / query / f".{operator}.before"
    shutil.rmtree(old, ignore_errors=True)
    place.rename(old)
    fresh.rename(place)
    if (old / "sides").is_dir():
        (old / "sides").rename(place / "sides")
    shutil.rmtree(old)
    return moved


def _spread(
    place: Path, fresh: Path, numbers: list[str], batch: int, key: list[str], partitions: int, operator: str
) -> int:
    manifests = [_manifest(LocalFolder(place / number), batch, operator) for number in numbers]
    tables = [
        _everything(LocalFolder(place / number), manifest, key)
        for number, manifest in zip(numbers, manifests, strict=True)
    ]
    held = [table for table in tables if table.num_columns]
    whole = pa.concat_tables(held).combine_chunks() if held else None
    slots = None
    if whole is not None:
        hashes = np.asarray(whole.column(HASH)).view(np.int64)
        slots = np.mod(hashes, partitions)
    for slot in range(partitions):
        target = LocalFolder(fresh / str(slot))
        runs: list[dict[str, Any]] = []
        if whole is not None and slots is not None and (slots == slot).any():
            part = whole.filter(pa.array(slots == slot))
            part = part.take(pa.array(np.argsort(np.asarray(part.column(HASH)), kind="stable")))
            name = f"run-{batch:012d}-rescaled"
            write_run(target, name, part)
            runs = [{"name": name, "rows": part.num_rows}]
        manifest = Manifest(
            batch=batch,
            partitions=partitions,
            runs=runs,
            # What was seen is the same for all: the watermark is computed from all partitions together.
            progress=merge_progress(one.progress for one in manifests),
            watermark_us=max(one.watermark_us for one in manifests),
            local_watermark_us=max(one.local_watermark_us for one in manifests),
            processing_us=manifests[0].processing_us,
            counts=_summed(manifests) if slot == 0 else {},
            learnt=merge_learnt(one.learnt for one in manifests) if slot == 0 else {},
            of_inputs_us=latest_of_inputs(manifests),
        )
        target.write_text(f"{batch:012d}.json", manifest.dumps())
        target.sync()
    return 0 if whole is None else int(whole.num_rows)


def _summed(manifests: list[Manifest]) -> dict[str, int]:
    names = {name for manifest in manifests for name in manifest.counts}
    return {name: sum(manifest.counts.get(name, 0) for manifest in manifests) for name in sorted(names)}


def _partitions_of(folder: Path, query: str, operator: str) -> Iterator[OperatorState]:
    place = folder / query / operator
    for number in _numbers(place):
        manifest = _newest(LocalFolder(place / number), operator)
        yield OperatorState(
            query=query,
            operator=operator,
            partition=int(number),
            batch=manifest.batch,
            rows=sum(run["rows"] for run in manifest.runs),
            runs=len(manifest.runs),
            bytes=_size(place / number),
            watermark_us=None if manifest.watermark_us <= NEVER else manifest.watermark_us,
            counts=manifest.counts,
            progress=manifest.progress,
        )


def _size(place: Path) -> int:
    """The bytes of a folder's files; the query at work may delete and rename them meanwhile."""
    size = 0
    for path in place.iterdir():
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def _everything(folder: LocalFolder, manifest: Manifest, key: list[str]) -> pa.Table:
    tables = [Run(folder, run["name"]).table for run in manifest.runs]
    if not tables:
        return pa.table({})
    return merge_runs(tables, key=key, drop_dead=True)


def _key_of(folder: Path, query: str, operator: str) -> list[str]:
    about = recorded(folder / query / "operators", operator)
    if about is None:
        raise StateMissing(operator=operator, batch=-1)
    return list(about["key"])


def _versions(place: Path) -> list[int]:
    return sorted(int(path.stem) for path in place.glob("*.json"))


def _newest(folder: LocalFolder, operator: str) -> Manifest:
    versions = _versions(folder.path)
    if not versions:
        raise StateMissing(operator=operator, batch=-1)
    return _manifest(folder, versions[-1], operator)


def _manifest(folder: LocalFolder, batch: int, operator: str) -> Manifest:
    text = folder.read_text(f"{batch:012d}.json")
    if text is None:
        raise StateMissing(operator=operator, batch=batch)
    return Manifest.loads(text)


def _folders(folder: Path) -> list[str]:
    return LocalFolder(folder).folders()


def _numbers(place: Path) -> list[str]:
    return sorted((name for name in _folders(place) if name.isdigit()), key=int)


def rebuild(
    spark: SparkSession,
    pipeline: Callable[[DataFrame], DataFrame],
    *,
    checkpoint: str | Path,
    topic: str,
    options: dict[str, Any] | None = None,
) -> int:
    """Compute the state of a stopped query again, batch by batch as its checkpoint remembers them.

    `pipeline` is what the query applies to its source, `topic` and `options` are what the source was given. Batches
    that Spark has forgotten (it remembers the last hundred) are taken as one. Nothing is written but state. Returns
    the number of batches; the query then goes on from its checkpoint as if nothing had happened.
    """
    folder = Path(checkpoint)
    state = spark.conf.get(STATE_SETTING, None)
    if state is None:
        raise StateFolderUnknown(operator="rebuild")
    query = _query_of(folder)
    batches = _batches_of(folder)
    shutil.rmtree(Path(state) / query, ignore_errors=True)
    start = "earliest"
    for number, offset in batches:
        stop = json.dumps(offset["topics"])
        spark.conf.set(REBUILD_SETTING, f"{query}:{number}")
        try:
            reader = spark.read.format("headwater").option("start", start).option("stop", stop)
            for name, value in (options or {}).items():
                if name not in ("tick", "rows_max", "bytes_max", "start", "clock"):
                    reader = reader.option(name, value)
            rows = reader.load(topic)
            record = _record_of(offset, rows.schema)
            record_once(time_folder(Path(state), query), f"time-{number}-rebuilt", record.to_json())
            pipeline(rows).write.format("noop").mode("overwrite").save()
        finally:
            spark.conf.unset(REBUILD_SETTING)
        start = stop
    return len(batches)


# Any: an offset of the source, as JSON.
def _record_of(offset: dict[str, Any], schema: StructType) -> SourceRecord:
    """What the source of a batch had recorded, from the offset at which the batch ended."""
    carried = [(field.metadata or {}).get(ORIGIN) for field in schema.fields]
    name = next((Origin.of_text(text).source for text in carried if text is not None), None)
    times, promised = offset.get("times", {}), offset.get("promised", {})
    places = {
        f"{topic}/{number}": (
            *times.get(topic, {}).get(number, (NEVER, offset["at_us"])),
            promised.get(topic, {}).get(number, NEVER),
        )
        for topic, offsets in offset["topics"].items()
        for number in offsets
    }
    return SourceRecord(name=name, at_us=offset["at_us"], times=places)


def _query_of(checkpoint: Path) -> str:
    try:
        return str(json.loads((checkpoint / "metadata").read_text())["id"])
    except FileNotFoundError:
        raise ArgumentInvalid(name="checkpoint", value=str(checkpoint), expected="the checkpoint of a query") from None


def _batches_of(checkpoint: Path) -> list[tuple[int, dict[str, Any]]]:
    """The committed batches that the checkpoint remembers, with the offset at which each ended."""
    committed = {int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit()}
    found = []
    for path in (checkpoint / "offsets").iterdir():
        if path.name.isdigit() and int(path.name) in committed:
            # A version, the batch's settings, then the offset of each source; Headwater's is the one with topics.
            offsets = [json.loads(line) for line in path.read_text().splitlines()[2:] if line.startswith("{")]
            ours = [offset for offset in offsets if "topics" in offset]
            if len(ours) != 1:
                raise ArgumentInvalid(
                    name="checkpoint", value=str(checkpoint), expected="a query with one topic source"
                )
            found.append((int(path.name), ours[0]))
    return sorted(found, key=lambda batch: batch[0])

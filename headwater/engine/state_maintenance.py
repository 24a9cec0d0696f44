"""Look into the state of queries, or compute it again from the input."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.engine.columns import HASH, LIVE
from headwater.engine.errors import StateFolderUnknown, StateMissing
from headwater.engine.event_time import EVER, NEVER, SourceProgress
from headwater.engine.micro_batch import record_once, recorded, time_folder
from headwater.engine.spark_plan import REBUILD_SETTING, STATE_SETTING
from headwater.engine.state_folder import Folder, open_folder
from headwater.engine.state_store import Manifest, Run, manifest_of, merge_runs, versions_of
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


def states(folder: str | Path, *, query: str | None = None, operator: str | None = None) -> Iterator[OperatorState]:
    """Every partition of every operator under a state folder."""
    state = open_folder(folder)
    for name in state.folders() if query is None else [query]:
        for kind in state.within(name).folders():
            if kind not in ("batches", "operators") and operator in (None, kind):
                yield from _partitions_of(state, name, kind)


def rows_of(folder: str | Path, *, query: str, operator: str) -> pa.Table:
    """All live state of an operator: its keys, and what is kept for each."""
    state = open_folder(folder)
    place = state.within(query).within(operator)
    tables = []
    for number, manifest in _newest(place, operator).items():
        table = _everything(place.within(str(number)), manifest, _key_of(state, query, operator))
        tables.append(table.drop_columns([HASH, LIVE]) if table.num_columns else table)
    if not tables:
        raise StateMissing(operator=operator, batch=-1)
    return pa.concat_tables([table for table in tables if table.num_columns] or tables[:1])


def _partitions_of(folder: Folder, query: str, operator: str) -> Iterator[OperatorState]:
    place = folder.within(query).within(operator)
    for number, manifest in _newest(place, operator).items():
        yield OperatorState(
            query=query,
            operator=operator,
            partition=number,
            batch=manifest.batch,
            rows=sum(run["rows"] for run in manifest.runs),
            runs=len(manifest.runs),
            bytes=place.within(str(number)).size(),
            watermark_us=None if manifest.watermark_us <= NEVER else manifest.watermark_us,
            counts=manifest.counts,
            progress=manifest.progress,
        )


def _everything(folder: Folder, manifest: Manifest, key: list[str]) -> pa.Table:
    tables = [Run(folder, run["name"]).table for run in manifest.runs]
    if not tables:
        return pa.table({})
    return merge_runs(tables, key=key, drop_dead=True)


def _key_of(folder: Folder, query: str, operator: str) -> list[str]:
    about = recorded(folder.within(query).within("operators"), operator)
    if about is None:
        raise StateMissing(operator=operator, batch=-1)
    return list(about["key"])


def _newest(place: Folder, operator: str) -> dict[int, Manifest]:
    """The manifests of the newest version that all partitions have; of tasks that go by their own numbers the newest each.

    A query that was rescaled may have left partitions that its newest version does not have.
    """
    versions = {int(name): versions_of(place.within(name)) for name in place.folders() if name.isdigit()}
    newest = {number: known[-1] for number, known in sorted(versions.items()) if known}
    for version in reversed(versions.get(0, [])):
        count = manifest_of(place.within("0"), version, operator=operator).partitions
        wanted = range(count)
        if count and all(version in versions.get(number, []) for number in wanted):
            newest = dict.fromkeys(wanted, version)
            break
    return {
        number: manifest_of(place.within(str(number)), version, operator=operator) for number, version in newest.items()
    }


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
    folder = open_folder(checkpoint)
    state = spark.conf.get(STATE_SETTING, None)
    if state is None:
        raise StateFolderUnknown(operator="rebuild")
    query = _query_of(folder, checkpoint)
    batches = _batches_of(folder, checkpoint)
    open_folder(state).within(query).clear()
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
            record_once(time_folder(state, query), f"time-{number}-rebuilt", record.to_json())
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


def _query_of(checkpoint: Folder, address: str | Path) -> str:
    text = checkpoint.read_text("metadata")
    if text is None:
        raise ArgumentInvalid(name="checkpoint", value=str(address), expected="the checkpoint of a query")
    return str(json.loads(text)["id"])


def _batches_of(checkpoint: Folder, address: str | Path) -> list[tuple[int, dict[str, Any]]]:
    """The committed batches that the checkpoint remembers, with the offset at which each ended."""
    committed = {int(name) for name in checkpoint.within("commits").names() if name.isdigit()}
    planned = checkpoint.within("offsets")
    found = []
    for name in planned.names():
        if name.isdigit() and int(name) in committed:
            # A version, the batch's settings, then the offset of each source; Headwater's is the one with topics.
            lines = (planned.read_text(name) or "").splitlines()[2:]
            ours = [offset for offset in map(json.loads, (one for one in lines if one[0] == "{")) if "topics" in offset]
            if len(ours) != 1:
                raise ArgumentInvalid(name="checkpoint", value=str(address), expected="a query with one topic source")
            found.append((int(name), ours[0]))
    return sorted(found, key=lambda batch: batch[0])

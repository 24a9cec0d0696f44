"""State that was lost is computed again from the input: the log is the truth, and everything else follows from it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.batches import record_once, time_folder
from headwater.errors import ArgumentInvalid, StateFolderUnknown
from headwater.operators.keyed.plan import REBUILD_SETTING, STATE_SETTING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
        record_once(time_folder(Path(state), query), f"time-{number}-rebuilt", {"at_us": offset["at_us"]})
        spark.conf.set(REBUILD_SETTING, f"{query}:{number}")
        try:
            reader = spark.read.format("headwater").option("start", start).option("stop", stop)
            for name, value in (options or {}).items():
                if name not in ("tick", "rows_max", "bytes_max", "start", "clock"):
                    reader = reader.option(name, value)
            pipeline(reader.load(topic)).write.format("noop").mode("overwrite").save()
        finally:
            spark.conf.unset(REBUILD_SETTING)
        start = stop
    return len(batches)


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

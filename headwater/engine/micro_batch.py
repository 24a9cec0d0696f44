"""What a task may know of the micro-batch it works for, and what it may decide once for all tasks of that batch.

Spark tells tasks the query's id and the batch's number. Whatever else must be the same in every task and on every
retry (the processing time, the version of a rules table) is written once into the query's state folder by the
first task, and read by all others. So a replayed batch computes what it computed the first time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.engine.state_folder import Folder, open_folder

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"
#: What is recorded of a batch stays for so many batches more: Spark repeats none that is older than its checkpoint.
BATCHES_KEPT = 200


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """A batch of a streaming query, as one of its tasks sees it."""

    query: str
    number: int
    partition: int = 0
    attempt: int = 0
    run: str = ""
    """The id of this run of the query: a restart from the same checkpoint has another."""


def current_batch() -> MicroBatch | None:
    """The batch that this task works for; None outside of a streaming query."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return None
    query = context.getLocalProperty(QUERY_ID)
    number = context.getLocalProperty(BATCH_ID)
    if query is None or number is None:
        return None
    return MicroBatch(
        query=query,
        number=int(number),
        partition=context.partitionId(),
        attempt=context.taskAttemptId(),
        run=context.getLocalProperty(RUN_ID) or "",
    )


def record_once(folder: Folder, name: str, body: dict[str, Any]) -> dict[str, Any]:
    """Write a small record unless one of this name exists; return what is there. Atomic among all tasks.

    >>> import tempfile
    >>> folder = open_folder(tempfile.mkdtemp())
    >>> record_once(folder, "time-7", {"at_us": 1})
    {'at_us': 1}
    >>> record_once(folder, "time-7", {"at_us": 2})
    {'at_us': 1}
    """
    found = recorded(folder, name)
    if found is not None:
        return found
    folder.write_text_if_absent(f"{name}.json", json.dumps(body))
    found = recorded(folder, name)
    return body if found is None else found


def record_of_batch(folder: Folder, kind: str, batch: int, rest: str, body: dict[str, Any]) -> dict[str, Any]:
    """Write a record of a batch once, as `<kind>-<batch>-<rest>`, and remove that of a batch long past.

    >>> import tempfile
    >>> folder = open_folder(tempfile.mkdtemp())
    >>> for number in range(BATCHES_KEPT + 5):
    ...     ends = record_of_batch(folder, "table", number, "rules", {"0": number})
    >>> ends, len(folder.names()) == BATCHES_KEPT
    ({'0': 204}, True)
    """
    found = record_once(folder, f"{kind}-{batch}-{rest}", body)
    folder.remove(f"{kind}-{batch - BATCHES_KEPT}-{rest}.json")
    return found


def recorded(folder: Folder, name: str) -> dict[str, Any] | None:
    """The record of this name, if a task has written one."""
    text = folder.read_text(f"{name}.json")
    if text is None:
        return None
    body: dict[str, Any] = json.loads(text)
    return body


def records_named(folder: Folder, prefix: str) -> Iterator[dict[str, Any]]:
    """The records whose names begin with `prefix`, in the order of their names."""
    for name in folder.names(prefix):
        found = recorded(folder, name.removesuffix(".json"))
        if found is not None:
            yield found


def time_folder(state: str | Path, query: str) -> Folder:
    """Where sources record the processing time of each batch: `time-<batch>-<source>.json` with `at_us`."""
    return open_folder(state).within(query).within("batches")


def questions_of(state: str | Path, batch: MicroBatch) -> dict[str, Any] | None:
    """Which questions belong to this batch: `log`, `topic`, the `query` they name, and offsets from `start` to `stop`."""
    return next(records_named(time_folder(state, batch.query), f"asked-{batch.number}-"), None)


def is_final(state: str | Path, batch: MicroBatch) -> bool:
    """Whether all sources of a query have said, by this batch, that nothing follows."""
    folder = time_folder(state, batch.query)
    ended = [one for one in records_named(folder, "final-") if int(one["batch"]) <= batch.number]
    return bool(ended) and len(ended) == len(folder.names("source-"))


def batch_time_us(state: str | Path, batch: MicroBatch) -> int | None:
    """The processing time that the sources of this batch have recorded, the latest where there are several."""
    found = records_named(time_folder(state, batch.query), f"time-{batch.number}-")
    return max((one["at_us"] for one in found), default=None)

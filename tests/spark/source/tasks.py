"""A task of a streaming query, without Spark: what the code in a worker learns from its task context."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import pytest
from pyspark import TaskContext

from headwater.engine.micro_batch import BATCH_ID, QUERY_ID, RUN_ID, MicroBatch

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """The part of PySpark's `TaskContext` that Headwater reads."""

    batch: MicroBatch

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802
        known = {QUERY_ID: self.batch.query, BATCH_ID: str(self.batch.number), RUN_ID: self.batch.run or None}
        return known.get(key)

    def partitionId(self) -> int:  # noqa: N802
        return self.batch.partition

    def taskAttemptId(self) -> int:  # noqa: N802
        return self.batch.attempt


@contextlib.contextmanager
def in_task(batch: MicroBatch) -> Iterator[None]:
    """Let the code inside believe that it is a task of this batch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskContext, "get", lambda: Task(batch))
        yield


def crossed(value: T) -> T:
    """A value as another process gets it."""
    copy: T = pickle.loads(pickle.dumps(value))
    return copy

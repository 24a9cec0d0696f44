"""What a sink remembers of a query: its last batch, the run that wrote it, and the runs that were replaced.

A sink keeps this where its rows are and changes both in one step, so that a batch which Spark does again is known. A
run that has been replaced by another on the same checkpoint is refused, however late it wakes up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import orjson

from headwater.batches import MicroBatch
from headwater.errors import SinkFenced

#: Replaced runs that are remembered. One that is older has been dead for a hundred restarts.
PAST_MAX = 100


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a query has come in a sink.

    >>> first = Progress().admit("s", MicroBatch(query="q", number=0, run="a"))
    >>> second = first.admit("s", MicroBatch(query="q", number=0, run="b"))
    >>> second.run, second.past
    ('b', ('a',))
    >>> second.admit("s", MicroBatch(query="q", number=1, run="a"))
    Traceback (most recent call last):
    headwater.errors.SinkFenced: Run 'a' of query 'q' has been replaced by run 'b' in s. Stop this process: its successor is at work. Nothing of this batch was written.
    """

    batch: int = -1
    run: str = ""
    past: tuple[str, ...] = ()

    def admit(self, sink: str, batch: MicroBatch) -> Self:
        """The progress once this batch's run is at work; refuses a run that another has replaced."""
        if not batch.run or batch.run == self.run:
            return self
        if batch.run in self.past:
            raise SinkFenced(sink=sink, query=batch.query, run=batch.run, current=self.run)
        past = (*self.past, self.run) if self.run else self.past
        return replace(self, run=batch.run, past=past[-PAST_MAX:])

    def has(self, batch: MicroBatch) -> bool:
        """Whether this batch has been written already."""
        return batch.number <= self.batch

    def after(self, batch: MicroBatch) -> Self:
        return replace(self, batch=max(self.batch, batch.number))

    def as_json(self) -> bytes:
        return orjson.dumps({"batch": self.batch, "run": self.run, "past": self.past})

    @classmethod
    def from_json(cls, text: str | bytes | None) -> Self:
        """What was remembered, or a beginning."""
        if text is None:
            return cls()
        body = orjson.loads(text)
        return cls(batch=body["batch"], run=body["run"], past=tuple(body["past"]))

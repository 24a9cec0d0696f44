"""Rows that a sink would not take: a clear stop, or letters in a dead-letter topic, each of them once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from headwater.batches import MicroBatch
from headwater.clock import SystemClock
from headwater.errors import RowRefused
from headwater.faults import reach
from headwater.log.deadletters import DeadLetter, append_dead_letters, attempt_of
from headwater.schema.encodings import json as json_lines
from headwater.sinks.changes import OWN, Refusal
from headwater.sinks.logs import shared_log

#: Letters of one append, and room for the appends of one batch between the sequences of two.
LETTERS_MAX = 10_000
APPENDS_MAX = 1 << 20


class Refusals:
    """What becomes of the refused rows of one batch.

    Letters are appended before the sink commits, under the batch's number: a batch that is done again finds them there.
    """

    def __init__(
        self, sink: str, rows: pa.Table, batch: MicroBatch, *, key: Sequence[str], log: str | None, letters: str | None
    ) -> None:
        self._sink = sink
        self._rows = rows
        self._batch = batch
        self._key = list(key)
        self._log = log
        self._letters = letters
        self._refused: dict[int, str] = {}

    @property
    def stops(self) -> bool:
        """Whether the first refused row ends the query."""
        return self._log is None

    def again(self) -> None:
        """Forget what an attempt has found, for it begins anew."""
        self._refused = {}

    def add(self, refused: Iterable[Refusal]) -> None:
        """Give rows up, or stop at the first of them."""
        for refusal in refused:
            if self.stops:
                raise RowRefused(sink=self._sink, key=self._key_of(refusal.position), why=refusal.why)
            self._refused.setdefault(refusal.position, refusal.why)

    def post(self) -> None:
        """Append the letters. Does nothing where an earlier attempt at this batch has done it."""
        if not self._refused or self._log is None:
            return
        name = self._letters or self._batch.query
        letters = [self._letter(name, position, why) for position, why in sorted(self._refused.items())]
        log = shared_log(self._log)
        producer = f"{self._batch.query}.{_safe(self._sink)}"
        for number, start in enumerate(range(0, len(letters), LETTERS_MAX)):
            sequence = self._batch.number * APPENDS_MAX + number
            some = letters[start : start + LETTERS_MAX]
            append_dead_letters(log, name, some, producer=producer, sequence=sequence)
        reach("delivery.letters")

    def _letter(self, topic: str, position: int, why: str) -> DeadLetter:
        row = self._rows.slice(position, 1)
        headers = self._value(row, "_headers")
        mine = [name for name in row.column_names if name not in OWN]
        text = next(json_lines.encode_rows(row.select(mine).combine_chunks().to_batches()[0]))
        partition, offset = self._value(row, "_partition"), self._value(row, "_offset")
        return DeadLetter(
            topic=topic,
            partition=0 if partition is None else partition,
            offset=position if offset is None else offset,
            row=text.decode(),
            query=self._batch.query,
            error="RowRefused",
            message=f"{self._sink}: {why}",
            attempt=attempt_of(headers),
            headers=headers,
            at_us=SystemClock().now_us(),
        )

    # Any: whatever the column holds.
    def _value(self, row: pa.Table, name: str) -> Any:
        return row.column(name)[0].as_py() if name in row.column_names else None

    def _key_of(self, position: int) -> str:
        row = self._rows.slice(position, 1)
        names = [name for name in self._key if name in row.column_names] or [
            name for name in row.column_names if name not in OWN
        ]
        shown = ", ".join(f"{name}={row.column(name)[0].as_py()!r}" for name in names)
        return shown if len(shown) <= 200 else shown[:199] + "…"


def _safe(name: str) -> str:
    """A sink's name as part of a producer's."""
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)[-100:]

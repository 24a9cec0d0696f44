"""Rows that a task cannot read, on their way to the dead-letter topic: each of them once, however often a task runs."""

from __future__ import annotations

from headwater.clock import Clock, SystemClock
from headwater.errors import EncodingInvalid
from headwater.log import EmbeddedLog
from headwater.log.deadletters import DeadLetter, Headers, append_dead_letters, attempt_of

#: More letters than this are not held in memory; a task that replays finds the same rows, and cuts them alike.
LETTERS_MAX = 10_000
#: Room for the appends of one batch between the sequences of two.
APPENDS_MAX = 1 << 20


class Letters:
    """Collects the letters of one task. Appends are numbered, so that those of a task that is repeated change nothing."""

    def __init__(
        self,
        log: EmbeddedLog,
        topic: str,
        partition: int,
        *,
        producer: str,
        batch: int = 0,
        query: str | None = None,
        fail: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._log = log
        self._topic = topic
        self._partition = partition
        self._producer = producer
        self._sequence = batch * APPENDS_MAX
        self._query = query
        self._fail = fail
        self._clock = clock or SystemClock()
        self._waiting: list[DeadLetter] = []

    def add(
        self,
        *,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        error: str,
        message: str,
        headers: Headers | None = None,
    ) -> None:
        """Give a row up; or fail, where that was asked for. A row that was put back says which attempt this was."""
        if self._fail:
            place = f"{self._topic}/{self._partition} offset {offset}"
            raise EncodingInvalid(encoding="row", position=place, why=message)
        letter = DeadLetter(
            topic=self._topic,
            partition=self._partition,
            offset=offset,
            key=key,
            value=value,
            query=self._query,
            error=error,
            message=message,
            attempt=attempt_of(headers),
            headers=headers,
            at_us=self._clock.now_us(),
        )
        self._waiting.append(letter)
        if len(self._waiting) >= LETTERS_MAX:
            self.close()

    def close(self) -> None:
        """Append what waits. A task that ends without it is repeated, and so are its letters."""
        if self._waiting:
            append_dead_letters(self._log, self._topic, self._waiting, producer=self._producer, sequence=self._sequence)
            self._sequence += 1
            self._waiting = []

"""The replication stream: psycopg2 brings the messages, the assembler makes whole transactions of them.

Only what is durable in the log is acknowledged. Where nothing arrives, the server is asked how far it has decoded: with no
transaction open, everything before that is either delivered or of no interest, so that an idle slot keeps no WAL.
"""

from __future__ import annotations

import contextlib
import select
import time

from headwater.capture.postgres.connection import Address, explained
from headwater.capture.postgres.slot import Slot
from headwater.capture.postgres.transactions import Assembler, Batch
from headwater.units import MIB

#: How often the server hears of this process; it cuts connections that are silent for `wal_sender_timeout`.
FEEDBACK_SECONDS = 5.0
#: Messages of whole transactions that one piece may hold.
PIECE_BYTES_MAX = 32 * MIB


class Stream:
    """A running replication from a position on."""

    def __init__(self, address: Address, slot: Slot, lsn: int) -> None:
        self._place = address.place
        slot.wait_until_free(slot.name)
        self._connection = address.replication()
        self._cursor = self._connection.cursor()
        self._durable = lsn
        self._reached = lsn
        self._told_at = 0.0
        self.assembler = Assembler(lsn, mark_prefix=slot.name)
        options = {
            "proto_version": "2",
            "publication_names": '"' + slot.publication.replace('"', '""') + '"',
            "streaming": "on",
            "messages": "true",
        }
        with explained(self._place):
            self._cursor.start_replication(
                slot_name=slot.name, start_lsn=lsn, options=options, decode=False, status_interval=FEEDBACK_SECONDS
            )
        self._tell(force=True)

    @property
    def reached(self) -> int:
        """Everything before this position has arrived, as whole transactions."""
        return max(self._reached, self.assembler.lsn)

    def receive(self, *, rows_max: int, until: int, mark: bytes | None = None, seconds: float = 1.0) -> Batch:
        """Receive whole transactions: until there are enough, or a position or our own mark is reached, or time is over."""
        assembler = self.assembler
        feed = assembler.feed
        deadline = time.monotonic() + seconds
        with explained(self._place):
            read = self._cursor.read_message
            while True:
                message = read()
                if message is None:
                    if assembler.is_open:
                        self._wait(0.2)
                        continue
                    if self._is_enough(until, mark) or time.monotonic() > deadline:
                        break
                    if assembler.count:  # append what is there; the rest comes with the next piece
                        break
                    self._tell(force=True, reply=True)
                    self._wait(0.1)
                    continue
                payload = message.payload
                feed(payload)
                # C and c end a transaction, M may be our mark.
                if payload[0] in (67, 99, 77) and not assembler.is_open:
                    if assembler.count >= rows_max or assembler.size >= PIECE_BYTES_MAX:
                        break
                    if mark is not None and mark in assembler.marks:
                        break
            self._tell()
        return assembler.take()

    def _is_enough(self, until: int, mark: bytes | None) -> bool:
        if mark is not None:
            return mark in self.assembler.marks
        # Between transactions, the server has sent all that ends before the position that it tells.
        self._reached = max(self._reached, self._cursor.wal_end or 0)
        return self.reached >= until

    def acknowledge(self, lsn: int) -> None:
        """Tell the server that everything before a position is durable."""
        self._durable = max(self._durable, lsn)
        self._tell(force=True)

    def wait(self, seconds: float) -> None:
        """Wait until a message arrives."""
        self._tell()
        self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        select.select([self._connection.fileno()], [], [], seconds)
        self._tell()

    def _tell(self, *, force: bool = False, reply: bool = False) -> None:
        now = time.monotonic()
        if not force and now - self._told_at < FEEDBACK_SECONDS:
            return
        self._told_at = now
        is_idle = not self.assembler.is_open and not self.assembler.count
        written = max(self._durable, self.reached) if is_idle else self._durable
        with explained(self._place):
            self._cursor.send_feedback(
                write_lsn=written, flush_lsn=self._durable, apply_lsn=self._durable, reply=reply, force=True
            )

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._cursor.close()
        with contextlib.suppress(Exception):
            self._connection.close()

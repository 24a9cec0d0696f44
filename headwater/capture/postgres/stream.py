"""The replication stream: libpq brings the messages, the assembler makes whole transactions of them.

Only what is durable in the log is acknowledged, and nothing else: a library that acknowledges by itself what it takes for processed
would hide that a log was restored from an older copy. Where nothing arrives, the server is asked how far it has decoded: with no
transaction open, everything before that is either delivered or of no interest, so that an idle slot keeps no WAL.

    server    w start:8 end:8 time:8 message        k end:8 time:8 reply:1
    client    r written:8 flushed:8 applied:8 time:8 reply:1
"""

from __future__ import annotations

import contextlib
import struct
import time

from headwater.capture.postgres.connection import Address, explained
from headwater.capture.postgres.messages import EPOCH_US, format_lsn
from headwater.capture.postgres.slot import Slot, check_result
from headwater.capture.postgres.transactions import Assembler, Batch, LastCommit
from headwater.connections import wait_for_bytes
from headwater.optional import require
from headwater.units import MIB

#: How often the server hears of this process; it cuts connections that are silent for `wal_sender_timeout`.
FEEDBACK_SECONDS = 5.0
#: Messages of whole transactions that one piece may hold.
PIECE_BYTES_MAX = 32 * MIB
_FEEDBACK = struct.Struct(">cQQQqB")
_HEADER = 25


class Stream:
    """A running replication from a position on."""

    def __init__(self, address: Address, slot: Slot, lsn: int, *, last: LastCommit | None, confirmed: int) -> None:
        """`last` is the transaction in front of the position. If the server has not deleted it, it is sent once more, to be compared."""
        self._slot = slot
        self._place = address.place
        self._psycopg = require("psycopg", extra="postgres")
        self._durable = lsn
        self._decoded = lsn
        self._told_at = 0.0
        self.is_awaited = False
        """Whether the server waits for an answer: one that shuts down waits until everything is acknowledged."""
        is_sent_again = last is not None and confirmed <= last.lsn
        start = lsn if last is None else min(last.lsn, lsn)
        self.assembler = Assembler(lsn, mark_prefix=slot.name, last=last, is_sent_again=is_sent_again)
        slot.wait_until_free()
        self._connection = address.replication()
        publication = slot.publication.replace('"', '""').replace("'", "''")
        result = self._connection.exec_(
            f'START_REPLICATION SLOT "{slot.name}" LOGICAL {format_lsn(start)} '
            f"(proto_version '2', streaming 'on', messages 'true', publication_names '\"{publication}\"')".encode()
        )
        try:
            check_result(result, self._place)
        except Exception:
            self.close()
            raise
        self._tell(force=True)

    @property
    def reached(self) -> int:
        """Everything before this position has arrived, as whole transactions."""
        return max(self._decoded, self.assembler.lsn)

    def receive(self, *, rows_max: int, until: int, mark: bytes | None = None, seconds: float = 1.0) -> Batch:
        """Receive whole transactions: until there are enough, or a position or our own mark is reached, or time is over."""
        assembler = self.assembler
        feed, read = assembler.feed, self._connection.get_copy_data
        deadline = time.monotonic() + seconds
        is_asked = False
        with explained(self._place):
            while True:
                size, data = read(1)
                if size == 0:
                    self._connection.consume_input()
                    size, data = read(1)
                if size == 0:
                    if not assembler.is_open:
                        # What is there is appended now; the rest comes with the next piece.
                        if assembler.count or self._is_enough(until, mark) or time.monotonic() > deadline:
                            break
                        if not is_asked:
                            self._tell(force=True, reply=True)
                            is_asked = True
                    self._wait(0.1)
                    continue
                if size < 0:
                    raise self._psycopg.OperationalError("the server has ended the replication")
                if data[0] == 107:  # k
                    self._keep_alive(bytes(data))
                    is_asked = False
                    continue
                payload = bytes(data[_HEADER:])
                feed(payload)
                # C and c end a transaction, M may be our mark.
                if payload[0] in (67, 99, 77) and not assembler.is_open:
                    if assembler.count >= rows_max or assembler.size >= PIECE_BYTES_MAX:
                        break
                    if mark is not None and mark in assembler.marks:
                        break
            self._tell()
        if assembler.is_other:
            self._slot.refuse_other_history(assembler.lsn)
        return assembler.take()

    def _keep_alive(self, message: bytes) -> None:
        end, wants_reply = int.from_bytes(message[1:9], "big"), message[17]
        if not self.assembler.is_open:  # between transactions, the server has sent all that ends before this
            self._decoded = max(self._decoded, end)
            self.assembler.check(end)
        if wants_reply:
            self.is_awaited = True
            self._tell(force=True)

    def _is_enough(self, until: int, mark: bytes | None) -> bool:
        return mark in self.assembler.marks if mark is not None else self.reached >= until

    def acknowledge(self, lsn: int) -> None:
        """Tell the server that everything before a position is durable."""
        self._durable = max(self._durable, lsn)
        self.is_awaited = False
        self._tell(force=True)

    def wait(self, seconds: float) -> None:
        """Wait until a message arrives."""
        self._tell()
        self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        wait_for_bytes(self._connection.socket, seconds=seconds)
        self._tell()

    def _tell(self, *, force: bool = False, reply: bool = False) -> None:
        now = time.monotonic()
        if not force and now - self._told_at < FEEDBACK_SECONDS:
            return
        self._told_at = now
        # What is written says how far the capture is if nothing waits; what is flushed is what the database may delete.
        is_idle = not self.assembler.is_open and not self.assembler.count
        written = max(self._durable, self.reached) if is_idle else self._durable
        clock_us = time.time_ns() // 1000 - EPOCH_US
        with explained(self._place):
            self._connection.put_copy_data(_FEEDBACK.pack(b"r", written, self._durable, self._durable, clock_us, reply))
            self._connection.flush()

    def close(self) -> None:
        self.assembler.close()
        with contextlib.suppress(Exception):
            self._connection.finish()

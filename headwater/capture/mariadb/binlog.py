"""The binary log as a replica receives it: events from a GTID on.

PyMySQL connects and authenticates. From the command that asks for the binary log on, this module reads the socket
itself: it can take what has arrived without waiting for more, which PyMySQL cannot.
"""

from __future__ import annotations

import contextlib
import random
import zlib
from struct import Struct
from typing import Any, NamedTuple

from headwater.capture.errors import SourceUnreachable
from headwater.capture.mariadb.server import Session
from headwater.connections import wait_for_bytes
from headwater.errors import HeadwaterError

QUERY, ROTATE, FORMAT, XID, TABLE_MAP, XA_PREPARE = 2, 4, 15, 16, 19, 38
GTID = 162
QUERY_COMPRESSED = 165
#: Rows that are inserted, updated and deleted; the second form is compressed.
WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS = (23, 30, 166), (24, 31, 167), (25, 32, 168)
ROWS = {**dict.fromkeys(WRITE_ROWS, "c"), **dict.fromkeys(UPDATE_ROWS, "u"), **dict.fromkeys(DELETE_ROWS, "d")}
COMPRESSED = (165, 166, 167, 168)
#: A GTID event says so of its transaction: it is one statement without an end of its own, or it is part of an XA one.
STANDALONE, PREPARED_XA, COMPLETED_XA = 1, 64, 128
#: The server refuses to go on from this GTID.
POSITION_LOST = 1236

_HEADER = Struct("<IBIIIH")
_DUMP = Struct("<IHI")
_RECEIVE_BYTES = 1 << 18
_HEARTBEAT_SECONDS = 5


class Event(NamedTuple):
    """One event: when it happened, on which server, and where the next one begins."""

    type: int
    seconds: int
    server: int
    end: int
    body: bytes


class BinlogRefused(Exception):
    """The server does not send the binary log from this GTID."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(said)
        self.code = code
        self.said = said


class Binlog:
    """The events that follow a GTID."""

    def __init__(self, session: Session, gtid: str) -> None:
        self._session = session
        self._server = server = session.server
        self._buffer = bytearray()
        self._at = 0
        self._parts: list[bytes] = []
        self._has_checksums = False
        with contextlib.ExitStack() as stack:
            connection = server.connect()
            stack.callback(connection.close)
            with server.explained(), connection.cursor() as cursor:
                cursor.execute("SET @mariadb_slave_capability = 4, @master_binlog_checksum = @@global.binlog_checksum")
                cursor.execute(f"SET @master_heartbeat_period = {_HEARTBEAT_SECONDS * 10**9}")
                cursor.execute("SET @slave_connect_state = %s, @slave_gtid_strict_mode = 0", (gtid,))
                # A replica's number must be its own: the server ends an older connection with the same one.
                number = random.getrandbits(31) | 1 << 30
                connection._execute_command(0x12, _DUMP.pack(4, 0, number))
            stack.pop_all()
        self._number = connection.thread_id()
        self._connection = connection  # it would close the socket when it is forgotten
        # Any: a socket, or one with TLS around it.
        self._socket: Any = connection._sock
        self._socket.settimeout(None)

    def next(self, seconds: float = 0) -> Event | None:
        """The next event that has arrived, or arrives within so many seconds."""
        while True:
            packet = self._packet()
            if packet is not None:
                return self._event(packet)
            if not self._receive(seconds):
                return None

    def _packet(self) -> bytes | None:
        buffer, at = self._buffer, self._at
        while len(buffer) - at >= 4:
            size = int.from_bytes(buffer[at : at + 3], "little")
            if len(buffer) - at - 4 < size:
                break
            self._at = at + 4 + size
            payload = bytes(buffer[at + 4 : self._at])
            at = self._at
            if size == 0xFFFFFF or self._parts:  # a packet of more than 16 MB comes in parts
                self._parts.append(payload)
                if size == 0xFFFFFF:
                    continue
                payload = b"".join(self._parts)
                self._parts.clear()
            return payload
        if self._at:
            del buffer[: self._at]
            self._at = 0
        return None

    def _receive(self, seconds: float) -> bool:
        """Take bytes that have arrived; False if there are none."""
        try:
            has_rest = getattr(self._socket, "pending", lambda: 0)()
            if not has_rest and not wait_for_bytes(self._socket, seconds=seconds):
                return False
            received = self._socket.recv(_RECEIVE_BYTES)
        except OSError as error:
            raise SourceUnreachable(source=str(self._server), why=f"the connection was lost ({error})") from error
        if not received:
            raise SourceUnreachable(source=str(self._server), why="the server closed the connection")
        self._buffer += received
        return True

    def _event(self, packet: bytes) -> Event:
        if packet[0] == 0xFF:
            said = packet[3:].decode(errors="replace")
            raise BinlogRefused(int.from_bytes(packet[1:3], "little"), said[6:] if said.startswith("#") else said)
        if packet[0] == 0xFE and len(packet) < 9:
            raise BinlogRefused(0, "the server ended the binary log")
        seconds, kind, server, _, end, _ = _HEADER.unpack_from(packet, 1)
        body = packet[20:]
        if kind == FORMAT:  # says at its end whether events have checksums
            self._has_checksums = body[-5] == 1
        elif self._has_checksums and kind != ROTATE:
            if zlib.crc32(memoryview(packet)[1:-4]) != int.from_bytes(packet[-4:], "little"):
                raise SourceUnreachable(source=str(self._server), why="an event of the binary log arrived damaged")
            body = body[:-4]
        return Event(kind, seconds, server, end, body)

    def wait(self, seconds: float) -> None:
        """Wait until bytes arrive."""
        if not self._buffer:
            with contextlib.suppress(OSError, ValueError):
                wait_for_bytes(self._socket, seconds=seconds)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
        # The server would notice it only at its next event, and keep the files of the log until then.
        with contextlib.suppress(HeadwaterError):
            self._session.rows(f"KILL {self._number}")


def inflated(raw: bytes) -> bytes:
    """The uncompressed bytes of a compressed event: a header byte, the length, and a zlib stream.

    >>> inflated(b"\\x81\\x03" + zlib.compress(b"tea"))
    b'tea'
    """
    return zlib.decompress(raw[1 + (raw[0] & 7) :])

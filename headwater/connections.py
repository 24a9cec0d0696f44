"""Connections: waiting for bytes; and those of uvicorn with one send for each answer, a deadline for the head of each request and a bound on their number.

Uvicorn itself has no such deadline and no such bound: clients that connect and say nothing could take all files that a process may open, and then the process
answers no other client, and cannot open a file of its log either.
"""

from __future__ import annotations

import asyncio
import resource
import select
from typing import Any
from typing import Protocol as Interface

#: Files that a process needs besides its connections: those of a log, at most.
OTHER_FILES = 512
#: Larger pieces of an answer are sent by themselves.
JOINED_BYTES_MAX = 64 * 1024


class HasFile(Interface):
    """A socket, or what reads from one."""

    def fileno(self) -> int: ...


def wait_for_bytes(file: int | HasFile, *, seconds: float) -> bool:
    """Wait until a socket has bytes or has ended, and return whether it has.

    `select.select` refuses descriptors above 1,023, which a process with many open files has.
    """
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(round(seconds * 1_000)))


def connections_allowed(wanted: int) -> int:
    """How many connections this process may have: `wanted`, or what the system's limit of open files leaves.

    The soft limit of the process, which is often 1,024, is raised as far as that needs and the hard limit allows.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - OTHER_FILES))


class JoinedWrites:
    """A transport that sends what one turn of the event loop writes as one piece: the head of an answer and its body.

    Otherwise the head alone wakes the client, which takes the core from the server and then has to wait for the rest.
    """

    # Any, here and below: a transport of asyncio or of uvloop, and what its other methods take and return.
    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if len(data) > JOINED_BYTES_MAX:  # joining would copy it
            self._send()
            self._transport.write(data)
            return
        if not self._pieces:
            self._loop.call_soon(self._send)
        self._pieces.append(data)

    def write_eof(self) -> None:
        self._send()
        self._transport.write_eof()

    def close(self) -> None:
        self._send()
        self._transport.close()

    def abort(self) -> None:
        self._pieces = []
        self._transport.abort()

    def _send(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces:
            self._transport.write(b"".join(pieces))


def bounded_protocol(*, head_seconds: float, connections_max: int | None = None) -> type[asyncio.Protocol]:
    """The HTTP protocol with a deadline for the head of a request: connections that exceed it are closed.

    A connection beyond `connections_max` is closed at once, so that its client tries again instead of waiting.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    # Uvicorn chooses the class by what is installed.
    class Protocol(AutoHTTPProtocol):  # type: ignore[valid-type, misc]
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(JoinedWrites(transport, self.loop))
            if connections_max is not None and len(self.connections) > connections_max:
                self.transport.abort()
                return
            self._expect_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._expect_head()

        def connection_lost(self, error: Exception | None) -> None:
            self._forget_deadline()
            super().connection_lost(error)

        def _expect_head(self) -> None:
            if self.cycle is not None and not self.cycle.response_complete:
                self._forget_deadline()
            elif self._deadline is None:
                self._deadline = self.loop.call_later(head_seconds, self._close_headless)

        def _forget_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _close_headless(self) -> None:
            self._deadline = None
            if self.transport.get_protocol() is self:  # not a WebSocket by now
                self.transport.close()

    return Protocol

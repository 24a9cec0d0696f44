"""Rows over a WebSocket: frames with JSON, as many as the client has room for.

The same tail as that of server-sent events, in frames of up to 500 rows. A client that names a `credit` gets so many frames, and more
when it says `{"credit": 10}`: what it does not ask for stays in the log. Without credits the connection itself slows the tail down. Pings
of the server find out clients that are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import orjson
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketDisconnected, WebSocketState

from headwater.errors import ArgumentInvalid
from headwater.http.stream_forms import ROWS

#: The subprotocol that this path speaks.
SUBPROTOCOL = "headwater"
CREDIT_MAX = 1_000_000
#: A client's message is an object with a number.
MESSAGE_LENGTH_MAX = 1_000
_LEFT = (WebSocketDisconnect, WebSocketDisconnected)


class RowSocket:
    """A connection: one task sends frames, another one reads credits until the client has left."""

    def __init__(self, socket: WebSocket, *, credit: int | None) -> None:
        self._socket = socket
        self._credit = credit
        self._more = asyncio.Event()
        self.is_gone = False

    async def run(self, frames: AsyncGenerator[bytes, None]) -> None:
        """Send frames until the tail ends or the client has left."""
        offered = self._socket.scope.get("subprotocols", ())
        await self._socket.accept(subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None)
        sending = asyncio.create_task(self._send(frames))
        reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait([sending, reading], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.is_gone = True
            for task in (sending, reading):
                task.cancel()
            ended = await asyncio.gather(sending, reading, return_exceptions=True)
            await frames.aclose()  # the tail gives its place back, wherever it was
        refused = next((one for one in ended if isinstance(one, ArgumentInvalid)), None)
        if self._socket.application_state is WebSocketState.CONNECTED:
            with contextlib.suppress(*_LEFT):  # it has left meanwhile
                await self._socket.close(1008 if refused else 1001, str(refused)[:120] if refused else None)
        for error in ended:
            if isinstance(error, Exception) and not isinstance(error, (*_LEFT, ArgumentInvalid)):
                raise error

    async def _send(self, frames: AsyncGenerator[bytes, None]) -> None:
        async for frame in frames:
            if self._credit is not None and frame.startswith(ROWS):
                while self._credit == 0:
                    self._more.clear()
                    await self._more.wait()
                self._credit -= 1
            await self._socket.send_text(frame.decode())

    async def _read(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            self._grant(message.get("text") or "")

    def _grant(self, message: str) -> None:
        expected = '{"credit": N}, where the address names a credit to begin with'
        try:
            found = orjson.loads(message) if len(message) <= MESSAGE_LENGTH_MAX else None
        except orjson.JSONDecodeError:
            found = None
        more = found.get("credit") if isinstance(found, dict) else None
        if not isinstance(more, int) or not 0 < more <= CREDIT_MAX or self._credit is None:
            raise ArgumentInvalid(name="message", value=message[:50], expected=expected)
        self._credit = min(self._credit + more, CREDIT_MAX)
        self._more.set()

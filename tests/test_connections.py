"""Connections of processes with many open files, and how answers are written to them."""

from __future__ import annotations

import asyncio
import os
import resource
import socket

import pytest

from headwater.connections import JOINED_BYTES_MAX, JoinedWrites, wait_for_bytes


def test_bytes_are_awaited_on_descriptors_that_select_refuses() -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1_100:
        pytest.skip("this process may open fewer than 1,100 files")
    near, far = socket.socketpair()
    high = os.dup2(near.fileno(), 1_050)
    try:
        assert not wait_for_bytes(high, seconds=0)
        far.send(b"x")
        assert wait_for_bytes(high, seconds=1)
    finally:
        os.close(high)
        near.close()
        far.close()


class Pieces:
    """A transport that keeps what was written to it."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.ends: list[str] = []

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.ends.append("closed")

    def abort(self) -> None:
        self.ends.append("aborted")


def test_what_one_turn_of_the_loop_writes_is_sent_as_one_piece() -> None:
    transport = Pieces()

    async def answers() -> None:
        joined = JoinedWrites(transport, asyncio.get_running_loop())
        joined.write(b"head ")
        joined.write(b"body")
        assert transport.sent == []
        await asyncio.sleep(0)
        assert transport.sent == [b"head body"]
        joined.write(b"head")
        joined.write(b"x" * (JOINED_BYTES_MAX + 1))
        assert [len(piece) for piece in transport.sent[1:]] == [4, JOINED_BYTES_MAX + 1]
        joined.write(b"last")
        joined.close()
        assert (transport.sent[-1], transport.ends) == (b"last", ["closed"])
        joined.write(b"never")
        joined.abort()
        await asyncio.sleep(0)
        assert (transport.sent[-1], transport.ends) == (b"last", ["closed", "aborted"])

    asyncio.run(answers())

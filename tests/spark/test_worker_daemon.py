"""The sockets of Spark's Python workers acknowledge at once; all else is opened as before."""

from __future__ import annotations

import io
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.spark.worker_daemon import PromptReader, fdopen

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a socket acknowledge at once")


@pytest.fixture(scope="module")
def listener() -> Iterator[socket.socket]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening


@given(parts=st.lists(st.binary(max_size=2_000), max_size=8), size=st.integers(2, 600))
def test_what_is_sent_is_read(listener: socket.socket, parts: list[bytes], size: int) -> None:
    with socket.create_connection(listener.getsockname()) as sender:
        receiver, _ = listener.accept()
        with receiver, fdopen(os.dup(receiver.fileno()), "rb", size) as file:
            for part in parts:
                sender.sendall(part)
            sender.close()
            assert file.read() == b"".join(parts)
            assert isinstance(file, io.BufferedReader)
            assert isinstance(file.raw, PromptReader)
            assert receiver.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_pipes_and_other_sockets_are_opened_as_before() -> None:
    one, other = socket.socketpair()
    reading, writing = os.pipe()
    with one, other, closing(os.fdopen(writing, "wb")):
        for descriptor in (reading, os.dup(one.fileno())):
            with fdopen(descriptor, "rb", 4) as file:
                assert isinstance(file, io.BufferedReader)
                assert not isinstance(file.raw, PromptReader)

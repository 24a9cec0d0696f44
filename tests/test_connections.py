"""Connections of processes with many open files."""

from __future__ import annotations

import os
import resource
import socket

import pytest

from headwater.connections import wait_for_bytes


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

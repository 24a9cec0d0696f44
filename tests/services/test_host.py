"""Work of a server in threads."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headwater.log import Log
from headwater.services.host import Host
from headwater.services.settings import Settings


def test_what_a_thread_returns_for_a_caller_that_is_cancelled_is_undone(log: Log) -> None:
    host, may_end, undone = Host(log=log, settings=Settings()), threading.Event(), list[int]()

    def work() -> int:
        may_end.wait(30)
        return 7

    async def cancelled() -> None:
        running = asyncio.ensure_future(host.run(work, undo=undone.append))
        await asyncio.sleep(0)  # it has begun
        running.cancel()
        may_end.set()
        await running

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert undone == [7]

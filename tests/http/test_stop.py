"""A server that is told to stop answers those who wait, and waits for nothing itself."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import httpx
import pytest

from headwater.http import Address, served
from headwater.log import Log
from headwater.services import wait
from tests.conditions import until

FOR_EVER = 10_000.0


@pytest.fixture(autouse=True)
def _no_waiter_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "LOOK_AGAIN_SECONDS", FOR_EVER)


def test_a_request_that_waits_is_answered_when_the_server_stops(log: Log) -> None:
    log.create("orders", "id int64")
    answers: list[httpx.Response] = []

    def ask(address: str) -> None:
        asked = {"topics": {"orders": {"0": 0}}, "seconds": 30}
        answers.append(httpx.post(f"{address}/api/v1/wait", json=asked, timeout=60))

    with served(log, Address(port=0)) as address:
        waiting = threading.Thread(target=ask, args=[address])
        waiting.start()
        until(lambda: any(thread.name == "headwater-file-events" for thread in threading.enumerate()), "it waits")
    waiting.join(60)
    assert [answer.status_code for answer in answers] == [200]


def test_the_thread_that_watches_files_ends_at_once(tmp_path: Path) -> None:
    events = wait.FileEvents()

    async def listen() -> None:
        with events.waiting({tmp_path: "topics"}):
            pass

    asyncio.run(listen())
    closing = threading.Thread(target=events.close)
    closing.start()
    until(lambda: not closing.is_alive(), "it is closed")

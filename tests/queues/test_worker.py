"""Functions as workers, publishers with confirms, and routing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import headwater as hw
from headwater.errors import ArgumentInvalid, Closed
from headwater.log import Log
from headwater.log.remote import connection as connections
from headwater.log.remote.log import RemoteLog
from headwater.queues import Message, QueueFull
from headwater.queues.exchange import matches
from tests.queues.conftest import Server


@pytest.fixture(params=["local", "remote"])
def timely_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    """A log with the system's clock, in its folder and behind a server: leases and pauses are real."""
    with hw.open(tmp_path / "log") as log:
        if request.param == "local":
            yield log
            return
        server: Server = request.getfixturevalue("server")
        with server.of(log) as connection, RemoteLog(connection.address, connection=connection) as remote:
            yield remote


def test_a_worker_processes_messages_and_makes_dead_letters_of_those_that_fail(timely_log: Log) -> None:
    with timely_log as log:
        done: list[int] = []

        @log.worker("jobs", concurrency=4, retries=hw.Retry(attempts=2, delay="1 ms"))
        def work(message: Message) -> None:
            if message.body == 3:
                raise ValueError("three")
            done.append(message.body)

        log.queue("jobs").put_many(list(range(6)))
        assert work.run(until_empty=True) == 7
        assert (work.progress.done, work.progress.failed, work.progress.running) == (5, 2, 0)
        assert sorted(done) == [0, 1, 2, 4, 5]
        [letter] = log.read("jobs.dlq").rows()
        assert letter["message"] == "ValueError: three"
        headers = dict(letter["headers"])
        assert headers["headwater.deliveries"] == b"2"
        assert b"Traceback" in headers["headwater.trace"]


def test_a_worker_may_be_a_coroutine_and_stops_after_the_calls_that_run(timely_log: Log) -> None:
    with timely_log as log:
        begun, done = threading.Event(), []

        @log.worker("jobs", concurrency=2)
        async def work(message: Message) -> None:
            begun.set()
            await asyncio.sleep(0.05)
            done.append(message.body)

        queue = log.queue("jobs")
        queue.put_many([1, 2, 3, 4, 5, 6])
        thread = threading.Thread(target=work.run)
        thread.start()
        assert begun.wait(10)
        work.stop()
        thread.join(10)
        stats = queue.stats()
        assert stats.acknowledged == len(done) < 6
        assert stats.in_flight == 0


def test_a_worker_goes_on_when_its_server_was_away(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "RETRY_SECONDS", 0.001)
    with hw.open(tmp_path / "log") as log, server.of(log) as connection:
        calls: list[str] = []

        class Flaky:
            """Does not answer some acknowledgements and a take; each call sends up to five requests."""

            def request(self, method: str, path: str, **more: Any) -> Any:
                if path.endswith(("/take", "/ack")):
                    calls.append(path)
                    if 4 <= len(calls) < 18 or 21 <= len(calls) < 26:
                        raise httpx.ConnectError("no one listens")
                return server.client.request(method, path, **more)

            def close(self) -> None:
                pass

        connection._client = Flaky()  # what of it is used
        with RemoteLog(connection.address, connection=connection) as remote:
            done: list[int] = []
            work = remote.worker("jobs")(lambda message: done.append(message.body))
            remote.queue("jobs").put_many([1, 2, 3])
            work.run(until_empty=True)
            assert done == [1, 2, 3]
            assert work.progress.lost == 0
            assert "waits for its server" in caplog.text


def test_a_full_queue_behind_a_server_lets_the_caller_wait_for_room(server: Server, local_log: Log) -> None:
    with server.of(local_log) as connection, RemoteLog(connection.address, connection=connection) as log:
        queue = log.queue("jobs", length_max=1)
        queue.put(1)
        with pytest.raises(QueueFull):
            queue.put_many([2], wait=0)
        worker = threading.Thread(target=lambda: queue.ack(*queue.take(wait=10)))
        worker.start()
        queue.put_many([2], wait=10)
        worker.join(10)
        assert [message.body for message in queue.peek()] == [2]


def test_each_confirm_has_the_id_or_the_error_of_its_batch(log: Log) -> None:
    queue = log.queue("jobs")
    with queue.publisher(batch=2, linger=60) as publisher:
        first, second = publisher.put(1), publisher.put(2)
        assert (first.result(10), second.result(10)) == ("0-0", "0-1")
        bad = publisher.put(object())
        publisher.flush()
        assert isinstance(bad.exception(10), ArgumentInvalid)
    with pytest.raises(Closed):
        publisher.put(3)
    assert queue.stats().waiting == 2


@pytest.mark.parametrize(
    ("pattern", "routing_key", "expected"),
    [
        ("#", "", True),
        ("#", "a.b", True),
        ("*", "a.b", False),
        ("orders.*.eu", "orders.new.eu", True),
        ("orders.*.eu", "orders.new.old.eu", False),
        ("orders.#", "orders", True),
        ("#.eu", "a.b.eu", True),
        ("a+b", "aab", False),
    ],
)
def test_patterns_match_whole_words(pattern: str, routing_key: str, expected: bool) -> None:
    assert matches(pattern, routing_key) is expected


def test_an_exchange_routes_by_pattern_and_by_headers(log: Log) -> None:
    exchange = log.exchange("events")
    exchange.bind("all", pattern="#")
    exchange.bind("both", headers={"a": "1", "b": "2"})
    exchange.bind("either", headers={"a": "1", "b": "2"}, match="any")
    assert exchange.put(1, routing_key="x.y", headers={"a": "1"}) == ["all", "either"]
    assert exchange.put(2, headers={"a": "1", "b": b"2"}) == ["all", "both", "either"]
    exchange.unbind("all")
    assert exchange.put(3, routing_key="x") == []
    assert [message.body for message in log.queue("all").take(9)] == [1, 2]
    with pytest.raises(ArgumentInvalid):
        exchange.bind("none")

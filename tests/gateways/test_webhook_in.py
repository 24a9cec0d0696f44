"""Webhooks in: each message once, whatever a sender does; nothing that is not signed, too large or too slow."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.clock import ManualClock
from headwater.connections import OTHER_FILES, connections_allowed
from headwater.gateways import GatewayRunner, WebhookIn
from headwater.gateways.webhook_in import Receiver
from headwater.log import Log
from tests.conditions import until
from tests.gateways.test_signatures import BODY, signed

Answer = tuple[int, dict[str, str]]


def gateway(**settings: Any) -> WebhookIn:
    return WebhookIn(topic="hooks", secrets=("s3cret",), **settings)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = headwater.open(tmp_path / "log")
    from headwater.gateways.webhook_in import WEBHOOK_SCHEMA

    log.create("hooks", WEBHOOK_SCHEMA, time="at")
    return log


def now_of(log: Log) -> int:
    return log.clock.now_us() // 1_000_000


async def post(
    receiver: Receiver,
    headers: dict[str, str],
    body: bytes = BODY,
    *,
    parts: list[bytes] | None = None,
    ends: bool = True,
    method: str = "POST",
    path: str = "/",
) -> Answer:
    pieces = [body] if parts is None else parts
    sent = [
        {"type": "http.request", "body": piece, "more_body": number < len(pieces) or not ends}
        for number, piece in enumerate(pieces, start=1)
    ]
    answers: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        if not sent:
            await asyncio.Event().wait()  # a client that sends no more
        return sent.pop(0)

    async def send(message: MutableMapping[str, Any]) -> None:
        answers.append(message)

    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await receiver({"type": "http", "method": method, "path": path, "headers": pairs}, receive, send)
    given = {name.decode(): value.decode() for name, value in answers[0]["headers"]}
    return answers[0]["status"], given


def test_a_message_is_appended_once_however_often_it_comes(log: Log) -> None:
    async def run(receiver: Receiver) -> list[int]:
        headers = signed("standard", at=now_of(log))
        together = await asyncio.gather(*(post(receiver, headers) for _ in range(5)))
        return [status for status, _ in (*together, await post(receiver, headers))]

    first = Receiver(log, gateway())
    assert asyncio.run(run(first)) == [200] * 6
    assert (first.counters.appended, first.counters.duplicates) == (1, 5)
    again = Receiver(log, gateway())  # as after a restart: ids are read from the topic
    assert asyncio.run(run(again)) == [200] * 6
    assert again.counters.appended == 0
    [row] = log.read("hooks").rows()
    assert (row["id"], row["type"], row["body"]) == ("m1", "order.paid", BODY.decode())


def test_many_messages_are_appended_together_and_none_is_lost(log: Log) -> None:
    async def run(receiver: Receiver) -> list[Answer]:
        at = now_of(log)
        return await asyncio.gather(*(post(receiver, signed("standard", at=at, id=f"m{n}")) for n in range(300)))

    receiver = Receiver(log, gateway())
    assert {status for status, _ in asyncio.run(run(receiver))} == {200}
    assert sorted(row["id"] for row in log.read("hooks").rows()) == sorted(f"m{n}" for n in range(300))


def test_what_is_forged_oversized_slow_or_malformed_is_refused_and_stores_nothing(log: Log) -> None:
    async def run(receiver: Receiver) -> list[int]:
        good = signed("standard", at=now_of(log))
        not_text = signed("standard", b"\xff", at=now_of(log))
        answers = [
            await post(receiver, {}),
            await post(receiver, signed("standard", at=now_of(log), secret="guess")),
            await post(receiver, signed("standard", at=now_of(log) - 1_000)),
            await post(receiver, good, BODY + b" "),
            await post(receiver, good, method="GET"),
            await post(receiver, good, path="/other"),
            await post(receiver, {**good, "content-length": "1000000"}),
            await post(receiver, good, parts=[b"x" * 60, b"x" * 60]),
            await post(receiver, not_text, b"\xff"),
        ]
        slow = Receiver(log, gateway(request_timeout=0.01))
        answers.append(await post(slow, good, parts=[b"{"], ends=False))
        return [status for status, _ in answers]

    receiver = Receiver(log, gateway(body_bytes_max=100))
    assert asyncio.run(run(receiver)) == [401, 401, 401, 401, 405, 404, 413, 413, 400, 408]
    assert receiver.counters.rejected == 9
    assert log.read("hooks").count() == 0


def test_a_sender_that_is_too_fast_is_told_when_to_come_again(log: Log) -> None:
    status, headers = asyncio.run(post(Receiver(log, gateway(pending_max=0)), signed("standard", at=now_of(log))))
    assert (status, headers["retry-after"]) == (429, "1")


def test_a_log_that_cannot_take_the_row_is_an_answer_to_retry(log: Log) -> None:
    receiver = Receiver(log, gateway())
    log.delete("hooks")

    async def run() -> list[Answer]:
        headers = signed("standard", at=now_of(log))
        return [await post(receiver, headers), await post(receiver, headers)]

    # Also the second time: a message that was not appended is not a duplicate.
    assert [(status, "retry-after" in headers) for status, headers in asyncio.run(run())] == [(503, True)] * 2


def test_ids_are_forgotten_after_the_duplicate_window(tmp_path: Path) -> None:
    clock = ManualClock()
    log = headwater.open(tmp_path / "timed", clock=clock)
    session = gateway(scheme="github", port=0).open(log)
    session.close()
    receiver = Receiver(log, gateway(scheme="github"))
    assert asyncio.run(post(receiver, signed("github")))[0] == 200
    clock.advance(seconds=86_000)
    asyncio.run(post(receiver, signed("github")))
    assert receiver.counters.duplicates == 1
    clock.advance(seconds=1_000)
    asyncio.run(post(receiver, signed("github")))
    assert receiver.counters.appended == 2


@pytest.mark.process
def test_curl_sends_a_webhook_and_is_told_what_is_wrong(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not on this machine: apt-get install curl")
    with headwater.open(tmp_path / "log") as log:
        runner = GatewayRunner(log, gateway(port=0, body_bytes_max=1_000))
        runner.start()

        def curl(headers: dict[str, str], body: bytes) -> int:
            given = [part for name, value in headers.items() for part in ("--header", f"{name}: {value}")]
            command = ["curl", "--silent", "--write-out", "%{http_code}", "--output", str(tmp_path / "answer"), *given]
            done = subprocess.run(
                [*command, "--data-binary", "@-", runner.address], input=body, capture_output=True, check=False
            )
            return int(done.stdout)

        good = signed("standard", at=now_of(log))
        assert [curl(good, BODY), curl(good, BODY)] == [200, 200]
        assert curl(signed("standard", at=now_of(log), secret="guess"), BODY) == 401
        assert curl(good, b"x" * 5_000) == 413
        runner.stop()
        assert [row["id"] for row in log.read("hooks").rows()] == ["m1"]
        counts = runner.status().counters
        assert (counts["received"], counts["appended"], counts["duplicates"], counts["rejected"]) == (4, 1, 1, 2)


@contextlib.contextmanager
def at_work(log: Log, **settings: Any) -> Iterator[tuple[GatewayRunner, int]]:
    runner = GatewayRunner(log, gateway(scheme="github", port=0, **settings))
    runner.start()
    try:
        yield runner, int(runner.address.rstrip("/").rpartition(":")[2])
    finally:
        runner.stop()


def test_clients_that_say_nothing_are_disconnected(log: Log) -> None:
    with at_work(log, request_timeout="100 ms") as (_, port), socket.create_connection(("127.0.0.1", port), 60) as idle:
        assert idle.recv(1) == b""


def test_a_gateway_with_all_its_connections_closes_further_ones_and_answers_when_there_is_room(log: Log) -> None:
    def answered(port: int) -> bool:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/", data=BODY, headers=signed("github"))
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    with at_work(log, connections_max=3) as (runner, port), contextlib.ExitStack() as idle:
        for _ in range(3):
            idle.enter_context(socket.create_connection(("127.0.0.1", port), 60))
        until(lambda: not answered(port))
        idle.close()
        until(lambda: answered(port))
    assert runner.status().counters["appended"] == 1


def test_a_process_has_as_many_connections_as_the_system_allows_and_raises_its_limit_for_them() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (600, hard))
        assert connections_allowed(200) == 200
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 200 + OTHER_FILES
        assert hard == resource.RLIM_INFINITY or connections_allowed(hard) == hard - OTHER_FILES
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

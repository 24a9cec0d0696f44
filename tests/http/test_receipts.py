"""An append whose answer was lost is repeated, and its rows are there once; an unknown outcome is an error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from headwater.errors import ArgumentInvalid, RowInvalid
from headwater.http import Address, Tokens, served
from headwater.http.errors import OutcomeUnknown
from headwater.http.receipts import KEPT_SECONDS, SLACK_SECONDS, Receipts, Repeat
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.errors import DiskFull, ServerUnreachable
from headwater.log.remote import connection
from tests.http.lossy_proxy import Fate, losing


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RETRY_SECONDS", 0.001)


@pytest.fixture
def orders(log: Log) -> Log:
    log.create("orders", {"id": "int64"}, partitions=2)
    return log


def ids(log: Log) -> list[int]:
    return sorted(row["id"] for row in log.read("orders").rows())


@pytest.mark.parametrize(
    "fates",
    [
        ["lose answer"],
        ["lose request"],
        ["unavailable"],
        ["lose answer", "lose request", "unavailable", "lose answer"],
        ["lose request", "lose answer", "lose answer", "lose answer"],
    ],
)
def test_rows_whose_answer_was_lost_are_there_once(orders: Log, address: str, fates: list[Fate]) -> None:
    with losing(address, *fates) as proxy, open_log(proxy.address) as remote:
        found = remote.append("orders", [{"id": 1}, {"id": 2}])
        assert found.count == 2
        assert proxy.appends == len(fates) + 1
    assert ids(orders) == [1, 2]


def test_many_threads_lose_many_answers_and_no_row(orders: Log, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ATTEMPTS_MAX", 60)  # one of them may meet all the losses
    fates: list[Fate] = ["pass", "lose answer", "lose request"] * 20
    with losing(address, *fates) as proxy, open_log(proxy.address) as remote, ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda number: remote.append("orders", [{"id": number}]).count, range(60)))
        assert proxy.appends == 60 + 40
    assert counts == [1] * 60
    assert ids(orders) == list(range(60))


def test_a_server_that_was_started_since_does_not_guess(orders: Log, address: str) -> None:
    with (
        served(orders, Address(port=0)) as another,
        losing(address, "lose answer", later=another) as proxy,
        open_log(proxy.address) as remote,
    ):
        with pytest.raises(OutcomeUnknown, match="started again"):
            remote.append("orders", [{"id": 1}])
        assert ids(orders) == [1]
        remote.append("orders", [{"id": 2}])  # the next append asks the new server for its name
    assert ids(orders) == [1, 2]


def test_a_server_that_is_not_there_yet_is_waited_for(orders: Log, address: str) -> None:
    """What never arrived anywhere is no repeat, whichever server takes it."""
    with losing(address) as proxy, open_log(proxy.address) as remote:
        remote.append("orders", [{"id": 1}])
        refusals = iter([True, True])
        request = remote._connection._client.request  # type: ignore[attr-defined]

        def refuse(*arguments: object, **settings: object) -> object:
            if next(refusals, False):
                raise remote._connection._httpx.ConnectError("refused")  # type: ignore[attr-defined]
            return request(*arguments, **settings)

        with served(orders, Address(port=0)) as another, pytest.MonkeyPatch.context() as patch:
            proxy.target = another
            patch.setattr(remote._connection._client, "request", refuse)  # type: ignore[attr-defined]
            remote.append("orders", [{"id": 2}])
    assert ids(orders) == [1, 2]


def test_what_is_lost_too_often_is_told(orders: Log, address: str) -> None:
    fates: list[Fate] = ["lose answer"] * connection.ATTEMPTS_MAX
    with losing(address, *fates) as proxy, open_log(proxy.address) as remote, pytest.raises(ServerUnreachable):
        remote.append("orders", [{"id": 1}])
    assert ids(orders) == [1]


def test_an_error_is_an_answer_too(client: TestClient, orders: Log) -> None:
    for _ in range(2):
        answer = client.post("/api/v1/topics/orders/rows", json=[{"id": "many"}], headers={"Idempotency-Key": "a"})
        assert (answer.status_code, answer.json()["error"]) == (400, RowInvalid.__name__)
    assert ids(orders) == []


def test_a_key_with_other_rows_is_refused(client: TestClient, orders: Log) -> None:
    """They would be lost: the answer to the first append says nothing of them."""
    path, headers = "/api/v1/topics/orders/rows", {"Idempotency-Key": "fixed"}
    first = client.post(path, json=[{"id": 1}], headers=headers)
    for rows, parameters in (([{"id": 2}], {}), ([{"id": 1}], {"partition": 1})):
        answer = client.post(path, json=rows, params=parameters, headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (422, "KeyReused")
    large = client.post(path, json=[{"id": 1}] * 20_000, headers=headers)
    assert large.status_code == 422
    again = client.post(path, json=[{"id": 1}], headers=headers)
    assert (again.status_code, again.content) == (200, first.content)
    assert ids(orders) == [1]


def test_a_failure_that_passes_is_not_the_answer_for_ten_minutes(
    client: TestClient, orders: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, headers, append = "/api/v1/topics/orders/rows", {"Idempotency-Key": "k"}, type(orders).append
    monkeypatch.setattr(type(orders), "append", _full)
    assert client.post(path, json=[{"id": 1}], headers=headers).status_code == 507
    monkeypatch.setattr(type(orders), "append", append)
    server = client.get("/api/v1/topics/orders/receipts").json()["server"]
    repeat = {"Headwater-Repeat-Of": server, "Headwater-Repeat-After": "0.1"}
    assert client.post(path, json=[{"id": 1}], headers=headers | repeat).status_code == 200
    assert client.post(path, json=[{"id": 1}], headers=headers | repeat).status_code == 200
    assert ids(orders) == [1]


def _full(*_: object, **__: object) -> None:
    raise DiskFull(path="orders")


def test_a_client_hears_of_a_full_disk_and_appends_when_there_is_room(
    address: str, orders: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, failures = type(orders).append, iter([True])

    def sometimes(*arguments: Any, **settings: Any) -> Any:
        return _full() if next(failures, False) else append(*arguments, **settings)

    with open_log(address) as remote:
        monkeypatch.setattr(type(orders), "append", sometimes)
        with pytest.raises(DiskFull):
            remote.append("orders", [{"id": 1}])
        assert remote.append("orders", [{"id": 1}]).count == 1
    assert ids(orders) == [1]


def test_a_key_is_known_for_its_caller_and_topic_alone(
    client_of: Callable[..., TestClient], orders: Log, tokens: Tokens
) -> None:
    orders.create("others", {"id": "int64"})
    first, second = (tokens.create(name, ["write:*"]) for name in ("ada", "bob"))
    client = client_of()
    for token, topic in ((first, "orders"), (second, "orders"), (first, "others"), (first, "orders")):
        headers = {"Idempotency-Key": "the same", "Authorization": f"Bearer {token}"}
        assert client.post(f"/api/v1/topics/{topic}/rows", json=[{"id": 1}], headers=headers).status_code == 200
    assert ids(orders) == [1, 1]
    assert len(orders.read("others").rows()) == 1


# -- what is remembered, by a clock of our own ------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.booleans(), st.floats(0, 2 * KEPT_SECONDS)),
        max_size=40,
    ),
    kept_max=st.integers(1, 4),
)
def test_nothing_is_done_twice_however_keys_come_and_are_forgotten(
    steps: list[tuple[int, bool, float]], kept_max: int
) -> None:
    """The law: a try that says it is a repeat is answered, or refused, and never done a second time."""

    async def run() -> None:
        clock = Clock()
        receipts = Receipts(kept_max=kept_max, now=clock)
        done: dict[str, list[float]] = {}
        began: dict[str, float] = {}
        for number, (name, is_lost, passes) in enumerate(steps):
            key = f"{name}-{sum(f'{name}-' in known for known in began)}"
            for attempt in range(2):

                async def work(key: str = key) -> bytes:
                    done.setdefault(key, []).append(clock.seconds)
                    return key.encode()

                began.setdefault(key, clock.seconds)
                repeat = Repeat(server=receipts.server, seconds=clock.seconds - began[key]) if attempt else None
                try:
                    assert await receipts.once(("ada", "orders", key), work, repeat=repeat) == key.encode()
                except OutcomeUnknown:
                    assert attempt == 1
                if not is_lost:
                    break
                clock.seconds += passes
                for other in range(number % 4):  # others append meanwhile
                    filler = f"filler-{number}-{other}"
                    await receipts.once(("eve", "orders", filler), lambda: _done(b""))
        assert all(len(times) == 1 for times in done.values())

    asyncio.run(run())


async def _done(answer: bytes) -> bytes:
    return answer


def test_a_repeat_that_never_arrived_is_done_and_one_that_may_have_been_forgotten_is_not() -> None:
    async def run() -> None:
        clock = Clock()
        receipts = Receipts(kept_max=2, now=clock)
        fresh = Repeat(server=receipts.server, seconds=1.0)
        assert await receipts.once(("a", "t", "lost on its way"), lambda: _done(b"1"), repeat=fresh) == b"1"
        for number in range(5):
            await receipts.once(("a", "t", str(number)), lambda: _done(b"2"))
        with pytest.raises(OutcomeUnknown, match="so much to do"):
            await receipts.once(("a", "t", "unknown"), lambda: _done(b"3"), repeat=fresh)
        clock.seconds += SLACK_SECONDS + 2
        assert await receipts.once(("a", "t", "unknown"), lambda: _done(b"3"), repeat=fresh) == b"3"

    asyncio.run(run())


def test_who_asks_again_while_the_first_try_is_at_work_waits_for_it() -> None:
    async def run() -> None:
        receipts, go = Receipts(), asyncio.Event()
        calls: list[int] = []

        async def work() -> bytes:
            calls.append(1)
            await go.wait()
            return b"done"

        first = asyncio.ensure_future(receipts.once(("a", "t", "k"), work))
        await asyncio.sleep(0)
        first.cancel()  # its caller is gone
        again = asyncio.ensure_future(receipts.once(("a", "t", "k"), work))
        await asyncio.sleep(0)
        go.set()
        assert await again == b"done"
        assert calls == [1]

    asyncio.run(run())


def test_a_key_has_a_length(client: TestClient, orders: Log) -> None:
    answer = client.post("/api/v1/topics/orders/rows", json=[{"id": 1}], headers={"Idempotency-Key": "k" * 201})
    assert (answer.status_code, ids(orders)) == (422, [])

    async def run() -> None:
        with pytest.raises(ArgumentInvalid):
            await Receipts().once(("a", "t", ""), lambda: _done(b""))

    asyncio.run(run())

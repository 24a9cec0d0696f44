"""Server-sent events: tails of topics, and the broadcast that they share."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater.http.streams
from headwater.http import Address, Settings, served
from headwater.http.streams import (
    PIECE_BYTES_MAX,
    PIECES_BYTES_MAX,
    PIECES_MAX,
    Broadcast,
    Broadcasts,
    EventReader,
    Listener,
    Piece,
)
from headwater.log import Log
from headwater.log import open as open_log


@dataclass(frozen=True)
class Event:
    id: str
    data: Any
    kind: str = "message"


@contextmanager
def tail(address: str, topic: str = "t", *, last: str | None = None, **parameters: Any) -> Iterator[Iterator[Event]]:
    """The events of a tail; when the block begins, the server is listening."""
    headers = {} if last is None else {"Last-Event-ID": last}
    url = f"{address}/api/v1/topics/{topic}/tail"
    with (
        httpx.Client(timeout=30, trust_env=False) as client,
        client.stream("GET", url, params=parameters, headers=headers) as response,
    ):
        assert response.status_code == 200, response.read()
        lines = response.iter_lines()
        assert next(lines).startswith(": tail of")
        yield _events(lines)


def _events(lines: Iterator[str]) -> Iterator[Event]:
    found: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            found[name] = value
        else:
            if "data" in found:
                yield Event(found.get("id", ""), json.loads(found["data"]), found.get("event", "message"))
            found = {}


def take(events: Iterator[Event], count: int) -> list[Event]:
    return [next(events) for _ in range(count)]


def test_a_tail_has_every_row_of_a_burst(log: Log, address: str) -> None:
    log.create("t", "id int64", partitions=2)
    with tail(address) as events:
        for start in range(0, 1_000, 100):
            log.append("t", [{"id": number} for number in range(start, start + 100)])
        assert sorted(event.data["id"] for event in take(events, 1_000)) == list(range(1_000))


def test_a_tail_that_was_cut_off_goes_on_behind_its_last_event(log: Log, address: str) -> None:
    log.create("t", "id int64", partitions=3, key="id")
    log.append("t", [{"id": number} for number in range(100)])
    seen: list[int] = []
    last: str | None = None
    while len(seen) < 100:
        with tail(address, start="earliest", last=last) as events:
            some = take(events, min(17, 100 - len(seen)))
        seen += [event.data["id"] for event in some]
        last = some[-1].id
    assert sorted(seen) == list(range(100))


def test_numbers_reach_a_browser_with_all_their_digits(log: Log, address: str) -> None:
    log.create("t", "id int64")
    log.append("t", [{"id": 73314510714175488}])
    with tail(address, start="earliest", integers="text") as events:
        assert next(events).data["id"] == "73314510714175488"


def test_punctuations_are_told_between_the_rows(log: Log, address: str) -> None:
    log.create("t", "id int64")
    with tail(address, column="id") as events:
        log.append("t", [{"id": 1}])
        log.punctuate("t", 5)
        log.append("t", [{"id": 2}])
        found = take(events, 3)
    assert [event.kind for event in found] == ["message", "punctuation", "message"]
    assert found[1].data["_punctuation_us"] == 5


def test_a_tail_ends_with_a_word_when_its_topic_is_deleted(log: Log, address: str) -> None:
    log.create("t", "id int64")
    with tail(address) as events:
        log.delete("t")
        failure = next(events)
    assert (failure.kind, failure.data["error"]) == ("failure", "NotFound")


def test_a_hundred_subscribers_all_get_every_row(log: Log, address: str) -> None:
    log.create("t", "id int64")
    got: list[list[int]] = []
    listening, lock = threading.Barrier(101), threading.Lock()

    def subscribe() -> None:
        with tail(address) as events:
            listening.wait(60)
            found = [event.data["id"] for event in take(events, 20)]
        with lock:
            got.append(found)

    threads = [threading.Thread(target=subscribe) for _ in range(100)]
    for thread in threads:
        thread.start()
    listening.wait(60)
    for number in range(20):
        log.append("t", [{"id": number}])
    for thread in threads:
        thread.join(60)
    assert got == [list(range(20))] * 100


def test_there_are_only_so_many_tails(log: Log) -> None:
    log.create("t", "id int64")
    with served(log, Address(port=0), settings=Settings(streams_max=1)) as address, tail(address):
        answer = httpx.get(f"{address}/api/v1/topics/t/tail")
        assert (answer.status_code, answer.json()["error"]) == (429, "TooManyRequests")


@pytest.mark.parametrize("last", ["x", "0:1:2", "0:-1", "0:99"])
def test_an_event_id_that_nobody_gave_is_refused(log: Log, address: str, last: str) -> None:
    log.create("t", "id int64")
    answer = httpx.get(f"{address}/api/v1/topics/t/tail", headers={"Last-Event-ID": last})
    assert answer.status_code in (400, 416)


def test_partitions_that_are_added_are_followed_from_their_start(log: Log, address: str) -> None:
    log.create("t", "id int64")
    with tail(address) as events, tail(address) as others, tail(address, partition=0) as chosen:
        log.append("t", [{"id": 0}], partition=0)
        assert [next(events).data["id"], next(others).data["id"], next(chosen).data["id"]] == [0, 0, 0]
        log.alter("t", partitions=4)
        for number in range(1, 4):
            log.append("t", [{"id": number}], partition=number)
        log.append("t", [{"id": 4}], partition=0)
        for one in (events, others):
            found = take(one, 4)
            assert sorted(event.data["id"] for event in found) == [1, 2, 3, 4]
        assert next(chosen).data["id"] == 4
    log.append("t", [{"id": 5}], partition=2)
    with tail(address, last=found[-1].id) as events:
        assert next(events).data["id"] == 5


def test_a_topic_made_anew_is_followed_with_all_its_partitions(log: Log) -> None:
    log.create("t", "id int64")
    log.append("t", [{"id": 7}])
    reader = EventReader(log, "t", {0: 0}, None, "number", chosen=False)
    assert b'"id":7' in reader.read().text
    log.delete("t")
    log.create("t", "id int64", partitions=3)
    for number in range(3):
        log.append("t", [{"id": number}], partition=number)
    assert b"created again" in reader.read().text
    found = b"".join(reader.read().text for _ in range(4))
    assert all(b'"id":%d' % number in found for number in range(3))


def test_large_rows_come_a_few_at_a_time(log: Log) -> None:
    log.create("t", {"id": "int64", "text": "string"})
    log.append("t", [{"id": number, "text": "x" * 400_000} for number in range(20)])
    reader = EventReader(log, "t", {0: 0}, None, "number", chosen=False)
    sizes, found = [], []
    while text := (piece := reader.read()).text:
        sizes.append(len(text))
        found += [json.loads(line[6:])["id"] for line in text.splitlines() if line.startswith(b"data: ")]
        assert piece.positions == {0: found[-1] + 1}
    assert found == list(range(20))
    assert max(sizes) < PIECE_BYTES_MAX + 500_000


@given(lengths=st.lists(st.lists(st.integers(0, 400), min_size=1, max_size=8), max_size=8), most=st.integers(1, 900))
def test_however_rows_are_cut_into_pieces_each_comes_once(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[list[int]], most: int
) -> None:
    """The law: the events of all pieces are the rows in order, and a reader that goes on from any piece has the rest."""
    with pytest.MonkeyPatch.context() as patch, open_log(tmp_path_factory.mktemp("log")) as log:
        patch.setattr(headwater.http.streams, "PIECE_BYTES_MAX", most)
        log.create("t", {"id": "int64", "text": "string"}, durability="memory")
        numbers = itertools.count()
        for each in lengths:
            log.append("t", [{"id": next(numbers), "text": "x" * length} for length in each])
        reader = EventReader(log, "t", {0: 0}, None, "number", chosen=False)
        found: list[int] = []
        while text := reader.read().text:
            found += [json.loads(line[6:])["id"] for line in text.splitlines() if line.startswith(b"data: ")]
            assert reader.positions == {0: len(found)}
            reader = reader.twin() if len(found) % 2 else reader
        assert found == list(range(sum(map(len, lengths))))


def broadcast() -> Broadcast:
    # Any: only what reads would use the service, and nothing reads here.
    service: Any = SimpleNamespace(closing=True)
    return Broadcast(service, "t", lambda: Piece(text=b"", positions={0: 0}), {0: 0})


def test_a_listener_that_is_too_slow_is_let_go_and_has_no_gap() -> None:
    async def run() -> list[dict[int, int]]:
        one, slow = broadcast(), Listener()
        one.listeners.add(slow)
        for number in range(1, PIECES_MAX + 50):
            one._publish(Piece(text=b"%d" % number, positions={0: number}))
        assert slow not in one.listeners
        found = []
        while not slow.is_over:
            piece = await slow.next(seconds=30)
            assert piece is not None
            found.append(piece.positions)
        return found

    assert asyncio.run(run()) == [{0: number} for number in range(1, PIECES_MAX + 1)]


def test_a_listener_is_let_go_by_the_bytes_that_it_leaves_lying() -> None:
    async def run() -> list[dict[int, int]]:
        one, slow, quick = broadcast(), Listener(), Listener()
        one.listeners |= {slow, quick}
        text = b"x" * (PIECES_BYTES_MAX // 4)
        for number in range(1, 11):
            one._publish(Piece(text=text, positions={0: number}))
            assert await quick.next(seconds=30) is not None
        assert one.listeners == {quick}
        assert (quick.bytes_waiting, slow.bytes_waiting) == (0, 4 * len(text))
        found = []
        while not slow.is_over:
            piece = await slow.next(seconds=30)
            found += [] if piece is None else [piece.positions]
        return found

    assert asyncio.run(run()) == [{0: number} for number in range(1, 5)]


def test_whoever_waits_is_woken_when_the_follower_ends() -> None:
    async def run() -> None:
        listener = Listener()
        waiting = asyncio.create_task(listener.next(seconds=600))
        await asyncio.sleep(0)
        listener.drop()
        assert await waiting is None
        assert listener.is_over

    asyncio.run(run())


def test_only_those_who_stand_where_the_follower_does_listen_to_it() -> None:
    async def run() -> None:
        followers = Broadcasts()
        service: Any = SimpleNamespace(closing=True)
        made: list[str] = []

        def make() -> Any:
            made.append("follower")
            return lambda: Piece(text=b"", positions={0: 5})

        first = followers.listen(service, ("t",), "t", make, {0: 5})
        assert first is not None
        assert followers.listen(service, ("t",), "t", make, {0: 4}) is None
        second = followers.listen(service, ("t",), "t", make, {0: 5})
        assert second is not None
        assert second[0] is first[0]
        assert made == ["follower"]
        for _, task in list(followers._running.values()):
            task.cancel()

    asyncio.run(run())

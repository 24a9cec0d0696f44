"""Rows through their service, in this process and over HTTP: pages, one row, searches, tails, and what is produced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headwater.errors import ArgumentInvalid, NotFound, RowInvalid
from headwater.log import Log
from headwater.log.embedded import local_log
from headwater.log.remote.wire import offsets_to_text
from headwater.services import Services
from headwater.services.callers import ScopeMissing
from headwater.services.positions import Position
from headwater.services.row_text import Row
from headwater.services.rows import Draft, SearchQuery
from tests.services.conftest import ServicesOf

BIG = 73314510714175488


@pytest.fixture
def orders(log: Log) -> list[tuple[int, int]]:
    """A topic of three partitions; gives the places of its rows in the order of their appends."""
    log.create("orders", "id int64, name string", partitions=3)
    places = []
    for number in range(20):
        partition = number * 7 % 3
        done = log.append("orders", [{"id": BIG + number, "name": f"name {number}"}], partition=partition)
        places.append((partition, done.ranges[partition][0]))
    return places


def places(rows: list[Row]) -> list[tuple[int, int]]:
    return [(row.partition, row.offset) for row in rows]


@pytest.mark.parametrize("backwards", [False, True])
def test_pages_show_each_row_once(services: Services, orders: list[tuple[int, int]], backwards: bool) -> None:
    found, start, is_last = list[tuple[int, int]](), "end" if backwards else "start", False
    while not is_last:
        page = services.rows.page("orders", start=start, backwards=backwards, limit=6)
        found, start, is_last = found + places(page.rows), offsets_to_text(page.next), page.is_last
    assert found == (orders[::-1] if backwards else orders)


def test_a_page_begins_at_a_position_of_any_kind(services: Services, orders: list[tuple[int, int]]) -> None:
    rows = services.rows
    assert places(rows.page("orders", start="-4", backwards=False).rows) == orders[-4:]
    assert places(rows.page("orders", start="@2000-01-01", backwards=False, limit=2).rows) == orders[:2]
    assert rows.page("orders", start="@2999-01-01", backwards=False).rows == []
    assert places(rows.page("orders", start="5", backwards=False, partition=1).rows) == [(1, 5), (1, 6)]
    assert rows.page("orders", start="999", backwards=False).rows == []
    [newest] = rows.page("orders", partition=2, limit=1).rows
    assert (newest.partition, newest.offset) == max(place for place in orders if place[0] == 2)
    with pytest.raises(NotFound):
        rows.page("orders", partition=9)
    with pytest.raises(ArgumentInvalid, match="limit"):
        rows.page("orders", limit=0)
    with pytest.raises(ArgumentInvalid, match="start"):
        rows.page("orders", start="yesterday")


def test_a_row_is_shown_whole_as_text(services: Services, log: Log) -> None:
    log.create("bytes")
    log.append("bytes", [("k", bytes([255, 0]))], headers={"trace": b"4f2a"})
    log.append("bytes", [("k", b"y" * 10_000)])
    found = services.rows.row("bytes", 0, 0).row
    assert found is not None
    assert (found.key, found.value, found.form, found.headers) == ("k", "ff 00", "hex", (("trace", "4f2a"),))
    long = services.rows.row("bytes", 0, 1).row
    assert long is not None
    assert long.value == "y" * 10_000
    assert len(services.rows.page("bytes", limit=1).rows[0].value or "") < 1_000


def test_a_row_knows_its_neighbours_over_gaps(services: Services, log: Log) -> None:
    log.create("states", "id string", key="id", compact=True, segment_bytes_max=4096)
    for number in range(60):
        log.append("states", [{"id": f"{number % 3}" if 10 < number < 50 else f"key {number}"}])
    local_log(log).maintain("states", seal=True)
    kept = [row["_offset"] for row in log.read("states").rows()]
    assert len(kept) < 60
    at, found = kept[0], list[int]()
    while at is not None:
        one = services.rows.row("states", 0, at)
        assert one.row is not None
        assert one.before == (found[-1] if found else None)
        found.append(at)
        at = one.after
    assert found == kept
    gap = next(offset for offset in range(60) if offset not in kept)
    missing = services.rows.row("states", 0, gap)
    assert (missing.row, missing.before) == (None, max(offset for offset in kept if offset < gap))
    beyond = services.rows.row("states", 0, 1_000)
    assert (beyond.row, beyond.before, beyond.after, beyond.offset_next) == (None, kept[-1], None, 60)
    with pytest.raises(NotFound):
        services.rows.row("states", 1, 0)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (SearchQuery(text="NAME 1"), [1, *range(10, 20)]),
        (SearchQuery(text="NAME 1", match_case=True), []),
        (SearchQuery(text='name 1[2-5]"', kind="pattern", order="oldest"), [12, 13, 14, 15]),
        (SearchQuery(text=f"id = {BIG + 7} or name = 'name 3'", kind="sql"), [3, 7]),
        (SearchQuery(text="name", partition=1), [1, 4, 7, 10, 13, 16, 19]),
        (SearchQuery(text="name", parts=("key", "headers")), []),
    ],
)
def test_a_search_finds_rows_a_little_at_a_time(
    services: Services, orders: list[tuple[int, int]], query: SearchQuery, expected: list[int]
) -> None:
    step = services.rows.search("orders", query)
    assert (step.rows, step.scanned) == ([], 0)
    found = list[Row]()
    while not step.is_done:
        step = services.rows.search_on("orders", step.id, limit=2)
        assert len(step.rows) <= 2
        found += step.rows
    assert sorted(places(found)) == sorted(orders[number] for number in expected)
    assert step.scanned == step.total == (7 if query.partition == 1 else 20)


def test_a_search_can_be_stopped_and_goes_on(services: Services, orders: list[tuple[int, int]]) -> None:
    step = services.rows.search("orders", SearchQuery(text="name"))
    services.rows.stop_search("orders", step.id)
    assert len(services.rows.search_on("orders", step.id, seconds=10, limit=100).rows) == len(orders)


@pytest.mark.usefixtures("orders")
def test_a_search_that_is_wrong_or_of_another_caller_is_refused(services_of: ServicesOf) -> None:
    ada, eve = services_of().rows, services_of("read:other")
    for query in (SearchQuery(), SearchQuery(text="(", kind="pattern"), SearchQuery(text="nothing = 1", kind="sql")):
        with pytest.raises(ArgumentInvalid):
            ada.search("orders", query)
    step = ada.search("orders", SearchQuery(text="name"))
    with pytest.raises(ScopeMissing):
        eve.rows.search_on("orders", step.id)
    with pytest.raises(NotFound):
        ada.search_on("orders", "unknown")


def test_a_tail_gives_what_comes_and_counts_what_is_left_out(
    services: Services, log: Log, orders: list[tuple[int, int]]
) -> None:
    tail = services.rows.follow("orders", context=3)
    assert (places(tail.rows), tail.waiting) == (orders[-3:], 0)
    log.append("orders", [{"id": number} for number in range(30)], partition=0)
    after, identity = offsets_to_text(tail.next), tail.topic_id
    waiting = services.rows.follow("orders", after=after, topic_id=identity, limit=0)
    assert (waiting.rows, waiting.waiting) == ([], 30)
    tail = services.rows.follow("orders", after=after, topic_id=identity, limit=5, behind_max=10)
    assert (len(tail.rows), tail.skipped, tail.waiting) == (5, 20, 5)
    chosen = services.rows.follow("orders", partition=1)
    assert list(chosen.next) == [1]


def test_rows_are_checked_and_produced(
    services: Services, log: Log, audited: Callable[[], list[dict[str, Any]]]
) -> None:
    log.create("orders", "id int64 not null, name string", partitions=2)
    one = Draft(value=f'{{"id": {BIG}, "name": "ada"}}', headers={"trace": "4f2a"}, partition=1)
    assert services.rows.produce("orders", one, dry_run=True).count == 1
    assert log.read("orders").count() == 0
    done = services.rows.produce("orders", one)
    assert (done.count, done.ranges) == (1, {1: (0, 1)})
    [row] = log.read("orders").rows()
    assert (row["id"], row["_headers"]) == (BIG, {"trace": b"4f2a"})
    assert services.rows.produce("orders", Draft(value='[{"id": 1},\n {"id": 2}]')).count == 2
    assert services.rows.produce("orders", Draft(value='{"id": 1}\n{"id": 2}\n{"id": 3}')).count == 3
    for draft, error in (
        (Draft(), ArgumentInvalid),
        (Draft(value="[]"), ArgumentInvalid),
        (Draft(value='{"id": null}'), RowInvalid),
    ):
        with pytest.raises(error):
            services.rows.produce("orders", draft)
    assert log.read("orders").count() == 6
    done_rows = [one for one in audited() if one["status"] == 200]
    assert done_rows == [{"action": "rows.produce", "target": "orders", "status": 200}] * 3


def test_a_topic_without_a_schema_takes_one_key_and_value(services: Services, log: Log) -> None:
    log.create("raw")
    services.rows.produce("raw", Draft(key="k", value='{"any": "text"}'))
    services.rows.produce("raw", Draft(value=""))
    assert [(row["key"], row["value"]) for row in log.read("raw").rows()] == [(b"k", b'{"any": "text"}'), (None, b"")]


def test_scopes_are_checked(services_of: ServicesOf, log: Log) -> None:
    log.create("orders", "id int64")
    reader, writer = services_of("read:orders").rows, services_of("write:orders").rows
    reader.page("orders")
    for refused in (
        lambda: reader.produce("orders", Draft(value='{"id": 1}'), dry_run=True),
        lambda: reader.produce("orders", Draft(value='{"id": 1}')),
        lambda: writer.page("orders"),
        lambda: writer.row("orders", 0, 0),
        lambda: writer.follow("orders"),
        lambda: writer.search("orders", SearchQuery(text="x")),
        lambda: reader.page("others"),
    ):
        with pytest.raises(ScopeMissing):
            refused()
    with pytest.raises(NotFound):
        services_of().rows.page("others")


@pytest.mark.parametrize("count", [0, 1, 12])
def test_everything_is_read_in_the_order_of_its_appends(services: Services, log: Log, count: int) -> None:
    log.create("orders", "id int64", partitions=3, durability="memory")
    for number in range(count):
        log.append("orders", [{"id": number}], partition=number * 5 % 3)
    batches = services.rows.read("orders", Position(word="start"), columns=["id"])
    found = [number for batch in batches if batch is not None for number in batch.column("id").to_pylist()]
    assert found == list(range(count))


def test_reading_on_gives_what_comes(services: Services, log: Log) -> None:
    log.create("orders", "id int64", partitions=2)
    log.append("orders", [{"id": 0}], partition=0)
    batches = services.rows.read("orders", Position(last=1), columns=["id"], wait_seconds=0.01)
    first = next(batches)
    assert first is not None
    assert first.column("id").to_pylist() == [0]
    assert next(batches) is None
    log.alter("orders", partitions=3)
    log.append("orders", [{"id": 1}], partition=2)
    found = next(batch for batch in batches if batch is not None)
    assert found.column("id").to_pylist() == [1]

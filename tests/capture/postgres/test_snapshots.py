"""Snapshots in chunks, beside changes by several writers: no key is wrong, none is missing."""

from __future__ import annotations

import contextlib
import random
import threading
import time

import psycopg
import pytest

from headwater.capture import Capture, CaptureStore
from headwater.capture.postgres import snapshot
from headwater.log.port import Offsets
from tests.capture.postgres.shop import Shop
from tests.laws import SEED

WRITERS = 3
#: Few keys, so that each chunk has rows which its writers change at that moment.
KEYS = 300
#: Transactions of the writers in one run, at least.
TRANSACTIONS = 50


def write(conninfo: str, seed: int, stop: threading.Event, counts: list[int]) -> None:
    """Change rows at random, some in transactions of several statements, some rolled back."""
    chance = random.Random(seed)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        while not stop.is_set():
            # Two writers that change the same keys in another order may deadlock: one of them is rolled back.
            with (
                contextlib.suppress(psycopg.errors.DeadlockDetected),
                connection.transaction(force_rollback=chance.random() < 0.1),
            ):
                for _ in range(chance.choice((1, 1, 2, 5))):
                    key = chance.randrange(KEYS)
                    act = chance.random()
                    if act < 0.6:
                        connection.execute(
                            "UPDATE orders SET n = n + 1, item = repeat('x', %s) WHERE id = %s",
                            (chance.randrange(300), key),
                        )
                    elif act < 0.75:
                        connection.execute("DELETE FROM orders WHERE id = %s", (key,))
                    elif act < 0.97:
                        connection.execute(
                            "INSERT INTO orders VALUES (%s, 0, 'new') ON CONFLICT (id) DO NOTHING", (key,)
                        )
                    else:
                        connection.execute(
                            "UPDATE orders SET id = %s WHERE id = %s", (KEYS + chance.randrange(10**9), key)
                        )
            counts[0] += 1


def one_run(shop: Shop, capture: Capture, seed: int) -> int:
    """Read the table again in chunks while it is changed; return the number of chunks."""
    stop, counts = threading.Event(), [0]
    writers = [
        threading.Thread(target=write, args=(shop.conninfo, seed * 100 + number, stop, counts))
        for number in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    try:
        capture.progress = type(capture.progress)(position=capture.progress.position, rows=capture.progress.rows)
        chunks = 0
        deadline = time.monotonic() + 60
        while (
            (one := capture.progress.snapshot.get("public.orders")) is None
            or not one.complete
            or counts[0] < TRANSACTIONS
        ):
            chunks += bool(capture.step().snapshot)
            assert time.monotonic() < deadline
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    capture.catch_up()
    return chunks


def runs(shop: Shop, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare after each run. The topic is followed: reading it from its start each time would take most of a long series."""
    monkeypatch.setattr(snapshot, "BLOCKS_FIRST", 1)
    monkeypatch.setattr(snapshot, "BLOCKS_MAX", 1)
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY, n int, item text)")
    shop.sql(f"INSERT INTO orders SELECT g, 0, 'old' FROM generate_series(0, {KEYS - 1}) g")
    shop.create()
    with shop.open() as capture:
        capture.catch_up()
        held: dict[int, tuple[int, str]] = {}
        offsets: Offsets = {}
        chunks = 0
        for number in range(count):
            chunks += one_run(shop, capture, SEED + number)
            ends = shop.log.end_offsets("shop.public.orders")
            for row in shop.log.read("shop.public.orders", start=offsets, stop=ends).rows():
                held.pop(row["id"], None)
                if not row["_tombstone"]:
                    held[row["id"]] = (row["n"], row["item"])
            offsets = ends
            table = {key: (n, item) for key, n, item in shop.sql("SELECT id, n, item FROM orders")}
            wrong = {key for key in held.keys() | table.keys() if held.get(key) != table.get(key)}
            assert not wrong, f"run {number}, seed {SEED + number}"
            # Keys that were moved away would stay for good, and each run would read a larger table.
            shop.sql("DELETE FROM orders WHERE id >= %s", (KEYS,))
            shop.sql("VACUUM orders")
            print(f"run {number}: {chunks} chunks, {sum(offsets.values())} rows of the topic")
        capture.catch_up()
    shop.in_step()


def test_a_table_is_read_again_on_demand_whole_or_in_part(shop: Shop) -> None:
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY, item text); CREATE TABLE visits (n int)")
    shop.sql("ALTER TABLE visits REPLICA IDENTITY FULL; INSERT INTO visits VALUES (1), (2)")
    shop.sql("INSERT INTO orders SELECT g, 'tea' FROM generate_series(1, 100) g")
    shop.create()
    store = CaptureStore(shop.log)
    assert shop.catch_up() == 102
    store.restart_snapshot("shop", "public.orders", where="id <= 10")
    assert shop.catch_up() == 10
    store.restart_snapshot("shop", "public.orders")
    stop = threading.Event()
    with shop.open() as capture:
        assert capture.catch_up() == 100
        # A capture that runs begins it, too; the topic of a table without a key says that its rows begin again.
        store.restart_snapshot("shop", "public.visits")
        shop.sql("INSERT INTO visits VALUES (3)")
        capture.run(stop, on_piece=lambda piece: stop.set() if "public.visits" in piece.snapshot else None)
        capture.catch_up()
    shop.in_step()
    assert store.config("shop").snapshot_requests == {}
    rows = [row["n"] for row in shop.rows("public.visits")]
    assert rows in ([1, 2, 3, None, 1, 2, 3], [1, 2, None, 1, 2, 3])


def test_a_snapshot_beside_writers_has_no_wrong_key(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(shop, 20, monkeypatch)


@pytest.mark.long
def test_two_hundred_snapshots_beside_writers_have_no_wrong_key(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(shop, 200, monkeypatch)

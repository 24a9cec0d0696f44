"""A PostgreSQL database, captured: a topic holds what its table holds, whatever happens to the table or the capture."""

from __future__ import annotations

import threading

import psycopg
import pytest

from headwater.capture.postgres import snapshot
from tests.capture.postgres.shop import Shop

ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, item text, price numeric(10, 2))"


@pytest.mark.core
def test_a_topic_holds_what_its_table_holds(shop: Shop) -> None:
    shop.sql(ORDERS)
    shop.sql("INSERT INTO orders SELECT g, 'item ' || g, g * 1.5 FROM generate_series(1, 1000) g")
    shop.create(tables=["public.orders"])
    with shop.open() as capture:
        assert capture.catch_up() == 1000
        shop.in_step()
        shop.sql("INSERT INTO orders VALUES (1001, NULL, NULL)")
        shop.sql("UPDATE orders SET price = 0 WHERE id <= 3")
        shop.sql("DELETE FROM orders WHERE id = 5")
        shop.sql("UPDATE orders SET id = 2000 WHERE id = 6")  # another key is a deletion and an insertion
        assert capture.catch_up() == 7
        shop.in_step()
        assert capture.progress.snapshot["public.orders"].complete
        shop.sql("TRUNCATE orders")
        shop.sql("INSERT INTO orders VALUES (1, 'again', 1)")
        capture.catch_up()
        shop.in_step()
        assert capture.health().pending == 0
    shop.sql("UPDATE orders SET item = 'later'")
    assert shop.catch_up() == 1
    shop.in_step()


def test_no_change_is_missed_or_doubled_between_snapshot_and_stream(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "BLOCKS_FIRST", 1)
    monkeypatch.setattr(snapshot, "BLOCKS_MAX", 4)
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY, count int)")
    shop.sql("INSERT INTO orders SELECT g, 0 FROM generate_series(1, 3000) g")
    shop.create()
    stop = threading.Event()

    def write() -> None:
        number = 0
        with psycopg.connect(shop.conninfo, autocommit=True) as connection:
            while not stop.is_set():
                number += 1
                connection.execute("UPDATE orders SET count = count + 1 WHERE id = %s", (number % 3000 + 1,))
                connection.execute("DELETE FROM orders WHERE id = %s", (number * 7 % 3000 + 1,))
                connection.execute(
                    "INSERT INTO orders VALUES (%s, 0) ON CONFLICT (id) DO NOTHING", (number * 5 % 3100 + 1,)
                )

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with shop.open() as capture:
            while not (progress := capture.step().snapshot.get("public.orders")) or not progress.complete:
                pass
            stop.set()
            writer.join()
            capture.catch_up()
            shop.in_step()
    finally:
        stop.set()
        writer.join()


def test_rolled_back_savepoints_and_large_transactions_are_whole(shop: Shop) -> None:
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    shop.create()
    with shop.open() as capture, psycopg.connect(shop.conninfo) as one, psycopg.connect(shop.conninfo) as other:
        capture.catch_up()
        # Far over 64 kB, interleaved, with parts and a whole that are rolled back: all three are streamed in blocks.
        for number in range(0, 3000, 500):
            one.execute(
                "INSERT INTO orders SELECT g, 'one' FROM generate_series(%s::int, %s::int) g", (number, number + 499)
            )
            one.execute("SAVEPOINT s")
            one.execute(
                "INSERT INTO orders SELECT g, 'gone' FROM generate_series(%s::int, %s::int) g",
                (number + 10000, number + 10499),
            )
            one.execute("ROLLBACK TO SAVEPOINT s")
            other.execute(
                "INSERT INTO orders SELECT g, 'undone' FROM generate_series(%s::int, %s::int) g",
                (number + 20000, number + 20999),
            )
            other.execute("SAVEPOINT deep")
            other.execute("DELETE FROM orders WHERE id >= 20000")
            capture.step()
            assert shop.topic() == {}
        other.rollback()
        shop.sql("INSERT INTO orders VALUES (-1, 'between')")
        one.execute("TRUNCATE orders")
        one.execute("INSERT INTO orders SELECT g, 'new' FROM generate_series(1, 100) g")
        one.commit()
        capture.catch_up()
        shop.in_step()
        assert len(shop.table()) == 100

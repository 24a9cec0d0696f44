"""Tables of all kinds: their types, shapes, keys, parts, and what becomes of them while they are captured."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from headwater.capture import ColumnRetyped, SourceInvalid
from tests.capture.postgres.shop import Shop

EVERY_TYPE = """
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE DOMAIN price AS numeric(8, 2) CHECK (VALUE >= 0);
CREATE TABLE orders (
  id bigint PRIMARY KEY, i2 smallint, i4 int, f4 real, f8 double precision, b bool, n numeric(12, 3), big numeric(50, 5), free numeric,
  t text, v varchar(10), c char(5), j json, jb jsonb, u uuid, m mood, bytes bytea, d date, ti time, ts timestamp, tz timestamptz,
  span interval, ip inet, r int4range, p price, ai int[], at text[], an numeric(6, 1)[], ad date[], place point, "odd ""name" text,
  sum bigint GENERATED ALWAYS AS (i4 * 2) STORED
);
"""
VALUES = """
(%d, -2, 5, 1.5, 2.25, true, 12.345, 123456789012345678901234567890.12345, 1.00000000000000000000000000001,
 'tea ''n'' milk', 'vc', 'ch', '{"a": 1}', '{"b": [1, 2]}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'happy', '\\x00ff', '2024-02-29', '12:34:56.789',
 '2024-02-29 12:00:00.000001', '2024-02-29 12:00:00+02', '1 day 2 hours', '10.0.0.1/8', '[1,5)', 9.99, '{1,NULL,3}', '{a,"b c",NULL}',
 '{1.5,2}', '{2024-01-01}', '(1,2)', 'x')
"""


def test_values_of_every_type_are_the_same_by_snapshot_and_by_stream(shop: Shop) -> None:
    shop.sql(EVERY_TYPE)
    columns = "id, i2, i4, f4, f8, b, n, big, free, t, v, c, j, jb, u, m, bytes, d, ti, ts, tz, span, ip, r, p, ai, at, an, ad, place"
    insert = f'INSERT INTO orders ({columns}, "odd ""name") VALUES '
    shop.sql(insert + VALUES % 1)
    shop.sql("INSERT INTO orders (id) VALUES (2)")
    shop.create()
    with shop.open() as capture:
        capture.catch_up()
        shop.sql(insert + VALUES % 3)
        shop.sql("INSERT INTO orders (id) VALUES (4)")
        capture.catch_up()
        warnings = capture.health().warnings
    rows = shop.topic()
    assert {**rows[1], "id": 3} == rows[3]
    assert {**rows[2], "id": 4} == rows[4]
    assert set(rows[2].values()) == {2, None}
    assert rows[1] == {
        "id": 1, "i2": -2, "i4": 5, "f4": 1.5, "f8": 2.25, "b": True, "n": Decimal("12.345"),
        "big": Decimal("123456789012345678901234567890.12345"), "free": "1.00000000000000000000000000001", "t": "tea 'n' milk", "v": "vc",
        "c": "ch", "j": '{"a": 1}', "jb": '{"b": [1, 2]}', "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "m": "happy", "bytes": b"\x00\xff",
        "d": dt.date(2024, 2, 29), "ti": dt.time(12, 34, 56, 789_000), "ts": dt.datetime(2024, 2, 29, 12, 0, 0, 1),
        "tz": dt.datetime(2024, 2, 29, 10, 0, tzinfo=dt.UTC), "span": "1 day 02:00:00", "ip": "10.0.0.1/8", "r": "[1,5)", "p": Decimal("9.99"),
        "ai": [1, None, 3], "at": ["a", "b c", None], "an": [Decimal("1.5"), Decimal("2.0")], "ad": [dt.date(2024, 1, 1)], "place": "(1,2)",
        'odd "name': "x",
    }  # fmt: skip
    assert [warning for warning in warnings if "place" in warning]  # kept as text


def test_values_that_arrow_cannot_hold_are_null_and_dead_letters(shop: Shop) -> None:
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY, d date, tz timestamptz, n numeric(6, 2), item text)")
    odd = "('0044-03-15 BC', 'infinity', 'NaN', 'kept')"
    shop.sql(f"INSERT INTO orders SELECT 1, * FROM (VALUES {odd}) v(d, tz, n, i)".replace("'0044", "date '0044").replace("'inf", "timestamptz 'inf").replace("'NaN'", "numeric 'NaN'"))  # fmt: skip
    shop.create()
    with shop.open() as capture:
        capture.catch_up()
        shop.sql("INSERT INTO orders SELECT 2, d, tz, n, item FROM orders")
        capture.catch_up()
    kept = {"d": None, "tz": None, "n": None, "item": "kept"}
    assert shop.topic() == {number: {"id": number, **kept} for number in (1, 2)}
    letters = shop.log.read("shop.public.orders.dlq").rows()
    assert any("BC" in one["row"] for one in letters)
    assert any("NaN" in one["row"] and "'n'" in one["message"] for one in letters)


def test_columns_that_are_added_dropped_or_widened_are_followed(shop: Shop) -> None:
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY, item text, count int)")
    shop.sql("INSERT INTO orders VALUES (1, 'tea', 1)")
    shop.create()
    with shop.open() as capture:
        capture.catch_up()
        with shop.connection.transaction():
            shop.sql("INSERT INTO orders VALUES (2, 'old', 2)")
            shop.sql("ALTER TABLE orders ADD COLUMN price numeric(6, 2) DEFAULT 1.5")
            shop.sql("INSERT INTO orders VALUES (3, 'new', 3, 2.5)")
            shop.sql("ALTER TABLE orders ALTER COLUMN count TYPE bigint")
            shop.sql("ALTER TABLE orders DROP COLUMN item")
            shop.sql("INSERT INTO orders VALUES (4, 4000000000, 3.5)")
        capture.catch_up()
        assert shop.log.topic("shop.public.orders").schema.field("count").type == pa.int64()
        rows = shop.topic()
        assert rows[3] == {"id": 3, "item": "new", "count": 3, "price": Decimal("2.5")}
        assert rows[4] == {"id": 4, "item": None, "count": 4_000_000_000, "price": Decimal("3.5")}
        shop.sql("ALTER TABLE orders ALTER COLUMN count TYPE text")
        shop.sql("INSERT INTO orders VALUES (5, 'many', 1)")
        with pytest.raises(ColumnRetyped, match="count"):
            capture.catch_up()


def test_large_values_that_do_not_change_are_kept(shop: Shop) -> None:
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY, item text, large text, more text)")
    shop.sql("ALTER TABLE orders ALTER large SET STORAGE EXTERNAL, ALTER more SET STORAGE EXTERNAL")
    shop.sql(
        "INSERT INTO orders SELECT g, 'tea', repeat(g::text, 9000), repeat('m', 9000) FROM generate_series(1, 5) g"
    )
    shop.create(envelope="flat")
    with shop.open() as capture:
        capture.catch_up()
        shop.sql("UPDATE orders SET item = 'milk' WHERE id < 3")
        shop.sql("UPDATE orders SET more = NULL WHERE id = 2")
        capture.catch_up()
        shop.in_step()
        shop.sql("ALTER TABLE orders REPLICA IDENTITY FULL")  # from now on the old row has them
        shop.sql("UPDATE orders SET item = 'beer'")
        shop.sql("UPDATE orders SET id = 30 WHERE id = 3")
        shop.sql("DELETE FROM orders WHERE id = 4")
        capture.catch_up()
        shop.in_step()
        shop.sql("ALTER TABLE orders REPLICA IDENTITY DEFAULT")
        shop.sql("UPDATE orders SET item = 'gone' WHERE id = 5")
        shop.sql("DELETE FROM orders WHERE id = 5")  # the value of the update is not known any more
        capture.catch_up()
        shop.in_step()
    assert "REPLICA IDENTITY FULL" in shop.log.read("shop.public.orders.dlq").rows()[0]["message"]


def test_a_table_without_a_key_is_a_log_of_its_changes(shop: Shop) -> None:
    shop.sql("CREATE TABLE visits (who text, at int)")
    shop.sql("INSERT INTO visits SELECT 'a', g FROM generate_series(1, 100) g")
    with pytest.raises(SourceInvalid, match="REPLICA IDENTITY FULL"):
        shop.create()
    shop.sql("ALTER TABLE visits REPLICA IDENTITY FULL")
    shop.create()
    with shop.open() as capture:
        capture.catch_up()
        shop.sql("INSERT INTO visits VALUES ('b', 1)")
        shop.sql("UPDATE visits SET who = 'c' WHERE who = 'b'")
        shop.sql("DELETE FROM visits WHERE who = 'c'")
        shop.sql("TRUNCATE visits")
        capture.catch_up()
    rows = [(dict(row["_headers"])["_op"], row["who"], row["at"]) for row in shop.rows("public.visits")]
    assert rows[:100] == [(b"r", "a", number) for number in range(1, 101)]
    assert rows[100:] == [(b"c", "b", 1), (b"u", "c", 1), (b"d", "c", 1), (b"t", None, None)]


def test_the_parts_of_a_partitioned_table_are_one_topic(shop: Shop) -> None:
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY, item text) PARTITION BY RANGE (id)")
    for number in range(3):
        shop.sql(
            f"CREATE TABLE orders_{number} PARTITION OF orders FOR VALUES FROM ({number * 10}) TO ({number * 10 + 10})"
        )
    shop.sql("INSERT INTO orders SELECT g, 'tea' FROM generate_series(0, 29) g")
    shop.create()
    with shop.open() as capture:
        assert capture.catch_up() == 30
        shop.sql("UPDATE orders SET id = 5 + 10, item = 'moved' WHERE id = 15")
        shop.sql("DELETE FROM orders WHERE id = 4")
        shop.sql("UPDATE orders SET id = 4 WHERE id = 25")  # into another part
        shop.sql("CREATE TABLE orders_3 PARTITION OF orders FOR VALUES FROM (30) TO (40)")
        shop.sql("INSERT INTO orders VALUES (30, 'new part')")
        capture.catch_up()
        shop.in_step()
    assert shop.log.topics("shop.*") == ["shop.public.orders"]


def test_messages_of_programs_are_a_topic(shop: Shop) -> None:
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY)")
    shop.create()
    with shop.open() as capture:
        capture.catch_up()
        with shop.connection.transaction():
            shop.sql("SELECT pg_logical_emit_message(true, 'outbox', 'paid')")
            shop.sql("INSERT INTO orders VALUES (1)")
        shop.sql("SELECT pg_logical_emit_message(false, 'note', 'at once')")
        with shop.connection.transaction(force_rollback=True):
            shop.sql("SELECT pg_logical_emit_message(true, 'outbox', 'never')")
        shop.sql("INSERT INTO orders VALUES (2)")  # its commit flushes what was written at once
        capture.catch_up()
    shop.catch_up()
    rows = [(row["prefix"], row["content"], row["transactional"]) for row in shop.rows("messages")]
    assert rows == [("outbox", b"paid", True), ("note", b"at once", False)]


def test_renamed_dropped_and_new_tables(shop: Shop) -> None:
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    shop.sql("INSERT INTO orders VALUES (1, 'old'), (2, 'old')")
    shop.create(tables=["public.*"])
    shop.catch_up()
    # A table of the same name that is created again is another one: its rows replace those of the first.
    shop.sql("DROP TABLE orders")
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    shop.sql("CREATE TABLE stock (id int PRIMARY KEY, item text)")
    shop.sql("INSERT INTO orders VALUES (2, 'new')")
    shop.sql("INSERT INTO stock SELECT g, 'new' FROM generate_series(1, 10) g")
    with shop.open() as capture:
        capture.catch_up()
        shop.in_step()
        shop.in_step("stock")
        shop.sql("ALTER TABLE stock RENAME TO goods")
        shop.sql("INSERT INTO goods VALUES (11, 'lost?')")
        with pytest.raises(SourceInvalid, match=r"renamed to 'public\.goods'"):
            capture.catch_up()
    shop.sql("ALTER TABLE goods RENAME TO stock")
    shop.catch_up()
    shop.in_step("stock")
    shop.sql("DROP TABLE orders, stock")
    with pytest.raises(SourceInvalid, match="dropped or renamed"), shop.open():
        pass


def test_the_envelope_of_debezium_has_the_old_row(shop: Shop) -> None:
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    shop.sql("ALTER TABLE orders REPLICA IDENTITY FULL")
    shop.sql("INSERT INTO orders VALUES (1, 'tea')")
    shop.create(envelope="debezium")
    with shop.open() as capture:
        capture.catch_up()
        shop.sql("UPDATE orders SET item = 'milk'")
        shop.sql("DELETE FROM orders")
        capture.catch_up()
    rows = [(row["op"], row["before"], row["after"], row["_tombstone"]) for row in shop.rows()]
    tea, milk = {"id": 1, "item": "tea"}, {"id": 1, "item": "milk"}
    assert rows == [
        ("r", None, tea, False),
        ("u", tea, milk, False),
        ("d", milk, None, False),
        ("d", milk, None, True),
    ]

"""A captured MariaDB database: its topics hold what its tables hold, whatever happens in between."""

from __future__ import annotations

import contextlib
import datetime
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.capture import Capture, CaptureConfig, CaptureStore, SourceInvalid, SourceReplaced, SourceUnreachable
from headwater.capture import capture as capture_module
from headwater.capture.mariadb import MariadbConnector, spool
from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.faults import CAPTURE_CRASH_POINTS
from headwater.log import Log
from headwater.testing.crash import CrashAt, run_until_killed
from tests.capture.shop import log_at, table_of
from tests.laws import costly
from tests.servers import Mariadb

TABLES = (
    "CREATE TABLE orders (id INT PRIMARY KEY, item VARCHAR(20), price DECIMAL(10, 2))",
    "CREATE TABLE stock (shelf VARCHAR(5), place INT, count INT, PRIMARY KEY (shelf, place))",
    "CREATE TABLE visits (who VARCHAR(20))",
)


class Shop:
    """A database of its own with three tables."""

    def __init__(self, server: Mariadb, *tables: str) -> None:
        self.server = server
        self.name = server.new_database()
        self.connection = server.connect(self.name)
        for table in tables or TABLES:
            self.run(table)

    # Any: values of rows.
    def run(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    # Any: settings of a capture.
    def config(self, **settings: Any) -> CaptureConfig:
        return CaptureConfig(**{"name": "shop", "url": self.server.url(self.name), **settings})


@pytest.fixture
def shop(mariadb: Mariadb) -> Iterator[Shop]:
    made = Shop(mariadb)
    yield made
    made.connection.close()


def in_step(shop: Shop, log: Log) -> None:
    """Check that the topics hold what the tables hold."""
    orders = {row[:1]: dict(zip(("id", "item", "price"), row, strict=True)) for row in shop.run("SELECT * FROM orders")}
    assert table_of(log, "shop.orders", ("id",)) == orders
    stock = {
        row[:2]: dict(zip(("shelf", "place", "count"), row, strict=True)) for row in shop.run("SELECT * FROM stock")
    }
    assert table_of(log, "shop.stock", ("shelf", "place")) == stock
    operations = Counter(row["_headers"]["_op"] for row in log.read("shop.visits").rows())
    there = shop.run("SELECT count(*) FROM visits")[0][0]
    assert operations[b"c"] + operations[b"r"] - operations[b"d"] == there


IDS = st.integers(1, 6)
STEPS = st.one_of(
    st.tuples(
        st.just("REPLACE INTO orders VALUES (%s, %s, %s)"),
        st.tuples(IDS, st.text(max_size=3), st.decimals(-1000, 1000, places=2)),
    ),
    st.tuples(st.just("UPDATE orders SET price = price + 1 WHERE id <= %s"), st.tuples(IDS)),
    st.tuples(st.just("UPDATE IGNORE orders SET id = %s WHERE id = %s"), st.tuples(IDS, IDS)),
    st.tuples(st.just("DELETE FROM orders WHERE id = %s"), st.tuples(IDS)),
    st.tuples(
        st.just("INSERT INTO stock VALUES (%s, %s, 1) ON DUPLICATE KEY UPDATE count = count + 1"),
        st.tuples(st.sampled_from("aAb"), IDS),
    ),
    st.tuples(st.just("DELETE FROM stock WHERE place = %s"), st.tuples(IDS)),
    st.tuples(st.just("INSERT INTO visits VALUES (%s)"), st.tuples(st.text(max_size=2))),
    st.tuples(st.just("DELETE FROM visits WHERE who = %s LIMIT 1"), st.tuples(st.text(max_size=1))),
    st.sampled_from(
        [("BEGIN", ()), ("COMMIT", ()), ("ROLLBACK", ()), ("TRUNCATE orders", ()), ("capture", ()), ("restart", ())]
    ),
)


@costly(20)
@given(first=st.lists(STEPS, max_size=20), later=st.lists(STEPS, max_size=30), rows_max=st.integers(1, 5))
def test_topics_hold_what_the_tables_hold(mariadb: Mariadb, first: list[Any], later: list[Any], rows_max: int) -> None:
    shop = Shop(mariadb)
    with (
        contextlib.closing(shop.connection),
        tempfile.TemporaryDirectory() as name,
        pytest.MonkeyPatch.context() as patch,
        log_at(Path(name)) as log,
    ):
        patch.setattr(capture_module, "ROWS_MAX", rows_max)
        for step in first:
            if step[0] not in ("capture", "restart"):
                shop.run(*step)
        shop.run("COMMIT")
        CaptureStore(log).create(shop.config())
        remaining = iter([*later, ("restart", ())])
        while True:
            with Capture.open(log, "shop") as capture:
                for step in remaining:
                    if step[0] == "restart":
                        break
                    if step[0] == "capture":
                        capture.step()
                    else:
                        shop.run(*step)
                else:
                    shop.run("COMMIT")
                    capture.catch_up()
                    in_step(shop, log)
                    break
        shop.run(f"DROP DATABASE {shop.name}")


@pytest.mark.core
def test_snapshot_and_changes_are_captured_in_commit_order(shop: Shop, tmp_path: Path) -> None:
    shop.run("INSERT INTO orders VALUES (1, 'tea', 2.5), (2, 'milk', 1)")
    with log_at(tmp_path) as log:
        CaptureStore(log).create(shop.config(tables=["orders"], envelope="debezium"))
        with Capture.open(log, "shop") as capture:
            assert capture.catch_up() == 2
            shop.run("UPDATE orders SET price = 3 WHERE id = 1")
            shop.run("UPDATE orders SET id = 3 WHERE id = 2")
            shop.run("DELETE FROM orders WHERE id = 1")
            assert capture.catch_up() == 4
            assert (capture.health().pending, capture.health().delay_seconds) == (0, 0)
            shop.run("DELETE FROM orders")
            assert capture.health().pending == 1
        rows = log.read("shop.orders").rows()
    assert [(row["op"], row["id"]) for row in rows if not row["_tombstone"]] == [
        ("r", 1), ("r", 2), ("u", 1), ("d", 2), ("c", 3), ("d", 1),
    ]  # fmt: skip
    assert rows[2]["before"] == {"id": 1, "item": "tea", "price": Decimal("2.50")}
    assert rows[2]["after"] == {"id": 1, "item": "tea", "price": Decimal("3.00")}


ALL_TYPES = {
    "id": ("INT PRIMARY KEY", 1),
    "tiny": ("TINYINT UNSIGNED", 255),
    "small": ("SMALLINT", -32768),
    "medium": ("MEDIUMINT UNSIGNED", 2**24 - 1),
    "medium_signed": ("MEDIUMINT", -(2**23)),
    "wide": ("INT UNSIGNED", 2**32 - 1),
    "big": ("BIGINT", -(2**63)),
    "huge": ("BIGINT UNSIGNED", 2**64 - 1),
    "price": ("DECIMAL(12, 3)", Decimal("-98765.432")),
    "long_price": ("DECIMAL(38, 10)", Decimal("1234567890123456789012345678.0123456789")),
    "longer_price": ("DECIMAL(60, 4)", Decimal("-12345678901234567890123456789012345.0625")),
    "f": ("FLOAT", 0.1),
    "d": ("DOUBLE", 1 / 3),
    "day": ("DATE", "2024-02-29"),
    "no_day": ("DATE", "0000-00-00"),
    "at": ("DATETIME(6)", "1969-12-31 23:59:59.999999"),
    "at3": ("DATETIME(3)", "2038-01-19 03:14:08.125"),
    "stamp": ("TIMESTAMP(2) NULL", "2024-01-02 03:04:05.25"),
    "span": ("TIME(3)", "-838:59:58.125"),
    "clock": ("TIME", "00:00:01"),
    "y": ("YEAR", 2024),
    "letters": ("CHAR(5)", "ab"),
    "wide_letters": ("CHAR(100) CHARACTER SET utf8mb4", "ü" * 100),
    "bytes": ("BINARY(4)", b"\1\0\2\0"),
    "more_bytes": ("VARBINARY(300)", bytes(range(256))),
    "latin": ("VARCHAR(300) CHARACTER SET latin1", "café €"),
    "central": ("TEXT CHARACTER SET latin2", "żółć"),
    "wide_text": ("TEXT CHARACTER SET ucs2", "żółć"),
    "emoji": ("LONGTEXT CHARACTER SET utf8mb4", "🫖 tea"),
    "packed": ("TEXT COMPRESSED", "tea" * 100),
    "packed_short": ("VARCHAR(20) COMPRESSED", "t"),
    "blob_value": ("BLOB", b"\0\xff"),
    "colour": ("ENUM('red', 'blue')", "blue"),
    "sizes": ("SET('s', 'm', 'l')", "s,l"),
    "no_sizes": ("SET('s', 'm', 'l')", ""),
    "flag": ("BIT(1)", 1),
    "flags": ("BIT(12)", 2049),
    "body": ("JSON", '{"a": [1, 2]}'),
    "u": ("UUID", "123e4567-e89b-42d3-a456-426655440000"),
    "i6": ("INET6", "2001:db8::ff00:42:8329"),
    "i4": ("INET4", "192.0.2.1"),
    "nothing": ("VARCHAR(10)", None),
}


def test_all_types_are_the_same_from_a_snapshot_and_from_the_binary_log(mariadb: Mariadb, tmp_path: Path) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in ALL_TYPES.items())
    shop = Shop(
        mariadb, f"CREATE TABLE all_types ({columns}, twice INT AS (id * 2) VIRTUAL, hidden INT UNSIGNED INVISIBLE)"
    )
    names = ", ".join(ALL_TYPES)
    insert = f"INSERT INTO all_types ({names}) VALUES ({', '.join(['%s'] * len(ALL_TYPES))})"
    shop.run("SET sql_mode = '', time_zone = '+00:00'")
    shop.run(insert, tuple(value for _, value in ALL_TYPES.values()))
    with log_at(tmp_path) as log:
        CaptureStore(log).create(shop.config())
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
            shop.run("UPDATE all_types SET id = 2")
            capture.catch_up()
        read, deleted, created = log.read("shop.all_types").rows()
        assert log.topic("shop.all_types").schema_version == 1
    values = {name: value for name, value in read.items() if name[0] != "_" and name not in ("id", "twice")}
    assert values == {name: created[name] for name in values} == {name: deleted[name] for name in values}
    assert (read["id"], read["twice"], created["twice"]) == (1, 2, 4)
    expected = {name: value for name, (_, value) in ALL_TYPES.items()} | {
        "f": 0.10000000149011612,
        "longer_price": "-12345678901234567890123456789012345.0625",
        "day": datetime.date(2024, 2, 29),
        "no_day": None,
        "at": datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
        "at3": datetime.datetime(2038, 1, 19, 3, 14, 8, 125000),
        "stamp": datetime.datetime(2024, 1, 2, 3, 4, 5, 250000, tzinfo=datetime.UTC),
        "flag": True,
        "hidden": None,
    }
    assert {name: read[name] for name in expected} == expected | {"id": 1}


def test_a_transaction_larger_than_memory_is_one_transaction_of_the_log(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_module, "ROWS_MAX", 1000)
    monkeypatch.setattr(spool, "ROWS_MAX", 2000)
    shop.run("INSERT INTO visits SELECT concat('before ', seq) FROM seq_1_to_2500")
    with log_at(tmp_path) as log:
        CaptureStore(log).create(shop.config(envelope="debezium", transactions=True))
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
            shop.run("BEGIN")
            shop.run("INSERT INTO visits SELECT seq FROM seq_1_to_5000")
            shop.run("INSERT INTO orders SELECT seq, repeat('x', 20), 0 FROM seq_1_to_5000")
            shop.run("UPDATE orders SET item = 'y'")
            shop.run("COMMIT")
            assert capture.step().count == 15_000
        visits = [row["after"]["who"] for row in log.read("shop.visits").rows()]
        orders = log.read("shop.orders").rows()
        assert log.read("shop.transactions").rows()[1]["event_count"] == 15_000
    assert visits == [f"before {one}" for one in range(1, 2501)] + [str(one) for one in range(1, 5001)]
    assert [row["op"] for row in orders] == ["c"] * 5000 + ["u"] * 5000
    assert {row["before"]["item"] for row in orders[5000:]} == {"x" * 20}


def test_definitions_are_followed(shop: Shop, tmp_path: Path) -> None:
    shop.run("INSERT INTO orders VALUES (1, 'tea', 2.5)")
    with log_at(tmp_path) as log:
        CaptureStore(log).create(shop.config())
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
            shop.run("INSERT INTO orders VALUES (2, 'milk', 1)")
            shop.run("ALTER TABLE orders ADD COLUMN note VARCHAR(10) DEFAULT 'none', MODIFY id BIGINT")
            shop.run("INSERT INTO orders VALUES (3000000000, 'jam', 2, 'new')")
            shop.run("ALTER TABLE orders DROP COLUMN item")
            shop.run("INSERT INTO orders VALUES (4, 1, 'last')")
            shop.run("CREATE TABLE people (name VARCHAR(10) PRIMARY KEY)")
            shop.run("INSERT INTO people VALUES ('ada')")
            shop.run("INSERT INTO visits VALUES ('ada')")
            shop.run("TRUNCATE TABLE visits")
            capture.catch_up()
        orders = table_of(log, "shop.orders", ("id",))
        assert {key: (row["item"], row["note"]) for (key,), row in orders.items()} == {
            1: (None, "none"), 2: (None, "none"), 3000000000: (None, "new"), 4: (None, "last"),
        }  # fmt: skip
        assert log.topic("shop.orders").schema.field("id").type == "int64"
        assert list(table_of(log, "shop.people", ("name",))) == [("ada",)]
        assert [row["_headers"]["_op"] for row in log.read("shop.visits").rows()] == [b"c", b"t"]


def test_compressed_events_and_other_databases_are_no_obstacle(shop: Shop, tmp_path: Path) -> None:
    other = Shop(shop.server)
    shop.run("SET GLOBAL log_bin_compress = ON")
    try:
        with log_at(tmp_path) as log:
            CaptureStore(log).create(shop.config())
            with Capture.open(log, "shop") as capture:
                writer = shop.server.connect(shop.name)
                writer.cursor().execute("INSERT INTO orders SELECT seq, repeat('tea', 6), seq FROM seq_1_to_300")
                writer.cursor().execute("UPDATE orders SET item = repeat('jam', 6)")
                other.run("INSERT INTO orders VALUES (1, 'other', 1)")
                writer.cursor().execute("DELETE FROM orders WHERE id > 100")
                capture.catch_up()
            in_step(shop, log)
    finally:
        shop.run("SET GLOBAL log_bin_compress = OFF")


def test_a_lost_connection_is_made_again(shop: Shop, tmp_path: Path) -> None:
    with log_at(tmp_path) as log:
        CaptureStore(log).create(shop.config())
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
            for (number,) in shop.run("SELECT id FROM information_schema.processlist WHERE id <> connection_id()"):
                shop.run(f"KILL {number}")
            shop.run("INSERT INTO visits VALUES ('ada')")
            for _ in range(5):
                try:
                    capture.catch_up()
                except SourceUnreachable:
                    continue
                break
        in_step(shop, log)
        assert log.read("shop.visits").count() == 1


def test_a_server_that_lost_the_position_is_refused(shop: Shop, tmp_path: Path) -> None:
    with log_at(tmp_path) as log:
        CaptureStore(log).create(shop.config())

        def refused() -> str:
            with pytest.raises(SourceReplaced) as error, Capture.open(log, "shop") as capture:
                capture.catch_up()
            return str(error.value)

        with Capture.open(log, "shop") as capture:
            shop.run("INSERT INTO visits VALUES ('ada')")
            capture.catch_up()
        shop.run("SET GLOBAL server_id = 8")
        assert "its server_id is 8, and the capture has read server 7" in refused()
        shop.run("SET GLOBAL server_id = 7")
        shop.run("INSERT INTO visits VALUES ('bob')")
        shop.run("FLUSH BINARY LOGS")
        last = shop.run("SHOW BINARY LOGS")[-1][0]
        deadline = time.monotonic() + 30  # the server keeps a file until it sees that a closed connection is gone
        while shop.run("SHOW BINARY LOGS")[0][0] != last and time.monotonic() < deadline:
            shop.run(f"PURGE BINARY LOGS TO '{last}'")
        assert "purged" in refused()
        assert "drop the capture and create it again" in refused()
        shop.run("RESET MASTER")
        assert "the capture has read up to 0-7-" in refused()


def test_what_cannot_be_captured_is_refused_with_the_remedy(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "a guess")
    with log_at(tmp_path) as log:
        store = CaptureStore(log)

        # Any: settings of a capture.
        def refused(**settings: Any) -> str:
            with pytest.raises(HeadwaterError) as error:
                store.create(shop.config(**settings))
            assert "a guess" not in str(error.value)
            return str(error.value)

        assert "Did you mean 'orders'" in refused(tables=["order"])
        shop.run("CREATE OR REPLACE USER reader@'%' IDENTIFIED BY 'a password'")
        reader = shop.server.url(shop.name, user="reader")
        assert "refuses user 'reader'" in refused(url=reader, password_env="SECRET")
        monkeypatch.setenv("SECRET", "a password")
        assert "GRANT SELECT" in refused(url=reader, password_env="SECRET")
        shop.run(f"GRANT SELECT ON {shop.name}.* TO reader@'%'")
        assert "GRANT REPLICATION SLAVE" in refused(url=reader, password_env="SECRET")
        shop.run("GRANT BINLOG MONITOR ON *.* TO reader@'%'")
        assert "GRANT REPLICATION SLAVE" in refused(url=reader, password_env="SECRET")
        shop.run("GRANT REPLICATION SLAVE ON *.* TO reader@'%'")
        assert "Unknown database" in refused(url=shop.server.url("nowhere"))
        with pytest.raises(SourceUnreachable):
            store.create(shop.config(url="mariadb://root@127.0.0.1:1/shop"))
        for name, value, good in (("binlog_format", "MIXED", "ROW"), ("binlog_row_metadata", "NO_LOG", "FULL")):
            shop.run(f"SET GLOBAL {name} = {value}")
            try:
                assert f"{name} is {value}" in refused()
            finally:
                shop.run(f"SET GLOBAL {name} = {good}")
        assert store.configs() == {}
        store.create(shop.config(url=reader, password_env="SECRET"))
        with Capture.open(log, "shop") as capture:
            shop.run("SET SESSION binlog_format = STATEMENT")
            shop.run("INSERT INTO visits VALUES ('ada')")
            with pytest.raises(SourceInvalid, match="binlog_format=STATEMENT"):
                capture.catch_up()
    for url in ("mariadb://db.example/shop", "mysql://app@db.example", "mariadb://app@db.example:x/shop"):
        with pytest.raises(ArgumentInvalid, match="mariadb://user@host"):
            MariadbConnector.address(url)


def _captured(folder: Path, server: Mariadb, database: str) -> None:
    writer = server.connect(database)
    with log_at(folder) as log:
        if "shop" not in CaptureStore(log).configs():
            CaptureStore(log).create(CaptureConfig(name="shop", url=server.url(database)))
        with Capture.open(log, "shop") as capture:
            for number in range(5):
                writer.begin()
                writer.cursor().execute("INSERT INTO visits VALUES (%s)", (str(number),))
                writer.cursor().execute("REPLACE INTO orders VALUES (%s, 'tea', 1)", (number,))
                writer.commit()
                capture.catch_up()


@pytest.mark.parametrize("point", [*CAPTURE_CRASH_POINTS, "commit.recording"])
def test_a_killed_capture_loses_and_doubles_nothing(point: str, shop: Shop, tmp_path: Path) -> None:
    run_until_killed(lambda: _captured(tmp_path, shop.server, shop.name), at=CrashAt(point=point, visit=3))
    assert run_until_killed(lambda: _captured(tmp_path, shop.server, shop.name)).code == 0
    with log_at(tmp_path) as log:
        in_step(shop, log)
        visits = [row["who"] for row in log.read("shop.visits").rows()]
    assert sorted(visits) == sorted(who for (who,) in shop.run("SELECT who FROM visits"))


@pytest.mark.parametrize("envelope", ["flat", "debezium"])
def test_transaction_markers_tell_how_many_changes_there_are(shop: Shop, envelope: str, tmp_path: Path) -> None:
    with log_at(tmp_path) as log:
        CaptureStore(log).create(shop.config(transactions=True, envelope=envelope))
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
            shop.run("BEGIN")
            shop.run("INSERT INTO orders VALUES (1, 'tea', 1), (2, 'milk', 1)")
            shop.run("INSERT INTO visits VALUES ('ada')")
            shop.run("UPDATE orders SET price = 2 WHERE id = 1")
            shop.run("COMMIT")
            shop.run("INSERT INTO visits VALUES ('bob')")
            capture.catch_up()
        markers = log.read("shop.transactions").rows()
        orders = log.read("shop.orders").rows()
    assert [row["status"] for row in markers] == ["BEGIN", "END", "BEGIN", "END"]
    counts = {one["data_collection"]: one["event_count"] for one in markers[1]["data_collections"]}
    assert (markers[1]["event_count"], counts) == (4, {"orders": 3, "visits": 1})
    if envelope == "flat":
        assert {row["_headers"]["_transaction"].decode() for row in orders} == {markers[0]["id"]}
    else:
        assert [row["transaction"] for row in orders] == [
            {"id": markers[0]["id"], "total_order": total, "data_collection_order": place}
            for place, total in ((1, 1), (2, 2), (3, 4))
        ]

"""The PostgreSQL sink against a real server: types, refusals, and whatever can be wrong with the other side."""

from __future__ import annotations

import datetime
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ColumnMisfit
from headwater.log import open as open_log
from headwater.optional import PackageMissing
from headwater.postgres.copy import encoders
from headwater.sinks import PostgresSink, Retry
from headwater.sinks.errors import RowRefused, SinkRefused, SinkUnavailable
from headwater.sinks.postgres import read_target
from tests.laws import costly
from tests.servers import Postgres, free_port
from tests.sinks.places import SHORT, micro

MOMENT = datetime.datetime(2026, 2, 3, 4, 5, 6, 789012, tzinfo=datetime.UTC)
EVERY_TYPE: dict[str, tuple[pa.DataType, Any, Any]] = {
    "b": (pa.bool_(), True, True),
    "i8": (pa.int8(), -7, -7),
    "i64": (pa.int64(), 2**63 - 1, 2**63 - 1),
    "u64": (pa.uint64(), 2**64 - 1, Decimal(2**64 - 1)),
    "f32": (pa.float32(), 1.5, 1.5),
    "f64": (pa.float64(), 0.1 + 0.2, 0.1 + 0.2),
    "infinite": (pa.float64(), float("-inf"), float("-inf")),
    "money": (pa.decimal128(20, 4), Decimal("12345.6700"), Decimal("12345.6700")),
    "text": (pa.string(), "a \"b\",\n\\.\t'c' ü", "a \"b\",\n\\.\t'c' ü"),
    "empty": (pa.string(), "", ""),
    "bytes": (pa.binary(), b"\x00\xff\\", b"\x00\xff\\"),
    "day": (pa.date32(), datetime.date(1, 2, 3), datetime.date(1, 2, 3)),
    "at": (pa.timestamp("us", "UTC"), MOMENT, MOMENT),
    "local": (pa.timestamp("us"), MOMENT.replace(tzinfo=None), MOMENT.replace(tzinfo=None)),
    "clock": (pa.time64("us"), datetime.time(1, 2, 3, 4), datetime.time(1, 2, 3, 4)),
    "lasts": (
        pa.duration("us"),
        datetime.timedelta(days=2, microseconds=-3),
        datetime.timedelta(days=2, microseconds=-3),
    ),
    "list": (pa.list_(pa.int64()), [1, None], [1, None]),
    "struct": (pa.struct([("a", pa.string()), ("n", pa.int32())]), {"a": 'x"y', "n": None}, {"a": 'x"y', "n": None}),
    "map": (pa.map_(pa.string(), pa.int64()), [("k", 1)], {"k": 1}),
}


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.new_database()


def rows(**columns: list[Any]) -> list[pa.RecordBatch]:
    return [pa.record_batch(columns)]


@pytest.mark.parametrize("key", [("id",), ()])
def test_values_of_every_type_come_back_and_so_do_nulls(postgres: Postgres, url: str, key: tuple[str, ...]) -> None:
    sink = PostgresSink(url=url, table="t", key=key, create=True)
    columns = [pa.array([1, 2, 3], pa.int64())]
    columns += [pa.array([value, None, value], kind) for kind, value, _ in EVERY_TYPE.values()]
    batch = pa.record_batch(columns, names=["id", *EVERY_TYPE])
    sink.check(batch.schema)
    sink.commit([batch], micro(0))
    found = postgres.execute("SELECT * FROM t ORDER BY id", conninfo=url)
    expected = tuple(expected for _, _, expected in EVERY_TYPE.values())
    assert found == [(1, *expected), (2, *[None] * len(EVERY_TYPE)), (3, *expected)]


def test_values_go_as_bytes_where_they_can_and_are_the_same_as_text(postgres: Postgres, url: str) -> None:
    exact = [name for name in EVERY_TYPE if name not in ("u64", "money", "clock", "lasts")]
    kinds, values = [EVERY_TYPE[name][0] for name in exact], [EVERY_TYPE[name][1] for name in exact]
    columns = [pa.array([value, None, value], kind) for kind, value in zip(kinds, values, strict=True)]
    table = pa.table(columns, names=exact).slice(1)
    PostgresSink(url=url, table="t", create=True).commit(table.to_batches(), micro(0))
    with psycopg.connect(url) as connection:
        target = read_target(connection, "public", "t")
    assert target is not None
    encode = encoders(table.schema, target.types)
    assert encode is not None, "all of these have a form in bytes"
    found = postgres.execute("SELECT * FROM t ORDER BY i64", conninfo=url)
    assert found == [tuple(EVERY_TYPE[name][2] for name in exact), tuple([None] * len(exact))]


@costly(6)
@given(texts=st.lists(st.one_of(st.none(), st.text(st.characters(exclude_characters="\0", codec="utf-8")))))
def test_any_text_comes_back(postgres: Postgres, texts: list[str | None]) -> None:
    url = postgres.conninfo()
    postgres.execute("DROP TABLE IF EXISTS any_text, headwater_commits")
    sink = PostgresSink(url=url, table="any_text", create=True)
    sink.commit([pa.record_batch({"v": pa.array(texts, pa.string())})], micro(0))
    found = [value for (value,) in postgres.execute("SELECT v FROM any_text")] if texts else []
    assert found == texts


def test_rows_are_appended_without_a_key_and_keep_their_operation(postgres: Postgres, url: str) -> None:
    sink = PostgresSink(url=url, table="t", create=True)
    sink.commit(rows(id=[1, 1], _op=["+I", "-D"], _offset=[1, 0], _partition=[0, 0]), micro(0))
    assert postgres.execute("SELECT id, _op FROM t", conninfo=url) == [(1, "-D"), (1, "+I")]


def test_a_refused_row_is_named_and_nothing_of_its_batch_is_written(postgres: Postgres, url: str) -> None:
    postgres.execute("CREATE TABLE t (id bigint PRIMARY KEY, n int CHECK (n < 100))", conninfo=url)
    sink = PostgresSink(url=url, table="t", key="id")
    with pytest.raises(RowRefused, match=r"id=777: .*violates check constraint") as caught:
        sink.commit(rows(id=list(range(1000)), n=[100 if number == 777 else 1 for number in range(1000)]), micro(0))
    assert caught.value.sink == "postgres:public.t"
    assert postgres.execute("SELECT count(*) FROM t", conninfo=url) == [(0,)]


def test_all_refused_rows_become_letters_and_the_others_are_written(
    postgres: Postgres, url: str, tmp_path: Path
) -> None:
    postgres.execute(
        "CREATE TABLE t (id bigint PRIMARY KEY, n smallint NOT NULL, v text UNIQUE DEFERRABLE INITIALLY DEFERRED)",
        conninfo=url,
    )
    with open_log(tmp_path / "log") as log:
        sink = PostgresSink(url=url, table="t", key="id", on_refused="dead_letter", log=log.home, dead_letters="t")
        numbers: list[int | None] = [1] * 50
        texts = [f"v{number}" for number in range(50)]
        numbers[3], numbers[40], texts[20], texts[31] = None, 2**40, "a\0b", "v30"
        batch = rows(id=list(range(50)), n=numbers, v=texts, _partition=[2] * 50, _offset=list(range(100, 150)))
        sink.commit(batch, micro(0))
        letters = log.read("t.dlq").rows()
    assert [(letter["partition"], letter["offset"]) for letter in letters] == [(2, 103), (2, 120), (2, 131), (2, 140)]
    assert letters[0]["row"] == '{"id":3,"n":null,"v":"v3"}'
    assert "null value" in letters[0]["message"]
    assert "duplicate key" in letters[2]["message"]
    assert postgres.execute("SELECT count(*) FROM t", conninfo=url) == [(46,)]


def test_a_table_that_is_missing_or_was_dropped_is_said_to_be(postgres: Postgres, url: str) -> None:
    sink = PostgresSink(url=url, table="t", key="id")
    with pytest.raises(SinkRefused, match=r"there is no table 'public.t'.*create=True"):
        sink.check(rows(id=[1])[0].schema)
    postgres.execute("CREATE TABLE t (id bigint PRIMARY KEY)", conninfo=url)
    sink.commit(rows(id=[1]), micro(0))
    postgres.execute("DROP TABLE t", conninfo=url)
    with pytest.raises(SinkRefused, match="there is no table"):
        sink.commit(rows(id=[2]), micro(1))
    postgres.execute("CREATE TABLE t (id bigint PRIMARY KEY)", conninfo=url)
    sink.commit(rows(id=[2]), micro(1))
    assert postgres.execute("SELECT id FROM t", conninfo=url) == [(2,)]


def test_columns_that_do_not_fit_are_named_before_the_first_batch(postgres: Postgres, url: str) -> None:
    postgres.execute(
        "CREATE TABLE t (id bigint PRIMARY KEY, amount numeric NOT NULL, made int, note text)", conninfo=url
    )
    sink = PostgresSink(url=url, table="t", key="id")
    with pytest.raises(ColumnMisfit, match=r"'amuont' .*: it is not in the table; did you mean 'amount'\?"):
        sink.check(pa.schema([("id", pa.int64()), ("amuont", pa.float64())]))
    with pytest.raises(ColumnMisfit, match=r"'amount' .*: it is not null in the table, and the query lacks it"):
        sink.check(pa.schema([("id", pa.int64())]))
    with pytest.raises(ColumnMisfit, match=r"'made' .*: it is timestamp.*and the table has integer"):
        sink.check(pa.schema([("id", pa.int64()), ("amount", pa.int32()), ("made", pa.timestamp("us"))]))
    with pytest.raises(SinkRefused, match=r"no unique index over its key \(note\).*CREATE UNIQUE INDEX"):
        PostgresSink(url=url, table="t", key="note").check(
            pa.schema([("id", pa.int64()), ("amount", pa.int32()), ("note", pa.string())])
        )
    sink.check(pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("note", pa.string())]))


def test_wrong_credentials_and_a_missing_database_are_not_waited_for(postgres: Postgres) -> None:
    patient = Retry(seconds_max=3600)
    wrong = postgres.conninfo().replace("password@", "pass@")
    with pytest.raises(
        SinkRefused, match=r"password authentication failed.*Correct the user or the password"
    ) as caught:
        PostgresSink(url=wrong, table="t", retry=patient).commit(rows(id=[1]), micro(0))
    assert "pass@" not in repr(PostgresSink(url=wrong, table="t"))
    assert "a%20test" not in str(caught.value), "a secret is not shown"
    with pytest.raises(SinkRefused, match=r'database "nowhere" does not exist.*Create the database'):
        PostgresSink(url=postgres.conninfo("nowhere"), table="t", retry=patient).commit(rows(id=[1]), micro(0))


def test_an_address_that_cannot_be_read_is_not_waited_for() -> None:
    with pytest.raises(SinkRefused, match="Correct `url`"):
        PostgresSink(url="localhost:5432/shop", table="t", retry=Retry(seconds_max=3600)).commit(rows(id=[1]), micro(0))


def test_a_user_without_rights_is_told_what_is_missing(postgres: Postgres, url: str) -> None:
    postgres.execute(
        "DO $$ BEGIN CREATE ROLE reader LOGIN PASSWORD 'r'; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    postgres.execute("CREATE TABLE t (id bigint PRIMARY KEY)", conninfo=url)
    reader = url.replace(url.partition("//")[2].partition("@")[0], "reader:r")
    with pytest.raises(SinkRefused, match=r"permission denied for schema public.*CREATE TABLE.*headwater_commits"):
        PostgresSink(url=reader, table="t", key="id").commit(rows(id=[1]), micro(0))


def test_a_server_that_is_not_there_is_said_to_be() -> None:
    sink = PostgresSink(url=f"postgresql://127.0.0.1:{free_port()}/x", table="t", retry=SHORT)
    with pytest.raises(SinkUnavailable, match="refused"):
        sink.commit(rows(id=[1]), micro(0))


def test_a_lock_that_another_connection_holds_is_waited_for(
    postgres: Postgres, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.sinks.postgres.LOCK_MILLISECONDS_MAX", 50)
    sink = PostgresSink(url=url + "?application_name=locked", table="t", key="id", create=True, retry=SHORT)
    sink.commit(rows(id=[1]), micro(0))
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE t")
        with pytest.raises(SinkUnavailable, match="lock timeout"):
            sink.commit(rows(id=[2]), micro(1))
    sink.commit(rows(id=[2]), micro(1))
    assert postgres.execute("SELECT id FROM t ORDER BY id", conninfo=url) == [(1,), (2,)]


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(PackageMissing, match=r"headwater\[postgres\]"):
        PostgresSink(url="postgresql://x", table="t").commit(rows(id=[1]), micro(0))

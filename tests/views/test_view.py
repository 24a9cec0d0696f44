"""What a reader of a view can do: the same in the keeper's process and over its API."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from headwater.errors import ArgumentInvalid, NotFound
from headwater.http import Settings
from headwater.log import Log
from headwater.log.remote.wire import ARROW
from headwater.views import RemoteView, View, ViewKeeper
from headwater.views.errors import StatementExceeded, StatementInvalid, ViewBehind, ViewKeyInvalid
from headwater.views.statement import Bounds
from tests.views.conftest import SPEND, spec
from tests.views.view_server import serve_views

SECONDS_MAX = 240.0
Reader = View | RemoteView


#: Each store in this process, and the wire once: what is asked over HTTP reaches the same keeper.
readers = pytest.mark.parametrize(
    ("open_store", "view"),
    [
        pytest.param("duckdb", "here", id="here"),
        pytest.param("duckdb", "remote", id="remote"),
        pytest.param("postgres", "here", id="postgres", marks=pytest.mark.process),
    ],
    indirect=True,
)


@pytest.fixture
def view(request: pytest.FixtureRequest, log: Log, keeper: ViewKeeper) -> Iterator[Reader]:
    """The view `spend` over three cards, kept by a thread."""
    log.create("spend", SPEND, key="card", compact=True, partitions=2)
    log.append("spend", [{"card": card, "total": card * 1.5, "shop": "abc"[card % 3]} for card in range(3)])
    here = keeper.add(spec())
    keeper.catch_up()
    keeper.start()
    if request.param == "here":
        yield here
        return
    with serve_views(keeper) as address:
        remote = RemoteView("spend", address=address)
        yield remote
        remote.close()


@readers
def test_one_row_is_found_by_its_key(view: Reader) -> None:
    assert view.get(card=2) == {"card": 2, "total": 3.0, "shop": "c"}
    assert view.get({"card": 1}) == {"card": 1, "total": 1.5, "shop": "b"}
    assert view.get(card=99) is None


@readers
def test_what_is_no_key_is_told_clearly(view: Reader) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"crad": 1}, "'crad' is not part of it; did you mean 'card'?"),
        ({}, "'card' is missing"),
        ({"card": None}, "'card' is null"),
        ({"card": "many"}, "'card'"),
    ]
    for key, why in wrong:
        with pytest.raises(ViewKeyInvalid) as failure:
            view.get(key)
        assert why in str(failure.value)


@readers
def test_rows_are_those_that_fit(view: Reader) -> None:
    assert sorted(row["card"] for row in view.rows()) == [0, 1, 2]
    assert [row["card"] for row in view.rows({"shop": "b"})] == [1]
    assert [row["card"] for row in view.rows("total > $1", parameters=[2.0])] == [2]
    assert len(view.rows(limit=2)) == 2
    assert view.rows(limit=0) == []
    with pytest.raises(ArgumentInvalid, match="did you mean 'shop'"):
        view.rows({"shpo": "b"})


#: Each would read the view `secret` where `spend` is asked.
INTRUDERS = [
    "false UNION ALL SELECT card, total, shop FROM secret",
    "false) UNION ALL (SELECT card, total, shop FROM secret WHERE (true)",
    "true); SELECT (1",
    "card IN (SELECT card FROM secret)",
    "card IN (WITH spend AS (SELECT * FROM secret) SELECT card FROM spend)",
    "card IN (SELECT card FROM query_table('secret'))",
    "card IN (SELECT card FROM query('SELECT card FROM secret'))",
    "card IN (SELECT version FROM headwater.views)",
    "EXISTS (FROM (DESCRIBE secret))",
    "true ORDER BY card",
    "true LIMIT 1",
    "query_to_xml('SELECT * FROM secret', true, false, '') IS NOT NULL",
    "card = ANY(SELECT card FROM secret)",
    "card = ANY(ARRAY(SELECT card FROM secret))",
    "card IN (SELECT unnest(ARRAY(SELECT card FROM secret)))",
    "shop = '--' OR card IN (SELECT card FROM secret)",
    '"card" = $1 OR card IN (SELECT card FROM secret)',
]


@readers
def test_a_condition_reads_no_other_view(view: Reader, keeper: ViewKeeper, log: Log) -> None:
    log.create("secret", SPEND, key="card", compact=True)
    log.append("secret", [{"card": 1, "total": 5.0, "shop": "hidden"}])
    keeper.add(spec("secret"))
    keeper.view("secret").rows(at_least={"secret": log.end_offsets("secret")}, timeout=SECONDS_MAX)
    for condition in INTRUDERS:
        try:
            found = view.rows(condition)
        except StatementInvalid:
            continue
        pytest.fail(f"{condition!r} has read {found}")
    assert len(view.rows("")) == 3  # no condition at all


@readers
def test_a_condition_has_what_conditions_have(view: Reader) -> None:
    for condition in (
        "lower(shop) LIKE 'c%' AND card BETWEEN 1 AND 9",
        "coalesce(total, 0) >= 3 OR shop IS NULL",
        "card IN (2, 7) AND NOT shop = 'b' AND shop || 'x' <> 'b)'",
        "CASE WHEN card = 2 THEN true ELSE false END",
        "shop ~ '^c' AND shop ~* 'C' AND shop !~ '[ab]'",
        "nullif(card, 1) = 2",
        "card = ANY(ARRAY[2, 7])",
        "shop <> 'a--b' AND shop <> '/*' AND shop <> '$$' AND card = 2",
    ):
        assert [row["card"] for row in view.rows(condition)] == [2], condition
    with pytest.raises(StatementInvalid, match=r"syntax error.*goes in double quotes"):
        view.rows("at > now()")


@readers
def test_sql_reads_and_only_reads(view: Reader) -> None:
    assert view.sql("SELECT count(*) AS n FROM spend WHERE card >= $1", [1]).to_pylist() == [{"n": 2}]
    assert view.sql("SELECT shop FROM spend WHERE card = $card", {"card": 1}).to_pylist() == [{"shop": "b"}]
    for statement in ("DELETE FROM spend", "SELECT 1; SELECT 2", "SELECT * FROM nowhere"):
        with pytest.raises(StatementInvalid):
            view.sql(statement)
    assert len(view.rows()) == 3


@pytest.mark.parametrize("view", ["here"], indirect=True)  # over HTTP the bounds are those of the server
def test_a_statement_has_the_bounds_of_who_asks(view: View, keeper: ViewKeeper) -> None:
    endless = "SELECT count(*) AS n FROM " + ", ".join(f"spend a{number}" for number in range(25))
    with pytest.raises(StatementExceeded, match="2 seconds"):
        view.within(Bounds(seconds_max=0.2)).sql(endless)
    with pytest.raises(StatementExceeded, match="2 rows"):
        view.within(Bounds(rows_max=2)).sql("SELECT * FROM spend")
    with pytest.raises(StatementExceeded, match="2 rows"):
        view.within(Bounds(rows_max=2)).rows()
    with pytest.raises(StatementExceeded, match="10 B"):
        view.within(Bounds(memory_max=10)).rows()
    enough = view.within(Bounds(rows_max=3, seconds_max=60.0, memory_max=10_000))
    assert enough.rows() == view.rows()
    assert enough.sql("SELECT count(*) AS n FROM spend").to_pylist() == [{"n": 3}]
    assert keeper.view("spend").rows() == view.rows()  # the next caller has none of them


def test_a_view_over_http_has_the_bounds_of_its_server(log: Log, keeper: ViewKeeper) -> None:
    log.create("spend", SPEND, key="card", compact=True)
    log.append("spend", [{"card": card, "total": 1.0, "shop": "a"} for card in range(5)])
    keeper.add(spec())
    keeper.catch_up()
    settings = Settings(answer_rows_max=4, statement_seconds_max=0.2)
    with serve_views(keeper, settings=settings) as address, httpx.Client(base_url=f"{address}/api/v1") as client:

        def bound(path: str, **body: Any) -> str:
            answer = client.post(path, json=body)
            assert answer.json()["error"] == "StatementExceeded"
            return str(answer.json()["facts"]["bound"])

        for path, body in (("/views/spend/rows", {}), ("/sql", {"sql": "SELECT * FROM spend"})):
            assert bound(path, **body) == "4 rows"
            assert client.post(path, json=body, headers={"Accept": ARROW}).status_code == 200
        endless = "SELECT count(*) AS n FROM " + ", ".join(f"spend a{number}" for number in range(25))
        assert bound("/sql", sql=endless) == "0.2 seconds"


@readers
def test_a_reader_sees_its_own_write(view: Reader, log: Log) -> None:
    for total in range(20):
        appended = log.append("spend", [{"card": 1, "total": float(total)}])
        found = view.get(card=1, at_least={"spend": appended.offsets_next}, timeout=SECONDS_MAX)
        assert found is not None
        assert found["total"] == float(total)


@readers
def test_a_write_that_does_not_come_is_told_with_how_far_the_view_is(view: Reader) -> None:
    with pytest.raises(ViewBehind, match="not yet up to 1000 in partition 0") as failure:
        view.get(card=1, at_least={"spend": {0: 1000}}, timeout=0.05)
    assert failure.value.view == "spend"
    for read in (view.rows, lambda **settings: view.sql("SELECT 1", **settings)):
        with pytest.raises(ViewBehind):
            read(at_least={"spend": {0: 1000}}, timeout=0.05)


@readers
def test_a_subscription_gives_all_rows_and_then_each_change(view: Reader, log: Log) -> None:
    with view.subscribe() as changes:
        first = [changes.next(timeout=SECONDS_MAX) for _ in range(3)]
        assert sorted(change.row["card"] for change in first if change) == [0, 1, 2]
        assert {(change.op, change.offset) for change in first if change} == {("+U", None)}
        log.append("spend", [{"card": 7, "total": 7.0}])
        change = changes.next(timeout=SECONDS_MAX)
        assert change is not None
        assert (change.op, change.row) == ("+U", {"card": 7, "total": 7.0, "shop": None})
        assert change.offset is not None
        log.append("spend", [{"card": 7, "_tombstone": True}])
        gone = changes.next(timeout=SECONDS_MAX)
        assert gone is not None
        assert (gone.op, gone.row) == ("-D", {"card": 7})
        assert changes.next(timeout=0.05) is None


@readers
def test_a_subscription_goes_on_from_a_position(view: Reader, log: Log) -> None:
    with view.subscribe() as changes:
        for _ in range(3):
            changes.next(timeout=SECONDS_MAX)
        log.append("spend", [{"card": 8, "total": 1.0}])
        assert changes.next(timeout=SECONDS_MAX) is not None
        position = changes.position
    log.append("spend", [{"card": 9, "total": 2.0}])
    with view.subscribe(start=position) as changes:
        change = changes.next(timeout=SECONDS_MAX)
        assert change is not None
        assert change.row["card"] == 9


@readers
def test_a_switch_to_another_version_is_told_as_a_reset(view: Reader, log: Log, keeper: ViewKeeper) -> None:
    with view.subscribe() as changes:
        for _ in range(3):
            changes.next(timeout=SECONDS_MAX)
        log.append("spend", [{"card": 1, "total": 5.0}])
        assert changes.next(timeout=SECONDS_MAX) is not None
        log.create("spend.v2", SPEND, key="card", compact=True)
        log.append("spend.v2", [{"card": 70, "total": 7.0}])
        keeper.add(spec(topic="spend.v2", version=2))
        keeper.catch_up()
        keeper.switch("spend", 2)
        told = [changes.next(timeout=SECONDS_MAX) for _ in range(2)]
        assert [(change.op, change.row.get("card")) for change in told if change] == [("reset", None), ("+U", 70)]
    assert view.get(card=70) is not None
    assert view.get(card=1) is None


@readers
def test_a_view_says_what_it_is_and_where_it_stands(view: Reader, log: Log) -> None:
    told = view.describe()
    assert (told["name"], told["version"], told["key"], told["topic"]) == ("spend", 1, ["card"], "spend")
    assert view.position.offsets == log.end_offsets("spend")
    assert view.freshness == 0.0
    assert told["problem"] is None


@readers
def test_a_view_that_is_not_there_is_told_with_its_neighbour(view: Reader, keeper: ViewKeeper) -> None:
    with pytest.raises(NotFound, match="Did you mean 'spend'"):
        keeper.view("spnd")
    keeper.remove("spend")
    with pytest.raises(NotFound):
        view.get(card=1)


def test_values_of_every_kind_arrive_as_they_are(log: Log, keeper: ViewKeeper) -> None:
    schema = pa.schema(
        [
            ("card", pa.decimal128(20, 4)),
            ("at", pa.timestamp("us", "UTC")),
            ("raw", pa.binary()),
            ("tags", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ]
    )
    row = {
        "card": decimal.Decimal("1234567890123456.1001"),
        "at": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
        "raw": b"\xff\x00",
        "tags": {"a": [1, 2**53 + 1]},
    }
    log.create("exact", schema, key="card", compact=True)
    log.append("exact", [row])
    keeper.add(spec("exact", schema))
    keeper.catch_up()
    keeper.start()
    with serve_views(keeper) as address:
        remote = RemoteView("exact", address=address)
        assert remote.get(card=row["card"]) == row
        with remote.subscribe() as changes:
            first = changes.next(timeout=SECONDS_MAX)
            assert first is not None
            assert first.row == row
        remote.close()

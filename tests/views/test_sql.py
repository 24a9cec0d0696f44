"""SQL over topics: names, columns, pruning, and the same answers as a plain scan."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater.log
from headwater.clock import ManualClock
from headwater.log import Log
from headwater.units import MIB
from headwater.views import ViewKeeper
from headwater.views.errors import StatementExceeded, StatementInvalid
from headwater.views.sql import Sql
from headwater.views.statement import Bounds, Stoppable
from tests.laws import costly
from tests.views.conftest import SPEND, spec


@pytest.fixture
def payments(log: Log) -> Log:
    log.create("payments", {"id": "int64", "card": "int64", "amount": "float64"}, key="card", partitions=3)
    log.append("payments", [{"id": i, "card": i % 7, "amount": float(i)} for i in range(100)])
    return log


def test_rows_are_aggregated_with_the_logs_own_columns(payments: Log) -> None:
    found = Sql(payments).query(
        "SELECT count(*) AS n, sum(amount) AS total, max(_offset) < 100 AS low, count(DISTINCT _partition) AS parts, "
        "min(_appended_at) IS NOT NULL AS timed FROM payments"
    )
    [row] = found.to_pylist()
    assert (row["n"], row["total"], row["low"], row["timed"]) == (100, 4950.0, True, True)


def test_a_topic_is_joined_with_itself_and_used_in_subqueries(payments: Log) -> None:
    sql = Sql(payments)
    joined = sql.query("SELECT count(*) AS n FROM payments a JOIN payments b ON a.id = b.id AND a.card < 3")
    assert joined.to_pylist() == [{"n": 44}]
    twice = (
        "WITH p AS (SELECT id FROM payments) SELECT count(*) AS n FROM p WHERE id IN (SELECT id FROM p WHERE id < 9)"
    )
    assert sql.query(twice).to_pylist() == [{"n": 9}]
    assert sql.query("SELECT id FROM payments ORDER BY id DESC", limit=2).to_pylist() == [{"id": 99}, {"id": 98}]
    assert sql.query("SELECT id FROM payments WHERE id = $1", [5]).to_pylist() == [{"id": 5}]


def test_the_current_state_of_a_keyed_topic_is_its_last_rows(log: Log) -> None:
    log.create("spend", SPEND, key="card", compact=True, partitions=2)
    log.append("spend", [{"card": 1, "total": 1.0}, {"card": 2, "total": 2.0}, {"card": 1, "total": 3.0}])
    log.append("spend", [{"card": 2, "_tombstone": True}])
    sql = Sql(log)
    assert sql.query("SELECT card, total FROM current.spend").to_pylist() == [{"card": 1, "total": 3.0}]
    assert sql.query("SELECT count(*) AS n FROM log.spend").to_pylist() == [{"n": 4}]
    assert sql.query("SELECT * FROM current.spend").column_names == [
        *SPEND.names,
        "_partition",
        "_offset",
        "_appended_at",
    ]


def test_a_view_and_a_topic_are_joined(log: Log, keeper: ViewKeeper) -> None:
    log.create("spend", SPEND, key="card", compact=True)
    log.append("spend", [{"card": 1, "total": 1.0}, {"card": 1, "total": 2.0}])
    log.create("cards", {"card": "int64", "owner": "string"})
    log.append("cards", [{"card": 1, "owner": "Ada"}])
    keeper.add(spec())
    keeper.catch_up()

    class Tables:
        def names(self) -> list[str]:
            return keeper.names()

        def table(self, name: str) -> pa.Table:
            return keeper.view(name).table()

        def query(
            self,
            statement: str,
            parameters: object = None,
            *,
            over: Sequence[str],
            stoppable: Stoppable | None = None,
        ) -> pa.Table:
            assert (parameters, over, stoppable) == (None, ["spend"], None)
            return keeper.store.query(statement)

    sql = Sql(log, Tables())
    assert sql.query("SELECT total FROM spend").to_pylist() == [{"total": 2.0}]
    assert sql.query("SELECT total FROM view.spend").to_pylist() == [{"total": 2.0}]
    assert sql.query("SELECT count(*) AS n FROM log.spend").to_pylist() == [{"n": 2}]
    joined = sql.query("SELECT owner, total FROM spend JOIN cards USING (card)")
    assert joined.to_pylist() == [{"owner": "Ada", "total": 2.0}]
    assert sql.topics("SELECT * FROM spend JOIN cards USING (card)") == ["cards", "spend"]


def test_a_name_is_read_also_where_a_definition_of_the_statement_has_it_too(payments: Log) -> None:
    sql = Sql(payments)
    hidden = "WITH payments AS (SELECT id FROM payments WHERE id < 5) SELECT count(*) AS n FROM payments"
    assert sql.names(hidden) == ["payments"]
    assert sql.query(hidden).to_pylist() == [{"n": 5}]
    recursive = (
        "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n WHERE x < 4) SELECT max(x) AS x FROM n"
    )
    assert sql.names(recursive) == []
    assert sql.query(recursive).to_pylist() == [{"x": 4}]
    with pytest.raises(StatementInvalid):
        sql.query("SELECT * FROM query_table('payments')")


def test_names_that_mean_nothing_are_told_with_their_neighbours(payments: Log) -> None:
    with pytest.raises(StatementInvalid, match="no topic or view 'paymets'; did you mean 'payments'"):
        Sql(payments).query("SELECT * FROM paymets")
    with pytest.raises(StatementInvalid, match=r"no topic or view 'view\.payments'"):
        Sql(payments).query("SELECT * FROM view.payments")
    with pytest.raises(StatementInvalid, match="has no key"):
        payments.create("free", {"a": "int64"})
        Sql(payments).query("SELECT * FROM current.free")
    with pytest.raises(StatementInvalid, match="DELETE is no query"):
        Sql(payments).query("DELETE FROM payments")
    with pytest.raises(StatementInvalid, match="amuont"):
        Sql(payments).query("SELECT amuont FROM payments")


def test_a_topic_with_a_dot_or_a_dash_in_its_name_is_read(log: Log) -> None:
    for name in ("spend.v2", "my-topic"):
        log.create(name, {"a": "int64"})
        log.append(name, [{"a": 1}])
    assert Sql(log).query("SELECT a FROM spend.v2").to_pylist() == [{"a": 1}]
    assert Sql(log).query('SELECT a FROM "my-topic"').to_pylist() == [{"a": 1}]


def test_a_file_is_joined_with_a_topic(payments: Log, tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("card,name\n3,Ada\n")
    found = Sql(payments).query(
        f"SELECT name, count(*) AS n FROM payments JOIN '{tmp_path}/names.csv' USING (card) GROUP BY name"
    )
    assert found.to_pylist() == [{"name": "Ada", "n": 14}]


class Stopping:
    """A view whose reading is where the statement is stopped: DuckDB runs nothing then, and forgets it."""

    def __init__(self) -> None:
        self.stop: Callable[[], None] = lambda: None

    def names(self) -> list[str]:
        return ["spend"]

    def table(self, name: str) -> pa.Table:
        self.stop()
        return pa.table({"card": [1]}) if name == "spend" else pa.table({})

    def query(
        self, statement: str, parameters: object = None, *, over: Sequence[str], stoppable: Stoppable | None = None
    ) -> pa.Table | None:
        raise AssertionError(statement, parameters, over, stoppable)


ENDLESS = "SELECT sum(a.range * b.range) AS n FROM range(3000000) a, range(3000000) b"


def test_a_statement_that_is_stopped_while_its_tables_are_brought_does_not_run(log: Log) -> None:
    tables = Stopping()

    def hand_over(stop: Callable[[], None]) -> None:
        tables.stop = stop

    with pytest.raises(StatementInvalid, match="it was stopped"):
        Sql(log, tables).query(f"SELECT * FROM spend, ({ENDLESS})", stoppable=hand_over)


def test_a_statement_is_stopped_from_another_thread_however_early(payments: Log) -> None:
    with pytest.raises(StatementInvalid, match="it was stopped"):
        Sql(payments).query(ENDLESS, stoppable=lambda stop: threading.Timer(0.2, stop).start())
    with pytest.raises(StatementInvalid, match="it was stopped"):
        Sql(payments).query(ENDLESS, stoppable=lambda stop: stop())
    assert Sql(payments).query("SELECT 1 AS a", stoppable=lambda _: None).to_pylist() == [{"a": 1}]


def test_a_statement_has_bounds_in_time_rows_and_memory(payments: Log) -> None:
    with pytest.raises(StatementExceeded, match="2 seconds"):
        Sql(payments, bounds=Bounds(seconds_max=0.2)).query(ENDLESS)
    with pytest.raises(StatementExceeded, match="99 rows"):
        Sql(payments, bounds=Bounds(rows_max=99)).query("SELECT * FROM payments")
    with pytest.raises(StatementExceeded, match="32 MiB"):
        Sql(payments, bounds=Bounds(memory_max=32 * MIB)).query("SELECT list(range) FROM range(100000000)")
    bounds = Bounds(rows_max=100, seconds_max=60.0, memory_max=32 * MIB, threads_max=1)
    within = Sql(payments, files=False, bounds=bounds).query("SELECT * FROM payments ORDER BY id")
    assert within.equals(Sql(payments).query("SELECT * FROM payments ORDER BY id"))
    assert Sql(payments, bounds=bounds).query("SELECT * FROM payments WHERE id < 0").num_rows == 0
    with pytest.raises(StatementInvalid, match="boom"):
        Sql(payments, bounds=bounds).query("SELECT CASE WHEN range > 50 THEN error('boom') END FROM range(90)")


CONDITIONS = st.one_of(
    st.builds("_offset {} {}".format, st.sampled_from(["<", "<=", "=", ">", ">="]), st.integers(-5, 40)),
    st.builds("{} {} _partition".format, st.integers(-1, 4), st.sampled_from(["<", "<=", "=", ">", ">="])),
    st.builds(
        "_appended_at {} {}TIMESTAMP '2024-01-01 00:00:{:02d}'".format,
        st.sampled_from(["<", "<=", "=", ">", ">="]),
        st.just(""),
        st.integers(0, 20),
    ),
    st.just("_offset BETWEEN 3 AND 9"),
    st.just("_offset % 2 = 0"),
)


@costly(4)
@given(conditions=st.lists(CONDITIONS, min_size=1, max_size=3), word=st.sampled_from([" AND ", " OR "]))
def test_pruning_never_changes_an_answer(timed: Log, conditions: list[str], word: str) -> None:
    sql = Sql(timed)
    where = word.join(conditions)
    pruned = sql.query(f"SELECT id FROM ticks WHERE {where}")
    # Through a subquery nothing is known of the columns, so that all rows are read and DuckDB filters them.
    whole = sql.query(f"SELECT id FROM (SELECT * FROM ticks) WHERE {where}")
    assert sorted(pruned.column(0).to_pylist()) == sorted(whole.column(0).to_pylist())


@pytest.fixture
def timed(tmp_path: Path) -> Log:
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    clock = ManualClock(start_us=round(start.timestamp() * 1e6))
    log = headwater.log.open(tmp_path / "timed", clock=clock)
    log.create("ticks", {"id": "int64"}, partitions=3)
    for i in range(30):
        log.append("ticks", [{"id": 2 * i}, {"id": 2 * i + 1}], partition=i % 3)
        clock.advance(seconds=0.5)
    return log

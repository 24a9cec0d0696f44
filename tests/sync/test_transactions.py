"""Whole transactions: a target never has a part of one, however topics become visible."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.capture import Capture, CaptureConfig, CaptureStore
from headwater.capture.envelope import EnvelopeName
from headwater.errors import ArgumentInvalid, NotPossible
from headwater.log import Log
from headwater.sync import Sync, SyncInvalid, TargetTable, TopicGap
from headwater.sync import sync as sync_module
from tests.laws import costly
from tests.sync.rows import define, log_at

TABLES = ("debits", "credits")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with log_at(tmp_path) as log:
        make_topics(log)
        yield log


def make_topics(log: Log, *, partitions: int = 1) -> None:
    for table in TABLES:
        log.create(f"bank.{table}", {"id": "int64", "amount": "int64"}, key="id", compact=True, partitions=partitions)
    log.create(
        "bank.transactions",
        {
            "status": "string",
            "id": "string",
            "event_count": "int64",
            "data_collections": "list<struct<data_collection: string, event_count: int64>>",
        },
    )


# Any: rows.
def rows_of(name: str | None, changes: dict[int, int]) -> dict[str, Any]:
    rows = [{"id": key, "amount": amount} for key, amount in changes.items()]
    return {"rows": rows, "headers": None if name is None else {"_transaction": name.encode()}}


def markers_of(name: str, counts: dict[str, int]) -> list[dict[str, Any]]:
    tables = [{"data_collection": table, "event_count": count} for table, count in counts.items()]
    end = {"status": "END", "id": name, "event_count": sum(counts.values()), "data_collections": tables}
    return [{"status": "BEGIN", "id": name}, end]


def transfer(log: Log, name: str, debits: dict[int, int], credits: dict[int, int]) -> None:
    """One transaction of the database, as a capture appends it."""
    with log.transaction() as transaction:
        transaction.append("bank.debits", **rows_of(name, debits))
        transaction.append("bank.credits", **rows_of(name, credits))
        transaction.append("bank.transactions", markers_of(name, {"debits": len(debits), "credits": len(credits)}))


def sums(folder: Path) -> tuple[int, int]:
    with sqlite3.connect(folder / "copy.db") as copy:
        found = tuple(copy.execute(f"SELECT coalesce(sum(amount), 0) FROM {table}").fetchone()[0] for table in TABLES)
    copy.close()
    return found[0], found[1]


TRANSFERS = st.lists(
    st.dictionaries(st.integers(1, 4), st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=8
)


@costly(4)
@given(transfers=TRANSFERS, rows_max=st.integers(1, 6), partitions=st.integers(1, 2))
def test_after_each_step_the_target_has_whole_transactions(
    transfers: list[dict[int, int]], rows_max: int, partitions: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("bank")
    with log_at(folder) as log, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sync_module, "ROWS_MAX", rows_max)
        make_topics(log, partitions=partitions)
        define(log, f"sqlite:///{folder}/copy.db", topics=("bank.*",), transactions=True)
        # What is debited is credited, to another key: the sums are equal before and after each transaction.
        for number, amounts in enumerate(transfers):
            transfer(log, str(number), amounts, {key + 10: amount for key, amount in amounts.items()})
        last: dict[int, int] = {}
        for amounts in transfers:
            last |= amounts
        with Sync.open(log, "copy") as sync:
            more = True
            while more:
                more = sync.step().more
                debits, credits = sums(folder)
                assert debits == credits
        assert sums(folder)[0] == sum(last.values())


def test_what_is_visible_in_one_topic_only_waits(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    define(log, f"sqlite:///{tmp_path}/copy.db", topics=("bank.*",), transactions=True)
    transfer(log, "1", {1: 5}, {2: 5})
    # The second transaction is visible in one topic, then its marker, and only then in the other topic.
    log.append("bank.debits", **rows_of("2", {1: 7}))
    with Sync.open(log, "copy") as sync:
        sync.catch_up()
        assert sums(tmp_path) == (5, 5)
        log.append("bank.transactions", markers_of("2", {"debits": 1, "credits": 1}))
        assert sync.step().more
        assert sums(tmp_path) == (5, 5)
        monkeypatch.setattr(sync_module, "COMMIT_SECONDS_MAX", -1.0)
        with pytest.raises(TopicGap, match="have not become visible"):
            sync.step()
        log.append("bank.credits", **rows_of("2", {2: 7}))
        sync.catch_up()
        assert sums(tmp_path) == (7, 7)
        assert sync.catch_up() == 0


def test_rows_of_a_snapshot_are_applied_before_transactions(log: Log, tmp_path: Path) -> None:
    define(log, f"sqlite:///{tmp_path}/copy.db", topics=("bank.*",), transactions=True)
    for table in TABLES:
        log.append(f"bank.{table}", **rows_of(None, dict.fromkeys(range(20, 30), 1)))
    transfer(log, "1", {20: 5}, {20: 5})
    with Sync.open(log, "copy") as sync:
        sync.catch_up()
    assert sums(tmp_path) == (14, 14)


def test_what_cannot_be_applied_as_transactions_is_refused(log: Log, tmp_path: Path) -> None:
    with pytest.raises(ArgumentInvalid, match="a database or Redis"):
        define(log, f"delta:///{tmp_path}/lake", transactions=True)
    log.create("shop.orders", {"id": "int64"}, key="id")
    define(log, f"sqlite:///{tmp_path}/copy.db", transactions=True)
    with Sync.open(log, "copy") as sync:
        with pytest.raises(SyncInvalid, match="no capture with transaction markers"):
            sync.catch_up()
        with pytest.raises(NotPossible, match="one table after the other"):
            sync.rebuild()


@pytest.mark.process
@pytest.mark.parametrize("envelope", ["flat", "debezium"])
def test_transactions_of_mariadb_are_whole_in_the_target(
    envelope: EnvelopeName, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = request.getfixturevalue("mariadb")
    database = server.new_database()
    monkeypatch.setattr(sync_module, "ROWS_MAX", 3)
    with log_at(tmp_path) as log, server.connect(database) as bank:
        run = bank.cursor().execute
        for table in TABLES:
            run(f"CREATE TABLE {table} (id INT PRIMARY KEY, amount INT)")
            run(f"INSERT INTO {table} VALUES (1, 10), (2, 20)")
        url = server.url(database)
        CaptureStore(log).create(CaptureConfig(name="bank", url=url, envelope=envelope, transactions=True))
        define(log, f"sqlite:///{tmp_path}/copy.db", topics=("bank.*",), transactions=True)
        with Capture.open(log, "bank") as capture:
            capture.catch_up()
            for amount in range(5):
                run("BEGIN")
                for table in TABLES:
                    run(f"UPDATE {table} SET amount = amount + {amount} WHERE id < 3")
                    run(f"DELETE FROM {table} WHERE id = {amount + 100 - 1}")
                    run(f"INSERT INTO {table} VALUES ({amount + 100}, {amount})")
                run("COMMIT")
            capture.catch_up()
            with Sync.open(log, "copy") as sync:
                while sync.step().more:
                    debits, credits = sums(tmp_path)
                    assert debits == credits or not sync.position(markers_table(log))
        assert sums(tmp_path) == (50 + 4, 50 + 4)


def markers_table(log: Log) -> TargetTable:
    topic = log.topic("bank.transactions")
    return TargetTable(topic=topic.name, topic_id=topic.id, name="", columns=topic.schema, key=())

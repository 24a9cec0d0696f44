"""Transactions over a log and PostgreSQL: both sides have the same ones, whenever a process is killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import headwater as hw
from headwater.errors import InUse, NotPossible
from headwater.faults import TWO_PHASE_CRASH_POINTS
from headwater.log import Log
from headwater.postgres import TransactionsDiverged, TwoPhaseCommit
from headwater.testing import CrashAt, run_until_killed
from tests.servers import PeerUnavailable, Postgres, postgres_server

pytestmark = pytest.mark.process
#: Those of a transaction of the log, and ours.
POINTS = (
    "prepare.written",
    "prepare.published",
    "commit.written",
    "commit.synced",
    "commit.recording",
    "commit.recorded",
    "commit.flipped",
    "commit.finished",
    *TWO_PHASE_CRASH_POINTS[:-1],
)
NAME = "billing"


class Shop:
    """A log with orders and invoices, and a database with a table of invoices."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE invoices (id bigint PRIMARY KEY)")
        with self.open() as log:
            log.create("orders", {"id": "int64"})
            log.create("invoices", {"id": "int64"})
            log.append("orders", [{"id": number} for number in range(100)])

    def open(self) -> Log:
        return hw.open(str(self.folder), create=True)

    def bill(self, count: int) -> None:
        """Bill the next orders, each in a transaction."""
        with self.open() as log, TwoPhaseCommit(log, self.url, name=NAME) as both:
            for _ in range(count):
                bill_next(log, both)

    def check(self) -> int:
        """Both sides hold the same invoices, and the group stands behind them; return how many there are."""
        with self.open() as log:
            in_log = sorted(log.read("invoices").table().column("id").to_pylist())
            position = log.committed(NAME, "orders").get(0, 0)
            assert log.prepared() == []
        in_database = [number for (number,) in self.select("SELECT id FROM invoices ORDER BY id")]
        assert in_log == in_database == list(range(position))
        assert self.select("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()") == []
        return position

    def select(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()


def bill_next(log: Log, both: TwoPhaseCommit) -> None:
    position = log.committed(NAME, "orders").get(0, 0)
    with both.begin() as transaction:
        transaction.connection.execute("INSERT INTO invoices VALUES (%s)", (position,))
        transaction.log.append("invoices", [{"id": position}])
        transaction.log.commit_offsets(NAME, "orders", {0: position + 1})


@pytest.fixture
def shop(tmp_path: Path, postgres: Postgres) -> Shop:
    return Shop(tmp_path / "log", postgres.new_database())


def test_rows_of_both_sides_appear_together_or_not_at_all(shop: Shop) -> None:
    shop.bill(2)
    assert shop.check() == 2
    with shop.open() as log, TwoPhaseCommit(log, shop.url, name=NAME) as both:
        with pytest.raises(ZeroDivisionError), both.begin() as transaction:
            transaction.connection.execute("INSERT INTO invoices VALUES (77)")
            transaction.log.append("invoices", [{"id": 77}])
            raise ZeroDivisionError
        with pytest.raises(psycopg.errors.UniqueViolation), both.begin() as transaction:
            transaction.log.append("invoices", [{"id": 0}])
            transaction.connection.execute("INSERT INTO invoices VALUES (0)")
        bill_next(log, both)
    assert shop.check() == 3


@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_is_killed_leaves_both_sides_alike(shop: Shop, point: str) -> None:
    # Each transaction passes each point once or more; the second one dies, so that there is one before it.
    visit = 2 if point.startswith("two_phase") else 3
    ended = run_until_killed(lambda: shop.bill(6), at=CrashAt(point=point, visit=visit))
    assert ended.killed
    shop.bill(0)
    found = shop.check()
    shop.bill(3)
    assert shop.check() == found + 3


@pytest.mark.parametrize("point", ["two_phase.log_resolved", "commit.synced", "commit.recorded"])
def test_a_process_that_is_killed_while_it_resolves_leaves_the_rest_to_the_next(shop: Shop, point: str) -> None:
    shop.bill(1)
    assert run_until_killed(lambda: shop.bill(3), at=CrashAt(point="two_phase.prepared")).killed
    assert run_until_killed(lambda: shop.bill(0), at=CrashAt(point=point)).killed
    with shop.open() as log, TwoPhaseCommit(log, shop.url, name=NAME) as both:
        assert both.resolved.committed == (1,)
    assert shop.check() == 2


def test_what_only_the_log_has_prepared_is_rolled_back(shop: Shop) -> None:
    assert run_until_killed(lambda: shop.bill(3), at=CrashAt(point="two_phase.log_prepared")).killed
    with shop.open() as log, TwoPhaseCommit(log, shop.url, name=NAME) as both:
        assert both.resolved.rolled_back == (0,)
        assert both.resolved.committed == ()
    assert shop.check() == 0


def test_a_lost_connection_leaves_a_transaction_that_the_next_one_resolves(shop: Shop) -> None:
    with shop.open() as log, TwoPhaseCommit(log, shop.url, name=NAME) as both:
        bill_next(log, both)
        with pytest.raises(psycopg.Error), both.begin() as transaction:
            process = transaction.connection.info.backend_pid
            shop.select(f"SELECT pg_terminate_backend({process})")
            transaction.connection.execute("INSERT INTO invoices VALUES (1)")
        bill_next(log, both)
    assert shop.check() == 2


def test_one_process_at_a_time_uses_a_name(shop: Shop) -> None:
    with shop.open() as log, TwoPhaseCommit(log, shop.url, name=NAME):
        with pytest.raises(InUse, match="another name"):
            TwoPhaseCommit(log, shop.url, name=NAME)
        TwoPhaseCommit(log, shop.url, name="other").close()
    with shop.open() as log:
        TwoPhaseCommit(log, shop.url, name=NAME).close()


def test_other_names_in_doubt_are_left_alone(shop: Shop) -> None:
    assert run_until_killed(lambda: shop.bill(3), at=CrashAt(point="two_phase.prepared")).killed
    with shop.open() as log, TwoPhaseCommit(log, shop.url, name="other") as both:
        assert both.resolved.committed == both.resolved.rolled_back == ()
        assert len(log.prepared()) == 1
    shop.bill(0)
    assert shop.check() == 1


def test_a_log_and_a_database_that_do_not_belong_together_are_refused(shop: Shop, tmp_path: Path) -> None:
    shop.bill(2)
    with hw.open(str(tmp_path / "other"), create=True) as log, pytest.raises(TransactionsDiverged, match="restored"):
        TwoPhaseCommit(log, shop.url, name=NAME)


def test_a_server_without_prepared_transactions_is_named_with_its_setting(tmp_path: Path) -> None:
    try:
        with (
            postgres_server(settings={"max_prepared_transactions": "0"}) as server,
            hw.open(str(tmp_path), create=True) as log,
            pytest.raises(NotPossible, match="max_prepared_transactions"),
        ):
            TwoPhaseCommit(log, server.new_database(), name=NAME)
    except PeerUnavailable as error:
        pytest.skip(str(error))


def test_threads_do_not_matter_to_the_lock(shop: Shop) -> None:
    with shop.open() as log, TwoPhaseCommit(log, shop.url, name=NAME) as both:
        worker = threading.Thread(target=bill_next, args=(log, both))
        worker.start()
        worker.join()
        bill_next(log, both)
    assert shop.check() == 2


def test_its_text_never_shows_the_password(shop: Shop) -> None:
    with shop.open() as log, TwoPhaseCommit(log, shop.url, name=NAME) as both:
        assert "password" not in repr(both)
        assert NAME in repr(both)


@pytest.fixture(autouse=True)
def _nothing_is_left(shop: Shop) -> Iterator[None]:
    yield
    for (gid,) in shop.select("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"):
        shop.select(f"ROLLBACK PREPARED '{gid}'; SELECT 1")

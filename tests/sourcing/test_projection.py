"""Projections: read models of all events, in a file of SQLite."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater.errors import ArgumentInvalid, NotPossible
from headwater.log import Log
from headwater.sourcing import Projection, ProjectionFailed, RecordedEvent
from tests.laws import costly
from tests.sourcing.account import DECIDER, Accounts, Command, Deposit, Deposited, Open, Opened, Withdraw, Withdrawn

TABLES = ("CREATE TABLE balances(id TEXT PRIMARY KEY, owner TEXT, amount INTEGER NOT NULL DEFAULT 0)",)


def apply(db: sqlite3.Connection, event: RecordedEvent) -> None:
    db.execute("INSERT OR IGNORE INTO balances(id) VALUES (?)", (event.id,))
    match event.event:
        case Opened(owner):
            db.execute("UPDATE balances SET owner = ? WHERE id = ?", (owner, event.id))
        case Deposited(amount):
            db.execute("UPDATE balances SET amount = amount + ? WHERE id = ?", (amount, event.id))
        case Withdrawn(amount):
            db.execute("UPDATE balances SET amount = amount - ? WHERE id = ?", (amount, event.id))


@pytest.fixture
def balances(accounts: Accounts, tmp_path: Path) -> Iterator[Projection]:
    with Projection(accounts, tmp_path / "balances.sqlite", tables=TABLES, apply=apply) as projection:
        yield projection


def test_a_program_reads_its_own_writes(accounts: Accounts, balances: Projection) -> None:
    assert balances.query("SELECT * FROM balances") == []
    accounts.send("a", Open("Ada"))
    for amount in range(1, 4):
        accounts.send("a", Deposit(amount))
        [row] = balances.query("SELECT * FROM balances WHERE id = ?", "a")
        assert row == {"id": "a", "owner": "Ada", "amount": amount * (amount + 1) // 2}


def test_events_are_applied_once_whichever_process_applies_them(
    accounts: Accounts, balances: Projection, tmp_path: Path
) -> None:
    with Projection(accounts, tmp_path / "balances.sqlite", tables=TABLES, apply=apply) as other:
        for amount, projection in enumerate((balances, other, other, balances), 1):
            accounts.send("a", Deposit(amount))
            accounts.send("b", Deposit(amount))
            assert projection.catch_up() == 2
        assert other.catch_up() == 0
        assert balances.query("SELECT amount FROM balances") == [{"amount": 10}, {"amount": 10}]


commands = st.one_of(st.just(Open("Ada")), st.integers(1, 9).map(Deposit), st.integers(1, 9).map(Withdraw))
batches = st.lists(st.lists(st.tuples(st.sampled_from("abc"), commands), max_size=5), max_size=5)


@costly(3)
@given(batches)
def test_a_projection_has_what_the_entities_have(sent: list[list[tuple[str, Command]]]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        hw.open(folder) as log,
        hw.Entities(log, "account", DECIDER, partitions=2) as accounts,
        Projection(accounts, ":memory:", tables=TABLES, apply=apply) as projection,
    ):
        for batch in sent:
            accounts.send_many(batch)
            rows = projection.query("SELECT id, amount FROM balances ORDER BY id")
            assert [(row["id"], row["amount"]) for row in rows] == [
                (id, accounts.load(id).state.balance) for id, _ in accounts.ids()
            ]


def test_a_failure_applies_nothing_and_names_the_event(accounts: Accounts, tmp_path: Path) -> None:
    accounts.send_many([("a", Deposit(1)), ("a", Deposit(2))])

    def failing(db: sqlite3.Connection, event: RecordedEvent) -> None:
        apply(db, event)
        if event.event == Deposited(2):
            raise ValueError("two is too much")

    path = tmp_path / "balances.sqlite"
    with (
        Projection(accounts, path, tables=TABLES, apply=failing) as projection,
        pytest.raises(ProjectionFailed, match=r"event 2 of account 'a'.*two is too much"),
    ):
        projection.query("SELECT * FROM balances")
    with Projection(accounts, path, tables=TABLES, apply=apply) as projection:
        assert projection.query("SELECT amount FROM balances") == [{"amount": 3}]


def test_another_version_is_built_again_from_all_events(accounts: Accounts, balances: Projection) -> None:
    accounts.send("a", Deposit(5))
    assert balances.catch_up() == 1

    def count(db: sqlite3.Connection, _: RecordedEvent) -> None:
        db.execute("UPDATE counts SET events = events + 1")

    tables = ["CREATE TABLE counts(events INTEGER)", "INSERT INTO counts VALUES (0)"]
    with Projection(accounts, balances.path, tables=tables, apply=count, version=2) as newer:
        assert newer.query("SELECT events FROM counts") == [{"events": 1}]
        with pytest.raises(ArgumentInvalid, match="balances"):
            newer.query("SELECT * FROM balances")
        with pytest.raises(NotPossible, match="version 2"):
            balances.catch_up()


def test_a_file_of_other_tables_is_refused_and_not_touched(accounts: Accounts, tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine(id INTEGER)")
    with Projection(accounts, path, tables=TABLES, apply=apply) as projection:
        with pytest.raises(NotPossible, match="file of its own"):
            projection.catch_up()
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]
    other.close()


def test_a_file_belongs_to_one_projection(accounts: Accounts, log: Log, balances: Projection) -> None:
    accounts.send("a", Deposit(5))
    balances.catch_up()
    with (
        hw.Entities(log, "saving", DECIDER) as savings,
        Projection(savings, balances.path, tables=TABLES, apply=apply, version=2) as other,
        pytest.raises(NotPossible, match="file of its own"),
    ):
        other.catch_up()
    with (
        Projection(accounts, balances.path, tables=["CREATE TABLE t(a)"], apply=apply) as changed,
        pytest.raises(NotPossible, match="Raise `version`"),
    ):
        changed.catch_up()
    assert balances.query("SELECT amount FROM balances") == [{"amount": 5}]


def test_a_query_changes_nothing_and_mistakes_are_told(accounts: Accounts, balances: Projection) -> None:
    accounts.send("a", Deposit(5))
    with pytest.raises(ArgumentInvalid, match="readonly"):
        balances.query("DELETE FROM balances")
    with pytest.raises(ArgumentInvalid, match="list of statements"):
        Projection(accounts, balances.path, tables="CREATE TABLE t(a)", apply=apply)
    with (
        Projection(accounts, ":memory:", tables=["CREATE nonsense"], apply=apply) as wrong,
        pytest.raises(ArgumentInvalid, match="syntax error"),
    ):
        wrong.catch_up()

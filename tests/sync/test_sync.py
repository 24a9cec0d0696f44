"""A sync: its target holds what its topics hold, whatever happens in between."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.capture import Capture, CaptureConfig, CaptureStore
from headwater.errors import ArgumentInvalid, NotFound
from headwater.faults import install
from headwater.log import Log
from headwater.log.dead_letters import dead_letter_topic
from headwater.sync import ChangeRefused, Sync, SyncFenced, SyncInvalid, SyncStore, TargetRefused, TopicGap
from headwater.sync import sync as sync_module
from headwater.sync.comparison import compare_table
from headwater.sync.targets import open_target
from tests.laws import costly
from tests.sync.places import Place
from tests.sync.rows import CHANGES, TOPIC, append, define, log_at, make_topic, model


class Died(Exception):
    """Stands for the end of a process at a crash point."""


def die_at(point: str) -> None:
    def hook(reached: str) -> None:
        if reached == point:
            raise Died

    install(hook)


def orders(folder: Path) -> dict[int, tuple[Any, ...]]:
    with sqlite3.connect(folder / "copy.db") as connection:
        rows = connection.execute("SELECT id, item, price, paid FROM orders").fetchall()
    connection.close()
    return {row[0]: (*row[1:3], None if row[3] is None else bool(row[3])) for row in rows}


STEPS = st.one_of(
    st.lists(CHANGES, min_size=1, max_size=6),
    st.sampled_from(["sync", "restart", "target.written", "target.before_commit", "target.committed"]),
)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
@costly(40)
@given(steps=st.lists(STEPS, max_size=12), rows_max=st.integers(1, 7), partitions=st.integers(1, 3))
def test_the_target_holds_what_the_topic_holds(kind: str, steps: list[Any], rows_max: int, partitions: int) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch, log_at(Path(name)) as log:
        patch.setattr(sync_module, "ROWS_MAX", rows_max)
        make_topic(log, partitions=partitions)
        place = Place(url=f"{kind}:///{name}/copy.db", settings={})
        config = place.define(log)
        changes: list[Any] = []
        for step in [*steps, "sync"]:
            if isinstance(step, list):
                append(log, step)
                changes += step
                continue
            with Sync.open(log, "copy") as sync:
                if step.startswith("target."):
                    die_at(step)
                    try:
                        sync.catch_up()
                    except Died:
                        pass
                    finally:
                        install(None)
                elif step == "sync":
                    sync.catch_up()
        assert place.holds(config, log, model(changes))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def log(folder: Path) -> Any:
    with log_at(folder) as log:
        yield log


def synced(log: Log) -> int:
    with Sync.open(log, "copy") as sync:
        return sync.catch_up()


def test_a_captured_table_is_applied_with_its_deletions(log: Log, folder: Path) -> None:
    for envelope in ("flat", "debezium"):
        shop = sqlite3.connect(folder / f"{envelope}.db", isolation_level=None)
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
        shop.execute("INSERT INTO orders VALUES (1, 'tea'), (2, 'milk')")
        url = f"sqlite:///{folder}/{envelope}.db"
        CaptureStore(log).create(CaptureConfig(name=envelope, url=url, envelope=envelope))
        define(
            log, f"sqlite:///{folder}/copy.db", name=envelope, topics=(f"{envelope}.*",), table=f"{envelope}_{{table}}"
        )
        for statement in ("SELECT 1", "DELETE FROM orders WHERE id = 1", "UPDATE orders SET item = 'oats'"):
            shop.execute(statement)
            with Capture.open(log, envelope) as capture:
                capture.catch_up()
            with Sync.open(log, envelope) as sync:
                sync.catch_up()
            with sqlite3.connect(folder / "copy.db") as copy:
                found = copy.execute(f"SELECT * FROM {envelope}_orders ORDER BY id").fetchall()
            copy.close()
            assert found == shop.execute("SELECT * FROM orders ORDER BY id").fetchall()
        shop.close()


def test_a_new_column_of_the_topic_is_added_to_the_table(log: Log, folder: Path) -> None:
    make_topic(log)
    define(log, f"sqlite:///{folder}/copy.db")
    append(log, [(1, ("tea", 1.0, True))])
    synced(log)
    schema = log.topic(TOPIC).schema
    log.alter(TOPIC, schema=schema.append(pa.field("note", pa.string())))
    log.append(TOPIC, [{"id": 2, "note": "new"}])
    synced(log)
    with sqlite3.connect(folder / "copy.db") as copy:
        assert copy.execute("SELECT id, item, note FROM orders ORDER BY id").fetchall() == [
            (1, "tea", None),
            (2, None, "new"),
        ]


def test_a_second_process_takes_over_and_the_first_one_stops(log: Log, folder: Path) -> None:
    make_topic(log)
    define(log, f"sqlite:///{folder}/copy.db")
    append(log, [(1, ("tea", 1.0, True))])
    with Sync.open(log, "copy") as first:
        first.catch_up()
        append(log, [(2, ("milk", 1.0, True))])
        with Sync.open(log, "copy") as second:
            assert second.catch_up() == 1
            append(log, [(3, ("oats", 1.0, True))])
            with pytest.raises(SyncFenced):
                first.catch_up()
            assert second.catch_up() == 1
    assert set(orders(folder)) == {1, 2, 3}


def test_a_violated_constraint_stops_the_sync_and_names_the_row(log: Log, folder: Path) -> None:
    make_topic(log)
    _table_with_check(folder)
    define(log, f"sqlite:///{folder}/copy.db")
    append(log, [(key, ("tea", float(key), True)) for key in range(1, 200)])
    append(log, [(200, ("tea", -1.0, True)), (201, ("tea", 1.0, True))])
    with pytest.raises(ChangeRefused, match="id=200") as caught:
        synced(log)
    assert "price" in caught.value.why
    assert orders(folder) == {}


def test_with_dead_letters_the_others_are_applied(log: Log, folder: Path) -> None:
    make_topic(log)
    _table_with_check(folder)
    define(log, f"sqlite:///{folder}/copy.db", dead_letters=True)
    bad = {3, 4, 50}
    append(log, [(key, ("tea", -1.0 if key in bad else 1.0, True)) for key in range(1, 60)])
    assert synced(log) == 59
    assert set(orders(folder)) == set(range(1, 60)) - bad
    letters = log.read(dead_letter_topic(TOPIC)).rows()
    assert [(row["offset"], row["query"]) for row in letters] == [(key - 1, "sync copy") for key in sorted(bad)]


def test_dead_letters_of_a_step_that_is_repeated_are_there_once(log: Log, folder: Path) -> None:
    make_topic(log)
    _table_with_check(folder)
    define(log, f"sqlite:///{folder}/copy.db", dead_letters=True)
    append(log, [(1, ("tea", -1.0, True)), (2, ("tea", 1.0, True))])
    die_at("target.before_commit")
    with pytest.raises(Died):
        synced(log)
    install(None)
    synced(log)
    assert log.read(dead_letter_topic(TOPIC)).count() == 1
    assert set(orders(folder)) == {2}


def test_a_constraint_that_holds_in_the_order_of_the_topic_is_no_violation(log: Log, folder: Path) -> None:
    make_topic(log)
    with sqlite3.connect(folder / "copy.db") as copy:
        copy.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT UNIQUE, price REAL, paid BOOLEAN)")
    copy.close()
    define(log, f"sqlite:///{folder}/copy.db")
    append(log, [(1, ("a", 0.0, True)), (2, ("b", 0.0, True))])
    synced(log)
    # Key 1 gives its item up before key 2 takes it, and changes once more after that.
    append(log, [(1, ("c", 0.0, True)), (2, ("a", 0.0, True)), (1, ("b", 0.0, True))])
    synced(log)
    assert {key: row[0] for key, row in orders(folder).items()} == {1: "b", 2: "a"}


def test_rows_without_a_key_are_refused_or_dead_letters(log: Log, folder: Path) -> None:
    make_topic(log)
    define(log, f"sqlite:///{folder}/copy.db", name="strict")
    define(log, f"sqlite:///{folder}/copy.db", dead_letters=True)
    log.append(TOPIC, [{"id": None, "item": "tea"}, {"id": 1, "item": "milk"}])
    with Sync.open(log, "strict") as sync, pytest.raises(ChangeRefused, match="the key is null"):
        sync.catch_up()
    synced(log)
    assert set(orders(folder)) == {1}
    assert log.read(dead_letter_topic(TOPIC)).count() == 1


def test_a_topic_that_was_created_again_is_not_applied_to_the_old_table(log: Log, folder: Path) -> None:
    make_topic(log)
    define(log, f"sqlite:///{folder}/copy.db")
    append(log, [(1, ("tea", 1.0, True))])
    synced(log)
    log.delete(TOPIC)
    make_topic(log)
    append(log, [(2, ("tea", 1.0, True))])
    with pytest.raises(TopicGap, match="created again"):
        synced(log)


def test_a_sync_that_cannot_run_says_why(log: Log, folder: Path) -> None:
    url = f"sqlite:///{folder}/copy.db"
    log.create("shop.visits", {"who": "string"})
    make_topic(log)
    make_topic(log, "store.orders")
    with pytest.raises(ArgumentInvalid, match="sqlite://"):
        define(log, "oracle://db")
    with pytest.raises(ArgumentInvalid, match="without a password"):
        define(log, "sqlite://me:secret@host/file.db")
    define(log, url, name="pattern")
    with Sync.open(log, "pattern") as sync:
        assert [table.topic for table in sync.tables()] == [TOPIC]
    define(log, url, name="named", topics=("shop.visits",))
    with Sync.open(log, "named") as sync, pytest.raises(SyncInvalid, match="has no key"):
        sync.catch_up()
    define(log, url, name="both", topics=("*.orders",))
    with Sync.open(log, "both") as sync, pytest.raises(SyncInvalid, match="both be table 'orders'"):
        sync.catch_up()
    define(log, url, name="missing", topics=("shop.order",))
    with Sync.open(log, "missing") as sync, pytest.raises(NotFound, match=r"shop\.orders"):
        sync.catch_up()
    define(log, f"sqlite:///{folder}/none/copy.db", name="folder")
    with Sync.open(log, "folder") as sync, pytest.raises(TargetRefused, match="Create the folder"):
        sync.catch_up()
    with pytest.raises(ArgumentInvalid, match="no other sync"):
        define(log, url, name="both")
    SyncStore(log).remove("both")
    with pytest.raises(NotFound, match="both"):
        SyncStore(log).config("both")


def _table_with_check(folder: Path) -> None:
    with sqlite3.connect(folder / "copy.db") as copy:
        copy.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, price REAL CHECK (price >= 0), paid BOOLEAN)"
        )
    copy.close()


def test_a_repair_does_not_undo_what_another_process_applies_meanwhile(
    log: Log, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(log)
    define(log, f"sqlite:///{folder}/copy.db")
    append(log, [(1, ("tea", 1.0, True)), (2, ("milk", 1.0, True))])
    synced(log)
    with sqlite3.connect(folder / "copy.db") as copy:
        copy.execute("DELETE FROM orders WHERE id = 1")
    copy.close()
    prices = iter((2.0, 3.0))

    def meanwhile(*given: Any, **settings: Any) -> Any:
        """Compare, but let another process apply a change between the look and the repair."""
        apply = given[1].apply

        def late(changes: Any) -> None:
            if (price := next(prices, None)) is not None:
                append(log, [(1, ("tea", price, True))])
                synced(log)
            apply(changes)

        monkeypatch.setattr(given[1], "apply", late)
        try:
            return compare_table(*given, **settings)
        finally:
            monkeypatch.setattr(given[1], "apply", apply)

    monkeypatch.setattr(sync_module, "compare_table", meanwhile)
    config = SyncStore(log).config("copy")
    with contextlib.closing(open_target(config)) as target:
        # Its epoch is 0, as that of `headwater sync compare`: it takes nothing over.
        [found] = Sync(log, config, target).compare(repair=True)
    assert found.is_equal
    assert orders(folder) == {1: ("tea", 2.0, True), 2: ("milk", 1.0, True)}


def test_values_that_the_database_did_not_send_stay_as_they_are(log: Log, folder: Path) -> None:
    row = pa.struct([("id", pa.int64()), ("item", pa.string()), ("note", pa.string())])
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("before", row),
            ("after", row),
            ("op", pa.string()),
            ("ts_ms", pa.int64()),
            ("unchanged", pa.list_(pa.string())),
        ]
    )
    log.create("shop.notes", schema, key="id", compact=True)

    def change(key: int, item: str, note: str | None, *, unchanged: list[str] | None = None) -> dict[str, Any]:
        after = {"id": key, "item": item, "note": note}
        return {"id": key, "after": after, "op": "u", "ts_ms": 1, "unchanged": unchanged}

    define(log, f"sqlite:///{folder}/copy.db")
    define(log, f"parquet:///{folder}/lake", name="lake")
    log.append(
        "shop.notes", [change(1, "tea", "long"), change(1, "milk", None, unchanged=["note"]), change(2, "a", "b")]
    )
    synced(log)
    log.append("shop.notes", [change(1, "oats", None, unchanged=["note"]), change(2, "c", None)])
    synced(log)
    with sqlite3.connect(folder / "copy.db") as copy:
        assert copy.execute("SELECT * FROM notes").fetchall() == [(1, "oats", "long"), (2, "c", None)]
    copy.close()
    with Sync.open(log, "copy") as sync:
        assert sync.compare()[0].is_equal
    with Sync.open(log, "lake") as sync:
        sync.catch_up()
        log.append("shop.notes", [change(1, "rice", None, unchanged=["note"])])
        with pytest.raises(TopicGap, match="REPLICA IDENTITY FULL"):
            sync.catch_up()
    log.append("shop.notes", [change(3, "new", None, unchanged=["note"])])
    define(log, f"sqlite:///{folder}/other.db", name="other")
    with Sync.open(log, "other") as sync, pytest.raises(TopicGap, match="no earlier row has them"):
        sync.catch_up()

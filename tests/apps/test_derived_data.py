"""An erasure builds views and targets again that hold values in plain text, and lists what it cannot."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
import pytest

import headwater as hw
from headwater.apps.home import DeclaredQuery, Home
from headwater.filelock import LeaderLock
from headwater.log import Log
from headwater.sourcing import Personal, Projection, RecordedEvent, erase, reveal
from headwater.sync import Sync, SyncConfig, SyncStore
from headwater.views import DuckStore, ViewKeeper, ViewSpec


@dataclass(frozen=True)
class Register:
    name: str


@dataclass(frozen=True)
class Registered:
    name: Annotated[str, Personal()]


def decide(_: str, command: Register) -> list[Registered]:
    return [Registered(command.name)]


def evolve(_: str, event: Registered) -> str:
    return event.name


DECIDER = hw.Decider(initial="", decide=decide, evolve=evolve)
Customers = hw.Entities[str, Register, Registered]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with hw.open(tmp_path / "log") as log:
        yield log


@pytest.fixture
def customers(log: Log) -> Iterator[Customers]:
    with hw.Entities(log, "customer", DECIDER, snapshot_events=1) as customers:
        yield customers


def people(log: Log, rows: list[tuple[str, str]], *, codec: Literal["none", "lz4", "zstd"] = "none") -> Home:
    """A view of people in plain text, and the store that an app has left."""
    log.create("people", {"id": "string", "name": "string"}, key="id", compact=True, codec=codec)
    log.append("people", [{"id": id, "name": name} for id, name in rows])
    home = Home(log.home / "apps" / "shop")
    with contextlib.closing(DuckStore(home.views)) as store:
        keeper = ViewKeeper(log, store)
        keeper.add(ViewSpec(name="people", topic="people", key=("id",), schema=log.schema("people")))
        keeper.catch_up()
    home.set_queries([DeclaredQuery(name="people", kind="view", inputs=("customer.events",), output="people")])
    return home


def stored(log: Log, home: Home) -> dict[str, str]:
    with contextlib.closing(DuckStore(home.views, read_only=True)) as store:
        view = ViewKeeper(log, store, read_only=True).view("people")
        return {row["id"]: row["name"] for row in view.rows()}


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_view_in_plain_text_is_built_again_from_its_rewritten_topic(log: Log, customers: Customers) -> None:
    customers.send_many([("c-1", Register("Ada Lovelace")), ("c-2", Register("Grace Hopper"))])
    home = people(log, [("c-1", "Ada Lovelace"), ("c-2", "Grace Hopper")], codec="lz4")
    [certificate] = erase(log, "c-1")
    assert [each.place for each in certificate.remaining] == ["views of app shop", "topic people"]
    [certificate] = erase(log, "c-1", rewrite=["people"])
    assert certificate.complete
    assert certificate.rewritten == ["topic people", "views of app shop"]
    assert stored(log, home) == {"c-1": "[erased]", "c-2": "Grace Hopper"}
    assert b"Ada" not in bytes_of(log.home)


def test_views_of_a_running_app_are_not_taken_for_searched(log: Log, customers: Customers) -> None:
    customers.send("c-1", Register("Ada Lovelace"))
    home = people(log, [])
    lock = LeaderLock(home.path / "runner.lock")
    assert lock.acquire()
    home.announce("http://127.0.0.1:9")
    [certificate] = erase(log, "c-1")
    assert [each.place for each in certificate.remaining] == ["views of app shop"]
    lock.release()
    assert erase(log, "c-1")[0].complete


def test_sinks_of_queries_that_read_the_events_are_listed(log: Log, customers: Customers) -> None:
    customers.send("c-1", Register("Ada Lovelace"))
    sinks = {"PostgresSink": "exactly-once"}
    Home(log.home / "apps" / "shop").set_queries(
        [
            DeclaredQuery(name="names", kind="topic", inputs=("customer.events",), output="names"),
            DeclaredQuery(name="copy", kind="sink", inputs=("names",), sinks=sinks),
            DeclaredQuery(name="other", kind="sink", inputs=("weather",), sinks=sinks),
        ]
    )
    [certificate] = erase(log, "c-1")
    assert [each.place for each in certificate.remaining] == ["sink PostgresSink of query copy of app shop"]
    assert erase(log, "c-1", accept=["sink *"])[0].complete


def test_a_target_is_built_again_and_its_free_pages_are_empty(log: Log, customers: Customers, tmp_path: Path) -> None:
    customers.send("c-1", Register("Ada Lovelace"))
    log.create("people", {"id": "string", "name": "string"}, key="id", compact=True)
    log.append("people", [{"id": "c-1", "name": "Ada Lovelace"}, {"id": "c-2", "name": "Grace Hopper"}])
    path = tmp_path / "copy.sqlite"
    SyncStore(log).create(SyncConfig(name="copy", url=f"sqlite:///{path}", topics=("people",)))
    with Sync.open(log, "copy") as sync:
        sync.catch_up()
    [certificate] = erase(log, "c-1")
    places = [each.place for each in certificate.remaining]
    assert places == ["sync copy, table people", str(path), "topic people"]
    [certificate] = erase(log, "c-1", rewrite=["people"])
    assert certificate.complete
    assert "sync copy, table people" in certificate.rewritten
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert dict(database.execute("SELECT id, name FROM people")) == {"c-1": "[erased]", "c-2": "Grace Hopper"}
    assert b"Ada" not in path.read_bytes()


def test_fields_that_a_query_passes_on_stay_encrypted(log: Log, customers: Customers) -> None:
    import orjson

    customers.send_many([("c-1", Register("Ada Lovelace")), ("c-2", Register("Grace Hopper"))])
    events = log.read("customer.events").rows()
    home = people(log, [(row["entity"], orjson.dumps(orjson.loads(row["data"])["name"]).decode()) for row in events])
    assert b"Ada" not in bytes_of(log.home)
    rows = pa.Table.from_pylist(log.read("people").rows())
    assert reveal(log, rows).column("name").to_pylist() == ["Ada Lovelace", "Grace Hopper"]
    assert erase(log, "c-1")[0].complete
    assert reveal(log, rows).column("name").to_pylist() == ["[erased]", "Grace Hopper"]
    assert set(stored(log, home)) == {"c-1", "c-2"}


@pytest.mark.parametrize(
    ("subjects", "erased"), [(200, 10), pytest.param(10_000, 100, marks=[pytest.mark.process, pytest.mark.long])]
)
def test_some_subjects_are_erased_and_all_others_are_intact(
    log: Log, customers: Customers, tmp_path: Path, subjects: int, erased: int
) -> None:
    names = {f"c-{number}": f"name-of-{number:05d}-in-clear" for number in range(subjects)}
    gone = [f"c-{number}" for number in range(0, subjects, subjects // erased)]

    def apply(db: sqlite3.Connection, event: RecordedEvent) -> None:
        db.execute("INSERT OR REPLACE INTO people VALUES (?, ?)", (event.id, event.event.name))

    tables = ["CREATE TABLE people(id TEXT PRIMARY KEY, name TEXT)"]
    with Projection(customers, tmp_path / "people.sqlite", tables=tables, apply=apply) as projection:
        customers.send_many([(id, Register(name)) for id, name in names.items()])
        assert len(projection.query("SELECT * FROM people")) == subjects
        home = people(log, list(names.items()), codec="zstd")
        SyncStore(log).create(SyncConfig(name="copy", url=f"sqlite:///{tmp_path / 'copy.sqlite'}", topics=("people",)))
        with Sync.open(log, "copy") as sync:
            sync.catch_up()
        certificates = erase(log, gone, rewrite=["people"])
        assert all(each.complete and each.values_searched == 1 for each in certificates)
        expected = names | dict.fromkeys(gone, "[erased]")
        assert {row["id"]: row["name"] for row in projection.query("SELECT * FROM people")} == expected
    assert stored(log, home) == expected
    with contextlib.closing(sqlite3.connect(tmp_path / "copy.sqlite")) as database:
        assert dict(database.execute("SELECT id, name FROM people")) == expected
    with hw.Entities(log, "customer", DECIDER) as again:
        assert {id: again.load(id).state for id in names} == expected
    found = bytes_of(tmp_path)
    assert not [id for id in gone if names[id].encode() in found]
    assert all(names[id].encode() in found for id in names if id not in gone)

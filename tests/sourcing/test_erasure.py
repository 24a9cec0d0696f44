"""Personal fields are encrypted for each subject, and erased by destroying the subject's key."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pytest

import headwater as hw
from headwater.errors import NotFound
from headwater.faults import ERASURE_CRASH_POINTS
from headwater.log import Log
from headwater.sourcing import KeyLost, Personal, Projection, RecordedEvent, erase, erased
from headwater.sourcing.errors import DeciderInvalid, KeyStoreUnusable, PersonalHidden
from headwater.testing.crash import CrashAt, run_until_killed


@dataclass(frozen=True)
class Register:
    name: str
    email: str | None = None
    friend: str = "none"
    note: str = ""


@dataclass(frozen=True)
class Order:
    article: str


@dataclass(frozen=True)
class Registered:
    name: Annotated[str, Personal()]
    email: Annotated[str | None, Personal()]
    friend: str
    note: Annotated[str, Personal(subject="friend", erased="gone")]


@dataclass(frozen=True)
class Ordered:
    article: str


@dataclass(frozen=True)
class Customer:
    name: str = ""
    email: str | None = None
    note: str = ""
    articles: tuple[str, ...] = ()


def decide(_: Customer, command: Register | Order) -> list[Registered | Ordered]:
    if isinstance(command, Order):
        return [Ordered(command.article)]
    return [Registered(command.name, command.email, command.friend, command.note)]


def evolve(customer: Customer, event: Registered | Ordered) -> Customer:
    if isinstance(event, Ordered):
        return replace(customer, articles=(*customer.articles, event.article))
    return replace(customer, name=event.name, email=event.email, note=event.note)


DECIDER = hw.Decider(initial=Customer(), decide=decide, evolve=evolve)
Customers = hw.Entities[Customer, Register | Order, Registered | Ordered]


@pytest.fixture
def customers(log: Log) -> Iterator[Customers]:
    with hw.Entities(log, "customer", DECIDER, snapshot_events=2) as customers:
        yield customers


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_personal_values_are_on_no_disk(log: Log, customers: Customers) -> None:
    customers.send("c-1", Register("Ada Lovelace", "ada@example.org", friend="c-2", note='likes "poems"'))
    customers.send_many([("c-1", Order("a book"))] * 3)
    with customers.transaction() as transaction:
        transaction.send("c-3", Register("Grace Hopper"))
    expected = Customer("Ada Lovelace", "ada@example.org", 'likes "poems"', ("a book",) * 3)
    customers.close()
    with hw.Entities(log, "customer", DECIDER) as again:
        assert again.load("c-1").state == expected
        assert again.load("c-3").state.name == "Grace Hopper"
    found = bytes_of(Path(log.address))
    assert b"a book" in found
    for value in (b"Lovelace", b"ada@", b"poems", b"Hopper"):
        assert value not in found
    assert log.home.joinpath("keys").stat().st_mode & 0o077 == 0


def test_an_erased_subject_is_forgotten_everywhere_and_the_others_are_not(log: Log, customers: Customers) -> None:
    customers.send("c-1", Register("Ada Lovelace", "ada@example.org", friend="c-2", note="a rival"))
    customers.send_many([("c-1", Order("a book"))] * 3)
    with hw.Entities(log, "customer", DECIDER, snapshot_events=2) as others:
        assert others.load("c-1").state.name == "Ada Lovelace"
        [certificate] = erase(log, "c-1", by="clerk", why="Ada Lovelace asked for it")
        assert certificate.complete
        assert (certificate.events, certificate.entities, certificate.values_searched) == (1, 1, 2)
        for each in (customers, others):
            assert each.load("c-1").state == Customer("[erased]", None, "a rival", ("a book",) * 3)
    erase(log, "c-2")
    assert customers.load("c-1").state.note == "gone"
    first, second = erased(log)
    assert (first.by, first.why, first.outcome) == ("clerk", "[erased] asked for it", "complete")
    assert first.subject != second.subject
    assert "c-1" not in first.to_json()
    assert erased(log, ["c-1"]) == [replace(first, name="c-1")]
    assert erase(log, "c-1") == [replace(first, name="c-1")]
    with pytest.raises(NotFound):
        erase(log, "c-7")
    customers.send("c-1", Register("Ada again"))
    assert customers.load("c-1").state.name == "Ada again"
    assert erase(log, "c-1")[0].id != first.id


def test_copies_in_plain_text_are_found_and_the_erasure_is_pending(log: Log, customers: Customers) -> None:
    customers.send("c-1", Register("Ada Lovelace"))
    customers.send("c-2", Register("Grace Hopper"))
    log.create("plain", {"id": "int64", "name": "string"}, key="id")
    log.create("packed", {"id": "int64", "name": "string"}, codec="zstd")
    for topic in ("plain", "packed"):
        log.append(topic, [{"id": 1, "name": "Dr. Ada Lovelace"}, {"id": 2, "name": "Grace Hopper"}])
    [certificate] = erase(log, "c-1")
    assert (certificate.outcome, [each.place for each in certificate.remaining]) == (
        "pending",
        ["topic packed", "topic plain"],
    )
    assert customers.load("c-1").state.name == "[erased]"
    [certificate] = erase(log, "c-1", rewrite=["p*"], accept=["topic nothing"])
    assert certificate.complete
    assert set(certificate.rewritten) == {"topic packed", "topic plain"}
    for topic in ("plain", "packed"):
        assert [row["name"] for row in log.read(topic).rows()] == ["Dr. [erased]", "Grace Hopper"]
    assert [each.outcome for each in erased(log)] == ["complete"]


def test_what_is_left_can_be_accepted(log: Log, customers: Customers) -> None:
    customers.send("c-1", Register("Ada Lovelace"))
    log.create("plain", {"name": "string"})
    log.append("plain", [{"name": "Ada Lovelace"}])
    [certificate] = erase(log, "c-1", accept=["topic *"])
    assert (certificate.complete, certificate.accepted) == (True, ["topic plain"])


def test_values_that_other_persons_have_are_not_searched_for(log: Log, customers: Customers) -> None:
    customers.send("c-1", Register("Ada Lovelace", "ada@example.org"))
    customers.send("c-2", Register("Ada Lovelace", "other@example.org"))
    log.create("plain", {"name": "string"})
    log.append("plain", [{"name": "Ada Lovelace"}])
    [certificate] = erase(log, "c-1")
    assert (certificate.complete, certificate.values_searched, certificate.values_shared) == (True, 1, 1)
    assert customers.load("c-2").state.name == "Ada Lovelace"


@pytest.mark.parametrize("form", ["utf-16-le", "utf-16-be", "json", "base64", "gzip"])
def test_values_are_found_in_other_forms(log: Log, customers: Customers, form: str) -> None:
    name = "Zoë Lovelace"
    forms = {
        "utf-16-le": name.encode("utf-16-le"),
        "utf-16-be": name.encode("utf-16-be"),
        "json": json.dumps({"name": name}).encode(),
        "base64": base64.b64encode(b"x" + name.encode() + b"y"),
        "gzip": gzip.compress(name.encode()),
    }
    customers.send("c-1", Register(name))
    (log.home / "copy").write_bytes(forms[form])
    [certificate] = erase(log, "c-1")
    assert [each.place for each in certificate.remaining] == [str(log.home / "copy")]


def test_a_projection_is_emptied_and_built_again(log: Log, customers: Customers, tmp_path: Path) -> None:
    tables = ["CREATE TABLE people(id TEXT PRIMARY KEY, name TEXT)"]

    def apply(db: sqlite3.Connection, event: RecordedEvent) -> None:
        if isinstance(event.event, Registered):
            db.execute("INSERT OR REPLACE INTO people VALUES (?, ?)", (event.id, event.event.name))

    with Projection(customers, tmp_path / "people.sqlite", tables=tables, apply=apply) as people:
        customers.send_many([(f"c-{number}", Register(f"name-of-{number:04d}")) for number in range(100)])
        assert len(people.query("SELECT * FROM people")) == 100
        [certificate] = erase(log, "c-7")
        assert certificate.complete
        assert certificate.rewritten == [f"projection {tmp_path / 'people.sqlite'}"]
        found = b"".join(path.read_bytes() for path in tmp_path.glob("people.sqlite*"))
        assert b"name-of-0007" not in found
        rows = {row["id"]: row["name"] for row in people.query("SELECT * FROM people")}
        assert rows == {f"c-{number}": f"name-of-{number:04d}" for number in range(100)} | {"c-7": "[erased]"}


@pytest.mark.process
@pytest.mark.parametrize("point", ERASURE_CRASH_POINTS)
def test_a_killed_erasure_is_finished_by_the_next(tmp_path: Path, point: str) -> None:
    def work() -> None:
        with hw.open(tmp_path / "log") as log:
            erase(log, "c-1", rewrite=["plain"])

    with hw.open(tmp_path / "log") as log, hw.Entities(log, "customer", DECIDER) as customers:
        customers.send("c-1", Register("Ada Lovelace"))
        log.create("plain", {"name": "string"})
        log.append("plain", [{"name": "Ada Lovelace"}])
    assert run_until_killed(work, at=CrashAt(point=point)).killed
    with hw.open(tmp_path / "log") as log, hw.Entities(log, "customer", DECIDER) as customers:
        assert customers.load("c-1").state.name == "[erased]"
        [certificate] = erase(log, "c-1", rewrite=["plain"])
        assert certificate.complete
        assert [each.id for each in erased(log) if each.complete] == [certificate.id]
        assert log.read("plain").rows()[0]["name"] == "[erased]"
    assert b"Lovelace" not in bytes_of(tmp_path)


def test_who_may_not_see_personal_values_sees_none(log: Log, customers: Customers) -> None:
    customers.send("c-1", Register("Ada Lovelace", friend="c-2", note="a rival"))
    with hw.Entities(log, "customer", DECIDER, reveal=False) as hidden:
        assert hidden.load("c-1").state == Customer("[erased]", None, "gone")
        with pytest.raises(PersonalHidden):
            hidden.send("c-1", Order("a book"))


def test_a_lost_key_is_no_erasure(log: Log, customers: Customers) -> None:
    customers.send("c-1", Register("Ada Lovelace"))
    customers.close()
    shutil.rmtree(log.home / "keys")
    with hw.Entities(log, "customer", DECIDER) as again, pytest.raises(KeyLost, match="Restore"):
        again.load("c-1")
    for path in (log.home / "keys").iterdir():
        path.write_bytes(b"no database" * 1000)
    with pytest.raises(KeyStoreUnusable):
        hw.Entities(log, "customer", DECIDER)


def test_a_key_store_can_be_elsewhere(log: Log, tmp_path: Path) -> None:
    with hw.Entities(log, "customer", DECIDER, keys=tmp_path / "vault") as customers:
        customers.send("c-1", Register("Ada Lovelace"))
    assert not (log.home / "keys").exists()
    [certificate] = erase(log, "c-1", keys=tmp_path / "vault")
    assert certificate.complete


def test_a_destroyed_key_leaves_no_byte(log: Log, customers: Customers) -> None:
    customers.send_many([(f"c-{number}", Register(f"name {number}")) for number in range(50)])
    customers.close()
    path = log.home / "keys" / "keys.sqlite"
    database = sqlite3.connect(path)
    keys = dict(database.execute("SELECT subject, key FROM keys WHERE subject LIKE 'c-%'"))
    database.close()
    erase(log, ["c-7", "c-8"])
    left = bytes_of(log.home / "keys")
    assert {subject for subject, key in keys.items() if key not in left} == {"c-7", "c-8"}


def test_a_personal_field_needs_a_subject_and_something_in_its_place() -> None:
    @dataclass(frozen=True)
    class Weighed:
        grams: Annotated[int, Personal()]

    @dataclass(frozen=True)
    class Named:
        name: Annotated[str, Personal(subject="person")]

    for kind in (Weighed, Named):
        # Any: a class of this function.
        decider: hw.Decider[Any, Any, Any] = hw.Decider(
            initial=0, decide=lambda *_: None, evolve=lambda *_: 0, commands=[Order], events=[kind]
        )
        with pytest.raises(DeciderInvalid):
            decider.check()

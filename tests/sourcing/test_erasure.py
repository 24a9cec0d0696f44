"""Personal fields are encrypted for each subject, and erased by destroying the subject's key."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import NotFound
from headwater.log import Log
from headwater.sourcing import KeyLost, Personal, erase
from headwater.sourcing.errors import DeciderInvalid, KeyStoreUnusable, PersonalHidden


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
        [certificate] = erase(log, "c-1", by="clerk", why="she asked for it")
        assert certificate.complete
        assert (certificate.events, certificate.entities, certificate.values_searched) == (1, 1, 2)
        for each in (customers, others):
            assert each.load("c-1").state == Customer("[erased]", None, "a rival", ("a book",) * 3)
    erase(log, "c-2")
    assert customers.load("c-1").state.note == "gone"
    rows = log.read("erasures").rows()
    assert [(row["subject"], row["by"], row["why"]) for row in rows] == [
        ("c-1", "clerk", "she asked for it"),
        ("c-2", None, None),
    ]
    with pytest.raises(NotFound):
        erase(log, "c-1")
    customers.send("c-1", Register("Ada again"))
    assert customers.load("c-1").state.name == "Ada again"


def test_copies_in_plain_text_are_found(log: Log, customers: Customers) -> None:
    customers.send("c-1", Register("Ada Lovelace"))
    log.create("plain", {"name": "string"})
    log.create("packed", {"name": "string"}, codec="zstd")
    for topic in ("plain", "packed"):
        log.append(topic, [{"name": "Ada Lovelace"}] * 100)
    others = [("view people", pa.table({"name": ["Ada Lovelace"]})), ("view cities", pa.table({"city": ["Paris"]}))]
    [certificate] = erase(log, "c-1", others=others)
    assert not certificate.complete
    assert certificate.remaining[-2:] == ["topic packed", "view people"]
    assert any("plain" in place for place in certificate.remaining)


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
    import sqlite3

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


def test_of_ten_thousand_subjects_a_hundred_are_erased_and_the_others_are_intact(log: Log) -> None:
    names = {f"c-{number}": f"name-of-{number:05d}-in-clear" for number in range(10_000)}
    erased = [f"c-{number}" for number in range(0, 10_000, 100)]
    with hw.Entities(log, "customer", DECIDER) as customers:
        customers.send_many([(id, Register(name)) for id, name in names.items()])
        certificates = erase(log, erased)
        assert len(certificates) == 100
        assert all(each.complete and each.values_searched == 1 for each in certificates)
    with hw.Entities(log, "customer", DECIDER) as customers:
        for id, name in names.items():
            expected = "[erased]" if id in set(erased) else name
            assert customers.load(id).state.name == expected
    found = bytes_of(Path(log.address))
    assert b"-in-clear" not in found

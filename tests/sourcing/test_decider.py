"""Deciders: classes from annotations, upcasters, and functions that are wrong."""

# ruff: noqa: ARG001, ARG005 - a decider need not look at its state
from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import orjson
import pytest
from pydantic import BaseModel

import headwater as hw
from headwater.errors import ArgumentInvalid
from headwater.log import Log
from headwater.sourcing import CommandRejected, DeciderFailed, DeciderNotDeterministic, EventUnreadable
from headwater.sourcing.codec import Misfit, dump, reader
from headwater.sourcing.errors import DeciderInvalid
from headwater.sourcing.event_rows import SCHEMA
from tests.sourcing.account import DECIDER, Account, Deposit, Deposited, Event, Opened


class Colour(enum.Enum):
    RED = "red"


class Address(BaseModel):
    street: str


@dataclass(frozen=True)
class Item:
    name: str
    price: Decimal = Decimal(1)


Number = NewType("Number", int)


@dataclass(frozen=True)
class Everything:
    flag: bool
    ratio: float
    raw: bytes
    at: datetime
    on: date
    hour: time
    span: timedelta
    price: Decimal
    id: UUID
    colour: Colour
    address: Address
    items: list[Item]
    pair: tuple[int, str]
    many: tuple[int, ...]
    names: frozenset[str]
    by_name: dict[str, Item]
    by_number: dict[int, str]
    choice: Literal["a", "b"]
    number: Number
    maybe: Annotated[str | None, "a note"]
    free: Any = None
    later: list[str] = field(default_factory=list)


EVERYTHING = Everything(
    flag=True,
    ratio=1.5,
    raw=b"\x00\xff",
    at=datetime(2024, 1, 2, 3, 4, 5, 6, UTC),
    on=date(2024, 1, 2),
    hour=time(3, 4),
    span=timedelta(seconds=1.5),
    price=Decimal("1.10"),
    id=UUID(int=7),
    colour=Colour.RED,
    address=Address(street="Main"),
    items=[Item("a")],
    pair=(1, "x"),
    many=(1, 2),
    names=frozenset({"a", "b"}),
    by_name={"a": Item("b", Decimal(2))},
    by_number={1: "x"},
    choice="a",
    number=Number(3),
    maybe=None,
    free={"a": [1]},
)


def test_values_of_all_types_are_read_back() -> None:
    assert reader(Everything)(orjson.loads(dump(EVERYTHING))) == EVERYTHING


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flag", 1),
        ("ratio", "1"),
        ("raw", "?"),
        ("at", "noon"),
        ("price", 1.1),
        ("colour", "blue"),
        ("address", {"road": "Main"}),
        ("address", {"street": 1}),
        ("items", {}),
        ("items", [{"price": "1"}]),
        ("items", ["a"]),
        ("pair", [1]),
        ("by_name", []),
        ("choice", "c"),
        ("maybe", 3),
        ("unknown", 1),
        ("flag", None),
    ],
)
def test_a_value_of_another_type_is_a_misfit(name: str, value: object) -> None:
    body = orjson.loads(dump(EVERYTHING)) | {name: value}
    with pytest.raises(Misfit):
        reader(Everything)(body)


def test_a_type_without_json_is_refused() -> None:
    with pytest.raises(DeciderInvalid, match="no JSON form"):
        reader(Callable)
    with pytest.raises(DeciderInvalid, match="wrong class"):
        reader(list[Item | Everything])


def nothing(state: int, command: Deposit) -> None:
    return None


@pytest.mark.parametrize(
    "settings",
    [
        {"events": [int]},
        {"events": [Deposited], "upcasters": {("Deposited", 2): dict}},
        {"events": [Deposited], "upcasters": {("Closed", 1): dict}},
        {"evolve": lambda state, event: state},
    ],
)
def test_a_decider_that_cannot_be_used_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(DeciderInvalid):
        hw.Decider(**{"initial": 0, "decide": nothing, "evolve": lambda state, event: state, **settings}).check()


def open_with(log: Log, **changes: Any) -> hw.Entities[Any, Any, Any]:
    return hw.Entities(log, "account", replace(DECIDER, **changes), check=True)


def test_a_decider_that_raises_leaves_no_event(log: Log) -> None:
    def broken(state: Account, command: Deposit) -> list[Event]:
        raise ValueError("a bug")

    with open_with(log, decide=broken, commands=[Deposit]) as accounts:
        with pytest.raises(DeciderFailed, match="ValueError: a bug"):
            accounts.send("a", Deposit(1))
        assert accounts.load("a").version == 0


@pytest.mark.parametrize(
    ("decide", "evolve"),
    [
        (lambda state, command: [Item("x")], DECIDER.evolve),
        (lambda state, command: 7, DECIDER.evolve),
        (DECIDER.decide, lambda state, event: None),
        (DECIDER.decide, lambda state, event: state[event]),
    ],
)
def test_an_event_that_evolve_does_not_know_is_not_appended(log: Log, decide: Any, evolve: Any) -> None:
    changes = {"commands": [Deposit], "events": [Opened, Deposited], "state": Account}
    with open_with(log, decide=decide, evolve=evolve, **changes) as accounts:
        with pytest.raises(DeciderFailed):
            accounts.send("a", Deposit(1))
        assert log.read("account.events").count() == 0


def test_a_decider_that_is_not_deterministic_is_found(log: Log) -> None:
    numbers = itertools.count()

    def decide(state: Account, command: Deposit) -> list[Event]:
        return [Deposited(next(numbers))]

    with open_with(log, decide=decide, commands=[Deposit]) as accounts, pytest.raises(DeciderNotDeterministic):
        accounts.send("a", Deposit(1))


def test_decide_may_return_one_event_or_nothing_or_yield(log: Log) -> None:
    def several(state: Account, command: Deposit) -> Iterator[Event]:
        yield Deposited(command.amount)
        yield Deposited(command.amount)

    cases: list[tuple[Any, int]] = [(several, 2), (nothing, 0), (lambda state, command: Deposited(1), 1)]
    for number, (decide, count) in enumerate(cases):
        with open_with(log, decide=decide, commands=[Deposit]) as accounts:
            assert accounts.send(f"a-{number}", Deposit(1)).version == count


def store(log: Log, data: str, *, event: str = "Deposited", schema: int = 1) -> None:
    row = {"entity": "a", "version": 1, "event": event, "schema": schema, "data": data, "at": 0}
    log.append("account.events", dict.fromkeys(SCHEMA.names) | row)


def test_old_events_are_upcast(log: Log) -> None:
    upcasters = {
        ("Deposited", 1): lambda body: {"cents": body["euros"] * 100},
        ("Deposited", 2): lambda body: {"amount": body["cents"]},
    }
    with open_with(log, upcasters=upcasters) as accounts:
        store(log, '{"euros":3}')
        assert accounts.load("a").state.balance == 300
        accounts.send("a", Deposit(5))
        assert [each.schema for each in accounts.history("a")] == [1, 3]
        assert accounts.load("a").state.balance == 305


@pytest.mark.parametrize(
    ("data", "event", "schema"),
    [
        ('{"euros":3}', "Deposited", 1),
        ('{"amount":3,"currency":"EUR"}', "Deposited", 1),
        ('{"amount":3}', "Deposited", 2),
        ("{}", "Deposited", 1),
        ("{}", "Closed", 1),
        ("{", "Deposited", 1),
    ],
)
def test_an_event_of_another_schema_without_an_upcaster_is_an_error(
    log: Log, data: str, event: str, schema: int
) -> None:
    with open_with(log) as accounts:
        store(log, data, event=event, schema=schema)
        with pytest.raises(EventUnreadable, match="upcaster"):
            accounts.load("a")


def test_commands_are_read_from_json() -> None:
    assert DECIDER.command_types.read("Deposit", {"amount": 1}) == Deposit(1)
    with pytest.raises(ArgumentInvalid, match="no field 'euros'"):
        DECIDER.command_types.read("Deposit", {"euros": 1})


class Stock(BaseModel):
    count: int = 0


class Arrive(BaseModel):
    count: int


class Arrived(BaseModel):
    count: int


def test_pydantic_models_are_commands_events_and_states(log: Log) -> None:
    def decide(stock: Stock, command: Arrive) -> list[Arrived] | hw.Rejected:
        return [Arrived(count=command.count)]

    def evolve(stock: Stock, event: Arrived) -> Stock:
        return Stock(count=stock.count + event.count)

    decider = hw.Decider(initial=Stock(), decide=decide, evolve=evolve)
    for _ in range(2):
        with hw.Entities(log, "stock", decider, snapshot_events=1) as stocks:
            stocks.send("a", Arrive(count=2))
    with hw.Entities(log, "stock", decider, snapshot_events=1) as stocks:
        assert stocks.load("a").state == Stock(count=4)


def test_snapshots_of_another_decider_are_not_used(log: Log) -> None:
    with open_with(log) as accounts:
        accounts.send_many([("a", Deposit(1))] * 200)
    doubled = replace(DECIDER, version=2, evolve=lambda state, event: replace(state, balance=state.balance + 2))
    with hw.Entities(log, "account", replace(doubled, events=[Deposited], state=Account)) as accounts:
        assert accounts.load("a").state.balance == 400
    with open_with(log) as accounts, pytest.raises(CommandRejected):
        accounts.send("a", Deposit(0))

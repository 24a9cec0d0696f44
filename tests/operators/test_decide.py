"""A decider over a stream of commands: the events, states and rejections of sending one command after the other."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater.clock import ManualClock
from headwater.engine.errors import StateChanged
from headwater.engine.event_time import BatchTime
from headwater.errors import ArgumentInvalid, HeadwaterError, NotPossible
from headwater.operators import Decide
from headwater.sourcing import COMMAND_SCHEMA, CommandRequest, Personal, command_rows
from headwater.sourcing.errors import DeciderInvalid
from headwater.sourcing.event_rows import SCHEMA
from tests.laws import costly
from tests.operators.batches import bounded, streamed
from tests.sourcing.account import DECIDER, Account, Command, Deposit, Deposited, Open, Withdraw

START = datetime.fromtimestamp(1_700_000_000, UTC)
DECIDE = Decide(entities="account", decider=DECIDER, check=True)


def table(rows: list[dict[str, Any]], *, first: int = 0) -> pa.Table:
    """Rows of a topic of commands, as a query gets them."""
    places = {"_partition": pa.array([0] * len(rows), pa.int32()), "_offset": range(first, first + len(rows))}
    made = pa.Table.from_pylist(rows, COMMAND_SCHEMA)
    for name, values in places.items():
        made = made.append_column(name, pa.array(values, pa.int64()))
    return made


def in_batches(requests: Sequence[Sequence[CommandRequest]]) -> list[pa.Table]:
    firsts = [sum(map(len, requests[:number])) for number in range(len(requests))]
    return [table(command_rows(batch, at=START), first=first) for batch, first in zip(requests, firsts, strict=True)]


commands = st.one_of(st.just(Open("Ada")), st.integers(-1, 9).map(Deposit), st.integers(1, 9).map(Withdraw))
requests = st.builds(
    CommandRequest,
    id=st.sampled_from("abc"),
    command=commands,
    command_id=st.none() | st.sampled_from(["c-1", "c-2", "c-3"]),
    expected_version=st.none() | st.integers(0, 3),
    by=st.none() | st.just("Eve"),
)


@costly(3)
@given(
    sent=st.lists(st.lists(requests, max_size=6), min_size=1, max_size=4),
    replay=st.integers(0, 3),
    partitions=st.integers(1, 3),
)
def test_a_stream_of_commands_has_the_events_and_rejections_of_sending_them(
    sent: list[list[CommandRequest]], replay: int, partitions: int
) -> None:
    wanted_rejections = []
    with (
        tempfile.TemporaryDirectory() as folder,
        hw.open(folder, clock=ManualClock(start_us=1_700_000_000_000_000)) as log,
        hw.Entities(log, "account", DECIDER) as accounts,
    ):
        for request in (each for batch in sent for each in batch):
            options = {name: getattr(request, name) for name in ("command_id", "expected_version", "by")}
            try:
                accounts.send(request.id, request.command, **options)
            except HeadwaterError as error:
                wanted_rejections.append((request.id, type(request.command).__name__, type(error).__name__))
        wanted = [
            row
            for id in "abc"
            for row in log.read("account.events", columns=SCHEMA.names).rows()
            if row["entity"] == id
        ]
        states = {id: accounts.load(id).state for id in "abc"}
    sides: dict[str, list[pa.Table]] = {}
    outputs = streamed(DECIDE.contract, in_batches(sent), partitions=partitions, replay=replay, sides=sides)
    found = pa.concat_tables(outputs).to_pylist()
    assert [row for id in "abc" for row in found if row["entity"] == id] == wanted
    rejections = [row for each in sides.get("rejections", []) for row in each.to_pylist()]
    assert sorted((row["entity"], row["command"], row["error"]) for row in rejections) == sorted(wanted_rejections)
    whole, _ = bounded(DECIDE.contract, pa.concat_tables(in_batches(sent)))
    assert sorted(map(repr, whole.to_pylist())) == sorted(map(repr, found))
    assert {id: fold(found, id) for id in "abc"} == states


def fold(rows: list[dict[str, Any]], id: str) -> Account:
    types = DECIDER.event_types
    events = [types.read("", row["event"], row["schema"], row["data"]) for row in rows if row["entity"] == id]
    return DECIDER.fold(events)


def test_a_command_is_ignored_as_long_as_its_id_is_remembered() -> None:
    ids = ["c-1", "c-2", "c-1", "c-3", "c-1"]
    batches = in_batches([[CommandRequest(id="a", command=Deposit(1), command_id=each)] for each in ids])
    events = [table.num_rows for table in streamed(replace(DECIDE, command_ids_max=2).contract, batches)]
    assert events == [1, 1, 0, 1, 1]
    assert [table.num_rows for table in streamed(DECIDE.contract, batches)] == [1, 1, 0, 1, 0]


@dataclass(frozen=True)
class Explode:
    pass


def failing(account: Account, command: Command | Explode) -> Any:
    if isinstance(command, Explode):
        raise ZeroDivisionError("it has exploded")
    return DECIDER.decide(account, command)


@pytest.mark.parametrize(
    ("command", "data", "error", "reason"),
    [
        ("Withdraw", '{"amount": 5}', "CommandRejected", "the balance is 1"),
        ("Explode", "{}", "DeciderFailed", "ZeroDivisionError: it has exploded"),
        ("Melt", "{}", "CommandUnknown", "no command 'Melt'"),
        ("Deposit", '{"amount": "5"}', "ArgumentInvalid", "'5' is not int"),
        ("Deposit", "{", "ArgumentInvalid", "not Deposit"),
    ],
)
def test_a_command_that_does_nothing_is_told_and_holds_no_other_up(
    command: str, data: str, error: str, reason: str
) -> None:
    decider = replace(DECIDER, decide=failing, commands=[Deposit, Withdraw, Explode])
    good = command_rows([CommandRequest(id="a", command=Deposit(1))], at=START)[0]
    rows = [good, {**good, "command": command, "data": data, "why": "a test"}, good]
    sides: dict[str, list[pa.Table]] = {}
    [output] = streamed(replace(DECIDE, decider=decider).contract, [table(rows)], sides=sides)
    assert output.column("version").to_pylist() == [1, 2]
    [rejection] = sides["rejections"][0].to_pylist()
    assert reason in rejection.pop("reason")
    assert rejection == {**rows[1], "error": error}


def test_a_decider_that_is_not_deterministic_is_found_by_double_evaluation() -> None:
    amounts = iter(range(100))
    decider = replace(DECIDER, decide=lambda _account, _command: Deposited(next(amounts)), commands=[Deposit])
    batch = in_batches([[CommandRequest(id="a", command=Deposit(1))]])
    sides: dict[str, list[pa.Table]] = {}
    [output] = streamed(replace(DECIDE, decider=decider).contract, batch, sides=sides)
    assert (output.num_rows, sides["rejections"][0].column("error").to_pylist()) == (0, ["DeciderNotDeterministic"])


def test_a_state_of_another_class_is_not_used() -> None:
    [commands] = in_batches([[CommandRequest(id="a", command=Deposit(1))]])
    step = DECIDE.contract(commands.schema).step
    keyed = commands.append_column("_key", pa.array([0], pa.int64()))
    before = {"entity": ["a"], "version": [1], "state": [b'"Account" {"total": 1}'], "command_ids": [b""], "_key": [0]}
    with pytest.raises(StateChanged, match="no field 'total'"):
        step(pa.table(before), keyed, BatchTime())


@dataclass(frozen=True)
class Named:
    name: Annotated[str, Personal()]


def test_what_cannot_be_decided_on_spark_is_refused_at_once() -> None:
    personal = replace(DECIDER, events=[Named])
    with pytest.raises(NotPossible, match="Personal"):
        Decide(entities="account", decider=personal)
    with pytest.raises(DeciderInvalid, match="cannot be stored"):
        Decide(
            entities="account",
            decider=hw.Decider(
                initial=0j,
                decide=lambda _z, _command: [],
                evolve=lambda z, _event: z,
                commands=[Deposit],
                events=[Deposited],
                state=complex,
            ),
        )
    with pytest.raises(ArgumentInvalid, match="at least 0"):
        Decide(entities="account", decider=DECIDER, command_ids_max=-1)

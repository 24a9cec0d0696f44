"""Laws of event sourcing: replay, prefixes, snapshots, and several writers."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater.clock import ManualClock
from headwater.log import Log
from headwater.sourcing import CommandRejected, CommandRequest
from headwater.sourcing.event_rows import SCHEMA
from tests.laws import costly
from tests.sourcing.account import DECIDER, Account, Accounts, Command, Deposit, Event, Open, Withdraw

IDS = ["a", "b", "c"]
commands = st.one_of(
    st.sampled_from(["Ada", "Eve"]).map(Open),
    st.integers(0, 9).map(Deposit),
    st.integers(0, 9).map(Withdraw),
)


@dataclass(frozen=True)
class Step:
    """One call, by one of two programs."""

    program: int
    kind: str
    id: str
    command: Command
    command_id: str | None


steps = st.lists(
    st.builds(
        Step,
        program=st.integers(0, 1),
        kind=st.sampled_from(["send", "send", "send", "many", "transaction", "reopen", "lose the index"]),
        id=st.sampled_from(IDS),
        command=commands,
        command_id=st.one_of(st.none(), st.sampled_from(["1", "2", "3"])),
    ),
    max_size=40,
)


def programs(log: Log) -> list[Accounts]:
    """Two programs with different snapshots and caches, and a third index."""
    return [
        hw.Entities(log, "account", DECIDER, snapshot_events=snapshots, entities_cached_max=cached, check=True)
        for snapshots, cached in ((2, 1), (None, 2))
    ]


def carry_out(step: Step, opened: list[Accounts], log: Log) -> None:
    accounts = opened[step.program]
    request = CommandRequest(id=step.id, command=step.command, command_id=step.command_id)
    match step.kind:
        case "send":
            try:
                accounts.send(step.id, step.command, command_id=step.command_id)
            except CommandRejected:
                return
        case "many":
            accounts.send_many([request, request, (IDS[0], Deposit(1))])
        case "transaction":
            try:
                with accounts.transaction() as transaction:
                    transaction.send(step.id, step.command, command_id=step.command_id)
                    transaction.send(IDS[1], Withdraw(1))
            except CommandRejected:
                return
        case _:
            for each in opened:
                each.close()
            if step.kind == "lose the index":
                shutil.rmtree(log.home / "entities", ignore_errors=True)
            opened[:] = programs(log)


@given(steps=steps)
@costly(5)
def test_every_program_sees_the_fold_of_the_events_whatever_it_has_stored(steps: list[Step]) -> None:
    folder = Path(tempfile.mkdtemp())
    expected: dict[str, list[Event]] = {id: [] for id in IDS}
    done: set[tuple[str, str]] = set()

    def decide(id: str, command: Command, command_id: str | None) -> None:
        """What one program alone does, in memory."""
        if command_id is not None and (id, command_id) in done:
            return
        events = DECIDER.decide(DECIDER.fold(expected[id]), command)
        if isinstance(events, list):
            expected[id] += events
            if command_id is not None:
                done.add((id, command_id))

    with hw.open(folder / "log", clock=ManualClock()) as log:
        log.create("account.events", SCHEMA, key="entity", time="at", partitions=2)
        opened = programs(log)
        for step in steps:
            carry_out(step, opened, log)
            if step.kind in ("send", "many"):
                decide(step.id, step.command, step.command_id)
            if step.kind == "many":
                decide(step.id, step.command, step.command_id)
                decide(IDS[0], Deposit(1), None)
            if step.kind == "transaction":
                before = {id: list(events) for id, events in expected.items()}, set(done)
                counts = len(expected[step.id]), len(done)
                decide(step.id, step.command, step.command_id)
                moved = (len(expected[step.id]), len(done)) != counts
                is_duplicate = step.command_id is not None and (step.id, step.command_id) in before[1]
                count = len(expected[IDS[1]])
                decide(IDS[1], Withdraw(1), None)
                if not (moved or is_duplicate) or len(expected[IDS[1]]) == count:
                    expected, done = before
        for accounts in opened:
            for id in IDS:
                history = accounts.history(id)
                assert [each.event for each in history] == expected[id]
                assert accounts.load(id).state == DECIDER.fold(expected[id])
                for place, each in enumerate(history):
                    prefix = DECIDER.fold(expected[id][: place + 1])
                    assert accounts.at(id, offset=each.offset).state == prefix
                    assert accounts.at(id, version=each.version).state == prefix
                assert accounts.at(id, offset=-1).state == Account()
            accounts.close()
    shutil.rmtree(folder)

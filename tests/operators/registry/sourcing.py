"""Event sourcing: what is evolved from the events of entities, and what is decided on commands."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame

from headwater.operators import Decide, Evolve
from headwater.sourcing import COMMAND_SCHEMA, CommandRequest, RecordedEvent, command_rows
from headwater.sourcing.event_rows import SCHEMA
from tests.operators.batches import final_table
from tests.operators.registry.entry import Entry, Rows, cut
from tests.operators.stream_runs import Stream
from tests.sourcing.account import DECIDER, Deposit, Deposited, Event, Open, Opened, Withdraw, Withdrawn
from tests.sourcing.read_models import TURNOVER

START = datetime(2026, 1, 1, tzinfo=UTC)
_chance = random.Random(18)


def history(count: int) -> list[tuple[str, int, Event]]:
    """Events of some accounts, with their versions."""
    versions: dict[str, int] = {}
    found: list[tuple[str, int, Event]] = []
    for _ in range(count):
        id = _chance.choice("abcdefg")
        versions[id] = version = versions.get(id, 0) + 1
        amount = _chance.randint(1, 9)
        event: Event = Withdrawn(amount) if _chance.random() < 0.3 else Deposited(amount)
        found.append((id, version, Opened(id) if version == 1 else event))
    return found


EVENTS = history(60)


def event_rows(events: list[tuple[str, int, Event]]) -> Rows:
    found = []
    for id, version, event in events:
        name, schema, data = DECIDER.event_types.write(event)
        at = START + timedelta(seconds=version)
        found.append({"entity": id, "version": version, "event": name, "schema": schema, "data": data, "at": at})
    return found


def by_kind(rows: Rows) -> dict[Any, Any]:
    table = final_table(rows, ["kind"])
    return {kind: (row["events"], row["amount"]) for (kind,), row in table.items()}


def folded() -> dict[Any, Any]:
    """The read model by its definition: one event after the other."""
    found: dict[str, Any] = {}
    for id, version, event in EVENTS:
        recorded = RecordedEvent(
            id=id, version=version, event=event, at=START, partition=0, offset=0, schema=1,
            command_id=None, by=None, why=None, correlation=None, causation=None, tags=(),
        )  # fmt: skip
        for kind in TURNOVER.keys(recorded):
            found[kind] = TURNOVER.after(found.get(kind), recorded)
    return {kind: (row.events, row.amount) for kind, row in found.items()}


def turnover(events: DataFrame) -> DataFrame:
    return events.transform(Evolve(model=TURNOVER))


EVOLVE = Entry(
    name="evolve",
    operators=("Evolve",),
    topics={"account.events": {"schema": SCHEMA, "key": "entity", "time": "at"}},
    batches=[{"account.events": event_rows(part)} for part in cut(EVENTS, 4)],
    build=turnover,
    seen=by_kind,
    wanted=folded,
)

# -- commands of a stream -----------------------------------------------------------------------------------------------------

DECIDE = Decide(entities="account", decider=DECIDER)


def commands(count: int) -> list[CommandRequest]:
    """Commands for a few accounts: some are repeated, and some rejected."""
    found = []
    for number in range(count):
        id, amount = _chance.choice("abcdefg"), _chance.randint(1, 9)
        command = _chance.choice([Open(id), Deposit(amount), Deposit(amount), Withdraw(amount)])
        found.append(CommandRequest(id=id, command=command, command_id=f"c-{number - number % 3}"))
    return found


COMMANDS = commands(80)


def one_after_the_other() -> list[tuple[Any, ...]]:
    """The events of the commands of each account, by folding them all again for each command."""
    found: list[tuple[Any, ...]] = []
    for id in "abcdefg":
        events: list[Event] = []
        done = set()
        for request in (each for each in COMMANDS if each.id == id and each.command_id not in done):
            made = DECIDER.decide(DECIDER.fold(events), request.command)
            if isinstance(made, list):
                events += made
                done.add(request.command_id)
                found += [(id, len(events), type(made[0]).__name__, request.command_id)]
    return found


def rejections_are_aside(stream: Stream) -> None:
    rejections = stream.side(DECIDE.called, "rejections")
    assert {row["error"] for row in rejections} == {"CommandRejected"}
    events = {row["command_id"] for row in stream.rows()}
    assert {request.command_id for request in COMMANDS} == events | {row["command_id"] for row in rejections}


def events(rows: Rows) -> list[tuple[Any, ...]]:
    return sorted((row["entity"], row["version"], row["event"], row["command_id"]) for row in rows)


DECIDED = Entry(
    name="decide",
    operators=("Decide",),
    topics={"account.commands": {"schema": COMMAND_SCHEMA, "key": "entity", "time": "at"}},
    batches=[{"account.commands": command_rows(part, at=START)} for part in cut(COMMANDS, 4)],
    build=lambda commands: commands.transform(DECIDE),
    seen=events,
    wanted=one_after_the_other,
    check=rejections_are_aside,
)

ENTRIES = (EVOLVE, DECIDED)

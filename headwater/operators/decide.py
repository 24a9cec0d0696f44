"""`Decide`: commands of a stream, decided into events."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from headwater.engine.columns import KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.errors import StateChanged
from headwater.engine.event_time import BatchTime
from headwater.engine.spark_plan import apply
from headwater.engine.window_operator import check_columns
from headwater.errors import ArgumentInvalid, HeadwaterError, NotPossible
from headwater.sourcing import CommandRejected, Decider
from headwater.sourcing.command_rows import COMMAND_SCHEMA, request_of
from headwater.sourcing.draft import Draft, Known, Rules
from headwater.sourcing.errors import DeciderInvalid
from headwater.sourcing.event_rows import SCHEMA, EventRow, to_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REJECTIONS = "rejections"
STATE = pa.schema([("version", pa.int64()), ("state", pa.binary()), ("command_ids", pa.binary())])
REJECTION_SCHEMA = pa.schema([*COMMAND_SCHEMA, pa.field("error", pa.string()), pa.field("reason", pa.string())])
#: How many bytes of the hash of a command's id are kept.
ID_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class Decide:
    """Decide the commands of a topic (`COMMAND_SCHEMA`, with the key `entity`) as `Entities.send` would one after the other.

    The output are the events, for a topic `NAME.events` with the key `entity` that this query alone appends to; `Entities` and read
    models then read it. Rejected commands, and those that cannot be read or on which the decider raises, go with `error`
    and `reason` to the side output `rejections`; to send one again, append it to the topic of commands again. State is that of each entity, and
    the ids of its newest `command_ids_max` commands with events: a command with one of these ids is ignored. An event
    has the time `at` of its command. `check` evaluates the decider twice, for tests. Raise the decider's `version` after a change of
    `evolve`, and replay the query.

        @app.topic(key="entity", name="account.events", inputs={"commands": "account.commands"},
                   side_outputs={"rejections": "account.rejections"})
        def events(commands):
            return commands.transform(Decide(entities="account", decider=ACCOUNT))
    """

    entities: str
    # Any: the user's state, command and event classes.
    decider: Decider[Any, Any, Any]
    command_ids_max: int = 1_000
    check: bool = False
    partitions: int | None = None

    def __post_init__(self) -> None:
        if self.command_ids_max < 0:
            raise ArgumentInvalid(name="command_ids_max", value=self.command_ids_max, expected="at least 0")
        self.decider.check()
        if self.decider.event_types.personal:
            raise NotPossible(
                why="Personal fields are encrypted by `Entities`, and Spark has no keys",
                instead="Send these commands with `Entities.send_many`",
            )
        if self.decider.state_form.problem:
            raise DeciderInvalid(what="its state", why=f"cannot be stored ({self.decider.state_form.problem})")

    @property
    def called(self) -> str:
        """The name of the operator for its state: with a new version, state of older ones is not used."""
        return f"{self.entities}-{self.decider.version}"

    def __call__(self, commands: DataFrame) -> DataFrame:
        check_columns(self.called, commands, *COMMAND_SCHEMA.names)
        return apply(self.contract, commands, partitions=self.partitions)

    def side_output(self, name: str, commands: DataFrame) -> DataFrame:
        """The rejections of bounded input. In a stream they lie in the state folder, computed once."""
        return apply(self.contract, commands, partitions=self.partitions, side=name)

    def contract(self, rows: pa.Schema) -> Contract:
        return Contract(
            name=self.called,
            step=_Step(self.called, Rules(self.entities, self.decider, self.check), self.command_ids_max),
            key=("entity",),
            rows=rows,
            state=STATE,
            output=SCHEMA,
            side_outputs={REJECTIONS: REJECTION_SCHEMA},
        )


class _Stored(NamedTuple):
    """An entity in the state of the operator."""

    known: Known
    command_ids: bytes


class _Entries:
    """What a draft reads: the entities of one batch, from the state of the operator."""

    # Any: the user's state, command and event classes.
    def __init__(self, decider: Decider[Any, Any, Any], stored: dict[str, _Stored]) -> None:
        self._decider, self._stored = decider, stored

    def known(self, entity: str) -> Known:
        stored = self._stored.get(entity)
        return Known(self._decider.initial, 0) if stored is None else stored.known

    def of_command(self, entity: str, command_id: str) -> list[EventRow]:
        """A row if the command was done before; its events are in the output, and are not kept."""
        stored = self._stored.get(entity)
        if stored is None or _hashed(command_id) not in _split(stored.command_ids):
            return []
        return [EventRow(entity, stored.known.version, "", 0, "", 0)]

    def read(self, row: EventRow) -> None:
        """Nothing: see `of_command`."""

    # Any: an event of the user's class.
    def write(self, entity: str, event: Any) -> tuple[str, int, str]:  # noqa: ARG002 - no field is encrypted for it
        return self._decider.event_types.write(event)


@dataclass(frozen=True)
class _Step:
    operator: str
    rules: Rules
    command_ids_max: int

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:  # noqa: ARG002 - it has no timers
        stored = self._stored(state)
        draft = Draft(self.rules, _Entries(self.rules.decider, stored), partition=0, offset=0, now_us=0)
        done: dict[str, list[bytes]] = {}
        events: list[EventRow] = []
        rejections = []
        commands = rows.select(COMMAND_SCHEMA.names)
        times = commands.column("at").cast(pa.int64()).to_pylist()
        for row, at_us in zip(commands.to_pylist(), times, strict=True):
            try:
                request = request_of(row, self.rules.decider.command_types)
                decision = draft.add(request)
                if decision.error is not None:
                    raise decision.error
            except HeadwaterError as error:
                reason = error.reason if isinstance(error, CommandRejected) else str(error)
                rejections.append({**row, "error": type(error).__name__, "reason": reason})
                continue
            events += (each._replace(at_us=at_us) for each in draft.rows[len(events) :])
            if decision.events and not decision.duplicate and request.command_id is not None:
                done.setdefault(request.id, []).append(_hashed(request.command_id))
        return StepResult(
            self._state(stored, draft.changed, done, numbers_of(state, rows)),
            pa.Table.from_batches([to_batch(events)]) if events else None,
            {REJECTIONS: pa.Table.from_pylist(rejections, REJECTION_SCHEMA)} if rejections else {},
        )

    def _stored(self, state: pa.Table) -> dict[str, _Stored]:
        form = self.rules.decider.state_form
        names = ("entity", "version", "state", "command_ids")
        columns = zip(*(state.column(name).to_pylist() for name in names), strict=True)
        try:
            return {entity: _Stored(Known(form.read(body), version), ids) for entity, version, body, ids in columns}
        except ValueError as error:
            raise StateChanged(
                operator=self.operator, why=f"a state cannot be read ({error})", what="raise the decider's `version`"
            ) from error

    def _state(
        self,
        stored: dict[str, _Stored],
        changed: dict[str, Known],
        done: dict[str, list[bytes]],
        numbers: dict[str, int],
    ) -> pa.Table:
        """The state of all entities, of which some have changed."""
        form = self.rules.decider.state_form
        found: list[tuple[int, bytes | None, bytes, int]] = []
        for entity in stored.keys() | changed.keys():
            before = stored.get(entity)
            known = changed[entity] if entity in changed else stored[entity].known
            ids = (b"" if before is None else before.command_ids) + b"".join(done.get(entity, ()))
            body = form.write(known.state)
            if body is None:
                raise DeciderInvalid(what=f"state {type(known.state).__name__}", why="cannot be stored")
            kept = ids[max(0, len(ids) - ID_BYTES * self.command_ids_max) :]
            found.append((known.version, body, kept, numbers[entity]))
        columns = list(zip(*found, strict=True)) or [()] * 4
        schema = pa.schema([*STATE, pa.field(KEY, pa.int64())])
        return pa.table([pa.array(each, kind) for each, kind in zip(columns, schema.types, strict=True)], schema=schema)


def numbers_of(*tables: pa.Table) -> dict[str, int]:
    """The numbers of the entities of some tables."""
    found: dict[str, int] = {}
    for table in tables:
        found |= zip(table.column("entity").to_pylist(), table.column(KEY).to_pylist(), strict=True)
    return found


def _hashed(command_id: str) -> bytes:
    return hashlib.blake2b(command_id.encode(), digest_size=ID_BYTES).digest()


def _split(command_ids: bytes) -> set[bytes]:
    return {command_ids[start : start + ID_BYTES] for start in range(0, len(command_ids), ID_BYTES)}

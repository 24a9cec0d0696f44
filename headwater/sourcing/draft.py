"""Decides a batch of commands, one after the other, without writing anything.

A draft reads entities through a port and remembers how each of its commands changes them, so that a later command of the
batch sees the events of an earlier one. If the rows cannot be appended, the draft is thrown away and nothing has changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from headwater.errors import HeadwaterError
from headwater.sourcing.decider import Decider, Rejected
from headwater.sourcing.errors import (
    CommandRejected,
    DeciderFailed,
    DeciderInvalid,
    DeciderNotDeterministic,
    VersionConflict,
)
from headwater.sourcing.event_rows import EventRow
from headwater.sourcing.request import CommandRequest, Decision, RecordedEvent, SendRejected


class Known(NamedTuple):
    """An entity's state and version, and the version of its last snapshot."""

    # Any: a state of the user's decider.
    state: Any
    version: int
    snapshot: int = 0


class Entries(Protocol):
    """What a draft reads."""

    def known(self, entity: str) -> Known: ...
    def of_command(self, entity: str, command_id: str) -> list[EventRow]: ...
    # Any: an event of the user's class.
    def read(self, row: EventRow) -> Any: ...
    def write(self, entity: str, event: Any) -> tuple[str, int, str]: ...


class Rules(NamedTuple):
    """A decider as it is used for the entities of one name."""

    entities: str
    # Any: the user's state, command and event classes.
    decider: Decider[Any, Any, Any]
    check: bool

    def decide(self, entity: str, state: Any, command: Any) -> tuple[Any, ...]:
        """The events of a command, or a raised error of Headwater."""
        made = self._decided(entity, state, command)
        if self.check and self._decided(entity, state, command) != made:
            raise DeciderNotDeterministic(
                entities=self.entities, entity=entity, function="decide", on=type(command).__name__
            )
        if isinstance(made, Rejected) and isinstance(command, RecordedEvent | SendRejected):
            raise self._failed("decide", entity, command, "it rejected what has happened; to ignore it, return None")
        if isinstance(made, Rejected):
            raise CommandRejected(
                entities=self.entities, entity=entity, command=type(command).__name__, reason=made.reason
            )
        types = self.decider.event_types
        for event in made:
            if type(event) not in types:
                name = type(event).__name__
                raise self._failed("decide", entity, command, f"it returned {name}, which is no event of the decider")
        return tuple(made)

    def evolve(self, entity: str, state: Any, event: Any) -> Any:
        """The state after an event."""
        after = self._evolved(entity, state, event)
        if after is None and self.decider.initial is not None:
            raise self._failed("evolve", entity, event, "it returned None, as if it does not know the event")
        if self.check and self._evolved(entity, state, event) != after:
            raise DeciderNotDeterministic(
                entities=self.entities, entity=entity, function="evolve", on=type(event).__name__
            )
        return after

    def _decided(self, entity: str, state: Any, command: Any) -> Any:
        try:
            made = self.decider.decide(state, command)
            if isinstance(made, list | Rejected):
                return made
            if made is None:
                return ()
            is_several = isinstance(made, Iterable) and type(made) not in self.decider.event_types
            return list(made) if is_several else [made]
        except Exception as error:
            raise self._failed("decide", entity, command, f"{type(error).__name__}: {error}") from error

    def _evolved(self, entity: str, state: Any, event: Any) -> Any:
        try:
            return self.decider.evolve(state, event)
        except Exception as error:
            raise self._failed("evolve", entity, event, f"{type(error).__name__}: {error}") from error

    def _failed(self, function: str, entity: str, on: Any, why: str) -> DeciderFailed:
        name = type(on).__name__
        if isinstance(on, RecordedEvent):
            name = f"{type(on.event).__name__} of {on.id!r}, version {on.version}"
        return DeciderFailed(entities=self.entities, entity=entity, function=function, on=name, why=why)


class Draft:
    """The rows and answers of a batch of commands, before they are appended at `offset`."""

    def __init__(self, rules: Rules, entries: Entries, *, partition: int, offset: int, now_us: int) -> None:
        self.rules, self._entries = rules, entries
        self._partition, self._offset, self._now_us = partition, offset, now_us
        self.rows: list[EventRow] = []
        self.changed: dict[str, Known] = {}
        self.decisions: list[Decision] = []
        # Any: events of the user's classes.
        self._commands: dict[tuple[str, str], Decision] = {}

    @property
    def offset_next(self) -> int:
        return self._offset + len(self.rows)

    def add(self, request: CommandRequest) -> Decision:
        """Decide a command; an error of it is in its decision."""
        try:
            decision = self._decide(request)
        except HeadwaterError as error:
            version = self.changed[request.id].version if request.id in self.changed else 0
            decision = Decision(id=request.id, version=version, partition=self._partition, error=error)
        self.decisions.append(decision)
        return decision

    # Any: events of the user's classes.
    def append(self, request: CommandRequest, known: Known, events: tuple[Any, ...]) -> Decision:
        """Add events to an entity."""
        state, version = known.state, known.version
        command_id = request.command_id
        rules, write, tags_of = self.rules, self._entries.write, self.rules.decider.tags
        offset = self.offset_next
        rows = []
        for event in events:
            state = rules.evolve(request.id, state, event)
            version += 1
            try:
                name, schema, data = write(request.id, event)
                tags = None if tags_of is None else list(tags_of(event))
            except TypeError as error:
                raise DeciderInvalid(what=f"event {type(event).__name__}", why=f"cannot be stored: {error}") from error
            rows.append(
                EventRow(
                    request.id,
                    version,
                    name,
                    schema,
                    data,
                    self._now_us,
                    command_id,
                    request.by,
                    request.why,
                    request.correlation,
                    request.causation,
                    tags,
                    offset,
                )
            )
            offset += 1
        if rows:
            self.rows += rows
            self.changed[request.id] = Known(state, version, known.snapshot)
        decision = Decision(
            id=request.id, version=version, events=events, partition=self._partition, offset_next=offset
        )
        if command_id is not None:
            self._commands[request.id, command_id] = decision
        return decision

    def known(self, entity: str) -> Known:
        """An entity after the commands of this draft."""
        return self.changed.get(entity) or self._entries.known(entity)

    def _decide(self, request: CommandRequest) -> Decision:
        self.rules.decider.command_types.check(request.command)
        if request.command_id is not None:
            done = self.done(request.id, request.command_id)
            if done is not None:
                return done
        known = self.known(request.id)
        self.check_version(request, known)
        return self.append(request, known, self.rules.decide(request.id, known.state, request.command))

    def check_version(self, request: CommandRequest, known: Known) -> None:
        """Raise unless the entity is at the version that the caller expects."""
        if request.expected_version is not None and known.version != request.expected_version:
            raise VersionConflict(
                entities=self.rules.entities,
                entity=request.id,
                expected=request.expected_version,
                actual=known.version,
            )

    def done(self, entity: str, command_id: str) -> Decision | None:
        """The decision of a command that was done before."""
        decision = self._commands.get((entity, command_id))
        if decision is None:
            rows = self._entries.of_command(entity, command_id)
            if not rows:
                return None
            events = tuple(self._entries.read(row) for row in rows)
            version, offset_next = rows[-1].version, rows[-1].offset + 1
        else:
            events, version, offset_next = decision.events, decision.version, decision.offset_next
        return Decision(
            id=entity,
            version=version,
            events=events,
            partition=self._partition,
            offset_next=offset_next,
            duplicate=True,
        )

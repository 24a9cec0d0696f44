"""Entities: their kinds, ids and histories, read without the decider; their states and commands, where a process has it.

Personal fields of events are not decrypted here. States, and what commands would do, show them to callers who may
`admin` the topic of events, if the process reveals them at all.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any
from urllib.parse import quote

import orjson

from headwater.errors import ArgumentInvalid, NotFound, NotPossible
from headwater.log import Log
from headwater.log.remote.wire import time_from_text
from headwater.schema.cloudevents import CONTENT_TYPE_BATCH, from_entity_event, to_structured_batch
from headwater.services.route import Service, route
from headwater.sourcing import Decider, Decision, Entities
from headwater.sourcing.codec import dump
from headwater.sourcing.entity_events import EntityEvents, kinds_of_entities
from headwater.sourcing.event_rows import SUFFIX, EventRow
from headwater.sourcing.keys import is_encrypted

#: Entities or events of one answer.
COUNT_MAX = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: What stands in the place of a personal value.
ENCRYPTED = "[encrypted]"


@dataclass(frozen=True, kw_only=True)
class CommandField:
    """A field of a command; its type is that of the Python class."""

    name: str
    type: str
    required: bool = True


@dataclass(frozen=True, kw_only=True)
class EntityKind:
    """A kind of entities, which is a topic of events."""

    name: str
    topic: str
    partitions: int
    events: int
    appended_us: int | None
    """When the last event was appended."""
    commands: dict[str, list[CommandField]] | None
    """The commands that can be sent, with their fields; null if this process has no decider of the kind."""


@dataclass(frozen=True, kw_only=True)
class EntityVersion:
    """An entity, and how many events it has."""

    id: str
    version: int


@dataclass(frozen=True, kw_only=True)
class EntityPage:
    """Entities in the order of their ids; `next` is the `after` of the next page, null at the end."""

    entities: list[EntityVersion]
    next: str | None = None


@dataclass(frozen=True, kw_only=True)
class EntityEvent:
    """An event of an entity, as it is stored: what, when, who and why."""

    version: int
    event: str
    # Any: JSON.
    data: Any
    schema: int
    """The schema version that the event had when it was appended."""
    at_us: int
    by: str | None = None
    why: str | None = None
    correlation: str | None = None
    causation: str | None = None
    command_id: str | None = None
    tags: list[str] = field(default_factory=list)
    partition: int
    offset: int


@dataclass(frozen=True, kw_only=True)
class EntityHistory:
    """Events of an entity in order; `next` is the `after` of the next page, null at the end."""

    id: str
    events: list[EntityEvent]
    next: int | None = None


@dataclass(frozen=True, kw_only=True)
class EntityState:
    """An entity's state after one version, as JSON; a state without a JSON form is text."""

    id: str
    version: int
    # Any: JSON.
    state: Any


@dataclass(frozen=True, kw_only=True)
class NewEvent:
    """An event that a command made, or would make."""

    version: int
    event: str
    # Any: JSON.
    data: Any


@dataclass(frozen=True, kw_only=True)
class CommandOutcome:
    """What a command did: its events, and the entity's version after them."""

    id: str
    version: int
    events: list[NewEvent]
    partition: int
    offset_next: int
    """With the partition, the position behind these events: `at_least` of a view that reads them."""
    duplicate: bool = False
    """Whether the command was done before, by its `command_id`."""
    # Any: JSON.
    state: Any = None
    """With `dry_run`, the state that the command would give, for callers who may see it."""


class EntityService(Service):
    """What can be done with entities. The scopes are those of their topic of events, `NAME.events`."""

    # -- without a decider --------------------------------------------------------------------------------------------

    @route("GET", "/entities")
    def kinds(self) -> list[EntityKind]:
        """List the kinds of entities that the caller may read."""
        return [self._kind(name) for name in kinds_of_entities(self.log) if self.caller.may("read", name + SUFFIX)]

    @route("GET", "/entities/{name}", scope="read:{name}.events")
    def kind(self, name: str) -> EntityKind:
        """Read a kind of entities: its events, and the commands that can be sent."""
        return self._kind(self._events(name).name)

    @route("GET", "/entities/{name}/ids", scope="read:{name}.events")
    def ids(self, name: str, *, prefix: str = "", after: str = "", limit: int = 100) -> EntityPage:
        """List entities and their versions in the order of their ids, a page at a time."""
        _check_limit(limit)
        found = self._events(name).ids(prefix=prefix, after=after, limit=limit + 1)
        entities = [EntityVersion(id=id, version=version) for id, version in found[:limit]]
        return EntityPage(entities=entities, next=entities[-1].id if len(found) > limit else None)

    @route("GET", "/entities/{name}/history", scope="read:{name}.events")
    def history(self, name: str, id: str, *, after: int = 0, limit: int = 1_000) -> EntityHistory:
        """Read the events of an entity behind the version `after`, with who, when and why.

        Events are as they were stored: their schema version may be older than the decider's.
        """
        _check_limit(limit)
        partition = self._events(name).partition_with(id)
        rows = partition.history(id, after=after, limit=limit + 1)
        events = [_event(row, partition.partition) for row in rows[:limit]]
        return EntityHistory(id=id, events=events, next=events[-1].version if len(rows) > limit else None)

    @route("GET", "/entities/{name}/cloudevents", scope="read:{name}.events", media=CONTENT_TYPE_BATCH)
    def cloudevents(self, name: str, id: str, *, after: int = 0, limit: int = 1_000, source: str = "") -> str:
        """Read the events of an entity behind the version `after` as CloudEvents 1.0, in their JSON format for batches.

        The source is `/entities/NAME`, unless another URI is given. Personal values are hidden.
        """
        events = [
            from_entity_event(
                {**vars(event), "entity": id, "at": _EPOCH + timedelta(microseconds=event.at_us)},
                source=source or f"/entities/{quote(name, safe='')}",
            )
            for event in self.history(name, id, after=after, limit=limit).events
        ]
        return to_structured_batch(events).decode()

    # -- with the decider ---------------------------------------------------------------------------------------------

    @route("GET", "/entities/{name}/state", scope="read:{name}.events")
    def state(
        self,
        name: str,
        id: str,
        *,
        version: int | None = None,
        offset: int | None = None,
        time: int | str | None = None,
    ) -> EntityState:
        """Read the state of an entity: now, after a version, at an offset of its partition, or at a time.

        A time is microseconds since 1970, or ISO 8601.
        """
        entities = self._entities(name)
        if entities.shows_personal:
            self.caller.require("admin", entities.topic)
        self._events(name).partition_with(id)
        if (version, offset, time) == (None, None, None):
            found = entities.load(id)
        else:
            moment = None if time is None else time_from_text(str(time))
            found = entities.at(id, version=version, offset=offset, time=moment)
        return EntityState(id=id, version=found.version, state=_state(found.state))

    # Any: JSON.
    @route("POST", "/entities/{name}/send", scope="write:{name}.events")
    def send(
        self,
        name: str,
        id: str,
        command: str,
        data: dict[str, Any] | None = None,
        *,
        expected_version: int | None = None,
        command_id: str | None = None,
        by: str | None = None,
        why: str | None = None,
        correlation: str | None = None,
        causation: str | None = None,
        dry_run: bool = False,
    ) -> CommandOutcome:
        """Send a command, by the name of its class and its fields, to an entity; answer once its events are durable.

        A command that the decider rejects is an error, and does nothing. `by` is who is recorded with the events, by
        default the caller. With a `command_id` the command is done once, however often it is sent. With `dry_run` it is
        decided, and nothing is appended; the answer has the state that it would give.
        """
        entities = self._entities(name)
        given = entities.decider.command_types.read(command, data or {})
        # Any: each option has its own type.
        options: dict[str, Any] = {
            "expected_version": expected_version,
            "command_id": command_id,
            "by": by or self.caller.name,
            "why": why,
            "correlation": correlation,
            "causation": causation,
        }
        if dry_run:
            decision = entities.try_command(id, given, **options)
            if decision.error is not None:
                raise decision.error
            return replace(self._outcome(entities, decision), state=self._state_after(entities, decision))
        return self._outcome(entities, entities.send(id, given, **options))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _events(self, name: str) -> EntityEvents:
        return self.host.share("entities", lambda: _OpenEvents(self.log)).of(name)

    # Any: the user's state, command and event classes; here and below.
    def _entities(self, name: str) -> Entities[Any, Any, Any]:
        entities = self.host.entities.get(name)
        if entities is None:
            self._events(name)  # or there is no such kind
            raise NotPossible(
                why=f"This process has no decider for entities {name!r}",
                instead="Give the Python file that declares them: `headwater entity … --file FILE`, or for a server "
                "`headwater serve --entities FILE`",
            )
        return entities

    def _kind(self, name: str) -> EntityKind:
        about = self.log.describe(name + SUFFIX)
        entities = self.host.entities.get(name)
        return EntityKind(
            name=name,
            topic=name + SUFFIX,
            partitions=len(about.partitions),
            events=about.rows,
            appended_us=max((one.appended_at_us for one in about.partitions if one.appended_at_us), default=None),
            commands=None if entities is None else _commands(entities.decider),
        )

    def _outcome(self, entities: Entities[Any, Any, Any], decision: Decision) -> CommandOutcome:
        types = entities.decider.event_types
        may_see = self.caller.may("admin", entities.topic)
        events = []
        for version, event in enumerate(decision.events, decision.version - len(decision.events) + 1):
            name, data = type(event).__name__, orjson.loads(dump(event))
            if not may_see:
                types.personal.hide(name, data, ENCRYPTED)
            events.append(NewEvent(version=version, event=name, data=data))
        return CommandOutcome(
            id=decision.id,
            version=decision.version,
            events=events,
            partition=decision.partition,
            offset_next=decision.offset_next,
            duplicate=decision.duplicate,
        )

    # Any: JSON.
    def _state_after(self, entities: Entities[Any, Any, Any], decision: Decision) -> Any:
        """The state after events that are not appended; None if the caller may not see it."""
        if entities.shows_personal and not self.caller.may("admin", entities.topic):
            return None
        version = decision.version if decision.duplicate else decision.version - len(decision.events)
        entity = entities.load(decision.id)
        if entity.version != version:  # another command was done since
            entity = entities.at(decision.id, version=version)
        events = () if decision.duplicate else decision.events
        return _state(reduce(entities.decider.evolve, events, entity.state))


class _OpenEvents:
    """The kinds of entities that callers have asked for, opened on first use."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._opened: dict[str, EntityEvents] = {}

    def of(self, name: str) -> EntityEvents:
        with self._lock:
            opened = self._opened.get(name)
            if opened is not None and self._topic_id(opened) != opened.topic_id:
                self._opened.pop(name).close()
                opened = None
            if opened is None:
                opened = self._opened[name] = EntityEvents(self._log, name)
            return opened

    def _topic_id(self, opened: EntityEvents) -> str:
        try:
            return self._log.topic(opened.topic).id
        except NotFound:
            return ""

    def close(self) -> None:
        with self._lock:
            for opened in self._opened.values():
                opened.close()
            self._opened.clear()


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= COUNT_MAX:
        raise ArgumentInvalid(name="limit", value=limit, expected=f"1 to {COUNT_MAX:,}")


# Any: the user's state, command and event classes.
def _commands(decider: Decider[Any, Any, Any]) -> dict[str, list[CommandField]]:
    commands = decider.command_types.fields()
    return {name: [CommandField(**field._asdict()) for field in fields] for name, fields in commands.items()}


def _event(row: EventRow, partition: int) -> EntityEvent:
    # Any: JSON.
    data: Any = orjson.loads(row.data)
    if isinstance(data, dict):
        data = {name: ENCRYPTED if is_encrypted(value) else value for name, value in data.items()}
    return EntityEvent(
        version=row.version,
        event=row.event,
        data=data,
        schema=row.schema,
        at_us=row.at_us,
        by=row.by,
        why=row.why,
        correlation=row.correlation,
        causation=row.causation,
        command_id=row.command_id,
        tags=row.tags or [],
        partition=partition,
        offset=row.offset,
    )


# Any: a state of the user's, as JSON.
def _state(state: Any) -> Any:
    try:
        return orjson.loads(dump(state))
    except TypeError:
        return repr(state)

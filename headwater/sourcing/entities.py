"""Entities: commands decided into events, and state evolved from them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from headwater.clock import time_us
from headwater.errors import ArgumentInvalid, Closed, NotFound, NotPossible
from headwater.home import is_remote
from headwater.log import Log
from headwater.log.errors import TopicExists
from headwater.log.topic_rules import check_name
from headwater.schema import partition_of, partition_of_text
from headwater.sourcing.decider import Decider
from headwater.sourcing.draft import Rules
from headwater.sourcing.entity_store import EntityStore
from headwater.sourcing.errors import HistoryBroken, NotEntities, PersonalHidden
from headwater.sourcing.event_rows import SCHEMA, SUFFIX, EventRow, from_batch
from headwater.sourcing.keys import KeyStore, keys_folder
from headwater.sourcing.partition_events import index_folder
from headwater.sourcing.request import CommandRequest, Decision, Entity, RecordedEvent
from headwater.sourcing.schedule import open_queue, schedule, worker
from headwater.sourcing.transaction import EntityTransaction, decide_over, read_boundary
from headwater.units import Duration

State = TypeVar("State")
Command = TypeVar("Command")
Event = TypeVar("Event")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Entities(Generic[State, Command, Event]):
    """Entities of one kind. Their events are rows of the topic `NAME.events`, partitioned by entity.

    Personal fields are encrypted with keys in the folder `keys`, by default `keys/` beside the log's topics; without
    `reveal` they are not decrypted, and no command can be sent.
    `snapshot_events` is after how many events of an entity its state is stored (None for never), and `check` evaluates
    `decide` and `evolve` twice to find functions that are not deterministic: for tests.

    >>> import tempfile, headwater as hw
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Deposit:
    ...     amount: int
    >>> @dataclass(frozen=True)
    ... class Deposited:
    ...     amount: int
    >>> def decide(balance: int, command: Deposit) -> list[Deposited] | hw.Rejected:
    ...     return [Deposited(command.amount)] if command.amount > 0 else hw.Rejected("an amount is positive")
    >>> def evolve(balance: int, event: Deposited) -> int:
    ...     return balance + event.amount
    >>> log = hw.open(tempfile.mkdtemp())
    >>> accounts = hw.Entities(log, "account", hw.Decider(initial=0, decide=decide, evolve=evolve))
    >>> accounts.send("acc-1", Deposit(20)).events
    (Deposited(amount=20),)
    >>> accounts.load("acc-1")
    Entity(id='acc-1', version=1, state=20)
    """

    def __init__(
        self,
        log: Log,
        name: str,
        decider: Decider[State, Command, Event],
        *,
        partitions: int | None = None,
        entities_cached_max: int = 10_000,
        snapshot_events: int | None = 100,
        keys: str | Path | None = None,
        reveal: bool = True,
        check: bool = False,
    ) -> None:
        if is_remote(log.address):
            raise NotPossible(
                why="Commands for entities of a remote log are not decided by this process",
                instead="Send them to the server's paths of entities, or open the log's folder on its machine",
            )
        check_name("entities", name)
        for option, value in (("entities_cached_max", entities_cached_max), ("snapshot_events", snapshot_events)):
            if value is not None and value < 1:
                raise ArgumentInvalid(name=option, value=value, expected="at least 1")
        decider.check()
        # Any: each option has its own type.
        self._options: dict[str, Any] = {
            "partitions": partitions,
            "entities_cached_max": entities_cached_max,
            "snapshot_events": snapshot_events,
            "keys": keys,
            "reveal": reveal,
            "check": check,
        }
        self.log, self.name, self.decider = log, name, decider
        self.topic = name + SUFFIX
        self._rules = Rules(name, decider, check)
        self._cached_max, self._snapshot_events = entities_cached_max, snapshot_events
        self._partitions = self._make_topic(partitions)
        self._folder = index_folder(log, self.topic)
        self._reveal = reveal or not decider.event_types.personal
        self._keys = None
        if decider.event_types.personal and reveal:
            self._keys = KeyStore(keys_folder(log, keys))
        self._stores: dict[int, EntityStore] = {}
        self._opening = threading.Lock()
        # Any: a `headwater.queues.Queue`.
        self._scheduled: Any = None
        self._closed = False

    def on(self, log: Log) -> Entities[State, Command, Event]:
        """The same entities in another log, with the same decider and options."""
        return Entities(log, self.name, self.decider, **self._options)

    @property
    def shows_personal(self) -> bool:
        """Whether events and states are read with their personal fields decrypted."""
        return self._keys is not None

    def _make_topic(self, partitions: int | None) -> int:
        try:
            topic = self.log.topic(self.topic)
        except NotFound:
            with suppress(TopicExists):
                self.log.create(self.topic, SCHEMA, key="entity", time="at", partitions=partitions)
            topic = self.log.topic(self.topic)
        columns = [field for field in topic.schema if not field.name.startswith("_")]
        if not pa.schema(columns).equals(SCHEMA):
            raise NotEntities(topic=self.topic)
        if partitions not in (None, topic.partitions):
            raise ArgumentInvalid(
                name="partitions",
                value=partitions,
                expected=f"{topic.partitions}: the topic exists, and its entities stay",
            )
        return topic.partitions

    # -- commands -----------------------------------------------------------------------------------------------------

    def send(
        self,
        id: str,
        command: Command,
        *,
        expected_version: int | None = None,
        command_id: str | None = None,
        by: str | None = None,
        why: str | None = None,
        correlation: str | None = None,
        causation: str | None = None,
    ) -> Decision:
        """Decide a command on an entity's newest state, and append its events, all or none. They are durable on return.

        Raises `CommandRejected` if the decider rejects it, and `VersionConflict` if the entity is not at
        `expected_version`; without one, the command is decided again when another process was first. With a
        `command_id`, a command that was done before is not done again: the decision has `duplicate` set. `by`, `why`,
        `correlation` and `causation` are stored with the events.
        """
        self._check_revealed()
        request = CommandRequest(
            id=id,
            command=command,
            expected_version=expected_version,
            command_id=command_id,
            by=by,
            why=why,
            correlation=correlation,
            causation=causation,
        )
        decision = self.store_of(id).send(request)
        if decision.error is not None:
            raise decision.error
        return decision

    def send_many(self, requests: Iterable[CommandRequest | tuple[str, Command]]) -> list[Decision]:
        """Decide many commands with one wait for the disk: (id, command) pairs or `CommandRequest`s.

        Each is decided after those before it. A command with an `error` in its decision did nothing, and the others
        are not affected.
        """
        self._check_revealed()
        made = [
            each if isinstance(each, CommandRequest) else CommandRequest(id=each[0], command=each[1])
            for each in requests
        ]
        places: dict[int, list[int]] = {}
        ids = pa.array([request.id for request in made], pa.string())
        for place, number in enumerate(partition_of([ids], self._partition_count()).tolist()):
            places.setdefault(number, []).append(place)
        decisions: list[Decision | None] = [None] * len(made)
        for number, chosen in places.items():
            decided = self._store(number).submit([made[place] for place in chosen])
            for place, decision in zip(chosen, decided, strict=True):
                decisions[place] = decision
        self.log.flush(self.topic)
        for number in places:
            ends = [each.offset_next for each in decisions if each is not None and each.partition == number]
            self._store(number).confirm(max(ends))
        return [decision for decision in decisions if decision is not None]

    def transaction(self) -> EntityTransaction:
        """Commands for several entities in one transaction of the log: all of them are done, or none.

        with accounts.transaction() as transaction:
            transaction.send("acc-1", Withdraw(5))
            transaction.send("acc-2", Deposit(5))
        """
        self._check_open()
        self._check_revealed()
        return EntityTransaction(self.log, self)

    def decide_over(self, tags: Sequence[str], command: Command, *, id: str, **options: Any) -> Decision:
        """Decide a command over the events of all entities that have any of these tags; append its events to one entity.

        The state that `decide` gets is folded from these events alone: a boundary of consistency that is chosen for
        each decision. No event with such a tag can come in between. `decider.tags` says which tags an event has.
        """
        self._check_revealed()
        request = CommandRequest(id=id, command=command, **options)
        decision = decide_over(self.log, self._all_stores(), self.store_of(id), self._checked_tags(tags), request)
        self.store_of(id).confirm(decision.offset_next)
        return decision

    # Any: the options of `send`.
    def schedule(
        self,
        id: str,
        command: Command,
        *,
        at: datetime | int | None = None,
        delay: Duration | None = None,
        **options: Any,
    ) -> str:
        """Send a command at a time, or after a delay; return its command id. The options are those of `send`.

        The command is a message of the queue `NAME.scheduled`, durable on return. A `worker` sends it when it is due.
        Its effect comes once, also if it is scheduled again with the same `command_id` or a worker is killed. Its
        fields are in the queue as plain text.
        """
        return self.schedule_request(CommandRequest(id=id, command=command, **options), at=at, delay=delay)

    def schedule_request(
        self, request: CommandRequest, *, at: datetime | int | None = None, delay: Duration | None = None
    ) -> str:
        """For modules of event sourcing: schedule a command with its options in one value."""
        self._check_revealed()
        self.decider.command_types.check(request.command)
        with self._opening:
            self._check_open()
            if self._scheduled is None:
                self._scheduled = open_queue(self.log, self.name)
        return schedule(self._scheduled, request, at=at, delay=delay)

    # Any: `headwater.queues.Retry` and `headwater.queues.Worker`; queues are no layer below.
    def worker(self, *, concurrency: int = 1, retries: Any = None) -> Any:
        """The worker of scheduled commands: call its `run` in each process that is to send them.

        A command that is rejected is sent again with the pauses of `retries`, and then is a dead letter of its queue.
        """
        self._check_revealed()
        return worker(self, concurrency=concurrency, retries=retries)

    # Any: the options of `send`.
    def try_command(self, id: str, command: Command, **options: Any) -> Decision:
        """What a command would do now, without doing it; the options are those of `send`."""
        self._check_revealed()
        store = self.store_of(id)
        request = CommandRequest(id=id, command=command, **options)
        decision: Decision = store.read_only(lambda: store.draft().add(request))
        return decision

    # -- entities -----------------------------------------------------------------------------------------------------

    def load(self, id: str) -> Entity:
        """An entity's newest state. One without events has version 0 and the initial state."""
        store = self.store_of(id)
        known = store.read_only(lambda: store.known(id))
        return Entity(id=id, version=known.version, state=known.state)

    def at(
        self,
        id: str,
        *,
        version: int | None = None,
        offset: int | None = None,
        time: datetime | int | None = None,
    ) -> Entity:
        """An entity as it was: after a version, after its event at or before an offset of its partition, or at a time."""
        if sum(each is not None for each in (version, offset, time)) != 1:
            raise ArgumentInvalid(name="at", value=None, expected="one of `version`, `offset` and `time`")
        store = self.store_of(id)
        limit_us = None if time is None else time_us(time)

        def is_before(row: EventRow) -> bool:
            if version is not None:
                return row.version <= version
            return row.offset <= offset if offset is not None else row.at_us <= (limit_us or 0)

        rows: list[EventRow] = store.read_only(lambda: store.rows(id))
        count = next((place for place, row in enumerate(rows) if not is_before(row)), len(rows))
        if version is not None and count < version:
            raise NotFound(kind=f"version of {self.name} {id!r}", name=str(version))
        known = store.fold(id, rows[:count])
        return Entity(id=id, version=known.version, state=known.state)

    def has_done(self, id: str, command_id: str) -> bool:
        """Whether a command with this id has made events of an entity."""
        store = self.store_of(id)
        return bool(store.read_only(lambda: store.of_command(id, command_id)))

    def history(self, id: str) -> list[RecordedEvent]:
        """All events of an entity, with who, when and why."""
        store = self.store_of(id)
        rows: list[EventRow] = store.read_only(lambda: store.rows(id))
        return [self._recorded(store, row) for row in rows]

    def events(self, partition: int, *, start: int = 0, stop: int | None = None) -> Iterator[RecordedEvent]:
        """The events of all entities of one partition, in the order of offsets, from one offset to another."""
        self._check_open()
        if self._keys is not None:
            self._keys.generation()  # forgets keys that were destroyed
        store = self._store(partition)
        end = self.log.end_offsets(self.topic)[partition] if stop is None else stop
        for batch in self.log.read_range(self.topic, partition, start=start, stop=end):
            for row in from_batch(batch.data):
                yield self._recorded(store, row)

    def boundary(self, tags: Sequence[str]) -> State:
        """The state over all events with any of these tags, as `decide_over` sees it."""
        state: State = read_boundary(self._all_stores(), self._checked_tags(tags))
        return state

    def ids(self, *, prefix: str = "", after: str = "", limit: int = 100) -> list[tuple[str, int]]:
        """Entities and their versions, in the order of their ids."""
        pages = [store.entities(after=after, prefix=prefix, limit=limit) for store in self._all_stores()]
        return sorted(each for page in pages for each in page)[:limit]

    def _recorded(self, store: EntityStore, row: EventRow) -> RecordedEvent:
        return RecordedEvent(
            id=row.entity,
            version=row.version,
            event=store.read(row),
            at=_EPOCH + timedelta(microseconds=row.at_us),
            partition=store.partition,
            offset=row.offset,
            schema=row.schema,
            command_id=row.command_id,
            by=row.by,
            why=row.why,
            correlation=row.correlation,
            causation=row.causation,
            tags=tuple(row.tags or ()),
        )

    # -- partitions ---------------------------------------------------------------------------------------------------

    def store_of(self, id: str) -> EntityStore:
        """For modules of event sourcing: the partition of an entity."""
        count = self._partition_count()
        return self._store(0 if count == 1 else partition_of_text(id, count))

    def _partition_count(self) -> int:
        self._check_open()
        count = self.log.partitions_of(self.topic)
        if count != self._partitions:
            why = f"the topic had {self._partitions} partitions, and now has {count}"
            raise HistoryBroken(topic=self.topic, entity="", offset=0, why=why)
        return count

    def _store(self, number: int) -> EntityStore:
        store = self._stores.get(number)
        if store is None:
            with self._opening:
                store = self._stores.get(number)
                if store is None:
                    store = self._stores[number] = EntityStore(
                        self.log,
                        self.topic,
                        number,
                        rules=self._rules,
                        folder=self._folder,
                        partitions=self._partitions,
                        entities_cached_max=self._cached_max,
                        snapshot_events=self._snapshot_events,
                        keys=self._keys,
                    )
        return store

    def _all_stores(self) -> list[EntityStore]:
        self._check_open()
        return [self._store(number) for number in range(self._partitions)]

    def _checked_tags(self, tags: Sequence[str]) -> list[str]:
        if isinstance(tags, str) or not tags:
            raise ArgumentInvalid(name="tags", value=tags, expected="a list of at least one tag")
        if self.decider.tags is None:
            raise NotPossible(why=f"Events of {self.name} have no tags", instead="Give the decider `tags`")
        return list(tags)

    def _check_revealed(self) -> None:
        if not self._reveal:
            raise PersonalHidden(entities=self.name)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(what="entities")

    def close(self) -> None:
        """Close the index files. Events are safe without it."""
        self._closed = True
        for store in self._stores.values():
            store.close()
        self._stores.clear()
        if self._scheduled is not None:
            self._scheduled.close()
        if self._keys is not None:
            self._keys.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

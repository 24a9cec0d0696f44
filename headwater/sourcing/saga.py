"""Sagas: entities that react to the events of other entities, and send them commands.

Invariants:

- A saga's own events and its position in the topic that they react to are committed in one transaction: each event is
  decided once. Events of one partition are decided in order.
- A command is sent after the own event that asks for it is durable. Its id is made of that event, so to send it again
  changes nothing; the position in the own topic moves when the commands of its events are done.
- One process at a time runs a saga. It holds a lock, which ends with the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.clock import time_us
from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.faults import reach
from headwater.filelock import LeaderLock
from headwater.log.client_config import Start
from headwater.log.clients.groups import resolve
from headwater.sourcing.errors import CommandRejected, DeciderInvalid, SagaFailed
from headwater.sourcing.request import CommandRequest, RecordedEvent, SendRejected
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from headwater.sourcing.entities import Entities

#: Events that are decided in one transaction, and events whose commands are sent before the position moves.
EVENTS_MAX = 1_000
#: How long a saga that waits takes to notice `stop`.
_WAIT_SECONDS = 0.2


@dataclass(frozen=True)
class Send:
    """A command that an event of a saga asks for, now or after a delay."""

    #: The name of the entities.
    to: str
    id: str
    # Any: a command of these entities.
    command: Any
    delay: Duration | None = None


class Saga:
    """Lets entities react to the events of `sources`, and sends the commands that their own events ask for.

    The saga is a kind of entities itself, so its state and history are seen as those of others. Its `decide` also takes
    `RecordedEvent`, an event of a source, and `SendRejected`, a command of the saga that was rejected. `send` returns the
    commands that an own event asks for, and is pure. `by` says which sagas an event is for; by default it is the one
    whose id is the event's correlation, and events of commands that a saga sent have that.

    Commands go to `sources`, to `targets` (entities by name, also of other logs) and to the saga itself. They are done once,
    wherever the process is killed. A new saga begins at `start`.

    >>> import tempfile, headwater as hw
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Pay:
    ...     amount: int
    >>> @dataclass(frozen=True)
    ... class Paid:
    ...     amount: int
    >>> @dataclass(frozen=True)
    ... class Thanked:
    ...     amount: int
    >>> def pay(total: int, command: Pay) -> Paid:
    ...     return Paid(command.amount)
    >>> def thank(times: int, told: RecordedEvent | SendRejected) -> Thanked | None:
    ...     return Thanked(told.event.amount) if isinstance(told, RecordedEvent) else None
    >>> def gift(own: RecordedEvent) -> Send | None:
    ...     return Send("account", own.id, Pay(1)) if own.event.amount >= 100 else None
    >>> log = hw.open(tempfile.mkdtemp())
    >>> accounts = hw.Entities(
    ...     log, "account", hw.Decider(initial=0, decide=pay, evolve=lambda total, event: total + event.amount, events=[Paid])
    ... )
    >>> thanks = hw.Decider(initial=0, decide=thank, evolve=lambda times, event: times + 1, events=[Thanked])
    >>> saga = Saga(hw.Entities(log, "thanks", thanks), sources=[accounts], send=gift, by=lambda event: event.id)
    >>> _ = accounts.send("ada", Pay(100))
    >>> saga.run(until_idle=True)
    >>> accounts.load("ada").state, saga.entities.load("ada").state
    (101, 2)
    """

    def __init__(
        self,
        # Any: states, commands and events of the user's classes.
        entities: Entities[Any, Any, Any],
        *,
        sources: Sequence[Entities[Any, Any, Any]],
        send: Callable[[RecordedEvent], Iterable[Send] | Send | None],
        targets: Mapping[str, Entities[Any, Any, Any]] | None = None,
        by: Callable[[RecordedEvent], str | Iterable[str] | None] | None = None,
        start: Start = "earliest",
    ) -> None:
        for kind in (RecordedEvent, SendRejected):
            if kind not in entities.decider.command_types.kinds:
                raise DeciderInvalid(what=f"`decide` of {entities.name}", why=f"does not take {kind.__name__}")
        for source in sources:
            if source.log is not entities.log or source.name == entities.name:
                expected = "entities of the saga's log, and not the saga itself; `targets` may be in other logs"
                raise ArgumentInvalid(name="sources", value=source.name, expected=expected)
        self.entities, self.sources = entities, list(sources)
        self._send_of, self._by, self._start = send, by, start
        self._targets = {**{each.name: each for each in (*sources, entities)}, **(targets or {})}
        self._log, self.group = entities.log, f"saga.{entities.name}"
        self._positions: dict[str, dict[int, int]] = {}
        self._lock = LeaderLock(entities.log.home / "sagas" / f"{entities.name}.lock")
        self._stopped = threading.Event()

    def run(self, *, until_idle: bool = False) -> None:
        """Handle events until `stop`, or until there are none (`until_idle`). If another process runs the saga, wait."""
        while not self._lock.acquire():
            if self._stopped.wait(_WAIT_SECONDS):
                return
        try:
            self._positions = {each.topic: self._position(each.topic) for each in (*self.sources, self.entities)}
            while not self._stopped.is_set():
                if not (self._decide_all() | self._send_all()):
                    if until_idle:
                        return
                    self._log.wait(self._positions, seconds=_WAIT_SECONDS)
        finally:
            self._lock.release()

    def stop(self) -> None:
        """Let `run` return after the events that it handles now."""
        self._stopped.set()

    def _position(self, topic: str) -> dict[int, int]:
        known = self._log.committed(self.group, topic)
        # What a saga decides on its own is always sent.
        start = resolve(self._log, topic, "earliest" if topic == self.entities.topic else self._start)
        if start.keys() - known.keys():
            # Now, so that a later start does not mean another "latest".
            self._log.commit_offsets(self.group, topic, {**start, **known})
        return {**start, **known}

    def _ranges(self, entities: Entities[Any, Any, Any]) -> Iterable[tuple[int, int, int]]:
        """The next offsets of each partition that has new events."""
        positions = self._positions[entities.topic]
        for number, end in self._log.end_offsets(entities.topic).items():
            start = positions[number]
            if start < end:
                yield number, start, min(end, start + EVENTS_MAX)

    # -- events in ----------------------------------------------------------------------------------------------------

    def _decide_all(self) -> bool:
        has_moved = False
        for source in self.sources:
            for number, start, stop in self._ranges(source):
                transaction = self.entities.transaction()
                for event in source.events(number, start=start, stop=stop):
                    for id in self._ids(event):
                        transaction.send(
                            id,
                            event,
                            command_id=f"{source.name}/{number}/{event.offset}",
                            by=event.by,
                            why=event.why,
                            correlation=id,
                            causation=f"{source.name}/{event.id}/{event.version}",
                        )
                transaction.commit_offsets(self.group, source.topic, {number: stop})
                transaction.commit()
                reach("saga.decided")
                self._positions[source.topic][number] = stop
                has_moved = True
        return has_moved

    def _ids(self, event: RecordedEvent) -> Sequence[str]:
        found = event.correlation if self._by is None else self._called("by", self._by, event)
        if found is None:
            return ()
        return (found,) if isinstance(found, str) else tuple(found)

    # Any: what `by` and `send` return.
    def _called(self, name: str, function: Callable[[RecordedEvent], Any], event: RecordedEvent) -> Any:
        try:
            return function(event)
        except HeadwaterError:
            raise
        except Exception as error:
            raise self._failed(name, event, f"{type(error).__name__}: {error}") from error

    def _failed(self, function: str, event: RecordedEvent, why: str) -> SagaFailed:
        on = f"{type(event.event).__name__} of {event.id!r}, version {event.version}"
        return SagaFailed(saga=self.entities.name, function=function, on=on, why=why)

    # -- commands out -------------------------------------------------------------------------------------------------

    def _send_all(self) -> bool:
        has_moved = False
        for number, start, stop in self._ranges(self.entities):
            requests: dict[str, list[CommandRequest]] = {}
            for event in self.entities.events(number, start=start, stop=stop):
                for place, each in enumerate(self._sends(event)):
                    request = self._request(event, place, each)
                    if each.delay is None:
                        requests.setdefault(each.to, []).append(request)
                    else:
                        due_us = time_us(event.at) + round(parse_seconds(each.delay, name="delay") * 1e6)
                        self._targets[each.to].schedule_request(request, at=due_us)
            rejections = [each for to, chosen in requests.items() for each in self._sent(to, chosen)]
            for _, error in _send(self.entities, rejections):
                raise error
            reach("saga.sent")
            self._log.commit_offsets(self.group, self.entities.topic, {number: stop})
            self._positions[self.entities.topic][number] = stop
            has_moved = True
        return has_moved

    def _sends(self, event: RecordedEvent) -> Sequence[Send]:
        made = self._called("send", self._send_of, event)
        sends = () if made is None else (made,) if isinstance(made, Send) else tuple(made)
        for each in sends:
            if not isinstance(each, Send):
                raise self._failed("send", event, f"it returned {type(each).__name__}, which is no Send")
            if each.to not in self._targets:
                raise self._failed("send", event, f"it knows no entities {each.to!r}: give them as `targets`")
        return sends

    def _request(self, event: RecordedEvent, place: int, send: Send) -> CommandRequest:
        cause = f"{self.entities.name}/{event.id}/{event.version}"
        return CommandRequest(
            id=send.id,
            command=send.command,
            command_id=f"{cause}/{place}",
            by=event.by,
            why=event.why,
            correlation=event.id,
            causation=cause,
        )

    def _sent(self, to: str, requests: Sequence[CommandRequest]) -> list[CommandRequest]:
        """Send commands to the entities of one name; return what the saga is told of those that were rejected."""
        # A command that was rejected may not be decided again, for it could turn out otherwise.
        new = [each for each in requests if not self.entities.has_done(str(each.correlation), _rejected_id(each))]
        return [
            CommandRequest(
                id=str(request.correlation),
                command=SendRejected(to, request.id, request.command, error.reason),
                command_id=_rejected_id(request),
                by=request.by,
                why=request.why,
                correlation=request.correlation,
                causation=request.causation,
            )
            for request, error in _send(self._targets[to], new)
        ]


def _rejected_id(request: CommandRequest) -> str:
    return f"{request.command_id}/rejected"


# Any: the user's state, command and event classes.
def _send(
    entities: Entities[Any, Any, Any], requests: Sequence[CommandRequest]
) -> list[tuple[CommandRequest, CommandRejected]]:
    """Send commands, and return those that were rejected; raise any other error."""
    rejected = []
    for request, decision in zip(requests, entities.send_many(requests) if requests else (), strict=True):
        if isinstance(decision.error, CommandRejected):
            rejected.append((request, decision.error))
        elif decision.error is not None:
            raise decision.error
    return rejected

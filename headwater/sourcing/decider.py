"""Deciders: pure functions that turn commands into events, and events into state."""

from __future__ import annotations

import hashlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import orjson

from headwater.errors import ArgumentInvalid
from headwater.sourcing.codec import Misfit, ModelField, Read, dump, is_model, model_fields, reader
from headwater.sourcing.errors import CommandUnknown, DeciderInvalid, EventUnreadable
from headwater.sourcing.keys import KeyStore
from headwater.sourcing.personal import PersonalFields
from headwater.sourcing.request import RecordedEvent, SendRejected

State = TypeVar("State")
Command = TypeVar("Command")
Event = TypeVar("Event")

#: Any: the JSON of an event, whose shape only its upcaster knows.
Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Rejected:
    """What `decide` returns for a command that the state does not allow."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Decider(Generic[State, Command, Event]):
    """How commands become events, and events become state. All functions are pure.

    The classes of commands, events and states are taken from the annotations of `decide` and `evolve`, unless they are
    given. `upcasters` turn the JSON of an old event into that of the next schema version: `("Deposited", 1)` reads
    version 1, and new events of that class have version 2. `tags` names what an event is about, for decisions over
    the events of several entities. Raise `version` when `evolve` calls something that has changed: snapshots of other
    versions are not used. A change of `evolve` itself is noticed.

    >>> @dataclass(frozen=True)
    ... class Add:
    ...     amount: int
    >>> @dataclass(frozen=True)
    ... class Added:
    ...     amount: int
    >>> def decide(total: int, command: Add) -> list[Added] | Rejected:
    ...     return [Added(command.amount)] if command.amount > 0 else Rejected("nothing to add")
    >>> def evolve(total: int, event: Added) -> int:
    ...     return total + event.amount
    >>> counter = Decider(initial=0, decide=decide, evolve=evolve)
    >>> counter.fold([Added(2), Added(3)])
    5
    """

    initial: State
    decide: Callable[[State, Command], Iterable[Event] | Event | Rejected | None]
    evolve: Callable[[State, Event], State]
    commands: Sequence[type] = ()
    events: Sequence[type] = ()
    # Any: a class, or a union of classes, which has no type of its own.
    state: Any = None
    upcasters: Mapping[tuple[str, int], Upcaster] = field(default_factory=dict)
    tags: Callable[[Event], Iterable[str]] | None = None
    version: int = 1

    def fold(self, events: Iterable[Event]) -> State:
        """The state after these events."""
        state = self.initial
        for event in events:
            state = self.evolve(state, event)
        return state

    @cached_property
    def command_types(self) -> CommandTypes:
        return CommandTypes(tuple(self.commands) or _members(self.decide, 1, "decide"))

    @cached_property
    def event_types(self) -> EventTypes:
        return EventTypes(tuple(self.events) or _members(self.evolve, 1, "evolve"), self.upcasters)

    @cached_property
    def state_form(self) -> StateForm:
        kind = self.state if self.state is not None else _annotation(self.evolve, 0)
        digest = hashlib.sha256(f"{self.version} {kind} ".encode())
        _add_code(digest, getattr(self.evolve, "__code__", None))
        return StateForm(type(self.initial) if kind is None else kind, digest.hexdigest()[:16])

    def check(self) -> None:
        """Raise unless the classes of commands and events are known and can be stored."""
        _ = self.command_types, self.event_types


def _add_code(digest: Any, code: types.CodeType | None) -> None:
    """Add a function's code to a digest, with the functions that it contains."""
    if code is not None:
        digest.update(code.co_code + repr(code.co_names).encode())
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                _add_code(digest, constant)
            else:
                digest.update(repr(constant).encode())


# Any: an annotation.
def _annotation(function: Callable[..., Any], place: int) -> Any:
    """The annotation of a positional parameter; None if there is none."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    names = code.co_varnames[: code.co_argcount]
    place += bool(names and names[0] == "self")
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError) as error:
        # Classes of a function's body cannot be found by name.
        raise DeciderInvalid(
            what=f"`{function.__name__}`", why=f"has an annotation that cannot be read: {error}"
        ) from error
    return hints.get(names[place]) if len(names) > place else None


def _members(function: Callable[..., Any], place: int, name: str) -> tuple[type, ...]:
    kind = _annotation(function, place)
    if kind is None or kind is Any:
        raise DeciderInvalid(what=f"`{name}`", why="says nothing of the classes of its second parameter")
    while not isinstance(kind, types.UnionType) and hasattr(kind, "__value__"):
        kind = kind.__value__  # `type Event = …`
    is_union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return tuple(typing.get_args(kind)) if is_union else (kind,)


def _named(kinds: Iterable[type], what: str) -> dict[str, type]:
    found: dict[str, type] = {}
    for kind in kinds:
        if not is_model(kind):
            raise DeciderInvalid(
                what=f"{what} {getattr(kind, '__name__', kind)}", why="is no dataclass and no pydantic model"
            )
        if found.setdefault(kind.__name__, kind) is not kind:
            raise DeciderInvalid(what=f"{what} {kind.__name__}", why="stands for two classes")
    return found


class CommandTypes:
    """The command classes of a decider, by name."""

    def __init__(self, kinds: Iterable[type]) -> None:
        named = _named(kinds, "command")
        self.kinds = frozenset(named.values())
        #: Those that may be sent by name; what a saga is told of other entities is not.
        self.by_name = {name: kind for name, kind in named.items() if kind not in (RecordedEvent, SendRejected)}

    def fields(self) -> dict[str, list[ModelField]]:
        """The fields of each command."""
        return {name: model_fields(kind) for name, kind in self.by_name.items()}

    # Any: an object of the user's.
    def check(self, command: Any) -> None:
        if type(command) not in self.kinds:
            raise CommandUnknown(command=type(command).__name__, known=", ".join(self.by_name))

    def read(self, name: str, data: Any) -> Any:
        """A command from its name and JSON."""
        kind = self.by_name.get(name)
        if kind is None:
            raise CommandUnknown(command=name, known=", ".join(self.by_name))
        try:
            return reader(kind)(data)
        except ValueError as error:
            raise ArgumentInvalid(name="command", value=data, expected=f"the fields of {name}: {error}") from error


class _EventType(NamedTuple):
    kind: type
    version: int
    read: Read


class EventTypes:
    """The event classes of a decider: their names, schema versions and JSON."""

    def __init__(self, kinds: Iterable[type], upcasters: Mapping[tuple[str, int], Upcaster]) -> None:
        named = _named(kinds, "event")
        newest = dict.fromkeys(named, 1)
        for name, version in upcasters:
            if name not in named:
                raise DeciderInvalid(what=f"the upcaster of ({name!r}, {version})", why="is of no event of the decider")
            newest[name] = max(newest[name], version + 1)
        for name, version in newest.items():
            missing = [older for older in range(1, version) if (name, older) not in upcasters]
            if missing:
                raise DeciderInvalid(what=f"event {name}", why=f"has no upcaster for version {missing[0]}")
        self._upcasters = upcasters
        self.personal = PersonalFields(named.values())
        self._by_name = {name: _EventType(kind, newest[name], reader(kind)) for name, kind in named.items()}
        self._names = {kind: (name, newest[name]) for name, kind in named.items()}

    def __contains__(self, kind: type) -> bool:
        return kind in self._names

    def names(self) -> list[str]:
        return list(self._by_name)

    # Any: an event of the user's class.
    def write(self, event: Any, entity: str = "", keys: KeyStore | None = None) -> tuple[str, int, str]:
        """The name, schema version and JSON of an event, its personal fields encrypted."""
        name, version = self._names[type(event)]
        data = dump(event) if keys is None else self.personal.write(keys, entity, name, event)
        return name, version, data.decode()

    def read(self, entities: str, name: str, version: int, data: str, keys: KeyStore | None = None) -> Any:
        """A stored event, brought to the newest schema version and decrypted."""
        known = self._by_name.get(name)
        if known is None:
            raise EventUnreadable(
                entities=entities, event=name, version=version, why="the decider has no event of this name"
            )
        if version > known.version:
            why = f"this program knows versions up to {known.version}"
            raise EventUnreadable(entities=entities, event=name, version=version, why=why)
        try:
            body = orjson.loads(data)
            for older in range(version, known.version):
                body = self._upcasters[name, older](body)
            if self.personal:
                self.personal.reveal(keys, name, body)
            return known.read(body)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise EventUnreadable(entities=entities, event=name, version=version, why=str(error)) from error


class StateForm:
    """How states are stored in snapshots, or that they cannot be."""

    def __init__(self, kind: Any, fingerprint: str) -> None:
        #: Snapshots of a decider with another fingerprint are not used.
        self.fingerprint = fingerprint
        is_union = typing.get_origin(kind) in (typing.Union, types.UnionType)
        members = typing.get_args(kind) if is_union else (kind,)
        self._readers: dict[str, Read] = {}
        self.problem = ""
        try:
            self._readers = {_name(member): reader(member) for member in members}
        except DeciderInvalid as error:
            self.problem = str(error)

    # Any: a state of the user's.
    def write(self, state: Any) -> bytes | None:
        """A state as JSON with the name of its class; None if it cannot be read back."""
        name = _name(type(state))
        if name not in self._readers:
            name = next(iter(self._readers)) if len(self._readers) == 1 else ""
        if not name:
            return None
        try:
            return orjson.dumps(name) + b" " + dump(state)
        except TypeError:
            return None

    def read(self, stored: bytes) -> Any:
        name, _, body = stored.partition(b" ")
        read = self._readers.get(orjson.loads(name))
        if read is None:
            raise Misfit(f"no state is a {name.decode()}")
        return read(orjson.loads(body))


def _name(kind: Any) -> str:
    return str(getattr(typing.get_origin(kind) or kind, "__name__", kind))

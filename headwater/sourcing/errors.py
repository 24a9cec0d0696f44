"""Errors of event sourcing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headwater.errors import Conflict, LogError, NotAllowed, QueryError, StorageError, UsageError


@dataclass(eq=False, kw_only=True)
class CommandRejected(Conflict):
    """The decider rejected a command in the entity's present state; nothing was appended."""

    entities: str
    entity: str
    command: str
    reason: str
    http_status: ClassVar[int] = 422
    problem = "{command} of {entities} {entity!r} was rejected: {reason}."
    remedy = "Change the command, or send it again once the entity's state allows it. Nothing was appended."


@dataclass(eq=False, kw_only=True)
class VersionConflict(Conflict):
    """An entity is not at the version that the caller of a command expects."""

    entities: str
    entity: str
    expected: int
    actual: int
    problem = "{entities} {entity!r} is at version {actual}, not at {expected}: events were appended in between."
    remedy = "Load the entity, look at its state, and send the command with the new version. Nothing was appended."


@dataclass(eq=False, kw_only=True)
class DeciderInvalid(UsageError):
    """A decider, or one of its command, event or state classes, cannot be used."""

    what: str
    why: str
    problem = "The decider cannot be used: {what} {why}."
    remedy = "Commands and events are dataclasses or pydantic models; name them in the annotations or in the decider."


@dataclass(eq=False, kw_only=True)
class CommandUnknown(UsageError):
    """A command is of a class that the decider does not list."""

    command: str
    known: str
    problem = "The decider has no command {command!r}; it has {known}."
    remedy = "Send one of these, or add the class to the annotation of `decide`."


@dataclass(eq=False, kw_only=True)
class DeciderFailed(QueryError):
    """`decide` or `evolve` raised, or returned what it must not; nothing was appended."""

    entities: str
    entity: str
    function: str
    on: str
    why: str
    problem = "`{function}` of {entities} {entity!r} failed on {on}: {why}."
    remedy = "Correct the function; to refuse a command, return `Rejected(reason)`. Nothing was appended."


@dataclass(eq=False, kw_only=True)
class DeciderNotDeterministic(QueryError):
    """Two evaluations of a decider gave different results."""

    entities: str
    entity: str
    function: str
    on: str
    problem = "`{function}` of {entities} {entity!r} gave two different results for {on} and the same state."
    remedy = "Put times, random numbers and answers of other systems into the command. Nothing was appended."


@dataclass(eq=False, kw_only=True)
class ProjectionFailed(QueryError):
    """The function of a projection raised, or returned what it must not; none of the events of the catch-up was applied."""

    path: str
    entities: str
    entity: str
    version: int
    why: str
    problem = "The projection {path} failed on event {version} of {entities} {entity!r}: {why}."
    remedy = "Correct the function; with a new `version` the model is built again from all events."


@dataclass(eq=False, kw_only=True)
class SagaFailed(QueryError):
    """`by` or `send` of a saga raised, or returned what it must not; the saga stops at the event."""

    saga: str
    function: str
    on: str
    why: str
    problem = "`{function}` of the saga {saga!r} failed on {on}: {why}."
    remedy = "Correct the function and run the saga again: it continues at this event."


@dataclass(eq=False, kw_only=True)
class EventUnreadable(StorageError):
    """A stored event cannot be read as the class of its name."""

    entities: str
    event: str
    version: int
    why: str
    problem = "A stored event {event!r} of {entities}, schema version {version}, cannot be read: {why}."
    remedy = "Add an upcaster for ({event!r}, {version}) to the decider, or restore the class as it was."


@dataclass(eq=False, kw_only=True)
class HistoryBroken(StorageError):
    """The stored events of an entity are not numbered one after the other, or are in the wrong partition."""

    topic: str
    entity: str
    offset: int
    why: str
    problem = "The events of {entity!r} in topic {topic!r} are not one history: at offset {offset} {why}."
    remedy = "Append to this topic with `Entities` alone, keep its partitions, and restore it from a backup."


@dataclass(eq=False, kw_only=True)
class NotEntities(LogError):
    """A topic exists that does not hold the events of entities."""

    topic: str
    problem = "Topic {topic!r} exists and has other columns than events of entities."
    remedy = "Choose another name for the entities."


@dataclass(eq=False, kw_only=True)
class KeyLost(StorageError):
    """A personal value was encrypted with a key that is not in the key store, and was not erased."""

    path: str
    key: int
    problem = "Key {key} of a personal value is not in {path}, and was not destroyed by an erasure."
    remedy = "Restore the key store from its backup, or give its folder with `keys`; see docs/how-to/erase-a-person.md."


@dataclass(eq=False, kw_only=True)
class KeyStoreUnusable(StorageError):
    """The file with the keys of subjects cannot be used."""

    path: str
    why: str
    problem = "The key store {path} cannot be used: {why}."
    remedy = "Restore it from its backup; without it, personal values cannot be read."


@dataclass(eq=False, kw_only=True)
class PersonalHidden(NotAllowed):
    """A command was sent through entities that hide personal fields."""

    entities: str
    problem = "Personal fields of {entities} are hidden here, and a command must be decided on what is there."
    remedy = "Open the entities with `reveal=True`, which needs the key store."

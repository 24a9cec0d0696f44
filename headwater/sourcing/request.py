"""What is asked of entities, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headwater.errors import ArgumentInvalid, HeadwaterError

ID_CHARACTERS_MAX = 256


# Not frozen: that would take longer than to decide.
@dataclass(kw_only=True, slots=True)
class CommandRequest:
    """A command for one entity. With a `command_id` it is done once, however often it is sent."""

    id: str
    # Any: an object of one of the decider's command classes.
    command: Any
    expected_version: int | None = None
    command_id: str | None = None
    by: str | None = None
    why: str | None = None
    correlation: str | None = None
    causation: str | None = None

    def __post_init__(self) -> None:
        if type(self.id) is not str or not self.id or len(self.id) > ID_CHARACTERS_MAX:
            raise ArgumentInvalid(name="id", value=self.id, expected=f"text of 1 to {ID_CHARACTERS_MAX} characters")
        if self.expected_version is not None and self.expected_version < 0:
            raise ArgumentInvalid(
                name="expected_version", value=self.expected_version, expected="0 for a new entity, or its version"
            )


@dataclass(kw_only=True, slots=True)
class Decision:
    """What a command did: its events and the entity's version after them, or the error for which it did nothing."""

    id: str
    version: int
    #: Any: objects of the decider's event classes.
    events: tuple[Any, ...] = ()
    partition: int = 0
    #: Behind the last of these events in its partition; with `partition` a position for readers of their own writes.
    offset_next: int = 0
    #: Whether the command was done before, by its `command_id`.
    duplicate: bool = False
    error: HeadwaterError | None = None

    @property
    def offsets(self) -> dict[int, int]:
        """The position behind these events, as `at_least` of a view takes it."""
        return {self.partition: self.offset_next}


@dataclass(frozen=True, kw_only=True, slots=True)
class Entity:
    """An entity at one version. Version 0 has no event yet."""

    id: str
    version: int
    #: Any: a state of the decider.
    state: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedEvent:
    """An event of an entity's history: what, when, who and why."""

    id: str
    version: int
    #: Any: an object of one of the decider's event classes.
    event: Any
    at: datetime
    partition: int
    offset: int
    schema: int
    command_id: str | None
    by: str | None
    why: str | None
    correlation: str | None
    causation: str | None
    tags: tuple[str, ...]


@dataclass(frozen=True)
class SendRejected:
    """What a saga is told of a command that it sent and that was rejected."""

    to: str
    id: str
    # Any: the command of the user's class.
    command: Any
    reason: str

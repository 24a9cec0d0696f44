"""Event sourcing: commands are decided into events, and state is evolved from them."""

from headwater.sourcing.decider import Decider, Rejected
from headwater.sourcing.entities import Entities
from headwater.sourcing.errors import (
    CommandRejected,
    DeciderFailed,
    DeciderNotDeterministic,
    EventUnreadable,
    VersionConflict,
)
from headwater.sourcing.request import CommandRequest, Decision, Entity, RecordedEvent
from headwater.sourcing.transaction import EntityTransaction

__all__ = [
    "CommandRejected",
    "CommandRequest",
    "Decider",
    "DeciderFailed",
    "DeciderNotDeterministic",
    "Decision",
    "Entities",
    "Entity",
    "EntityTransaction",
    "EventUnreadable",
    "RecordedEvent",
    "Rejected",
    "VersionConflict",
]

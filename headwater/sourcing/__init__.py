"""Event sourcing: commands are decided into events, and state is evolved from them."""

from headwater.sourcing.certificate import Certificate, Remainder
from headwater.sourcing.command_rows import COMMAND_SCHEMA, command_rows
from headwater.sourcing.decider import Decider, Rejected
from headwater.sourcing.entities import Entities
from headwater.sourcing.erasure import erase, erased
from headwater.sourcing.errors import (
    CommandRejected,
    DeciderFailed,
    DeciderNotDeterministic,
    EventUnreadable,
    KeyLost,
    ProjectionFailed,
    SagaFailed,
    VersionConflict,
)
from headwater.sourcing.event_rows import SCHEMA as EVENT_SCHEMA
from headwater.sourcing.personal import Personal
from headwater.sourcing.projection import Projection
from headwater.sourcing.read_model import Deleted, ReadModel
from headwater.sourcing.request import CommandRequest, Decision, Entity, RecordedEvent, SendRejected
from headwater.sourcing.reveal import reveal
from headwater.sourcing.saga import Saga, Send
from headwater.sourcing.transaction import EntityTransaction

__all__ = [
    "COMMAND_SCHEMA",
    "EVENT_SCHEMA",
    "Certificate",
    "CommandRejected",
    "CommandRequest",
    "Decider",
    "DeciderFailed",
    "DeciderNotDeterministic",
    "Decision",
    "Deleted",
    "Entities",
    "Entity",
    "EntityTransaction",
    "EventUnreadable",
    "KeyLost",
    "Personal",
    "Projection",
    "ProjectionFailed",
    "ReadModel",
    "RecordedEvent",
    "Rejected",
    "Remainder",
    "Saga",
    "SagaFailed",
    "Send",
    "SendRejected",
    "VersionConflict",
    "command_rows",
    "erase",
    "erased",
    "reveal",
]

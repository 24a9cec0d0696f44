"""Errors of a log on Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headwater.errors import Conflict, LogError, NotAllowed, UsageError


@dataclass(eq=False, kw_only=True)
class ValueUnreadable(LogError):
    """A message's value is not of the format of its topic."""

    topic: str
    partition: int = -1
    offset: int
    format: str
    why: str
    http_status: ClassVar[int] = 422
    problem = "The message at offset {offset} of {topic!r}/{partition} is not of format {format!r}: {why}."
    remedy = (
        "Read the topic without a schema by another name, correct the program that sends such messages, or let a"
        " reader begin behind it."
    )


@dataclass(eq=False, kw_only=True)
class CredentialsRefused(NotAllowed):
    """The brokers do not accept the user, the password or the certificate."""

    address: str
    why: str
    problem = "The brokers of {address} refuse the credentials: {why}."
    remedy = (
        "Check `kafka_user`, `kafka_password`, `kafka_mechanism` and the certificates; `headwater config show` tells where"
        " each comes from."
    )


@dataclass(eq=False, kw_only=True)
class AccessDenied(NotAllowed):
    """An ACL of the brokers does not allow this."""

    address: str
    what: str
    name: str
    problem = "The brokers of {address} do not allow this user to do that with {what} {name!r}."
    remedy = "Add an ACL with `kafka-acls`; docs/reference/kafka.md lists those that Headwater needs."


@dataclass(eq=False, kw_only=True)
class BrokerRefused(LogError):
    """A broker has refused a request."""

    address: str
    what: str
    why: str
    problem = "A broker of {address} has refused {what}: {why}."
    remedy = "Correct what it names; the broker's own log may say more."


@dataclass(eq=False, kw_only=True)
class CapabilityMissing(UsageError):
    """A log on Kafka cannot do what was asked."""

    capability: str
    why: str
    instead: str
    problem = "A log on Kafka has no {capability}: {why}."
    remedy = "{instead}."


@dataclass(eq=False, kw_only=True)
class TransactionContended(Conflict):
    """Several processes commit under one name at the same time, and this one was always the slower."""

    name: str
    attempts: int
    problem = "{name!r} was fenced {attempts} times by other processes that commit under the same name."
    remedy = "Let one process at a time commit under a name. Nothing of this call was appended."

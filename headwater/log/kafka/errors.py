"""Errors of a log on Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headwater.errors import LogError


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

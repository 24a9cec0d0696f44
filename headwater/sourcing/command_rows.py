"""Commands as rows of a topic, for a decider that runs over a stream of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import orjson
import pyarrow as pa

from headwater.schema import parse_schema
from headwater.sourcing.codec import dump
from headwater.sourcing.decider import CommandTypes
from headwater.sourcing.request import CommandRequest

COMMAND_SCHEMA: pa.Schema = parse_schema(
    "entity string not null, command string not null, data string not null, at timestamp not null, command_id string, "
    "expected_version int64, by string, why string, correlation string, causation string"
)


def command_rows(requests: Iterable[CommandRequest], *, at: datetime | None = None) -> list[dict[str, Any]]:
    """Commands as rows of a topic with `COMMAND_SCHEMA` and the key `entity`; their events will have the time `at`.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Deposit:
    ...     amount: int
    >>> [row] = command_rows([CommandRequest(id="acc-1", command=Deposit(5), command_id="c-1")])
    >>> row["entity"], row["command"], row["data"], row["command_id"]
    ('acc-1', 'Deposit', '{"amount":5}', 'c-1')
    """
    at = datetime.now(UTC) if at is None else at
    return [
        {
            "entity": each.id,
            "command": type(each.command).__name__,
            "data": dump(each.command).decode(),
            "at": at,
            "command_id": each.command_id,
            "expected_version": each.expected_version,
            "by": each.by,
            "why": each.why,
            "correlation": each.correlation,
            "causation": each.causation,
        }
        for each in requests
    ]


# Any: a row of a topic of commands.
def request_of(row: dict[str, Any], types: CommandTypes) -> CommandRequest:
    """The command of a row; raises `CommandUnknown` or `ArgumentInvalid` for one that cannot be read."""
    try:
        body = orjson.loads(row["data"])
    except ValueError:
        body = row["data"]  # no JSON: the error of the reader has it
    return CommandRequest(
        id=row["entity"],
        command=types.read(row["command"], body),
        expected_version=row["expected_version"],
        command_id=row["command_id"],
        by=row["by"],
        why=row["why"],
        correlation=row["correlation"],
        causation=row["causation"],
    )

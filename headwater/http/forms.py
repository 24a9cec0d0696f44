"""The shapes of requests and answers, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

#: What a 64-bit integer may be in a request.
BIG_MAX = 2**63 - 1


class Form(BaseModel):
    """A body whose unknown fields are refused: a misspelt one would silently do nothing."""

    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    error: str
    facts: dict[str, Any]


class AppendedForm(BaseModel):
    """Where rows went: for each partition the first offset, and the one behind the last."""

    topic: str
    ranges: dict[str, list[int]]
    count: int
    duplicate: bool


class Waiting(Form):
    """Positions to wait behind, by topic and partition; and a group whose changes matter, for consumers."""

    topics: dict[str, dict[int, int]] = Field(default_factory=dict, max_length=10_000)
    seconds: float = Field(default=20.0, ge=0, le=3_600)
    group: str | None = None
    #: What was known of the catalogue and the group after the last call.
    catalogue: str | None = None
    state: str | None = None


class Commit(Form):
    """How far a group has come in a topic."""

    topic: str
    offsets: dict[int, int]
    metadata: str = ""


class Join(Form):
    """A consumer that joins a group."""

    topics: list[str] = Field(min_length=1, max_length=1_000)
    member: str | None = None
    start: str = "earliest"
    session_seconds_max: float = Field(default=10.0, gt=0, le=86_400)
    heartbeat_seconds: float = Field(default=1.0, gt=0, le=86_400)


class MemberCommit(Form):
    """Offsets that a member commits, by topic."""

    offsets: dict[str, dict[int, int]]


class Release(Form):
    """Partitions that a member gives up, by topic."""

    places: dict[str, list[int]]


class Begin(Form):
    """A transaction."""

    producer: str | None = None
    epoch: int | None = Field(default=None, le=BIG_MAX, ge=-BIG_MAX)
    sequence: int | None = Field(default=None, le=BIG_MAX, ge=0)


class Punctuation(Form):
    """A promise: no row earlier than `time_us` follows."""

    time_us: int = Field(le=BIG_MAX, ge=-BIG_MAX)
    producer: str | None = None
    partition: int | None = Field(default=None, le=BIG_MAX)


#: Errors, for the OpenAPI document.
# Any: FastAPI's own form for it.
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "description": "The request cannot be met; `error` names the class and `facts` say why.",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    },
    "5XX": {
        "description": "The server or its disk is at fault.",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    },
}

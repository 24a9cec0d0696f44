"""The shapes of requests and answers, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Any, Literal

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


class Column(BaseModel):
    name: str
    type: str
    nullable: bool = True


class Columns(BaseModel):
    columns: list[Column]


class RetentionForm(Form):
    seconds_max: float | None = Field(default=None, allow_inf_nan=False)
    bytes_max: int | None = Field(default=None, le=BIG_MAX)


class Declaration(Form):
    """What a topic may be given when it is made."""

    name: str
    #: As text, `id int64 not null, at timestamp`; as an object of names and types; or as `{"columns": [...]}`.
    schema_: str | dict[str, str] | Columns | None = Field(default=None, alias="schema")
    partitions: int | None = Field(default=None, le=BIG_MAX)
    key: str | list[str] | None = None
    time: str | None = None
    retention: str | RetentionForm | None = None
    compact: bool = False
    durability: Literal["fsync", "os", "memory"] | None = None
    codec: Literal["none", "lz4", "zstd"] | None = None
    segment_bytes_max: int | str | None = None
    segment_seconds_max: float | str | None = Field(default=None)
    tombstone_seconds_max: float | str | None = Field(default=None)
    archive: bool = False
    exist_ok: bool = False


class Alteration(Form):
    """What may change in a topic."""

    schema_: str | dict[str, str] | Columns | None = Field(default=None, alias="schema")
    force: bool = False
    partitions: int | None = Field(default=None, le=BIG_MAX)
    retention: str | RetentionForm | None = None
    compact: bool | None = None
    segment_bytes_max: int | str | None = None
    segment_seconds_max: float | str | None = Field(default=None)
    tombstone_seconds_max: float | str | None = Field(default=None)
    archive: bool | None = None
    codec: Literal["none", "lz4", "zstd"] | None = None


class TopicForm(BaseModel):
    """A topic."""

    name: str
    id: str
    schema_: Columns = Field(alias="schema")
    schema_version: int
    schemaless: bool
    partitions: int
    key: list[str]
    time: str | None
    retention: dict[str, float | int | None]
    compact: bool
    durability: str
    codec: str
    tombstone_seconds_max: float
    segment_bytes_max: int
    segment_seconds_max: float
    archive: bool
    created_us: int


class TopicList(BaseModel):
    """Names of topics; `next` is where the next page begins, null on the last."""

    topics: list[str]
    next: str | None


class AppendedForm(BaseModel):
    """Where rows went: for each partition the first offset, and the one behind the last."""

    topic: str
    ranges: dict[str, list[int]]
    count: int
    duplicate: bool


class OffsetsForm(BaseModel):
    """Partition → offset."""

    offsets: dict[str, int]


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


class Seek(Form):
    """Where a group shall go on in a topic."""

    topic: str
    #: earliest, latest, an offset, @time, or offsets such as 0:5,1:9
    to: str
    dry_run: bool = False


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


class Letters(Form):
    """Which dead letters are meant, and what to do with them."""

    reasons: list[str] = Field(default_factory=list)
    query: str | None = None
    since_us: int | None = Field(default=None, le=BIG_MAX, ge=-BIG_MAX)
    until_us: int | None = Field(default=None, le=BIG_MAX, ge=-BIG_MAX)
    #: Places of letters: `first` to `last` offset, both included.
    offsets: list[tuple[int, int]] = Field(default_factory=list)
    partition: int | None = None
    text: str | None = None
    dry_run: bool = False


class Redrive(Letters):
    """Letters to put back."""

    to: str | None = None
    attempts_max: int | None = Field(default=None, ge=1, le=BIG_MAX)
    rate: float | None = Field(default=None, gt=0)


class Park(Letters):
    """Letters to set aside, or to take up again."""

    undo: bool = False


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

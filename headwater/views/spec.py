"""What a view is, and where it stands: plain values that stores, keeper and readers share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson
import pyarrow as pa

from headwater.log import Offsets
from headwater.views.errors import ViewInvalid

Sources = dict[str, Offsets]
"""Topic → partition → the first offset that is not yet reflected."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")


@dataclass(frozen=True, kw_only=True)
class ViewSpec:
    """A view as it is declared: its changelog, its key, its columns, and the queries whose transactions write it.

    >>> ViewSpec(name="spend", topic="spend", key=("card",), schema=pa.schema([("card", pa.int64())])).table
    'spend@1'
    """

    name: str
    topic: str
    key: tuple[str, ...]
    schema: pa.Schema
    version: int = 1
    producers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise ViewInvalid(view=self.name, why="a name has ASCII characters: a-z, A-Z, digits, '.', '_' and '-'")
        if not self.key:
            raise ViewInvalid(view=self.name, why="it has no key, so its rows could not be told apart")
        for column in self.key:
            if column not in self.schema.names:
                raise ViewInvalid(view=self.name, why=f"its key {column!r} is none of its columns")
            if pa.types.is_nested(self.schema.field(column).type):
                raise ViewInvalid(view=self.name, why=f"its key {column!r} is nested")
        folded: dict[str, str] = {}
        for column in self.schema.names:
            other = folded.setdefault(column.lower(), column)
            if other != column:
                raise ViewInvalid(
                    view=self.name, why=f"SQL cannot tell its columns {other!r} and {column!r} from each other"
                )

    @property
    def table(self) -> str:
        """The name of the table that holds this version."""
        return f"{self.name}@{self.version}"

    @cached_property
    def key_schema(self) -> pa.Schema:
        return pa.schema([self.schema.field(column) for column in self.key])


@dataclass(frozen=True, kw_only=True)
class ViewPosition:
    """How far a version of a view has come: in its changelog, and in the topics that its query reads.

    Written in the same transaction as the rows, so the two never disagree.
    """

    version: int
    topic_id: str = ""
    offsets: Offsets = field(default_factory=dict)
    sources: Sources = field(default_factory=dict)
    applied_at_us: int = 0

    def to_json(self) -> str:
        """As text, for a table's cell or the id of an event."""
        body = {
            "version": self.version,
            "topic_id": self.topic_id,
            "offsets": _with_text_keys(self.offsets),
            "sources": {topic: _with_text_keys(offsets) for topic, offsets in self.sources.items()},
            "applied_at_us": self.applied_at_us,
        }
        return orjson.dumps(body).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> ViewPosition:
        """What `to_json` wrote.

        >>> ViewPosition.from_json(ViewPosition(version=1, offsets={0: 7}).to_json()).offsets
        {0: 7}
        """
        body = orjson.loads(text)
        return cls(
            version=int(body["version"]),
            topic_id=str(body["topic_id"]),
            offsets=_with_numbers(body["offsets"]),
            sources={topic: _with_numbers(offsets) for topic, offsets in body.get("sources", {}).items()},
            applied_at_us=int(body.get("applied_at_us", 0)),
        )


@dataclass(frozen=True, kw_only=True)
class Change:
    """What happened to one row of a view.

    `+U`: the row is new, or has these values now. `-D`: the row of this key is gone; only its key is told.
    `reset`: everything told so far is void, and all rows follow; so it is when another version is switched to.
    Rows that were there when a subscription began have no partition and no offset.
    """

    op: str
    # Any: the values of a row are of any type.
    row: dict[str, Any]
    partition: int | None = None
    offset: int | None = None


def _with_text_keys(offsets: Offsets) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}


# Any: a parsed JSON object.
def _with_numbers(offsets: Mapping[str, Any]) -> Offsets:
    return {int(partition): int(offset) for partition, offset in offsets.items()}


def reached(now: Offsets, wanted: Offsets) -> bool:
    """Whether offsets are at or behind those wanted.

    >>> reached({0: 5, 1: 2}, {0: 5}), reached({0: 5}, {0: 6}), reached({}, {0: 0})
    (True, False, True)
    """
    return all(now.get(partition, 0) >= offset for partition, offset in wanted.items())


def sources_of_metadata(metadata: list[Mapping[str, Any] | None]) -> Sources:
    """What the last transactions of a view's queries say they reflect; the least, where several speak of one topic.

    >>> sources_of_metadata([{"sources": [{"topics": {"payments": {"0": 7}}}, "-"]}, None])
    {'payments': {0: 7}}
    """
    found: Sources = {}
    for one in metadata:
        for source in (one or {}).get("sources", []):
            topics = source.get("topics", {}) if isinstance(source, Mapping) else {}
            for topic, offsets in topics.items():
                now = _with_numbers(offsets)
                before = found.get(topic)
                found[topic] = now if before is None else {p: min(before.get(p, 0), o) for p, o in now.items()}
    return found

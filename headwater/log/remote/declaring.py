"""Topics of a log that is elsewhere: made, changed, described and deleted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from headwater.log.embedded.topics import check_name
from headwater.log.port import Codec, Description, Durability, Retention, Topic
from headwater.log.remote.core import Core, given, named
from headwater.log.remote.wire import description_from_json
from headwater.log.retention import parse_retention
from headwater.schema import parse_schema, schema_from_json, schema_to_json

#: Consumers look for new partitions this often.
TOPIC_SECONDS = 1.0


class Declaring(Core):
    """What topics there are."""

    def create(
        self,
        topic: str,
        schema: Any = None,
        *,
        partitions: int | None = None,
        key: str | Sequence[str] | None = None,
        time: str | None = None,
        retention: Retention | timedelta | str | None = None,
        compact: bool = False,
        durability: Durability | None = None,
        codec: Codec | None = None,
        segment_bytes_max: int | str | None = None,
        segment_seconds_max: float | str | None = None,
        tombstone_seconds_max: float | str | None = None,
        archive: bool = False,
        exist_ok: bool = False,
    ) -> Topic:
        """Make a topic. Without a schema its rows are `key` and `value`, both bytes."""
        check_name("topic", topic)
        body = {
            "name": topic,
            "schema": None if schema is None else schema_to_json(parse_schema(schema)),
            "partitions": partitions,
            "key": key if key is None or isinstance(key, str) else list(key),
            "time": time,
            "retention": _retention(retention),
            "compact": compact,
            "durability": durability,
            "codec": codec,
            "segment_bytes_max": segment_bytes_max,
            "segment_seconds_max": segment_seconds_max,
            "tombstone_seconds_max": tombstone_seconds_max,
            "archive": archive,
            "exist_ok": exist_ok,
        }
        return self._remember(self._connection.post("/topics", given(body), again=exist_ok))

    def alter(
        self,
        topic: str,
        *,
        schema: Any = None,
        force: bool = False,
        partitions: int | None = None,
        retention: Retention | timedelta | str | None = None,
        compact: bool | None = None,
        segment_bytes_max: int | str | None = None,
        segment_seconds_max: float | str | None = None,
        tombstone_seconds_max: float | str | None = None,
        archive: bool | None = None,
        codec: Codec | None = None,
    ) -> Topic:
        """Change a topic while it is in use; other processes see it at their next call."""
        body = {
            "schema": None if schema is None else schema_to_json(parse_schema(schema)),
            "force": force,
            "partitions": partitions,
            "retention": _retention(retention),
            "compact": compact,
            "segment_bytes_max": segment_bytes_max,
            "segment_seconds_max": segment_seconds_max,
            "tombstone_seconds_max": tombstone_seconds_max,
            "archive": archive,
            "codec": codec,
        }
        response = self._connection.ask("PATCH", f"/topics/{named(topic)}", json=given(body))
        return self._remember(response.json())

    def delete(self, topic: str) -> None:
        """Remove a topic and all its rows."""
        self._connection.delete(f"/topics/{named(topic)}")
        self._topics.pop(topic, None)

    def topics(self, pattern: str = "*", *, internal: bool = False) -> list[str]:
        """The names of all topics that match a pattern such as `orders.*`."""
        found: list[str] = []
        after: str | None = None
        while True:
            page = self._connection.get("/topics", pattern=pattern, internal=internal, limit=1_000, after=after)
            found += page["topics"]
            after = page["next"]
            if after is None:
                return found

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has, as of a second ago."""
        return self._recent(topic, seconds=TOPIC_SECONDS).partitions

    def describe(self, topic: str) -> Description:
        """What the topic is and what each partition holds."""
        return description_from_json(self._connection.get(f"/topics/{named(topic)}/describe"))

    def schema(self, topic: str, version: int | None = None) -> pa.Schema:
        if version is None:
            return self.topic(topic).schema
        return schema_from_json(self._connection.get(f"/topics/{named(topic)}/schemas/{version}"))


# Any: JSON.
def _retention(given: Retention | timedelta | str | None) -> dict[str, Any] | None:
    if given is None:
        return None
    found = parse_retention(given)
    return {"seconds_max": found.seconds_max, "bytes_max": found.bytes_max}

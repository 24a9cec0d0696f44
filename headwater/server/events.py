"""CloudEvents as rows: what other systems send is appended to any topic, and its attributes stay with the row.

A topic of `CLOUDEVENT_SCHEMA` holds the whole event. A topic without a schema holds its data as bytes, under the key that
`partitionkey` says; any other topic holds its data, a JSON object, as columns. In both the attributes are headers of the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.errors import EncodingInvalid
from headwater.log import Topic
from headwater.schema import cloudevents


def is_event(kind: str, headers: Mapping[str, str]) -> bool:
    """Whether a request carries events: by its media type, or by its headers."""
    return kind in (cloudevents.CONTENT_TYPE, cloudevents.CONTENT_TYPE_BATCH) or cloudevents.is_cloudevent(headers)


# Any: rows, whose columns are of any type.
def rows_of_events(kind: str, headers: Mapping[str, str], body: bytes, topic: Topic) -> list[dict[str, Any]]:
    """The rows of a request's events."""
    if kind == cloudevents.CONTENT_TYPE:
        events = [cloudevents.from_structured(body)]
    elif kind == cloudevents.CONTENT_TYPE_BATCH:
        events = cloudevents.from_structured_batch(body)
    else:
        own = {
            name: value for name, value in headers.items() if name.lower().startswith("ce-") or name == "content-type"
        }
        events = [cloudevents.from_binary(own, body)]
    return [_row(event, topic) for event in events]


def _row(event: Mapping[str, Any], topic: Topic) -> dict[str, Any]:
    if topic.schema.names == cloudevents.CLOUDEVENT_SCHEMA.names:
        return cloudevents.to_row(event)
    headers = list(cloudevents.to_headers(event).items())
    if topic.schemaless:
        key = event.get("partitionkey")
        value = cloudevents.to_row(event)["data"]
        return {"key": None if key is None else str(key).encode(), "value": value, "_headers": headers}
    data = event.get("data")
    if not isinstance(data, Mapping):
        why = f"topic {topic.name!r} has columns, so that its data must be a JSON object"
        raise EncodingInvalid(encoding="CloudEvent", position=f"event {event.get('id')!r}", why=why)
    return {**data, "_headers": headers}

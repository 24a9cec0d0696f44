"""CloudEvents 1.0: whole events as JSON (structured mode), or attributes as headers beside a body (binary mode).

An event is a mapping: its attributes by name, and `data` (any JSON value, a text, or bytes) if it has any. Attributes
that the specification does not name are extensions; `partitionkey` decides the partition of an event.
Structured mode is one JSON document; binary mode has `data` in the body and attributes in headers, with the prefix `ce_`
in Kafka and `ce-` in HTTP, and `datacontenttype` as `content-type`.
"""

from __future__ import annotations

import base64
import binascii
import re
import urllib.parse
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa

from headwater.errors import EncodingInvalid
from headwater.schema.types import parse_schema

#: The schema of a topic whose rows are CloudEvents.
CLOUDEVENT_SCHEMA: pa.Schema = parse_schema(
    "id string not null, source string not null, specversion string not null, type string not null, subject string, "
    "time timestamp, datacontenttype string, dataschema string, data binary, extensions map<string, string>"
)

CONTENT_TYPE = "application/cloudevents+json"
CONTENT_TYPE_BATCH = "application/cloudevents-batch+json"

Binding = Literal["kafka", "http"]

_REQUIRED = ("id", "source", "specversion", "type")
_ATTRIBUTES = (*_REQUIRED, "subject", "time", "datacontenttype", "dataschema")
_BODY = ("data", "data_base64")
_PREFIXES: dict[Binding, str] = {"kafka": "ce_", "http": "ce-"}
_EXTENSION_NAME = re.compile(r"[a-z0-9]+\Z")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)\Z")


# -- events from and to rows ------------------------------------------------------------------------------------------


def to_event(
    row: Mapping[str, Any] | bytes | str | None,
    *,
    source: str,
    type: str,
    id: str | None = None,
    time: datetime | str | None = None,
    subject: str | None = None,
    headers: Mapping[str, bytes | str] | None = None,
) -> dict[str, Any]:
    """An event whose data is this row. Without an id it gets a random one.

    The row's headers `ce_…`, `partitionkey` and `content-type` become attributes, unless an argument is given;
    its other headers are not part of the event.

    >>> to_event({"total": 5}, source="/shop", type="order.paid", id="1", headers={"partitionkey": "ada"})
    {'specversion': '1.0', 'id': '1', 'source': '/shop', 'type': 'order.paid', 'partitionkey': 'ada', \
'datacontenttype': 'application/json', 'data': {'total': 5}}
    """
    named = {"id": id, "source": source, "type": type, "subject": subject, "time": _time_text(time)}
    from_headers = _attributes_of_headers(headers or {})
    event: dict[str, Any] = {
        "specversion": "1.0",
        **{name: value for name, value in named.items() if value is not None},
    }
    event = {**{name: value for name, value in from_headers.items() if name not in event}, **event}
    event.setdefault("id", str(uuid.uuid4()))
    if row is not None:
        event.setdefault("datacontenttype", _content_type(row))
        event["data"] = row
    return _checked(_ordered(event), "the event")


def to_headers(event: Mapping[str, Any]) -> dict[str, bytes]:
    """An event's attributes as the headers of a row; `to_event` reads them back.

    >>> to_headers({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": 5})
    {'ce_specversion': b'1.0', 'ce_id': b'1', 'ce_source': b'/s', 'ce_type': b't'}
    """
    return {name: value.encode("utf-8") for name, value in _headers(event, "kafka").items()}


def to_row(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event as a row of `CLOUDEVENT_SCHEMA`.

    >>> to_row({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"a": 1}})["data"]
    b'{"a":1}'
    """
    event = _checked(dict(event), "the event")
    row: dict[str, Any] = {name: event.get(name) for name in _ATTRIBUTES}
    if "data" in event and row["datacontenttype"] is None and not isinstance(event["data"], bytes):
        row["datacontenttype"] = "application/json"
    row["data"] = _body(event) if "data" in event else None
    extensions = {name: _text(value) for name, value in event.items() if _is_extension(name)}
    row["extensions"] = extensions or None
    return row


def from_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The event that a row of `CLOUDEVENT_SCHEMA` holds.

    >>> from_row({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": b"5", "datacontenttype": None})
    {'specversion': '1.0', 'id': '1', 'source': '/s', 'type': 't', 'data': 5}
    """
    event = {name: row[name] for name in _ATTRIBUTES if row.get(name) is not None}
    if "time" in event:
        event["time"] = _time_text(event["time"])
    event.update(dict(row.get("extensions") or {}))
    if row.get("data") is not None:
        event["data"] = _data(row["data"], event.get("datacontenttype"), "the event's data")
    return _checked(_ordered(event), "the event")


#: The columns of a topic of entities' events, which `from_entity_event` reads.
ENTITY_COLUMNS = frozenset({"entity", "version", "event", "schema", "data", "at"})


def from_entity_event(row: Mapping[str, Any], *, source: str) -> dict[str, Any]:
    """An event of an entity: a row of its topic, as an event whose subject is the entity.

    The id is that of the entity and its version, so that a source repeats no id. The extensions `correlationid` and
    `causationid` are those of the specification's registry, and `partitionkey` keeps the events of an entity in order.

    >>> row = {"entity": "acc-1", "version": 2, "event": "Deposited", "schema": 1, "data": '{"amount":5}', "at": "2026-01-01T00:00:00Z"}
    >>> event = from_entity_event({**row, "by": "Ada", "why": None}, source="/entities/account")
    >>> event["id"], event["type"], event["subject"], event["data"], event["by"]
    ('acc-1/2', 'Deposited', 'acc-1', {'amount': 5}, 'Ada')
    """
    names = {
        "correlation": "correlationid",
        "causation": "causationid",
        "command_id": "commandid",
        "by": "by",
        "why": "why",
    }
    data = row["data"]
    event = {
        "specversion": "1.0",
        "id": f"{row['entity']}/{row['version']}",
        "source": source,
        "type": row["event"],
        "subject": row["entity"],
        "time": _time_text(row["at"]),
        "partitionkey": row["entity"],
        "entityversion": row["version"],
        "schemaversion": row["schema"],
        **{extension: row[name] for name, extension in names.items() if row.get(name)},
        "datacontenttype": "application/json",
        "data": _loads(data, "the event's data") if isinstance(data, str) else data,
    }
    return _checked(event, "the event")


# -- structured mode --------------------------------------------------------------------------------------------------


def from_structured(body: bytes | str) -> dict[str, Any]:
    """The event in one JSON document (`application/cloudevents+json`).

    >>> from_structured(b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":1}}')["data"]
    {'a': 1}
    """
    return _from_document(_loads(body, "the event"), "the event")


def from_structured_batch(body: bytes | str) -> list[dict[str, Any]]:
    """The events in one JSON array (`application/cloudevents-batch+json`).

    >>> from_structured_batch(b"[]")
    []
    """
    documents = _loads(body, "the batch")
    if not isinstance(documents, list):
        raise EncodingInvalid(encoding="CloudEvents", position="the batch", why="a batch is a JSON array")
    return [_from_document(document, f"event {i} of the batch") for i, document in enumerate(documents)]


def to_structured(event: Mapping[str, Any]) -> bytes:
    """The event as one JSON document; data that is bytes becomes `data_base64`.

    >>> to_structured({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": b"\\xff"})
    b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"/w=="}'
    """
    return _dumps(_document(event))


def to_structured_batch(events: Iterable[Mapping[str, Any]]) -> bytes:
    """The events as one JSON array.

    >>> to_structured_batch([])
    b'[]'
    """
    return _dumps([_document(event) for event in events])


def _document(event: Mapping[str, Any]) -> dict[str, Any]:
    document = _checked(dict(event), "the event")
    if isinstance(document.get("data"), bytes):
        document["data_base64"] = base64.b64encode(document.pop("data")).decode("ascii")
    return document


def _from_document(document: Any, position: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise EncodingInvalid(encoding="CloudEvents", position=position, why="an event is a JSON object")
    event = {name: value for name, value in document.items() if value is not None or name == "data"}
    if "data_base64" in event:
        if "data" in event:
            raise EncodingInvalid(encoding="CloudEvents", position=position, why="it has both data and data_base64")
        try:
            event["data"] = base64.b64decode(event.pop("data_base64"), validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            why = f"data_base64 cannot be read ({error})"
            raise EncodingInvalid(encoding="CloudEvents", position=position, why=why) from error
    return _checked(event, position)


# -- binary mode ------------------------------------------------------------------------------------------------------


def from_binary(headers: Mapping[str, bytes | str], body: bytes | None) -> dict[str, Any]:
    """The event whose attributes are headers, of Kafka or of HTTP, and whose data is the body.

    A JSON content type makes the data a JSON value, a text one makes it text, any other leaves it bytes.

    >>> headers = {"ce_specversion": b"1.0", "ce_id": b"1", "ce_source": b"/s", "ce_type": b"t"}
    >>> from_binary({**headers, "content-type": b"application/json"}, b'{"a":1}')["data"]
    {'a': 1}
    """
    event = _attributes_of_headers(headers)
    if body:
        event["data"] = _data(body, event.get("datacontenttype", "application/octet-stream"), "the body")
    return _checked(_ordered(event), "the headers")


def to_binary(event: Mapping[str, Any], *, binding: Binding = "kafka") -> tuple[dict[str, str], bytes | None]:
    """The event as headers and a body. HTTP's header values are percent-encoded where its rules ask for it.

    >>> to_binary({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": "ü"}, binding="http")
    ({'ce-specversion': '1.0', 'ce-id': '1', 'ce-source': '/s', 'ce-type': 't', 'content-type': 'application/json'}, b'"\\xc3\\xbc"')
    """
    event = _checked(dict(event), "the event")
    headers = _headers(event, binding)
    if "data" not in event:
        return headers, None
    if "content-type" not in headers and not isinstance(event["data"], bytes):
        headers["content-type"] = "application/json"
    return headers, _body(event)


def is_cloudevent(headers: Mapping[str, bytes | str]) -> bool:
    """Whether headers carry an event in binary mode.

    >>> is_cloudevent({"Ce-SpecVersion": "1.0"}), is_cloudevent({"content-type": "text/plain"})
    (True, False)
    """
    return any(name.lower() in {"ce_specversion", "ce-specversion"} for name in headers)


def _headers(event: Mapping[str, Any], binding: Binding) -> dict[str, str]:
    prefix = _PREFIXES[binding]
    headers: dict[str, str] = {}
    for name, value in event.items():
        if name == "datacontenttype":
            headers["content-type"] = value
        elif name not in _BODY:
            headers[prefix + name] = _percent_encoded(_text(value)) if binding == "http" else _text(value)
    return headers


def _attributes_of_headers(headers: Mapping[str, bytes | str]) -> dict[str, Any]:
    """Attributes by name: headers with a prefix, the content type and the partition key; others are ignored."""
    attributes: dict[str, Any] = {}
    for name, value in headers.items():
        lower = name.lower()
        if lower.startswith(("ce_", "ce-")):
            attributes[lower[3:]] = _header_text(name, value, quoted=lower.startswith("ce-"))
        elif lower in _PLAIN_HEADERS:
            attributes[_PLAIN_HEADERS[lower]] = _header_text(name, value, quoted=False)
    return attributes


_PLAIN_HEADERS = {"content-type": "datacontenttype", "partitionkey": "partitionkey"}


def _header_text(name: str, value: bytes | str, *, quoted: bool) -> str:
    try:
        text = value.decode("utf-8") if isinstance(value, bytes) else value
        return urllib.parse.unquote(text, errors="strict") if quoted else text
    except UnicodeDecodeError as error:
        raise EncodingInvalid(encoding="CloudEvents", position=f"header {name!r}", why="it is not UTF-8") from error


def _percent_encoded(text: str) -> str:
    """Encode space, quotes, percent and everything that is not printable ASCII, as the HTTP binding does."""
    return "".join(
        character if "!" <= character <= "~" and character not in '"%' else urllib.parse.quote(character, safe="")
        for character in text
    )


# -- validation -------------------------------------------------------------------------------------------------------


def _is_extension(name: str) -> bool:
    return name not in _ATTRIBUTES and name not in _BODY


def _ordered(event: Mapping[str, Any]) -> dict[str, Any]:
    """The version first, the data last."""
    first = ("specversion", "id", "source", "type", "subject", "time")
    last = ("datacontenttype", "dataschema", "data")
    middle = [name for name in event if name not in first and name not in last]
    return {name: event[name] for name in (*first, *middle, *last) if name in event}


def _checked(event: dict[str, Any], position: str) -> dict[str, Any]:
    why = _flaw(event)
    if why:
        raise EncodingInvalid(encoding="CloudEvents", position=position, why=why)
    return event


def _flaw(event: Mapping[str, Any]) -> str:
    """Why this is not a valid event; empty if it is."""
    for name in _REQUIRED:
        if not isinstance(event.get(name), str) or not event[name]:
            return f"the required attribute {name!r} is missing or not a text"
    if event["specversion"] != "1.0":
        return f"the specversion is {event['specversion']!r}, and only '1.0' is known"
    for name in ("subject", "time", "datacontenttype", "dataschema"):
        if name in event and (not isinstance(event[name], str) or not event[name]):
            return f"the attribute {name!r} is not a text"
    if "time" in event and not _TIME.match(event["time"]):
        return f"the time {event['time']!r} is not RFC 3339, as in '2024-01-31T12:00:00Z'"
    for name, value in event.items():
        if _is_extension(name) and not _EXTENSION_NAME.match(name):
            return f"the attribute name {name!r} has other characters than a-z and 0-9"
        if _is_extension(name) and not isinstance(value, str | int | bool | bytes):
            return f"the extension {name!r} is neither a text, a number nor a boolean"
    return ""


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else str(value)


def _time_text(time: datetime | str | None) -> str | None:
    if not isinstance(time, datetime):
        return time
    moment = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    return moment.replace(tzinfo=None).isoformat() + "Z"


def _content_type(row: Any) -> str:
    if isinstance(row, bytes):
        return "application/octet-stream"
    return "text/plain" if isinstance(row, str) else "application/json"


def _is_json(content_type: str | None) -> bool:
    kind = "application/json" if content_type is None else content_type.partition(";")[0].strip().lower()
    return kind.endswith(("/json", "+json"))


def _data(body: bytes, content_type: str | None, position: str) -> Any:
    if _is_json(content_type):
        return _loads(body, position)
    if (content_type or "").lower().startswith("text/"):
        try:
            return body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise EncodingInvalid(encoding="CloudEvents", position=position, why="the text is not UTF-8") from error
    return body


def _body(event: Mapping[str, Any]) -> bytes:
    data = event["data"]
    if isinstance(data, bytes):
        return data
    if isinstance(data, str) and not _is_json(event.get("datacontenttype")):
        return data.encode("utf-8")
    return _dumps(data)


def _loads(body: bytes | str, position: str) -> Any:
    import orjson  # imported on demand

    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise EncodingInvalid(encoding="CloudEvents", position=position, why=f"it is not JSON ({error})") from error


def _dumps(value: Any) -> bytes:
    import orjson

    try:
        return orjson.dumps(value, option=orjson.OPT_UTC_Z, default=_jsonable)
    except TypeError as error:
        raise EncodingInvalid(
            encoding="CloudEvents", position="the data", why=f"it has no JSON form ({error})"
        ) from error


def _jsonable(value: Any) -> Any:
    """Values of rows that JSON has no type for, as in `headwater.schema.encodings.json`."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode("ascii")}
    if type(value).__name__ == "Decimal":
        return f"{value:f}"
    raise TypeError(f"a {type(value).__name__}")

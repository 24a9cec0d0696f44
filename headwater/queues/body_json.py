"""Bodies of messages as JSON, for the HTTP API and its clients: JSON is as it is, bytes are text or `{"base64": …}`, rows objects."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa

from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.queues.config import Body
from headwater.schema import to_batches
from headwater.schema.encodings import json as json_lines


# Any: bodies, and JSON; here and below.
def bodies_to_json(kind: Body, schema: pa.Schema, bodies: Sequence[Any]) -> list[Any]:
    """Bodies of a queue of this kind as JSON; `schema` is that of its topic.

    >>> bodies_to_json("bytes", pa.schema([]), [b"text", bytes([255])])
    ['text', {'base64': '/w=='}]
    """
    if kind == "json":
        return list(bodies)
    if kind == "bytes":
        return [None if body is None else bytes_to_json(_checked(body)) for body in bodies]
    try:
        column = pa.array(list(bodies), schema.field("body").type)
    except (TypeError, ValueError, pa.ArrowException) as error:
        expected = f"rows of {schema.field('body').type}; nothing was put"
        raise ArgumentInvalid(name="body", value=str(error), expected=expected) from error
    lines = json_lines.encode_rows(pa.record_batch([column], names=["body"]))
    return [orjson.loads(line)["body"] for line in lines]


def bodies_from_json(kind: Body, schema: pa.Schema, bodies: Sequence[Any]) -> list[Any]:
    """What `bodies_to_json` wrote, or people did.

    >>> bodies_from_json("bytes", pa.schema([]), ["text", {"base64": "/w=="}])
    [b'text', b'\\xff']
    """
    if kind == "json":
        return list(bodies)
    if kind == "bytes":
        return [None if body is None else bytes_from_json(body) for body in bodies]
    fields = pa.schema(list(schema.field("body").type))
    lines = [orjson.dumps(body) for body in bodies if body is not None]
    try:
        rows = [row for some in json_lines.decode_lines(lines, fields, topic="body") for row in some]
        values = iter([row for batch in to_batches(rows, fields, topic="body") for row in batch.data.to_pylist()])
    except HeadwaterError as error:
        raise ArgumentInvalid(name="body", value=str(error), expected="rows of the queue's schema") from error
    return [None if body is None else next(values) for body in bodies]


def _checked(body: Any) -> bytes:
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    raise ArgumentInvalid(name="body", value=type(body).__name__, expected="bytes; nothing was put")


def bytes_to_json(body: bytes) -> Any:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}


def bytes_from_json(body: Any) -> bytes:
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, dict) and isinstance(body.get("base64"), str):
        try:
            return base64.b64decode(body["base64"], validate=True)
        except ValueError as error:
            raise ArgumentInvalid(name="body", value=str(error), expected="base64; nothing was put") from None
    raise ArgumentInvalid(
        name="body", value=type(body).__name__, expected='a text or {"base64": "…"}: the queue has bytes'
    )

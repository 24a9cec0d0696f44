"""The wire format between a server and its clients: rows as Arrow streams, everything else as JSON.

Both sides use this module. Offsets are `0:5,1:9` in addresses and headers, and objects in bodies. The offsets of a batch
are metadata of its Arrow message.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from headwater.errors import ArgumentInvalid, EncodingInvalid, HeadwaterError, error_of
from headwater.log.client_config import Start
from headwater.log.errors import ServerUnreachable
from headwater.log.port import Appended, Batch, Description, Lag, Offsets, PartitionInfo
from headwater.log.topic import Topic

ARROW = "application/vnd.apache.arrow.stream"
#: Header of an answer with rows: the offsets to continue from.
NEXT_HEADER = "headwater-next"
#: Header of an answer with rows: whether the requested range has more.
MORE_HEADER = "headwater-more"
#: Header of an answer with a range of rows: how many punctuations at the next offset were returned.
TOLD_HEADER = "headwater-told"
#: Header of an answer with rows: the id of their topic, which differs if it was deleted and created again.
TOPIC_HEADER = "headwater-topic"
#: The id of the server that answered an append; and, of a repeated append, the first server and how long ago it was asked.
SERVER_HEADER = "headwater-server"
REPEAT_HEADER = "headwater-repeat-of"
REPEAT_SECONDS_HEADER = "headwater-repeat-after"

_EXPECTED_START = "'earliest', 'latest', an offset, minus so many rows, a time or offsets such as 0:5,1:9"


# -- rows -------------------------------------------------------------------------------------------------------------


def batches_to_bytes(schema: pa.Schema, batches: Iterable[Batch]) -> bytes:
    """Batches with their offsets, and punctuations, as one Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch.data, custom_metadata=_place_of(batch))
    return bytes(sink.getvalue())


def bytes_to_batches(body: bytes, *, topic: str) -> Iterator[Batch]:
    """Parse what `batches_to_bytes` wrote. The batches share the memory of the body."""
    reader = pa.ipc.open_stream(pa.py_buffer(body))
    while True:
        try:
            found = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            return
        about = {key.decode(): int(value) for key, value in (found.custom_metadata or {}).items()}
        yield Batch(topic=topic, data=found.batch, **about)


def _place_of(batch: Batch) -> dict[str, str]:
    place = {
        "partition": batch.partition,
        "offset": batch.offset,
        "offset_next": batch.offset_next,
        "producer": batch.producer,
    }
    if batch.punctuation_us is not None:
        place["punctuation_us"] = batch.punctuation_us
    return {name: str(value) for name, value in place.items()}


def table_to_bytes(table: pa.Table) -> bytes:
    """Rows to append, as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def bytes_to_table(body: bytes) -> pa.Table:
    """The rows of an Arrow stream from a client; fully validated, since it may hold anything."""
    try:
        table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
        table.validate(full=True)
    # Arrow raises errors of many classes for invalid bytes.
    except (pa.ArrowException, ValueError, OSError, KeyError, NotImplementedError) as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        raise EncodingInvalid(encoding="Arrow stream", position="the body", why=why) from error
    return table


# -- schemas and topics -----------------------------------------------------------------------------------------------


def schema_to_text(schema: pa.Schema) -> str:
    """A complete Arrow schema as text."""
    return base64.b64encode(schema.serialize()).decode()


def text_to_schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


# Any: JSON values, here and below.
def description_from_json(body: Mapping[str, Any]) -> Description:
    partitions = [PartitionInfo(**one) for one in body["partitions"]]
    return Description(topic=Topic.from_json(body["topic"]), partitions=partitions)


def appended_to_json(found: Appended) -> dict[str, Any]:
    ranges = {str(number): list(span) for number, span in found.ranges.items()}
    return {"topic": found.topic, "ranges": ranges, "count": found.count, "duplicate": found.duplicate}


def appended_from_json(body: Mapping[str, Any]) -> Appended:
    ranges = {int(number): (span[0], span[1]) for number, span in body["ranges"].items()}
    found = Appended(topic=body["topic"], ranges=ranges, duplicate=body["duplicate"])
    return found if found.count == body["count"] else replace(found, rows=body["count"])


def lag_from_json(body: Mapping[str, Any]) -> Lag:
    return Lag(**body)


# -- offsets and places -----------------------------------------------------------------------------------------------


def offsets_to_json(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(number): offset for number, offset in offsets.items()}


def offsets_from_json(body: Mapping[str, int]) -> Offsets:
    return {int(number): offset for number, offset in body.items()}


def offsets_to_text(offsets: Mapping[int, int]) -> str:
    """Offsets on one line.

    >>> offsets_to_text({0: 5, 1: 9})
    '0:5,1:9'
    """
    return ",".join(f"{number}:{offset}" for number, offset in sorted(offsets.items()))


def offsets_from_text(text: str, *, name: str = "start") -> Offsets:
    """Parse what `offsets_to_text` wrote.

    >>> offsets_from_text("0:5,1:9")
    {0: 5, 1: 9}
    """
    try:
        pairs = [part.split(":") for part in text.split(",") if part]
        found = {_whole(number): _whole(offset) for number, offset in pairs}
    except ValueError:
        raise ArgumentInvalid(name=name, value=text, expected="offsets such as 0:5,1:9") from None
    if any(number < 0 or offset < 0 for number, offset in found.items()):
        raise ArgumentInvalid(name=name, value=text, expected="offsets such as 0:5,1:9")
    return found


def start_to_text(start: Start | None) -> str | None:
    """A start or stop position as text for an address; raise if it is invalid."""
    if start is None or isinstance(start, str):
        return start
    if isinstance(start, Mapping):
        return offsets_to_text(start) or "earliest"  # the default for partitions that are not given
    if isinstance(start, datetime):
        aware = start if start.tzinfo is not None else start.replace(tzinfo=UTC)
        return f"@{aware.isoformat()}"
    if not isinstance(start, bool):
        try:
            return str(start.__index__())
        except AttributeError:
            pass
    raise ArgumentInvalid(name="start", value=start, expected=_EXPECTED_START)


def start_from_text(text: str, *, name: str = "start") -> Start:
    """Parse a start or stop position in an address.

    >>> start_from_text("earliest"), start_from_text("-3"), start_from_text("0:5")
    ('earliest', -3, {0: 5})
    """
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.startswith("@"):
        return time_from_text(text[1:], name=name)
    if ":" in text:
        return offsets_from_text(text, name=name)
    try:
        return _whole(text)
    except ValueError:
        raise ArgumentInvalid(name=name, value=text, expected=_EXPECTED_START) from None


def time_from_text(text: str, *, name: str = "time") -> datetime:
    """Parse ISO 8601, or microseconds since 1970."""
    try:
        if text.lstrip("-").isdecimal():
            return datetime.fromtimestamp(_whole(text) / 1e6, tz=UTC)
        found = datetime.fromisoformat(text.replace(" ", "+"))  # a plus sign that the client did not escape
    except (ValueError, OverflowError, OSError):
        raise ArgumentInvalid(name=name, value=text, expected="a time such as 2026-03-01T12:00:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _whole(text: str) -> int:
    # `int` would also accept underscores and digits of other scripts.
    if not text.lstrip("-").isascii() or "_" in text:
        raise ValueError(text)
    number = int(text)
    if abs(number) >= 2**63:
        raise ValueError(text)
    return number


# -- errors -----------------------------------------------------------------------------------------------------------


def error_to_json(error: HeadwaterError) -> dict[str, Any]:
    """The class and facts of an error, so that a client can raise it."""
    facts = {name: _plain(value) for name, value in error.facts().items()}
    return {"error": type(error).__name__, "branch": error.branch(), "facts": facts}


def error_from_json(status: int, body: Any, *, address: str) -> HeadwaterError:
    """The error in a server's answer, as an instance of the class that the server raised."""
    given = body if isinstance(body, dict) else {}
    why = str(given.get("detail") or given.get("message") or f"it answered {status}")
    return error_of(given) or ServerUnreachable(address=address, why=why)


def _plain(value: Any) -> Any:
    if isinstance(value, int) and abs(value) >= 2**63:
        return str(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)

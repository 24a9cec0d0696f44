"""What crosses between a log's server and its clients: rows as Arrow streams, the rest as small JSON values.

Both sides use this module, so that what one writes the other reads back. Offsets are written as `0:5,1:9` in addresses
and headers, and as objects in bodies. A batch's place travels as metadata of its Arrow message.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from headwater.errors import ArgumentInvalid, EncodingInvalid, HeadwaterError, error_of
from headwater.log.errors import ServerUnreachable
from headwater.log.port import Appended, Batch, Description, Lag, Offsets, PartitionInfo, Start, Topic

ARROW = "application/vnd.apache.arrow.stream"
#: Header of an answer with rows: the offsets to go on from.
NEXT_HEADER = "headwater-next"
#: Header of an answer with rows: whether there is more in the range that was asked for.
MORE_HEADER = "headwater-more"
#: Header of an answer with rows: the id of the topic that they are of, for one may be made anew under the same name.
TOPIC_HEADER = "headwater-topic"
#: Which server has answered an append; and, of one that is asked for again, which was asked first and how long ago.
SERVER_HEADER = "headwater-server"
REPEAT_HEADER = "headwater-repeat-of"
REPEAT_SECONDS_HEADER = "headwater-repeat-after"

_EXPECTED_START = "'earliest', 'latest', an offset, minus so many rows, a time or offsets such as 0:5,1:9"


# -- rows -------------------------------------------------------------------------------------------------------------


def batches_to_bytes(schema: pa.Schema, batches: Iterable[Batch]) -> bytes:
    """Batches with their places, punctuations among them, as one Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch.data, custom_metadata=_place_of(batch))
    return bytes(sink.getvalue())


def bytes_to_batches(body: bytes, *, topic: str) -> Iterator[Batch]:
    """What `batches_to_bytes` made. The batches share the body's memory."""
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
    """Rows on their way in, as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def bytes_to_table(body: bytes) -> pa.Table:
    """The rows of an Arrow stream that somebody has sent; checked, for it may be anything."""
    try:
        table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
        table.validate(full=True)
    # Arrow raises errors of many classes for bytes that it did not write.
    except (pa.ArrowException, ValueError, OSError, KeyError, NotImplementedError) as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        raise EncodingInvalid(encoding="Arrow stream", position="the body", why=why) from error
    return table


# -- schemas and topics -----------------------------------------------------------------------------------------------


def schema_to_text(schema: pa.Schema) -> str:
    """An Arrow schema to the last detail, as text."""
    return base64.b64encode(schema.serialize()).decode()


def text_to_schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


# Any: JSON values, here and below.
def description_from_json(body: Mapping[str, Any]) -> Description:
    partitions = [PartitionInfo(**{k: v for k, v in one.items() if k != "rows"}) for one in body["partitions"]]
    return Description(topic=Topic.from_json(body["topic"]), partitions=partitions)


def appended_to_json(found: Appended) -> dict[str, Any]:
    ranges = {str(number): list(span) for number, span in found.ranges.items()}
    return {"topic": found.topic, "ranges": ranges, "count": found.count, "duplicate": found.duplicate}


def appended_from_json(body: Mapping[str, Any]) -> Appended:
    ranges = {int(number): (span[0], span[1]) for number, span in body["ranges"].items()}
    return Appended(topic=body["topic"], ranges=ranges, duplicate=body["duplicate"])


def lag_from_json(body: Mapping[str, Any]) -> Lag:
    return Lag(**{name: value for name, value in body.items() if name != "rows"})


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
    """What `offsets_to_text` wrote.

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
    """A place to begin or to end, for an address; what means nothing is refused here."""
    if start is None or isinstance(start, str):
        return start
    if isinstance(start, Mapping):
        return offsets_to_text(start) or "earliest"  # partitions that are not named begin with their oldest row
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
    """The place that a text in an address means.

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
    """ISO 8601, or whole microseconds since 1970."""
    try:
        if text.lstrip("-").isdecimal():
            return datetime.fromtimestamp(_whole(text) / 1e6, tz=UTC)
        found = datetime.fromisoformat(text.replace(" ", "+"))  # a plus sign that nobody has escaped
    except (ValueError, OverflowError, OSError):
        raise ArgumentInvalid(name=name, value=text, expected="a time such as 2026-03-01T12:00:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _whole(text: str) -> int:
    # `int` would also take underscores and digits of other scripts.
    if not text.lstrip("-").isascii() or "_" in text:
        raise ValueError(text)
    number = int(text)
    if abs(number) >= 2**63:
        raise ValueError(text)
    return number


# -- errors -----------------------------------------------------------------------------------------------------------


def error_to_json(error: HeadwaterError) -> dict[str, Any]:
    """An error's class and facts, so that it can be raised again elsewhere."""
    facts = {name: _plain(value) for name, value in error.facts().items()}
    return {"error": type(error).__name__, "branch": error.branch(), "facts": facts}


def error_from_json(status: int, body: Any, *, address: str) -> HeadwaterError:
    """The error that a server has told, as the class it was raised as."""
    told = body if isinstance(body, dict) else {}
    why = str(told.get("detail") or told.get("message") or f"it answered {status}")
    return error_of(told) or ServerUnreachable(address=address, why=why)


def _plain(value: Any) -> Any:
    if isinstance(value, int) and abs(value) >= 2**63:
        return str(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def bytes_from_text(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise EncodingInvalid(encoding="base64", position="the text", why=str(error)) from error

"""Rules of topics for every kind of log: names, columns of the key and the event time, and changes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

import pyarrow as pa

from headwater.errors import ArgumentInvalid, SchemaConflict
from headwater.log.errors import NameInvalid
from headwater.log.topic import Topic

#: Prefix of the names of internal topics.
INTERNAL = "__"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def check_name(kind: str, name: str, *, internal: bool = False) -> None:
    """Raise for a name that is not safe as the name of a folder, or that is internal."""
    if not isinstance(name, str) or not name:
        raise NameInvalid(kind=kind, name=str(name), why="it is empty")
    if internal and name.startswith(INTERNAL):
        name = name[len(INTERNAL) :]
    if not _NAME.fullmatch(name):
        raise NameInvalid(kind=kind, name=name, why="it has characters, a beginning or a length that are not allowed")


def check_alter(old: Topic, new: Topic) -> None:
    """Raise for changes after which rows of a key would be in the wrong partition."""
    if new.partitions < old.partitions:
        raise ArgumentInvalid(
            name="partitions",
            value=new.partitions,
            expected=f"at least {old.partitions}: partitions hold rows and cannot be removed",
        )
    if new.time_column != old.time_column:
        expected = (
            f"settings of column {old.time_column!r}" if old.time else "none: the topic was made without event time"
        )
        raise ArgumentInvalid(name="time", value=str(new.time), expected=expected)
    if new.compact and new.key and new.partitions != old.partitions:
        raise ArgumentInvalid(
            name="partitions",
            value=new.partitions,
            expected="the number it was created with: a compacted topic's keys would move and keep two last rows",
        )


def check_columns(topic: str, schema: pa.Schema, *, key: Sequence[str], time: str | None) -> None:
    """Raise unless key and event time are columns, of types that can be hashed and compared."""
    for column in key:
        if column not in schema.names:
            raise SchemaConflict(
                topic=topic, column=column, why=f"is the key, but the schema has no such column{_near(column, schema)}"
            )
        if pa.types.is_nested(schema.field(column).type):
            raise SchemaConflict(topic=topic, column=column, why="is the key, and a nested column cannot be one")
    if time is not None:
        if time not in schema.names:
            raise SchemaConflict(
                topic=topic,
                column=time,
                why=f"is the event time, but the schema has no such column{_near(time, schema)}",
            )
        if not pa.types.is_timestamp(schema.field(time).type):
            raise SchemaConflict(topic=topic, column=time, why="is the event time, but is not a timestamp")


def check_key_types(topic: str, key: Sequence[str], old: pa.Schema, new: pa.Schema) -> None:
    """Raise if a schema changes an integer key to floating point: its rows would go to other partitions."""
    for column in key:
        if pa.types.is_integer(old.field(column).type) and pa.types.is_floating(new.field(column).type):
            why = "is the key, and as floating point it would go to another partition"
            raise SchemaConflict(topic=topic, column=column, why=why)


def _near(column: str, schema: pa.Schema) -> str:
    near = difflib.get_close_matches(column, schema.names, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""

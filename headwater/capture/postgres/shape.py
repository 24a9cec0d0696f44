"""From decoded messages of one table to its changes: new rows, old rows, keys that change, values that were not sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.capture.port import Changes, Misfit, Table
from headwater.capture.postgres.decoder import DELETE, INSERT, Mask, Messages, Places, Tuples
from headwater.capture.postgres.types import ColumnType

_LETTERS = pa.array(["c", "u", "d"])
_WHY = "the value of column {column!r} does not fit {kind}: it is null in the topic"


@dataclass(frozen=True)
class Shape:
    """A table with the types of its columns, as it is for some messages."""

    table: Table
    types: tuple[ColumnType, ...]
    key: tuple[int, ...]
    """The places of the key's columns."""
    number: int = 0
    """The number of the relation."""


@dataclass(frozen=True)
class Facts:
    """What is known of each message: its place among all changes, and the id and time of its transaction."""

    order: Places
    xids: Places
    at_us: Places


@dataclass
class Built:
    """Changes of one table, and what is wrong with them."""

    changes: Changes
    xids: Places
    misfits: list[Misfit] = field(default_factory=list)
    missing: dict[int, Mask] = field(default_factory=dict)
    """For columns with values that were not sent and that no old row has: in which rows."""


def build(shape: Shape, messages: Messages, facts: Facts, *, with_before: bool) -> Built:
    """The changes of messages. An update of the key is a deletion and an insertion."""
    operations = messages.operations
    message, use_old, moved = _rows(shape, messages)
    codes = np.where(operations == INSERT, 0, np.where(operations == DELETE, 2, 1))[message]
    codes = np.where(moved[message], np.where(use_old, 2, 0), codes)
    index = np.where(use_old, messages.new.count + messages.old_of[message], messages.new_of[message])
    is_plain = len(index) == messages.new.count and not use_old.any()
    columns, misfits, missing = [], list[Misfit](), dict[int, Mask]()
    before_columns = []
    filled = _filled_from(messages)
    for place, kind in enumerate(shape.types):
        values, bad = kind.array(messages.new.text(place))
        old, old_bad = kind.array(messages.old.text(place)) if messages.old.count else (values[:0], None)
        unsent = messages.new.unchanged(place) if messages.new.count else np.zeros(0, bool)
        if unsent.any():
            known = unsent & (filled >= 0)
            if known.any():
                source = np.where(known, messages.new.count + filled, np.arange(messages.new.count))
                values = pa.concat_arrays([values, old]).take(pa.array(source))
            unknown = unsent & ~known
            if unknown.any():
                missing[place] = ~use_old & unknown[np.maximum(messages.new_of[message], 0)]
        columns.append(values if is_plain else pa.concat_arrays([values, old]).take(pa.array(index)))
        for tuples, mask in ((messages.new, bad), (messages.old, old_bad)):
            if mask is not None:
                misfits += _misfits(shape, place, tuples, mask)
        if with_before and messages.old.count:
            whole = np.append(messages.old_is_whole, False)[messages.old_of[message]]
            before = np.where(whole & ~moved[message], messages.old_of[message], -1)
            before_columns.append(old.take(pa.array(before, mask=before < 0)))
    schema = shape.table.columns
    changes = Changes(
        table=shape.table,
        operations=_LETTERS.take(pa.array(codes)),
        rows=pa.RecordBatch.from_arrays(columns, schema=schema),
        at_us=pa.array(facts.at_us[message]),
        order=pa.array(facts.order[message]),
        before=pa.RecordBatch.from_arrays(before_columns, schema=schema) if before_columns else None,
        transaction=pc.cast(pa.array(facts.xids[message]), pa.string()),
        unchanged=_unchanged(shape, messages, message, use_old),
    )
    return Built(changes, facts.xids[message], misfits, missing)


def _rows(shape: Shape, messages: Messages) -> tuple[Places, Mask, Mask]:
    """For each row of the result its message, and whether it is the old one; and for each message whether its key moved."""
    moved = np.zeros(messages.count, bool)
    both = np.flatnonzero((messages.old_of >= 0) & (messages.new_of >= 0))
    if len(both) and shape.key:
        old, new = pa.array(messages.old_of[both]), pa.array(messages.new_of[both])
        for place in shape.key:
            # A large key that did not change is not sent again.
            differs = pc.not_equal(messages.old.text(place).take(old), messages.new.text(place).take(new))
            moved[both] |= pc.fill_null(differs, False).to_numpy(zero_copy_only=False)
    message = np.repeat(np.arange(messages.count), 1 + moved)
    is_first = np.ones(len(message), bool)
    is_first[1:] = message[1:] != message[:-1]
    use_old = (messages.operations == DELETE)[message] | (moved[message] & is_first)
    return message, use_old, moved


def _filled_from(messages: Messages) -> Places:
    """For each new row the whole old row of the same message; -1 if there is none."""
    of_message = messages.old_of[np.flatnonzero(messages.new_of >= 0)]
    if not messages.old.count:
        return of_message
    return np.where((of_message >= 0) & messages.old_is_whole[np.maximum(of_message, 0)], of_message, -1)


def _unchanged(shape: Shape, messages: Messages, message: Places, use_old: Mask) -> pa.Array | None:
    masks = [messages.new.unchanged(place) for place in range(len(shape.types))] if messages.new.count else []
    if not any(mask.any() for mask in masks):
        return None
    names = shape.table.columns.names
    new_of = messages.new_of[message]
    return pa.array(
        [
            [] if is_old else [name for name, mask in zip(names, masks, strict=True) if mask[place]]
            for is_old, place in zip(use_old, new_of, strict=True)
        ],
        pa.list_(pa.string()),
    )


def _misfits(shape: Shape, column: int, tuples: Tuples, bad: pa.Array) -> list[Misfit]:
    texts = [tuples.text(place) for place in range(len(shape.types))]
    why = _WHY.format(column=shape.table.columns.names[column], kind=shape.types[column].arrow)
    return [
        Misfit(table=shape.table.name, row=row_text(shape.table.columns.names, [text[row] for text in texts]), why=why)
        for row in np.flatnonzero(bad.to_numpy(zero_copy_only=False)).tolist()
    ]


def row_text(names: Sequence[str], values: Sequence[pa.Scalar]) -> str:
    return orjson.dumps({name: value.as_py() for name, value in zip(names, values, strict=True)}).decode()


def key_text(table: Table, rows: pa.RecordBatch) -> pa.Array:
    """The keys of rows as one column of text that tells any two keys apart: PostgreSQL's text holds no zero byte."""
    parts = [_as_text(rows.column(name)) for name in table.key]
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "\0")


def _as_text(values: pa.Array) -> pa.Array:
    if pa.types.is_binary(values.type) or pa.types.is_nested(values.type):
        return pa.array([None if one is None else repr(one) for one in values.to_pylist()], pa.string())
    return pc.cast(values, pa.string())

"""Schema evolution: changes that keep existing rows readable, and old rows under a new schema.

Invariant: for every change that `evolve` allows, `conform` can convert every row that was ever written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from headwater.errors import SchemaConflict
from headwater.schema.cast import cast_array, is_sequence
from headwater.schema.notation import format_field, format_type

ChangeKind = Literal["added", "widened", "made nullable", "made not null", "removed", "moved", "retyped"]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One difference between two schemas, and why it is refused, if it is.

    >>> print(Change(kind="widened", column="id", old="int32", new="int64"))
    id: widened from int32 to int64
    """

    kind: ChangeKind
    column: str
    old: str = ""
    new: str = ""
    refused: str = ""

    @property
    def description(self) -> str:
        """The change as text."""
        match self.kind:
            case "added":
                return f"{self.column}: added as {self.new}"
            case "removed":
                return f"{self.column}: removed ({self.old})"
            case "widened" | "retyped":
                return f"{self.column}: {self.kind} from {self.old} to {self.new}"
            case _:
                return f"{self.column}: {self.kind}"

    def __str__(self) -> str:
        return self.description


def evolve(topic: str, old: pa.Schema, new: pa.Schema, *, force: bool = False) -> list[Change]:
    """The changes from one schema to the next; raise `SchemaConflict` if existing rows could not be read any more.

    Columns may be added if they admit null, widened, made nullable and moved; with `force` they may also be removed,
    and readers then no longer see their values in old rows. Changes of key columns are checked by the caller.

    >>> old = pa.schema([("id", pa.int32())])
    >>> [str(change) for change in evolve("people", old, pa.schema([("id", pa.int64()), ("name", pa.string())]))]
    ['id: widened from int32 to int64', 'name: added as string']
    """
    changes = diff(old, new)
    for change in changes:
        if change.refused and not (force and change.kind == "removed"):
            raise SchemaConflict(topic=topic, column=change.column, why=change.refused)
    return changes


def diff(old: pa.Schema, new: pa.Schema) -> list[Change]:
    """All differences between two schemas, allowed or not, in the order of the new one, removals last.

    >>> [str(change) for change in diff(pa.schema([("a", pa.int64())]), pa.schema([("a", pa.int8())]))]
    ['a: retyped from int64 to int8']
    """
    return _diff_fields("", list(old), list(new))


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of the old type is also one of the new type, possibly without removed fields.

    >>> widens(pa.int8(), pa.int64()), widens(pa.int64(), pa.int8()), widens(pa.date32(), pa.timestamp("us", tz="UTC"))
    (True, False, True)
    """
    return all(change.kind != "retyped" for change in _diff_types("", old, new))


def _diff_fields(path: str, old: list[pa.Field], new: list[pa.Field]) -> list[Change]:
    before, after = {field.name: field for field in old}, {field.name: field for field in new}
    removed = [field for field in old if field.name not in after]
    added = [field for field in new if field.name not in before]
    rename = _rename(removed, added)
    changes: list[Change] = []
    for field in new:
        if field.name in before:
            changes += _diff_field(path + field.name, before[field.name], field)
        else:
            changes.append(_added(path, field, rename))
    for field in removed:
        why = rename or "was removed, and rows hold values there"
        changes.append(Change(kind="removed", column=path + field.name, old=format_type(field.type), refused=why))
    then, now = [name for name in before if name in after], [name for name in after if name in before]
    moved = [after_name for before_name, after_name in zip(then, now, strict=True) if before_name != after_name]
    return changes + [Change(kind="moved", column=path + name) for name in moved]


def _rename(removed: list[pa.Field], added: list[pa.Field]) -> str:
    if len(removed) == len(added) == 1 and removed[0].type == added[0].type:
        return f"looks like a rename of {removed[0].name!r} to {added[0].name!r}, and old rows would not follow it"
    return ""


def _added(path: str, field: pa.Field, rename: str) -> Change:
    # A rename is reported with the removal, so that `force` can allow it as a removal and an addition.
    why = "" if field.nullable or rename else "is new and not null, but rows already written have nothing there"
    if rename and not field.nullable:
        why = f"{rename}; also, it is new and not null"
    return Change(kind="added", column=path + field.name, new=format_field(field), refused=why)


def _diff_field(path: str, old: pa.Field, new: pa.Field) -> list[Change]:
    changes = _diff_types(path, old.type, new.type)
    if new.nullable and not old.nullable:
        changes.append(Change(kind="made nullable", column=path))
    if old.nullable and not new.nullable:
        why = "admitted null until now, so rows may hold it"
        changes.append(Change(kind="made not null", column=path, refused=why))
    return changes


def _diff_types(path: str, old: pa.DataType, new: pa.DataType) -> list[Change]:
    if old == new:
        return []
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return _diff_fields(f"{path}.", list(old), list(new))
    if pa.types.is_map(old) and pa.types.is_map(new) and old.key_type == new.key_type:
        return _diff_field(f"{path}{{}}", old.item_field, new.item_field)
    if _is_list(old) and _is_list(new) and not (pa.types.is_large_list(old) and pa.types.is_list(new)):
        return _diff_field(f"{path}[]", old.value_field, new.value_field) or [_widened(path, old, new)]
    if _widens_flat(old, new):
        return [_widened(path, old, new)]
    why = f"would change from {format_type(old)} to {format_type(new)}"
    why += ", which is narrower" if _widens_flat(new, old) else ""
    return [Change(kind="retyped", column=path, old=format_type(old), new=format_type(new), refused=why)]


def _is_list(kind: pa.DataType) -> bool:
    return is_sequence(kind) and not pa.types.is_map(kind)


def _widened(path: str, old: pa.DataType, new: pa.DataType) -> Change:
    return Change(kind="widened", column=path, old=format_type(old), new=format_type(new))


def _widens_flat(old: pa.DataType, new: pa.DataType) -> bool:
    types = pa.types
    if types.is_integer(old) and types.is_integer(new):
        if types.is_unsigned_integer(new):
            return bool(types.is_unsigned_integer(old) and new.bit_width > old.bit_width)
        return bool(new.bit_width > old.bit_width)
    if types.is_floating(new):
        # A float64 holds 53 bits of an integer exactly, a float32 holds 24.
        exact_bits = 53 if types.is_float64(new) else 24
        return bool(types.is_float32(old) or (types.is_integer(old) and old.bit_width <= exact_bits))
    if types.is_decimal(new) and types.is_decimal(old):
        return bool(new.scale == old.scale and new.precision >= old.precision and new.bit_width >= old.bit_width)
    if types.is_timestamp(new):
        # Nanoseconds end in 2262, dates later.
        return bool(types.is_date32(old) and new.unit != "ns")
    return (old, new) in _LONGER


_LONGER = {(pa.string(), pa.large_string()), (pa.binary(), pa.large_binary())}


def conform(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """The rows of a batch in a newer schema: widened columns are cast, added ones are null, removed ones are dropped.

    A column that was removed and later added again with a type that the old one does not widen to is a new column:
    it is null in old rows. A batch that has the schema already is returned as it is.

    >>> old = pa.record_batch({"a": pa.array([1], pa.int32()), "gone": [True]})
    >>> conform(old, pa.schema([("b", pa.string()), ("a", pa.int64())])).to_pylist()
    [{'b': None, 'a': 1}]
    """
    if batch.schema.equals(target):
        return batch
    return pa.RecordBatch.from_arrays([_conformed(batch, column) for column in target], schema=target)


def _conformed(batch: pa.RecordBatch, column: pa.Field) -> pa.Array:
    index = batch.schema.get_field_index(column.name)
    if index >= 0:
        array = batch.column(index)
        if array.type == column.type:
            return array
        if widens(array.type, column.type):
            return cast_array(array, column.type, drop=True)
    return pa.nulls(batch.num_rows, column.type)

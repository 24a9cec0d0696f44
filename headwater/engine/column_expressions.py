"""Columns that a reader computes as Spark would: simple expressions over the columns of a topic.

An expression is a tuple of an operation and its arguments, plain data that travels as JSON. Only what Arrow computes exactly as Spark does is
here, for nulls, NaN and the largest whole numbers too; whatever else a query computes stays Spark's.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine import packed_rows

# Any: literals of whichever type, and expressions within expressions.
Expression = tuple[Any, ...]
Values = Any
"""An array, or a scalar that is the value of all rows."""

#: Types of Spark's that expressions compute with, by the names that Spark has for them.
KINDS: Mapping[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
#: Operations that Arrow has under the same name. Those that are checked raise on a whole number that does not fit.
CHECKED = ("add_checked", "subtract_checked", "multiply_checked", "negate_checked", "abs_checked")
OF_ARROW = (
    *CHECKED,
    *("add", "subtract", "multiply", "divide", "negate", "abs"),
    *("equal", "less", "less_equal", "and_kleene", "or_kleene", "invert", "is_null", "is_valid", "coalesce"),
)


def column(name: str) -> Expression:
    """The expression that is a column of the topic."""
    return ("column", name)


def evaluated(expression: Expression, rows: pa.Table) -> Values:
    """The values of an expression: of each row, or one for all of them."""
    operation, *given = expression
    if operation == "column":
        return rows.column(given[0]).combine_chunks()
    if operation == "literal":
        value, kind = given
        return pa.scalar(value, KINDS[kind])
    if operation in OF_ARROW:
        return pc.call_function(operation, [evaluated(one, rows) for one in given])
    return _OPERATIONS[operation](rows, *given)


def as_array(values: Values, count: int, kind: pa.DataType) -> pa.Array:
    """Values as an array of a type."""
    if pa.types.is_null(values.type):
        return pa.nulls(count, kind)
    array = pa.repeat(values, count) if isinstance(values, pa.Scalar) else values
    return array if array.type == kind else array.cast(kind)


def within(expression: Expression) -> Iterator[Expression]:
    """An expression and all that it is made of."""
    yield expression
    for one in _parts(expression):
        yield from within(one)


def _parts(expression: Expression) -> tuple[Expression, ...]:
    operation, *given = expression
    if operation in ("column", "literal"):
        return ()
    if operation in ("cast", "narrow"):
        return (given[1],)
    if operation in ("remainder", "modulo", "quotient", "field", "is_in"):
        return (given[0],)
    if operation == "case":
        return (*given[0], given[1])
    if operation == "struct":
        return tuple(given[1])
    return tuple(given[0]) if operation in ("joined", "hash") else tuple(given)


def columns_in(expression: Expression) -> list[str]:
    """The columns of the topic that an expression needs.

    >>> columns_in(("add", ("column", "price"), ("literal", 1, "bigint")))
    ['price']
    """
    return [one[1] for one in within(expression) if one[0] == "column"]


def may_raise(expression: Expression) -> bool:
    """Whether some values have no result, such as sums that are too large: Spark raises then, too, but not for rows that it skips."""
    return any(one[0] in (*CHECKED, "narrow") for one in within(expression))


# -- operations that Arrow has not, or has otherwise than Spark -------------------------------------------------------


def _cast(rows: pa.Table, kind: str, of: Expression) -> Values:
    return evaluated(of, rows).cast(KINDS[kind], safe=False)


def _narrow(rows: pa.Table, kind: str, of: Expression) -> Values:
    return evaluated(of, rows).cast(KINDS[kind])


def _remainder(rows: pa.Table, of: Expression, divisor: int) -> Values:
    """With the sign of what is divided, as Java has it."""
    return _by_numpy(np.fmod, rows, of, divisor)


def _modulo(rows: pa.Table, of: Expression, divisor: int) -> Values:
    return _by_numpy(np.mod, rows, of, divisor)


def _quotient(rows: pa.Table, of: Expression, divisor: int) -> Values:
    """Without its fraction, as Java has it."""
    return _by_numpy(lambda values, by: (values - np.fmod(values, by)) // by, rows, of, divisor)


def _by_numpy(function: Callable[..., Any], rows: pa.Table, of: Expression, divisor: int) -> Values:
    values = evaluated(of, rows)
    array = as_array(values, rows.num_rows, values.type)
    missing = np.asarray(array.is_null()) if array.null_count else None
    numbers = np.asarray(array.fill_null(0) if missing is not None else array)
    return pa.array(function(numbers, numbers.dtype.type(divisor)), array.type, mask=missing)


def _float_equal(rows: pa.Table, left: Expression, right: Expression) -> Values:
    """NaN equals itself."""
    mine, other = evaluated(left, rows), evaluated(right, rows)
    return pc.or_kleene(pc.equal(mine, other), pc.and_kleene(pc.is_nan(mine), pc.is_nan(other)))


def _float_less(rows: pa.Table, left: Expression, right: Expression) -> Values:
    """NaN is greater than all other numbers."""
    mine, other = evaluated(left, rows), evaluated(right, rows)
    above = pc.and_kleene(pc.is_nan(other), pc.invert(pc.is_nan(mine)))
    return pc.or_kleene(pc.less(mine, other), above)


def _same(rows: pa.Table, equal: Expression, left: Expression, right: Expression) -> Values:
    """Equal, or both null; never null itself."""
    gone = [pc.is_null(evaluated(one, rows)) for one in (left, right)]
    known = pc.fill_null(evaluated(equal, rows), False)
    return pc.or_(known, pc.and_(*gone))


def _is_in(rows: pa.Table, of: Expression, values: tuple[Any, ...], kind: str) -> Values:
    found = evaluated(of, rows)
    array = as_array(found, rows.num_rows, found.type)
    inside = pc.is_in(array, value_set=pa.array(list(values), KINDS[kind]))
    return pc.if_else(pc.is_valid(array), inside, pa.scalar(None, pa.bool_()))


def _case(rows: pa.Table, branches: tuple[Expression, ...], otherwise: Expression) -> Values:
    """The value of the first condition that holds; conditions and their values take turns in `branches`."""
    found = evaluated(otherwise, rows)
    for condition, value in reversed(list(zip(branches[::2], branches[1::2], strict=True))):
        holds = pc.fill_null(evaluated(condition, rows), False)
        found = pc.if_else(holds, evaluated(value, rows), found)
    return found


def _field(rows: pa.Table, of: Expression, place: int) -> Values:
    return pc.struct_field(evaluated(of, rows), [place])


def _struct(rows: pa.Table, names: tuple[str, ...], values: tuple[Expression, ...]) -> Values:
    arrays = [evaluated(one, rows) for one in values]
    return pa.StructArray.from_arrays([as_array(one, rows.num_rows, one.type) for one in arrays], names=list(names))


def _joined(rows: pa.Table, parts: tuple[Expression, ...]) -> Values:
    return pc.binary_join_element_wise(*(evaluated(one, rows) for one in parts), "", null_handling="emit_null")


def _hash(rows: pa.Table, parts: tuple[Expression, ...]) -> Values:
    """Spark's `xxhash64`."""
    found = [evaluated(one, rows) for one in parts]
    columns = [pa.chunked_array([as_array(one, rows.num_rows, one.type)]) for one in found]
    return pa.array(packed_rows.hashes_of(columns).view(np.int64))


_OPERATIONS: Mapping[str, Callable[..., Values]] = {
    "cast": _cast,
    "narrow": _narrow,
    "remainder": _remainder,
    "modulo": _modulo,
    "quotient": _quotient,
    "float_equal": _float_equal,
    "float_less": _float_less,
    "same": _same,
    "is_in": _is_in,
    "case": _case,
    "field": _field,
    "struct": _struct,
    "joined": _joined,
    "hash": _hash,
}


# -- what a reader makes of a topic's rows ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    """Rows of a topic that fit conditions, with columns made of those of the topic."""

    #: The columns that are read of the topic.
    read: pa.Schema
    #: The conditions, the first one first: none is asked of rows that an earlier one has left out.
    where: tuple[Expression, ...]
    columns: tuple[tuple[str, Expression], ...]
    #: What comes out.
    made: pa.Schema

    @staticmethod
    def of(
        topic: pa.Schema, where: tuple[Expression, ...], columns: Mapping[str, Expression], made: pa.Schema
    ) -> Selection:
        """What makes the columns of `made` of a topic; of these it reads no more than it needs."""
        chosen = tuple((name, columns[name]) for name in made.names)
        needed = dict.fromkeys(name for one in (*(each for _, each in chosen), *where) for name in columns_in(one))
        # Rows without any column have no number.
        names = list(needed) or topic.names[:1]
        return Selection(pa.schema([topic.field(name) for name in names]), where, chosen, made)

    @staticmethod
    def whole(rows: pa.Schema) -> Selection:
        """All columns as they are."""
        return Selection(rows, (), tuple((name, column(name)) for name in rows.names), rows)

    def __call__(self, rows: pa.Table) -> pa.Table:
        for condition in self.where:
            holds = evaluated(condition, rows)
            # What is null does not hold.
            rows = rows.filter(as_array(holds, rows.num_rows, pa.bool_()))
        arrays = []
        for field, (_, expression) in zip(self.made, self.columns, strict=True):
            if expression[0] == "column":
                whole = rows.column(expression[1])
                arrays.append(whole if whole.type == field.type else whole.cast(field.type))
            else:
                arrays.append(as_array(evaluated(expression, rows), rows.num_rows, field.type))
        return pa.table(arrays, schema=self.made)

    # Any, here and below: JSON.
    def to_json(self) -> dict[str, Any]:
        return {
            "read": _schema_text(self.read),
            "where": self.where,
            "columns": self.columns,
            "made": _schema_text(self.made),
        }

    @staticmethod
    def of_json(body: Mapping[str, Any]) -> Selection:
        return Selection(
            _schema_of(body["read"]), as_tuples(body["where"]), as_tuples(body["columns"]), _schema_of(body["made"])
        )


def as_tuples(value: Any) -> Any:
    """Lists as tuples, as expressions have them.

    >>> as_tuples(["add", ["column", "a"], ["literal", 1, "int"]])
    ('add', ('column', 'a'), ('literal', 1, 'int'))
    """
    return tuple(as_tuples(one) for one in value) if isinstance(value, list | tuple) else value


def _schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def _schema_of(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))

"""Types of PostgreSQL as Arrow types, and values as PostgreSQL writes them as Arrow arrays.

A value that its Arrow type cannot hold (a date before the year 1 or behind 9999, `infinity`, the numeric `NaN`, 24:00, an array of
several dimensions) becomes null, and its row is a misfit: it is told, and the other columns of the row stay right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.capture.postgres.array_text import parse_arrays

Convert = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class CatalogueType:
    """A row of `pg_type`."""

    name: str
    kind: str
    """b (base), e (enum), d (domain), r (range), m (multirange), c (composite), p (pseudo)."""
    base: int = 0
    modifier: int = -1
    element: int = 0
    """The type of an array's items; 0 if it is no array."""


@dataclass(frozen=True)
class ColumnType:
    """The Arrow type of a column, and how the text of its values is converted."""

    arrow: pa.DataType
    convert: Convert
    fits: str | None = None
    """What the text of a value looks like that Arrow can hold; None if it holds all."""
    binary: bool = False
    """Whether ADBC returns the same Arrow type, so that a snapshot need not read text."""
    note: str = ""
    item: ColumnType | None = field(default=None)

    def array(self, text: pa.Array) -> tuple[pa.Array, pa.BooleanArray | None]:
        """Convert text; return also which values did not fit and are null, if there are any."""
        try:
            return self.convert(text), None
        except (pa.ArrowInvalid, ValueError):
            if self.item is not None:
                return parse_arrays(text, self.item.arrow, self.item.array)
            if self.fits is None:
                raise
        fits = pc.match_substring_regex(text, self.fits)
        fitting = pc.if_else(pc.fill_null(fits, False), text, pa.scalar(None, pa.string()))
        return self.convert(fitting), pc.fill_null(pc.invert(fits), False)


def _cast(kind: pa.DataType) -> Convert:
    return lambda text: pc.cast(text, kind)


def _bool(text: pa.Array) -> pa.Array:
    return pc.equal(text, "t")


def _time(text: pa.Array) -> pa.Array:
    moments = pc.cast(pc.binary_join_element_wise("1970-01-01", text, " "), pa.timestamp("us"))
    return pc.cast(moments, pa.int64()).view(pa.time64("us"))


_NIBBLES = np.full(256, 255, np.uint8)
for _digit in range(16):
    _NIBBLES[ord(f"{_digit:x}")] = _digit


def _bytea(text: pa.Array) -> pa.Array:
    r"""Convert \x0aff… to bytes: two digits each, for all values at once."""
    count = len(text)
    is_valid = text.is_valid().to_numpy(zero_copy_only=False)
    _, offsets, data = text.buffers()
    places = np.frombuffer(offsets, np.int32)[text.offset : text.offset + count + 1] if count else np.zeros(1, np.int32)
    characters = np.frombuffer(data if data is not None else b"", np.uint8)
    starts, lengths = places[:-1][is_valid], np.diff(places)[is_valid]
    is_digit = np.zeros(len(characters) + 1, np.int8)
    np.add.at(is_digit, starts + 2, 1)
    np.add.at(is_digit, starts + lengths, -1)
    nibbles = _NIBBLES[characters[np.cumsum(is_digit[:-1], dtype=np.int8).astype(bool)]]
    sizes = np.zeros(count + 1, np.int32)
    sizes[1:][is_valid] = (lengths - 2) // 2
    validity = None if is_valid.all() else pa.array(is_valid).buffers()[1]
    values = (nibbles[0::2] << 4) | nibbles[1::2]
    return pa.Array.from_buffers(
        pa.binary(), count, [validity, pa.py_buffer(np.cumsum(sizes, dtype=np.int32)), pa.py_buffer(values)]
    )


_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
TEXT = ColumnType(pa.string(), lambda text: text)
_PLAIN: Mapping[str, ColumnType] = {
    "int2": ColumnType(pa.int16(), _cast(pa.int16()), binary=True),
    "int4": ColumnType(pa.int32(), _cast(pa.int32()), binary=True),
    "int8": ColumnType(pa.int64(), _cast(pa.int64()), binary=True),
    "oid": ColumnType(pa.int64(), _cast(pa.int64())),
    "float4": ColumnType(pa.float32(), _cast(pa.float32()), binary=True),
    "float8": ColumnType(pa.float64(), _cast(pa.float64()), binary=True),
    "bool": ColumnType(pa.bool_(), _bool, binary=True),
    "bytea": ColumnType(pa.binary(), _bytea, binary=True),
    "date": ColumnType(pa.date32(), _cast(pa.date32()), fits=_DAY + "$", binary=True),
    "time": ColumnType(pa.time64("us"), _time, fits="^([01]|2[0-3])", binary=True),
    "timestamp": ColumnType(pa.timestamp("us"), _cast(pa.timestamp("us")), fits=_DAY + "[^BC]*$", binary=True),
    "timestamptz": ColumnType(
        pa.timestamp("us", "UTC"), _cast(pa.timestamp("us", "UTC")), fits=_DAY + "[^BC]*$", binary=True
    ),
    # Blanks at the end mean nothing in char(n), and are not in its text.
    "bpchar": ColumnType(pa.string(), lambda text: pc.utf8_rtrim(text, " ")),
    "text": ColumnType(pa.string(), TEXT.convert, binary=True),
    "varchar": ColumnType(pa.string(), TEXT.convert, binary=True),
}
#: Types whose text is their value for most programs; they are kept as text without a warning.
_TEXTS = frozenset(
    [
        "char",
        "name",
        "uuid",
        "json",
        "jsonb",
        "interval",
        "timetz",
        "inet",
        "cidr",
        "macaddr",
        "macaddr8",
        "xml",
        "money",
        "bit",
        "varbit",
        "tsvector",
        "tsquery",
        "citext",
        "hstore",
        "ltree",
        "regclass",
        "regtype",
    ]
)


def column_type(number: int, modifier: int, catalogue: Mapping[int, CatalogueType]) -> ColumnType:
    """The type of a column that has a number in `pg_type`.

    >>> types = {23: CatalogueType("int4", "b"), 1007: CatalogueType("_int4", "b", element=23), 1700: CatalogueType("numeric", "b")}
    >>> str(column_type(1007, -1, types).arrow), str(column_type(1700, (12 << 16 | 2) + 4, types).arrow)
    ('list<item: int32>', 'decimal128(12, 2)')
    """
    known = catalogue.get(number)
    if known is None:
        return ColumnType(pa.string(), TEXT.convert, note=f"type {number} is not known any more, and is kept as text")
    if known.kind == "d":
        return column_type(known.base, known.modifier, catalogue)
    if known.element:
        item = column_type(known.element, modifier, catalogue)
        return ColumnType(pa.list_(item.arrow), _refuse, item=item, note=item.note)
    if known.name == "numeric":
        return _numeric(modifier)
    if known.name in _PLAIN:
        return _PLAIN[known.name]
    if known.name in _TEXTS or known.kind in "erm":
        return TEXT
    return ColumnType(pa.string(), TEXT.convert, note=f"type {known.name} is kept as text")


def _refuse(_text: pa.Array) -> pa.Array:
    raise ValueError  # arrays are parsed by their own module, which knows which of them fit


def _numeric(modifier: int) -> ColumnType:
    """Numbers with a declared precision are decimals; without one they may have 131,072 digits, and are text."""
    if modifier < 4:
        return TEXT
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, ((modifier - 4) & 0x7FF ^ 1024) - 1024
    precision, scale = max(precision, scale) if scale >= 0 else precision - scale, max(scale, 0)
    if precision > 76:
        return TEXT
    kind = pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    return ColumnType(kind, _cast(kind), fits="^[-+0-9.]+$")

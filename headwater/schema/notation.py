"""The text form of a type, `list<struct<a: int32 not null>>`, with the names of Arrow, SQL and Python.

Two invariants, both tested as laws: every supported type has one text, and parsing that text gives the type back. Widths
are explicit; the names that Python also has (`int`, `float`) have Python's 64 bits, so a schema given as text never holds
less than the same schema given as annotations.
"""

from __future__ import annotations

import difflib
import re
import zoneinfo
from collections.abc import Callable
from typing import NoReturn

import pyarrow as pa

PLAIN_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "date": pa.date32(),
}

ALIASES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int64(),
    "integer": pa.int64(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "str": pa.string(),
    "text": pa.string(),
    "utf8": pa.string(),
    "large_utf8": pa.large_string(),
    "bytes": pa.binary(),
    "date32": pa.date32(),
    "datetime": pa.timestamp("us", tz="UTC"),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "time": pa.time64("us"),
    "duration": pa.duration("us"),
    "decimal": pa.decimal128(38, 18),
}

_NAMES_OF_PLAIN_TYPES = {kind: name for name, kind in PLAIN_TYPES.items()}
_FAMILIES = ("timestamp", "decimal", "list", "large_list", "struct", "map", "time32", "time64", "duration")
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|([^\s<>\[\](),:`]+)|([<>\[\](),:]))")
_BARE_NAME = re.compile(r"[^\W\d]\w*\Z")
_OFFSET = re.compile(r"[+-]\d\d:\d\d\Z")


def nearest(word: str, words: list[str]) -> str:
    """A hint for a name that was probably mistyped; empty if no word is similar.

    >>> nearest("stirng", ["int64", "string"])
    "; did you mean 'string'?"
    """
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def format_type(kind: pa.DataType) -> str:
    """The text of a type, which `parse_type` parses.

    >>> format_type(pa.list_(pa.struct([pa.field("a", pa.int32(), nullable=False), ("at", pa.timestamp("us", "UTC"))])))
    'list<struct<a: int32 not null, at: timestamp>>'
    """
    if (name := _NAMES_OF_PLAIN_TYPES.get(kind)) is not None:
        return name
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind == ALIASES["timestamp"] else str(kind)
    if pa.types.is_decimal(kind):
        return f"decimal{'256' if kind.bit_width == 256 else ''}({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{format_name(part.name)}: {format_field(part)}' for part in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{format_type(kind.key_type)}, {format_field(kind.item_field)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"{'large_' if pa.types.is_large_list(kind) else ''}list<{format_field(kind.value_field)}>"
    return str(kind)


def format_field(field: pa.Field) -> str:
    """The text of a field's type, with `not null` if it does not admit null."""
    return format_type(field.type) + ("" if field.nullable else " not null")


def format_name(name: str) -> str:
    """A name in the text of a schema: bare if possible, in backticks otherwise.

    >>> format_name("at"), format_name("unit price"), format_name("a`b")
    ('at', '`unit price`', '`a``b`')
    """
    return name if _BARE_NAME.match(name) else "`" + name.replace("`", "``") + "`"


def parse_type(text: str) -> tuple[pa.DataType, bool]:
    """Parse a type, and whether it admits null. Raise `ValueError` with the reason.

    >>> parse_type("decimal(12, 2) not null")
    (Decimal128Type(decimal128(12, 2)), False)
    """
    reader = _Reader(text)
    kind, nullable = reader.typed()
    reader.end()
    return kind, nullable


def parse_columns(text: str) -> list[pa.Field]:
    """Parse columns such as `id int64 not null, tags list<string>`. Raise `ValueError` with the reason.

    >>> [str(column) for column in parse_columns("id int64 not null, tags list<string>")]
    ['pyarrow.Field<id: int64 not null>', 'pyarrow.Field<tags: list<item: string>>']
    """
    reader = _Reader(text)
    columns = reader.fields()
    reader.end()
    return columns


class _Reader:
    """A recursive-descent parser with one token of look-ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._position = 0

    def peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if not token or (expected is not None and token != expected):
            self._fail(f"{expected!r}" if expected else "more")
        self._position += 1
        return token

    def taken(self, token: str) -> bool:
        if self.peek().lower() != token:
            return False
        self._position += 1
        return True

    def end(self) -> None:
        if self.peek():
            self._fail("the end" if self.peek() not in _BRACKETS_OPEN else "a type that takes arguments")

    def _fail(self, expected: str) -> NoReturn:
        raise ValueError(f"expected {expected} in {self._text!r}, found {self.peek() or 'the end'!r}")

    def name(self) -> str:
        token = self.take()
        if token in _PUNCTUATION:
            raise ValueError(f"expected a column name in {self._text!r}, found {token!r}")
        return token[1:-1].replace("``", "`") if token.startswith("`") else token

    def skip_label(self) -> None:
        """Skip the name of a list's item, which Arrow prints, as in `list<item: string>`."""
        if self._tokens[self._position + 1 : self._position + 2] == [":"]:
            self._position += 2

    def fields(self) -> list[pa.Field]:
        columns = [self.field()]
        while self.taken(","):
            columns.append(self.field())
        return columns

    def field(self) -> pa.Field:
        name = self.name()
        self.taken(":")
        kind, nullable = self.typed()
        return pa.field(name, kind, nullable=nullable)

    def typed(self) -> tuple[pa.DataType, bool]:
        kind = self.type()
        if self.taken("not"):
            if not self.taken("null"):
                self._fail("'null' after 'not'")
            return kind, False
        self.taken("null")
        return kind, True

    def type(self) -> pa.DataType:
        word = self.take().lower()
        if (build := _PARAMETRIC.get(word)) is not None and (self.peek() in _BRACKETS_OPEN or word not in ALIASES):
            return build(self)
        kind = PLAIN_TYPES.get(word, ALIASES.get(word))
        if kind is None:
            raise ValueError(f"there is no type {word!r}{nearest(word, [*PLAIN_TYPES, *ALIASES, *_FAMILIES])}")
        return kind

    def number(self) -> int:
        token = self.take()
        if not re.fullmatch(r"-?\d{1,4}", token):
            raise ValueError(f"expected a number in {self._text!r}, found {token!r}")
        return int(token)

    def between(self, opening: str) -> str:
        """The text up to the closing bracket."""
        self.take(opening)
        parts = []
        while self.peek() not in {"]", ""}:
            parts.append(self.take())
        self.take("]")
        return "".join(parts)


_BRACKETS_OPEN = frozenset("<[(")
_PUNCTUATION = frozenset("<>[](),:")


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"{text[position : position + 10]!r} is not closed in {text!r}")
        tokens.append(match.group().lstrip())
        position = match.end()
    return tokens


def _read_timestamp(reader: _Reader) -> pa.DataType:
    inside = reader.between("[")
    unit, _, zone = inside.partition(",tz=")
    if unit not in {"s", "ms", "us", "ns"}:
        raise ValueError(f"a timestamp has the units s, ms, us, ns, as in 'timestamp[us, tz=UTC]', not {inside!r}")
    if zone:
        check_zone(zone)
    return pa.timestamp(unit, tz=zone or None)


def check_zone(zone: str) -> None:
    """Raise `ValueError` unless the time zone is known.

    >>> check_zone("Europe/Zurich"), check_zone("+05:30")
    (None, None)
    """
    if _OFFSET.match(zone):
        return
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"there is no time zone {zone!r}") from error


def _read_decimal(reader: _Reader, *, bits: int = 0) -> pa.DataType:
    reader.take("(")
    precision = reader.number()
    scale = reader.number() if reader.taken(",") else 0
    reader.take(")")
    bits = bits or (128 if precision <= 38 else 256)
    if not 1 <= precision <= (38 if bits == 128 else 76):
        raise ValueError(f"a decimal has 1 to {38 if bits == 128 else 76} digits, not {precision}")
    if not 0 <= scale <= precision:
        raise ValueError(f"a decimal({precision},…) has a scale of 0 to {precision}, not {scale}")
    return pa.decimal128(precision, scale) if bits == 128 else pa.decimal256(precision, scale)


def _read_list(reader: _Reader, *, large: bool = False) -> pa.DataType:
    reader.take("<")
    reader.skip_label()
    kind, nullable = reader.typed()
    reader.take(">")
    item = pa.field("item", kind, nullable=nullable)
    return pa.large_list(item) if large else pa.list_(item)


def _read_struct(reader: _Reader) -> pa.DataType:
    reader.take("<")
    fields = reader.fields()
    reader.take(">")
    return pa.struct(fields)


def _read_map(reader: _Reader) -> pa.DataType:
    reader.take("<")
    key, _ = reader.typed()
    reader.take(",")
    kind, nullable = reader.typed()
    reader.take(">")
    return pa.map_(key, pa.field("value", kind, nullable=nullable))


def _read_fixed_size_binary(reader: _Reader) -> pa.DataType:
    reader.take("[")
    size = reader.number()
    reader.take("]")
    if size < 1:
        raise ValueError(f"a fixed_size_binary has at least 1 byte, not {size}")
    return pa.binary(size)


def _read_unit(
    word: str, units: tuple[str, ...], build: Callable[[str], pa.DataType]
) -> Callable[[_Reader], pa.DataType]:
    def read(reader: _Reader) -> pa.DataType:
        reader.take("[")
        unit = reader.take()
        if unit not in units:
            raise ValueError(f"a {word} has the units {', '.join(units)}, not {unit!r}")
        reader.take("]")
        return build(unit)

    return read


_PARAMETRIC: dict[str, Callable[[_Reader], pa.DataType]] = {
    "timestamp": _read_timestamp,
    "decimal": _read_decimal,
    "decimal128": lambda reader: _read_decimal(reader, bits=128),
    "decimal256": lambda reader: _read_decimal(reader, bits=256),
    "list": _read_list,
    "large_list": lambda reader: _read_list(reader, large=True),
    "struct": _read_struct,
    "map": _read_map,
    "date32": _read_unit("date32", ("day",), lambda _: pa.date32()),
    "fixed_size_binary": _read_fixed_size_binary,
    "time32": _read_unit("time32", ("s", "ms"), pa.time32),
    "time64": _read_unit("time64", ("us", "ns"), pa.time64),
    "duration": _read_unit("duration", ("s", "ms", "us", "ns"), pa.duration),
}

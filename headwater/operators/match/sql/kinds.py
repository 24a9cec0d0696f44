"""The types of values in conditions and measures: what can be compared, added, and counted."""

from __future__ import annotations

import pyarrow as pa

NUMBER, TEXT, BOOLEAN, TIME, LENGTH, ANYTHING = (
    "a number",
    "a text",
    "a boolean",
    "a time",
    "a length of time",
    "anything",
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


COMPARED = ("=", "<>", "<", "<=", ">", ">=", "<=>")
#: Functions whose type is known; all others are left to Spark.
TEXTS = _words("upper lower trim ltrim rtrim concat concat_ws substring substr replace lpad rpad repeat hex")
WHOLES = _words("length char_length instr locate sign year month day hour minute second div date_part")
REALS = _words("sqrt exp ln log log10 log2 power pow sin cos tan")
SAME = _words("abs negative coalesce least greatest nullif nvl ifnull")
TRUTHS = _words("and or not is_null in like ilike rlike startswith endswith contains isnull isnotnull")


def family(kind: pa.DataType | None) -> str:
    """What a value of this type can be compared with."""
    if kind is None or pa.types.is_null(kind):
        return ANYTHING
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return NUMBER
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return TEXT
    if pa.types.is_boolean(kind):
        return BOOLEAN
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return TIME
    return LENGTH if pa.types.is_duration(kind) else f"of type {kind}"


def fits(*families: str) -> bool:
    """Whether values of these families can stand beside one another."""
    return len({one for one in families if one != ANYTHING}) <= 1


def joint(kinds: list[pa.DataType | None]) -> pa.DataType | None:
    """The type that holds all of these."""
    known = [kind for kind in kinds if kind is not None and not pa.types.is_null(kind)]
    if len(known) < len(kinds) and None in kinds:
        return None
    if not known:
        return pa.null()
    if family(known[0]) == NUMBER:
        return _number(known)
    return known[0]


def _number(kinds: list[pa.DataType]) -> pa.DataType:
    if any(pa.types.is_floating(kind) for kind in kinds):
        return pa.float64()
    decimal = next((kind for kind in kinds if pa.types.is_decimal(kind)), None)
    return decimal if decimal is not None else pa.int64()


def calculated(name: str, left: pa.DataType | None, right: pa.DataType | None) -> pa.DataType | str | None:
    """The type of a + b and the like, or as a text why it has none."""
    sides = (family(left), family(right))
    if ANYTHING in sides:
        return None if None in (left, right) else joint([left, right])
    if sides == (NUMBER, NUMBER):
        return pa.float64() if name == "/" else joint([left, right])
    if name == "-" and sides == (TIME, TIME):
        return pa.duration("us")
    if name in "+-" and sides == (TIME, LENGTH):
        return left
    if name == "+" and sides == (LENGTH, TIME):
        return right
    if name in "+-" and sides == (LENGTH, LENGTH):
        return left
    if name in "*/" and sides == (LENGTH, NUMBER):
        return left
    return f"{sides[0]} and {sides[1]} cannot be put together with {name}"


def folded(name: str, of: pa.DataType | None) -> pa.DataType | str | None:
    """The type of an aggregate, or as a text why it has none."""
    if name == "count":
        return pa.int64()
    if name == "array_agg":
        return None if of is None else pa.list_(of)
    if name in ("sum", "avg", "stddev"):
        if family(of) not in (NUMBER, ANYTHING, LENGTH):
            return f"{name.upper()} of {family(of)}"
        if name == "sum":
            return joint([of]) if family(of) == NUMBER else of
        return of if family(of) == LENGTH else pa.float64()
    return of

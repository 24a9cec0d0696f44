"""Constants in SQL: numbers, texts, moments and lengths of time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from headwater.operators.match.expression import Constant

Refuse = Callable[[str, str], Exception]

UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}


# Any: sqlglot's nodes, told apart by the names of their classes.
def is_constant(node: Any) -> bool:
    kind = type(node).__name__
    if kind in ("Neg", "Cast", "TryCast"):
        return type(node.this).__name__ == "Literal" and (kind == "Neg" or _is_written(node))
    return kind in ("Literal", "Boolean", "Null", "Interval")


def _is_written(node: Any) -> bool:
    """DATE '…' and 5L come as casts of constants; CAST('5' AS INT) is a real one."""
    name = node.args["to"].this.name
    if node.this.is_string:
        return type(node).__name__ == "Cast" and name in ("DATE", "TIMESTAMPTZ", "TIMESTAMP")
    return name in ("BIGINT", "DOUBLE")


def constant(node: Any, refuse: Refuse) -> Constant:
    """What is written, with its type; an error where it cannot be."""
    kind = type(node).__name__
    if kind == "Null":
        return Constant(None, pa.null())
    if kind == "Boolean":
        return Constant(bool(node.this), pa.bool_())
    if kind == "Interval":
        return Constant(_interval(node, refuse), pa.duration("us"))
    if kind == "Neg":
        inner = _literal(node.this)
        return Constant(-inner.value, inner.kind)  # type: ignore[operator]  # a number: the text has no sign
    if kind in ("Cast", "TryCast"):
        return _cast(node, refuse)
    return _literal(node)


def _literal(node: Any) -> Constant:
    if node.is_string:
        return Constant(str(node.this), pa.string())
    text = str(node.this)
    return Constant(int(text), pa.int64()) if text.isdigit() else Constant(float(text), pa.float64())


def _cast(node: Any, refuse: Refuse) -> Constant:
    name, text = node.args["to"].this.name, str(node.this.this)
    if name == "DOUBLE":
        return Constant(float(text), pa.float64())
    if name == "BIGINT":
        return Constant(int(text), pa.int64())
    try:
        if name == "DATE":
            return Constant((date.fromisoformat(text) - date(1970, 1, 1)).days, pa.date32())
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise refuse(f"{text!r} is no moment", "one such as '2026-03-01 12:30:00'") from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return Constant((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds, pa.timestamp("us", "UTC"))


def _interval(node: Any, refuse: Refuse) -> int:
    unit = node.args.get("unit")
    name = str(unit.name).upper().removesuffix("S") if unit is not None and type(unit).__name__ == "Var" else ""
    text = str(node.this.name) if node.this is not None else ""
    try:
        length = Decimal(text) * UNITS[name]
    except (KeyError, InvalidOperation) as error:
        units = ", ".join(UNITS)
        raise refuse("this is no length of time", f"one such as INTERVAL '10' MINUTE, in {units}") from error
    if length != length.to_integral_value():
        raise refuse(f"{text} {name} is no whole number of microseconds", "a length without a smaller part")
    return int(length)

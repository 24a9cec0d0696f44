"""From Spark's expressions to those that a reader computes; `None` for what only Spark computes as Spark does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headwater.engine import packed_rows
from headwater.engine.column_expressions import KINDS, Expression, may_raise

INTEGERS = ("tinyint", "smallint", "int", "bigint")
FLOATS = ("float", "double")
#: Types whose values Arrow compares as Spark does.
COMPARED = (*INTEGERS, "boolean", "string", "date", "timestamp", "timestamp_ntz")
ARITHMETIC = {"Add": "add", "Subtract": "subtract", "Multiply": "multiply", "UnaryMinus": "negate", "Abs": "abs"}
#: Comparisons by what they are of their arguments, which some of them swap.
COMPARISONS = {
    "EqualTo": ("equal", False),
    "LessThan": ("less", False),
    "GreaterThan": ("less", True),
    "LessThanOrEqual": ("less_equal", False),
    "GreaterThanOrEqual": ("less_equal", True),
}
LOGIC = {"And": "and_kleene", "Or": "or_kleene", "Not": "invert"}
XXHASH_SEED = 42

# Any, in this module: expressions and plans of Spark's, which have no Python face.
Columns = Mapping[int | str, Expression]
"""What is known already: columns by Spark's numbers, and what several parts of an expression share by its name."""


def listed(found: Any) -> list[Any]:
    """A sequence of Scala's as a list."""
    return [found.apply(number) for number in range(found.length())]


def translated(expression: Any, columns: Columns) -> Expression | None:
    """An expression of Spark's over columns that are known by Spark's numbers."""
    kind = str(expression.getClass().getSimpleName())
    if kind == "AttributeReference":
        return columns.get(expression.exprId().id())
    if kind == "Literal":
        return _literal(expression)
    if kind == "CommonExpressionRef":
        return columns.get(str(expression.id().toString()))
    if kind == "With":
        return _with_common(expression, columns)
    translate = _TRANSLATIONS.get(kind)
    if translate is None:
        return None
    given = [translated(one, columns) for one in listed(expression.children())]
    parts = [one for one in given if one is not None]
    return translate(kind, expression, parts) if len(parts) == len(given) else None


def _with_common(expression: Any, columns: Columns) -> Expression | None:
    """An expression whose parts share others, as those of BETWEEN do."""
    known = dict(columns)
    for one in listed(expression.defs()):
        shared = translated(one.child(), columns)
        if shared is not None:
            known[str(one.id().toString())] = shared
    return translated(expression.child(), known)


def conditions(expression: Any, columns: Columns) -> tuple[Expression, ...] | None:
    """The conditions that a condition demands together, in their order."""
    if expression.getClass().getSimpleName() == "And":
        sides = [conditions(one, columns) for one in (expression.left(), expression.right())]
        return None if sides[0] is None or sides[1] is None else (*sides[0], *sides[1])
    found = translated(expression, columns)
    return None if found is None else (found,)


def _kind(expression: Any) -> str:
    return str(expression.dataType().catalogString())


def _literal(expression: Any) -> Expression | None:
    kind = _kind(expression)
    if kind not in KINDS:
        return None
    value = expression.value()
    return ("literal", str(value) if kind == "string" and value is not None else value, kind)


def _plain(_kind_of: str, _expression: Any, given: Sequence[Expression]) -> Expression | None:
    return given[0]


def _arithmetic(name: str, expression: Any, given: Sequence[Expression]) -> Expression | None:
    kind, operation = _kind(expression), ARITHMETIC[name]
    if kind in FLOATS:
        return (operation, *given)
    if kind not in INTEGERS:
        return None
    strict = _is_strict(expression)
    return None if strict is None else (f"{operation}_checked" if strict else operation, *given)


def _is_strict(expression: Any) -> bool | None:
    """Whether a number that does not fit is an error; None where it is null."""
    if str(expression.getClass().getSimpleName()) in ("UnaryMinus", "Abs"):
        return bool(expression.failOnError())
    return {"ANSI": True, "LEGACY": False}.get(str(expression.evalMode().toString()))


def _remainder(name: str, expression: Any, given: Sequence[Expression]) -> Expression | None:
    # A divisor of 0 is an error or null, and -1 has a result that does not fit: both are Spark's.
    value, number = given[0], _constant(given[1])
    if _kind(expression) not in INTEGERS or not isinstance(number, int) or number <= 0:
        return None
    return ("remainder" if name == "Remainder" else "modulo", value, number)


def _constant(expression: Expression) -> Any:
    """The whole number that a literal is, under casts that widen it."""
    while expression[0] == "cast":
        expression = expression[2]
    value = expression[1] if expression[0] == "literal" else None
    return None if isinstance(value, bool) else value


def _whole_quotient(_name: str, expression: Any, given: Sequence[Expression]) -> Expression | None:
    divisor = _constant(given[1])
    kinds = {_kind(one) for one in (expression.left(), expression.right())}
    return ("quotient", given[0], divisor) if kinds == {"bigint"} and isinstance(divisor, int) and divisor > 0 else None


def _micros(_name: str, _expression: Any, given: Sequence[Expression]) -> Expression | None:
    return ("cast", "bigint", given[0])


def _divide(_name: str, expression: Any, given: Sequence[Expression]) -> Expression | None:
    divisor = _constant(given[1])
    if _kind(expression) != "double" or not isinstance(divisor, int | float) or not divisor:
        return None
    return ("divide", *given)


def _comparison(name: str, expression: Any, given: Sequence[Expression]) -> Expression | None:
    operation, swapped = COMPARISONS[name]
    return _compared(operation, _kind(expression.left()), (given[1], given[0]) if swapped else (given[0], given[1]))


def _compared(operation: str, kind: str, pair: tuple[Expression, Expression]) -> Expression | None:
    if kind in COMPARED:
        return (operation, *pair)
    if kind not in FLOATS:
        return None
    if operation == "less_equal":
        return ("or_kleene", ("float_less", *pair), ("float_equal", *pair))
    return (f"float_{operation}", *pair)


def _same(_name: str, expression: Any, given: Sequence[Expression]) -> Expression | None:
    equal = _compared("equal", _kind(expression.left()), (given[0], given[1]))
    return None if equal is None else ("same", equal, *given)


def _logic(name: str, _expression: Any, given: Sequence[Expression]) -> Expression | None:
    # Spark looks at the second part only where the first does not decide.
    return None if any(may_raise(one) for one in given[1:]) else (LOGIC[name], *given)


def _null(name: str, _expression: Any, given: Sequence[Expression]) -> Expression | None:
    return ("is_null" if name == "IsNull" else "is_valid", given[0])


def _coalesce(_name: str, _expression: Any, given: Sequence[Expression]) -> Expression | None:
    return None if any(may_raise(one) for one in given) else ("coalesce", *given)


def _case(name: str, expression: Any, given: Sequence[Expression]) -> Expression | None:
    if _kind(expression) not in KINDS or any(may_raise(one) for one in given):
        return None
    if name == "If":
        return ("case", tuple(given[:2]), given[2])
    pairs = given[: len(given) // 2 * 2]
    return ("case", tuple(pairs), given[-1] if len(given) % 2 else ("literal", None, _kind(expression)))


def _is_in(_name: str, expression: Any, given: Sequence[Expression]) -> Expression | None:
    value, *items = given
    kind = _kind(expression.value())
    if kind not in COMPARED or not items:
        return None
    found = []
    for item in items:
        number = _constant(item) if kind in INTEGERS else item[1] if item[0] == "literal" else None
        if number is None:
            return None
        found.append(number)
    return ("is_in", value, tuple(found), kind)


def _cast(_name: str, expression: Any, given: Sequence[Expression]) -> Expression | None:
    before, after = _kind(expression.child()), _kind(expression)
    if before == after:
        return given[0]
    if before == "void":
        return ("literal", None, after if after in KINDS else "void")
    if before in INTEGERS and after in INTEGERS:
        if INTEGERS.index(before) < INTEGERS.index(after):
            return ("cast", after, given[0])
        return ("narrow", after, given[0]) if str(expression.evalMode().toString()) == "ANSI" else None
    widens = (before in INTEGERS and after in ("double", "string")) or (before, after) == ("float", "double")
    return ("cast", after, given[0]) if widens else None


def _field(_name: str, expression: Any, given: Sequence[Expression]) -> Expression | None:
    return ("field", given[0], int(expression.ordinal()))


def _struct(_name: str, _expression: Any, given: Sequence[Expression]) -> Expression | None:
    names = [one[1] for one in given[::2]]
    return ("struct", tuple(names), tuple(given[1::2])) if all(isinstance(one, str) for one in names) else None


def _concat(_name: str, expression: Any, given: Sequence[Expression]) -> Expression | None:
    return ("joined", tuple(given)) if given and _kind(expression) == "string" else None


def _hash(_name: str, expression: Any, given: Sequence[Expression]) -> Expression | None:
    kinds = [KINDS.get(_kind(one)) for one in listed(expression.children())]
    known = all(kind is not None and packed_rows.can_hash(kind) for kind in kinds)
    return ("hash", tuple(given)) if given and known and expression.seed() == XXHASH_SEED else None


_TRANSLATIONS: Mapping[str, Callable[[str, Any, Sequence[Expression]], Expression | None]] = {
    # Of what Spark replaces by other expressions, these are the only part.
    **dict.fromkeys(("Alias", "Between", "Nvl"), _plain),
    **dict.fromkeys(ARITHMETIC, _arithmetic),
    **dict.fromkeys(COMPARISONS, _comparison),
    **dict.fromkeys(LOGIC, _logic),
    **dict.fromkeys(("Remainder", "Pmod"), _remainder),
    **dict.fromkeys(("IsNull", "IsNotNull"), _null),
    **dict.fromkeys(("If", "CaseWhen"), _case),
    "Divide": _divide,
    "IntegralDivide": _whole_quotient,
    "UnixMicros": _micros,
    "EqualNullSafe": _same,
    "Coalesce": _coalesce,
    "In": _is_in,
    "Cast": _cast,
    "GetStructField": _field,
    "CreateNamedStruct": _struct,
    "Concat": _concat,
    "XxHash64": _hash,
}

"""Conditions on rows, as SQL writes them: comparisons, IN, BETWEEN, LIKE, IS NULL, joined by AND, OR and NOT.

They are evaluated on Arrow batches by SQL's logic: a comparison with null is neither true nor false.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ArgumentInvalid

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^']|'')*') | (?P<number>-?\d+(?:\.\d+)?) |
        (?P<name>"(?:[^"]|"")+"|`(?:[^`]|``)+`|[A-Za-z_]\w*) | (?P<sign><=|>=|<>|!=|=|<|>|\(|\)|,)
    )""",
    re.VERBOSE,
)
_COMPARISONS: dict[str, Callable[..., pa.Array]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_WORDS = {"AND", "OR", "NOT", "IN", "IS", "NULL", "LIKE", "BETWEEN", "TRUE", "FALSE"}
Node = Callable[[pa.RecordBatch], pa.Array]


class _Token(NamedTuple):
    kind: str
    value: str


class Condition:
    """A condition on the rows of a table.

    >>> rows = pa.RecordBatch.from_pydict({"status": ["paid", "draft", None], "total": [5, 12, 30]})
    >>> Condition("status <> 'draft' AND total BETWEEN 1 AND 20").matches(rows).to_pylist()
    [True, False, False]
    >>> Condition("status <>")
    Traceback (most recent call last):
    headwater.errors.ArgumentInvalid: `where` is 'status <>'. Give a value at the end of it.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.columns: set[str] = set()
        self._tokens = self._tokenized(text)
        self._at = 0
        self._node = self._or()
        if self._at < len(self._tokens):
            raise self._refusal(f"AND or OR before {self._tokens[self._at].value!r}")

    def values(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """True, false, or null where a null makes the condition undecided."""
        return self._node(rows)

    def matches(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Whether each row meets the condition."""
        return pc.fill_null(self.values(rows), False)

    # -- the parser ---------------------------------------------------------------------------------------------------

    def _tokenized(self, text: str) -> list[_Token]:
        tokens, at = [], 0
        while at < len(text.rstrip()):
            token = _TOKEN.match(text, at)
            if token is None:
                raise self._refusal(f"a name, a value or a comparison instead of {text[at:].strip()[:20]!r}")
            at = token.end()
            kind = token.lastgroup or ""
            value = token[kind]
            if kind == "name" and value.upper() in _WORDS:
                kind, value = "word", value.upper()
            elif kind == "name" and value[0] in '"`':
                value = value[1:-1].replace(value[0] * 2, value[0])
            tokens.append(_Token(kind, value))
        return tokens

    def _next(self, *values: str) -> bool:
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.value in values and token.kind in ("word", "sign"):
                self._at += 1
                return True
        return False

    def _need(self, value: str) -> None:
        if not self._next(value):
            raise self._refusal(f"{value!r} {self._where()}")

    def _or(self) -> Node:
        node = self._and()
        while self._next("OR"):
            node = _joined(pc.or_kleene, node, self._and())
        return node

    def _and(self) -> Node:
        node = self._not()
        while self._next("AND"):
            node = _joined(pc.and_kleene, node, self._not())
        return node

    def _not(self) -> Node:
        if self._next("NOT"):
            return _inverted(self._not())
        if self._next("("):
            node = self._or()
            self._need(")")
            return node
        return self._comparison()

    def _comparison(self) -> Node:
        if self._at >= len(self._tokens) or self._tokens[self._at].kind != "name":
            raise self._refusal(f"the name of a column {self._where()}")
        name = self._tokens[self._at].value
        self._at += 1
        self.columns.add(name)
        if self._next("IS"):
            is_not = self._next("NOT")
            self._need("NULL")
            return (lambda rows: pc.is_valid(rows[name])) if is_not else (lambda rows: pc.is_null(rows[name]))
        is_not = self._next("NOT")
        node = self._operator(name, is_not)
        return _inverted(node) if is_not else node

    def _operator(self, name: str, is_not: bool) -> Node:
        if self._next("IN"):
            self._need("(")
            values = [self._value()]
            while self._next(","):
                values.append(self._value())
            self._need(")")
            node = _compared(pc.equal, name, values[0])
            for value in values[1:]:
                node = _joined(pc.or_kleene, node, _compared(pc.equal, name, value))
            return node
        if self._next("BETWEEN"):
            low = self._value()
            self._need("AND")
            above, below = _compared(pc.greater_equal, name, low), _compared(pc.less_equal, name, self._value())
            return _joined(pc.and_kleene, above, below)
        if self._next("LIKE"):
            pattern = self._value()
            return lambda rows: pc.match_like(rows[name].cast(pa.string()), str(pattern))
        for sign, compare in _COMPARISONS.items():
            if not is_not and self._next(sign):
                return _compared(compare, name, self._value())
        raise self._refusal(f"a comparison {self._where()}")

    # Any: a value of any type.
    def _value(self) -> Any:
        token = self._tokens[self._at] if self._at < len(self._tokens) else _Token("", "")
        self._at += 1
        if token.kind == "text":
            return token.value[1:-1].replace("''", "'")
        if token.kind == "number":
            return Decimal(token.value) if "." in token.value else int(token.value)
        if token.value in ("TRUE", "FALSE") and token.kind == "word":
            return token.value == "TRUE"
        self._at -= 1
        raise self._refusal(f"a value {self._where()}")

    def _where(self) -> str:
        return f"before {self._tokens[self._at].value!r}" if self._at < len(self._tokens) else "at the end of it"

    def _refusal(self, expected: str) -> ArgumentInvalid:
        return ArgumentInvalid(name="where", value=self.text, expected=expected)


def _joined(join: Callable[..., pa.Array], left: Node, right: Node) -> Node:
    return lambda rows: join(left(rows), right(rows))


def _inverted(node: Node) -> Node:
    return lambda rows: pc.invert(node(rows))


# Any: a value of any type.
def _compared(compare: Callable[..., pa.Array], name: str, value: Any) -> Node:
    def evaluate(rows: pa.RecordBatch) -> pa.Array:
        column = rows[name]
        return compare(*_of_one_type(column, value))

    return evaluate


# Any: a value of any type.
def _of_one_type(column: pa.Array, value: Any) -> tuple[pa.Array, pa.Scalar]:
    """A column and a value in a type in which both are exact, if there is one."""
    if pa.types.is_boolean(column.type) and isinstance(value, int):
        return column, pa.scalar(bool(value))
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column, pa.scalar(value if isinstance(value, str) else str(value))
    if isinstance(value, Decimal) and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return column.cast(pa.float64()), pa.scalar(float(value))
    if isinstance(value, (int, Decimal)) and pa.types.is_decimal(column.type):
        return column.cast(pa.decimal256(76, 18)), pa.scalar(Decimal(value)).cast(pa.decimal256(76, 18))
    if isinstance(value, str):
        return column, pa.scalar(value).cast(column.type)
    return column, pa.scalar(value)

"""Conditions that look at several rows, compiled into typed programs for a stack machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.match.kernel import codes
from headwater.operators.match.language.rule import (
    Call,
    Classifier,
    Constant,
    Expression,
    Fold,
    MatchNumber,
    MatchRowtime,
    Reference,
)

Kind = Literal["whole", "real", "text", "null"]
#: What a set of variables is called where it is all of them.
ANY = ""
FOLDS = {
    "count": codes.COUNT_VALUES,
    "sum": codes.SUM,
    "avg": codes.AVERAGE,
    "min": codes.SMALLEST,
    "max": codes.LARGEST,
    "stddev": codes.DEVIATION,
}
ARITHMETIC = {
    "+": (codes.ADD_WHOLE, codes.ADD_REAL),
    "-": (codes.SUBTRACT_WHOLE, codes.SUBTRACT_REAL),
    "*": (codes.MULTIPLY_WHOLE, codes.MULTIPLY_REAL),
    "%": (codes.REMAINDER_WHOLE, codes.REMAINDER_REAL),
}
#: Operation for whole and real numbers, whether the sides are swapped, whether the result is turned round.
COMPARISONS = {
    "=": (codes.EQUAL_WHOLE, codes.EQUAL_REAL, False, False),
    "<>": (codes.EQUAL_WHOLE, codes.EQUAL_REAL, False, True),
    "<": (codes.LESS_WHOLE, codes.LESS_REAL, False, False),
    "<=": (codes.LESS_EQUAL_WHOLE, codes.LESS_EQUAL_REAL, False, False),
    ">": (codes.LESS_WHOLE, codes.LESS_REAL, True, False),
    ">=": (codes.LESS_EQUAL_WHOLE, codes.LESS_EQUAL_REAL, True, False),
}
UNARY = {"negative": (codes.NEGATE_WHOLE, codes.NEGATE_REAL), "abs": (codes.ABS_WHOLE, codes.ABS_REAL)}


@dataclass
class Formulas:
    """The formulas of a rule, and all that they refer to. Sets of variables are known by name."""

    schema: pa.Schema
    lines: list[list[int]] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    real: list[float] = field(default_factory=list)
    #: Which whole numbers are texts, which get new numbers with each batch.
    texts: dict[int, str] = field(default_factory=dict)
    whole_columns: dict[str, int] = field(default_factory=dict)
    real_columns: dict[str, int] = field(default_factory=dict)
    references: dict[tuple[str | None, int, int, int], int] = field(default_factory=dict)
    folds: dict[tuple[str, int, str, bool], int] = field(default_factory=dict)

    def condition(self, tree: Expression) -> tuple[int, int]:
        """Where the formula of a condition begins and ends."""
        begin = len(self.lines)
        self.emit(tree, "whole")
        return begin, len(self.lines)

    # -- types --------------------------------------------------------------------------------------------------------

    def kind(self, tree: Expression) -> Kind:
        match tree:
            case Constant(value, kind):
                return "null" if value is None else kind_of(kind)
            case Reference():
                return self.column_kind(tree.column)
            case Classifier():
                return "text"
            case MatchNumber() | MatchRowtime():
                return "whole"
            case Fold():
                return self._fold_kind(tree)
            case Call():
                return self._call_kind(tree)

    def column_kind(self, name: str) -> Kind:
        return kind_of(self.schema.field(name).type)

    def _fold_kind(self, tree: Fold) -> Kind:
        if tree.name == "count":
            return "whole"
        if tree.name in ("avg", "stddev"):
            return "real"
        return self.kind(tree.of) if tree.of is not None else "whole"

    def _call_kind(self, tree: Call) -> Kind:
        if tree.name == "/":
            return "real"
        if tree.name == "cast" and tree.kind is not None:
            return kind_of(tree.kind)
        if tree.name in ARITHMETIC or tree.name in UNARY or tree.name == "coalesce":
            return self.common(tree.of)
        if tree.name == "case":
            return self.common((*tree.of[1::2], *tree.of[len(tree.of) // 2 * 2 :]))
        return "whole"

    def common(self, trees: tuple[Expression, ...]) -> Kind:
        """The kind to which all of these are brought."""
        kinds = {self.kind(one) for one in trees} - {"null"}
        if "text" in kinds and len(kinds) > 1:
            raise ArgumentInvalid(name="DEFINE", value="a text beside a number", expected="both of one kind")
        return next((kind for kind in ("real", "text", "whole") if kind in kinds), "null")

    # -- lines --------------------------------------------------------------------------------------------------------

    def put(self, operation: int, a: int = 0, b: int = 0) -> None:
        self.lines.append([operation, a, b])

    def emit(self, tree: Expression, wanted: Kind) -> None:
        """Lines that leave the value of a tree on the stack, as the kind that is wanted."""
        own = self.kind(tree)
        match tree:
            case Constant(value):
                self._constant(value, own)
            case Reference():
                number = self.reference(tree)
                if own == "real":
                    self.put(codes.REFERENCE_REAL, number, self.real_column(tree.column))
                else:
                    self.put(codes.REFERENCE_WHOLE, number, self.whole_column(tree.column))
            case Fold():
                self._fold(tree)
            case Classifier(variable):
                self.put(codes.CLASSIFIER, self.set_number(variable))
            case MatchNumber():
                self.put(codes.MATCH_NUMBER)
            case Call():
                self._call(tree, own)
        if wanted == "real" and own == "whole":
            self.put(codes.TO_REAL)

    def _constant(self, value: object, kind: Kind) -> None:
        if kind == "null":
            self.put(codes.PUSH_NULL)
        elif kind == "real":
            self.real.append(float(value))  # type: ignore[arg-type]  # a number, by its kind
            self.put(codes.PUSH_REAL, len(self.real) - 1)
        else:
            if kind == "text":
                self.texts[len(self.whole)] = str(value)
            self.whole.append(0 if kind == "text" else int(value))  # type: ignore[call-overload]  # a number
            self.put(codes.PUSH_WHOLE, len(self.whole) - 1)

    def _fold(self, tree: Fold) -> None:
        kind = FOLDS.get(tree.name)
        if kind is None:
            expected = "count, sum, avg, min, max or stddev"
            raise ArgumentInvalid(name="DEFINE", value=tree.name, expected=expected)
        column = ""
        if tree.of is None:
            kind = codes.COUNT
        else:
            assert isinstance(tree.of, Reference)
            column = tree.of.column
        key = (tree.variable or ANY, kind, column, tree.distinct)
        self.put(codes.FOLD, self.folds.setdefault(key, len(self.folds)))
        if column:
            (self.real_column if self.column_kind(column) == "real" else self.whole_column)(column)

    def _call(self, tree: Call, own: Kind) -> None:
        name, of = tree.name, tree.of
        if name in COMPARISONS:
            self._compare(name, of[0], of[1])
        elif name in ("and", "or"):
            self._chain(codes.AND if name == "and" else codes.OR, of)
        elif name == "not":
            self.emit(of[0], "whole")
            self.put(codes.NOT)
        elif name == "is_null":
            self.emit(of[0], self.kind(of[0]))
            self.put(codes.IS_NULL)
        elif name == "in":
            self._chain(codes.OR, tuple(Call("=", (of[0], one)) for one in of[1:]))
        elif name == "between":
            self.emit(Call("and", (Call(">=", (of[0], of[1])), Call("<=", (of[0], of[2])))), "whole")
        elif name == "<=>":
            self._same(of[0], of[1])
        elif name == "coalesce":
            self._coalesce(of, own)
        elif name == "case":
            self._case(of, own)
        else:
            self._number(tree, own)

    def _number(self, tree: Call, own: Kind) -> None:
        name, of = tree.name, tree.of
        if own == "text" or any(self.kind(one) == "text" for one in of):
            raise ArgumentInvalid(name="DEFINE", value=f"{name} of a text", expected="numbers")
        if name == "cast":
            inner = self.kind(of[0])
            self.emit(of[0], inner)
            if own == "real" and inner == "whole":
                self.put(codes.TO_REAL)
            elif own == "whole" and inner == "real":
                self.put(codes.TO_WHOLE)
            return
        kind: Kind = "real" if own in ("real", "null") else "whole"
        for one in of:
            self.emit(one, kind)
        if name == "/":
            self.put(codes.DIVIDE)
        else:
            pair = ARITHMETIC.get(name) or UNARY[name]
            self.put(pair[1 if kind == "real" else 0])

    def _compare(self, name: str, left: Expression, right: Expression) -> None:
        kind = self.common((left, right))
        whole, real, swapped, turned = COMPARISONS[name]
        for one in (right, left) if swapped else (left, right):
            self.emit(one, kind)
        self.put(real if kind == "real" else whole)
        if turned:
            self.put(codes.NOT)

    def _chain(self, operation: int, of: tuple[Expression, ...]) -> None:
        for number, one in enumerate(of):
            self.emit(one, "whole")
            if number:
                self.put(operation)

    def _same(self, left: Expression, right: Expression) -> None:
        """Equal, or both null."""
        nulls = [Call("is_null", (one,)) for one in (left, right)]
        equal = Call("coalesce", (Call("=", (left, right)), Constant(False, pa.bool_())))
        self.emit(Call("or", (equal, Call("and", tuple(nulls)))), "whole")

    def _coalesce(self, of: tuple[Expression, ...], own: Kind) -> None:
        for number, one in enumerate(of):
            self.emit(one, own)
            if number:
                self.put(codes.COALESCE)

    def _case(self, of: tuple[Expression, ...], own: Kind) -> None:
        """Condition, value, condition, value, …, otherwise."""
        if len(of) == 1:
            self.emit(of[0], own)
        elif not of:
            self.put(codes.PUSH_NULL)
        else:
            self.emit(of[0], "whole")
            self.emit(of[1], own)
            self._case(of[2:], own)
            self.put(codes.CHOOSE)

    # -- what they refer to -------------------------------------------------------------------------------------------

    def whole_column(self, name: str) -> int:
        return self.whole_columns.setdefault(name, len(self.whole_columns))

    def real_column(self, name: str) -> int:
        return self.real_columns.setdefault(name, len(self.real_columns))

    def reference(self, tree: Reference) -> int:
        of = None if tree.here else (tree.variable or ANY)
        key = (of, int(tree.end == "last"), tree.offset, tree.shift)
        return self.references.setdefault(key, len(self.references))

    #: Sets in the order of their numbers; the first has all variables.
    sets: list[str] = field(default_factory=lambda: [ANY])

    def set_number(self, name: str | None) -> int:
        name = name or ANY
        if name not in self.sets:
            self.sets.append(name)
        return self.sets.index(name)

    def depth(self) -> int:
        """How high the stack can grow; lines that push count, and none is deeper than there are of those."""
        return 1 + max((sum(line[0] <= codes.MATCH_NUMBER for line in self.lines), 0))


def kind_of(kind: pa.DataType) -> Kind:
    """How the search holds values of a type."""
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "real"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    if pa.types.is_null(kind):
        return "null"
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind):
        return "whole"
    raise ArgumentInvalid(name="DEFINE", value=f"a column of type {kind}", expected="numbers, texts or times")

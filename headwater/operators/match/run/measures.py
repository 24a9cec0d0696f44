"""Measures of what was found: references become columns by taking rows, folds by one pass, the rest is arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.match.kernel import codes
from headwater.operators.match.kernel.codes import Bools, Int32s, Int64s, SearchResult
from headwater.operators.match.language.rule import Classifier, Expression, Fold, MatchNumber, Reference, leaves
from headwater.operators.match.plan.evaluation import evaluate
from headwater.operators.match.plan.formula import FOLDS
from headwater.operators.match.plan.program import Program
from headwater.operators.match.plan.rule_plan import Plan
from headwater.operators.match.run.columns import nulls, numbered, real_numbers, whole_numbers


@dataclass(frozen=True)
class Outputs:
    """What comes out: for each row of the output its match, and how many of the match's rows it has seen."""

    program: Program
    rows: pa.Table
    found: SearchResult
    #: Where the rows of each key begin.
    begin: Int64s
    match: Int64s
    upto: Int64s

    @property
    def count(self) -> int:
        return len(self.match)

    def measures(self) -> dict[str, pa.Array]:
        """All measures, by Arrow."""
        known: dict[Expression, pa.Array] = {}

        def leaf(one: Expression) -> pa.Array:
            if one not in known:
                known[one] = self.leaf(one)
            return known[one]

        return {one.name: evaluate(one.tree, leaf, self.count) for one in self.program.rule.measures}

    def leaf(self, tree: Expression) -> pa.Array:
        """The value of a reference, a fold, a classifier or the number of the match, for each output."""
        match tree:
            case Reference():
                return self._reference(tree)
            case Fold():
                return self._fold(tree)
            case Classifier(variable, final):
                places = self._places(variable, last=True, offset=0, final=final)
                names = pa.array([*self.program.variables, None], pa.string())
                return names.take(pa.array(_at(self.found.variables, places) % len(names)))
            case MatchNumber():
                numbers = self.found.numbers[self.match]
                return pa.array(numbers, mask=numbers == 0)
        raise TypeError(tree)

    # -- references ---------------------------------------------------------------------------------------------------

    def _places(self, variable: str | None, *, last: bool, offset: int, final: bool) -> Int64s:
        from headwater.operators.match.kernel.folds import resolve

        members = self.program.members(variable)
        upto = self._seen(final)
        return resolve(self.found.begin, self.found.variables, members, self.match, upto, last, offset)

    def _seen(self, final: bool) -> Int64s:
        return np.diff(self.found.begin)[self.match] if final else self.upto

    def _reference(self, tree: Reference) -> pa.Array:
        variable = None if tree.here else tree.variable
        last, offset = (True, 0) if tree.here else (tree.end == "last", tree.offset)
        places = self._places(variable, last=last, offset=offset, final=tree.final)
        rows = _at(self.found.rows, places)
        keys = self.found.keys[self.match]
        shifted = rows + tree.shift
        missing = (rows < 0) | (shifted < self.begin[keys]) | (shifted >= self.begin[keys + 1])
        return self._taken(tree.column, shifted, missing)

    def _taken(self, column: str, rows: Int64s, missing: Bools) -> pa.Array:
        values = self.rows.column(column)
        return _array(values.take(pa.array(np.where(missing, 0, rows), mask=missing)))

    # -- folds --------------------------------------------------------------------------------------------------------

    def _fold(self, tree: Fold) -> pa.Array:
        from headwater.operators.match.kernel.folds import fold

        if tree.of is not None:
            assert isinstance(tree.of, Reference)
            decimal = tree.name != "count" and pa.types.is_decimal(self.rows.schema.field(tree.of.column).type)
            if tree.distinct or tree.name not in FOLDS or decimal:
                return self._fold_by_groups(tree)
        kind = codes.COUNT if tree.of is None else FOLDS[tree.name]
        values, null = self._values(tree)
        members, upto = self.program.members(tree.variable), self._seen(tree.final)
        found = self.found
        counts, sums, spreads, places = fold(
            found.begin, found.rows, found.variables, members, self.match, upto, kind, values, null
        )
        if kind in (codes.COUNT, codes.COUNT_VALUES):
            return pa.array(counts)
        if kind in (codes.SMALLEST, codes.LARGEST):
            assert isinstance(tree.of, Reference)
            return self._taken(tree.of.column, places, places < 0)
        none = counts < (2 if kind == codes.DEVIATION else 1)
        if kind == codes.SUM:
            return pa.array(sums, mask=none)
        if kind == codes.AVERAGE:
            return pa.array(sums / np.maximum(counts, 1), pa.float64(), mask=none)
        return pa.array(np.sqrt(spreads / np.maximum(counts - 1, 1)), pa.float64(), mask=none)

    def _values(self, tree: Fold) -> tuple[Int64s | codes.Float64s, Bools]:
        if tree.of is None:
            return np.zeros(self.rows.num_rows, np.int64), np.zeros(self.rows.num_rows, bool)
        assert isinstance(tree.of, Reference)
        column = self.rows.column(tree.of.column)
        if tree.name == "count":
            return np.zeros(len(column), np.int64), nulls(column)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            return numbered([column], [])[0][0], nulls(column)
        real = pa.types.is_floating(column.type)
        return (real_numbers(column) if real else whole_numbers(column)), nulls(column)

    def _fold_by_groups(self, tree: Fold) -> pa.Array:
        """Folds that need their values side by side."""
        from headwater.operators.match.kernel.folds import expanded

        assert isinstance(tree.of, Reference)
        members = self.program.members(tree.variable)
        outputs, places = expanded(self.found.begin, self.found.variables, members, self.match, self._seen(tree.final))
        values = _array(self.rows.column(tree.of.column).take(pa.array(_at(self.found.rows, places))))
        keep = ~nulls(pa.chunked_array([values]))
        outputs, values = outputs[keep], values.filter(pa.array(keep))
        if tree.distinct:
            outputs, values = _once(outputs, values)
        if tree.name == "array_agg":
            offsets = np.searchsorted(outputs, np.arange(self.count + 1))
            return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
        return self._grouped(tree.name, outputs, values)

    def _grouped(self, name: str, outputs: Int64s, values: pa.Array) -> pa.Array:
        if name == "count":
            return pa.array(np.bincount(outputs, minlength=self.count).astype(np.int64))
        if name in ("first", "last"):
            at = np.searchsorted(outputs, np.arange(self.count), "left" if name == "first" else "right")
            at = at if name == "first" else at - 1
            inside = (at >= 0) & (at < len(outputs))
            missing = ~inside
            missing[inside] = outputs[at[inside]] != np.arange(self.count)[inside]
            return values.take(pa.array(np.where(missing, 0, at), mask=missing))
        names = {"avg": "mean", "stddev": "stddev"}
        table = pa.table({"output": pa.array(outputs), "value": values.cast(pa.float64()) if name in names else values})
        options = pc.VarianceOptions(ddof=1, min_count=2) if name == "stddev" else None
        grouped = table.group_by("output").aggregate([("value", names.get(name, name), options)])
        where = pc.index_in(pa.array(np.arange(self.count)), grouped.column("output").combine_chunks())
        return _array(grouped.column(1).take(where))


def _at(values: Int64s | Int32s, places: Int64s) -> Int64s:
    """The values at these places, and -1 where there is no place."""
    if not len(values):
        return np.full(len(places), -1, np.int64)
    return np.where(places < 0, -1, values[np.maximum(places, 0)])


def _once(outputs: Int64s, values: pa.Array) -> tuple[Int64s, pa.Array]:
    """Each value once for each output, where it is first seen."""
    numbers = np.asarray(pc.fill_null(values.dictionary_encode().indices, -1)).astype(np.int64)
    pairs = outputs * (numbers.max(initial=0) + 1) + numbers
    first = np.sort(np.unique(pairs, return_index=True)[1])
    return outputs[first], values.take(pa.array(first))


def _array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def leaves_of(plan: Plan) -> Mapping[Expression, str]:
    """What measures are made of, with a name for each."""
    names: dict[Expression, str] = {}
    for measure in plan.rule.measures:
        for one in leaves(measure.tree):
            if isinstance(one, (Reference, Fold, Classifier, MatchNumber)):
                names.setdefault(one, f"_leaf{len(names)}")
    return names


def leaf_kinds(program: Program, rows: pa.Schema) -> list[pa.Field]:
    """The columns of what measures are made of."""
    return [pa.field(name, leaf_kind(tree, rows)) for tree, name in leaves_of(program.plan).items()]


def measure_kinds(program: Program, rows: pa.Schema) -> list[pa.Field]:
    """The columns of the measures, as Arrow computes them."""
    found = []
    for measure in program.rule.measures:
        values = evaluate(measure.tree, lambda one: pa.array([], leaf_kind(one, rows)), 0)
        found.append(pa.field(measure.name, values.type))
    return found


def leaf_kind(tree: Expression, rows: pa.Schema) -> pa.DataType:
    match tree:
        case Reference():
            return rows.field(tree.column).type
        case Classifier():
            return pa.string()
        case Fold(name, Reference(column)):
            kind = rows.field(column).type
            if name == "array_agg":
                return pa.list_(kind)
            if name in ("avg", "stddev"):
                return pa.float64()
            if name == "sum":
                return _sum_kind(kind)
            return pa.int64() if name == "count" else kind
    return pa.int64()


def _sum_kind(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(kind):
        return pa.decimal128(38, kind.scale)
    if pa.types.is_floating(kind):
        return pa.float64()
    return kind if pa.types.is_duration(kind) else pa.int64()

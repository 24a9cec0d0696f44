"""What of a rule is computed where: row by row before the search, while it runs, and afterwards.

Conditions on the row at hand become bits of a mask. Whatever else concerns one row alone, and the search cannot compute,
becomes a column of its own. What is left are references and folds over columns, and arithmetic on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headwater.errors import ArgumentInvalid
from headwater.operators.match.language.row_functions import ONE_ROW, at_hand, is_computed, is_of_one_row
from headwater.operators.match.language.rule import (
    Call,
    Condition,
    Constant,
    Expression,
    Fold,
    Measure,
    Reference,
    Rule,
    is_simple,
    map_leaves,
    named,
    references_in,
)

#: Columns that are added to the rows: bits of conditions, and what was computed row by row.
MASK = "_mask"
DERIVED = "_derived"
BITS = 63


@dataclass(frozen=True)
class Plan:
    """A rule whose conditions and measures refer to columns alone, and those columns."""

    rule: Rule
    #: The bit of each variable whose condition concerns the row at hand alone.
    bits: Mapping[str, int]
    masks: tuple[Expression, ...]
    derived: Mapping[str, Expression]

    @property
    def mask_columns(self) -> tuple[str, ...]:
        return tuple(f"{MASK}{number}" for number in range(-(-len(self.masks) // BITS)))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rows, or made of them, that the search and the measures look at."""
        trees = [one.tree for name, one in self.rule.define.items() if name not in self.bits]
        trees += [one.tree for one in self.rule.measures]
        return tuple(dict.fromkeys(one.column for tree in trees for one in references_in(tree)))


def planned(rule: Rule, shared: PlanBuilder | None = None) -> Plan:
    """Sort out what is computed where. With `shared`, bits and columns are those of several rules together."""
    builder = shared or PlanBuilder()
    bits, define = {}, {}
    for name in named(rule.pattern):
        condition = rule.define.get(name)
        if condition is None:
            continue
        tree = at_hand(condition.tree, name, rule.subsets)
        if is_simple(tree):
            bits[name] = builder.bit(tree)
            define[name] = condition
        else:
            define[name] = Condition(condition.sql, builder.lowered(tree), simple=False)
    measures = tuple(Measure(one.name, one.sql, builder.measured(one.tree)) for one in rule.measures)
    made = replace(rule, define=define, measures=measures)
    if shared is not None:
        return Plan(made, bits, (), {})
    return Plan(made, bits, tuple(builder.masks), builder.columns())


@dataclass
class PlanBuilder:
    masks: dict[Expression, int] = field(default_factory=dict)
    derived: dict[Expression, str] = field(default_factory=dict)

    def bit(self, tree: Expression) -> int:
        return self.masks.setdefault(tree, len(self.masks))

    def lowered(self, tree: Expression) -> Expression:
        """A condition over columns alone, of functions that the search can compute."""
        match tree:
            case Fold():
                return self.measured(tree)
            case Call():
                if is_computed(tree):
                    return replace(tree, of=tuple(self.lowered(one) for one in tree.of))
                return self._one_row(tree)
        return tree

    def _one_row(self, tree: Call) -> Expression:
        """A function that only Spark or Arrow can compute, as a column of the one row that it is about."""
        if not is_of_one_row(tree):
            raise ArgumentInvalid(name="DEFINE", value=f"{tree.name}(…) over several rows", expected=ONE_ROW)
        inside = map_leaves(tree, lambda one: Reference(one.column, here=True) if isinstance(one, Reference) else one)
        return replace(next(references_in(tree)), column=self.column(inside))

    def measured(self, tree: Expression) -> Expression:
        """A measure whose folds are over columns."""
        match tree:
            case Fold(of=of) if of is not None:
                inside = map_leaves(of, _row_itself)
                if isinstance(inside, Reference):
                    return replace(tree, of=inside)
                return replace(tree, of=Reference(self.column(inside), here=True))
            case Call():
                return replace(tree, of=tuple(self.measured(one) for one in tree.of))
        return tree

    def columns(self) -> dict[str, Expression]:
        return {name: tree for tree, name in self.derived.items()}

    def column(self, tree: Expression) -> str:
        return self.derived.setdefault(tree, f"{DERIVED}{len(self.derived)}")


def _row_itself(one: Expression) -> Expression:
    """Inside of an aggregate everything is about the row that is added."""
    if isinstance(one, Reference):
        if one.shift or one.offset:
            raise ArgumentInvalid(name="aggregate", value=one.column, expected="no PREV, NEXT or offset inside of it")
        return Reference(one.column, here=True)
    if isinstance(one, Constant):
        return one
    raise ArgumentInvalid(name="aggregate", value=type(one).__name__.lower(), expected="columns of a row")

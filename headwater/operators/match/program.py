"""A rule as flat arrays, for the one kernel that runs all rules: rules may change while the stream runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headwater.operators.match import codes
from headwater.operators.match.assembly import Assembly, can_be_empty
from headwater.operators.match.codes import Bools, Code, Int32s, Int64s, Limits
from headwater.operators.match.expression import Classifier, Expression, MatchNumber, Rule
from headwater.operators.match.formulas import ANY, Formulas
from headwater.operators.match.pattern import Anchor, Node, Skip
from headwater.operators.match.plan import BITS, Plan, is_place_alone, leaves, references_in

#: A search from one start that takes more steps than this is given up.
STEPS_MAX = 1_000_000
AFTER = {
    "past_last": codes.PAST_LAST,
    "to_next": codes.TO_NEXT,
    "to_first": codes.TO_FIRST,
    "to_last": codes.TO_LAST,
    "none": codes.TO_NEXT,
}


@dataclass(frozen=True)
class Program:
    """A rule, ready to be run over rows of one schema."""

    plan: Plan
    code: Code
    limits: Limits
    variables: tuple[str, ...]
    whole_columns: tuple[str, ...]
    real_columns: tuple[str, ...]
    #: Which whole constants are texts.
    texts: Mapping[int, str]

    @property
    def rule(self) -> Rule:
        return self.plan.rule

    @property
    def looks_back(self) -> int:
        """How many rows before a start may be looked at."""
        return max((-one.shift for tree in self._trees() for one in references_in(tree)), default=0)

    @property
    def counts(self) -> bool:
        """Whether something must be remembered of a key for ever: its first row, or how many matches it has had."""
        numbered = any(isinstance(leaf, MatchNumber) for tree in self._trees() for leaf in leaves(tree))
        return numbered or anchored(self.rule.pattern)

    def _trees(self) -> list[Expression]:
        conditions = [one.tree for name, one in self.rule.define.items() if name not in self.plan.bits]
        return [*conditions, *(one.tree for one in self.rule.measures)]

    @property
    def named(self) -> tuple[str, ...]:
        """The texts that the code must know the numbers of: its constants, and variables that are asked for."""
        classified = any(isinstance(one, Classifier) for tree in self._trees() for one in leaves(tree))
        return (*self.texts.values(), *(self.variables if classified else ()))

    def code_for(self, texts: Mapping[str, int]) -> Code:
        """The code with the numbers that texts have in a batch."""
        if not texts:
            return self.code
        whole = self.code.whole.copy()
        for at, text in self.texts.items():
            whole[at] = texts[text]
        names = np.array([texts.get(name, -1) for name in self.variables], np.int64)
        return self.code._replace(whole=whole, names=names)

    def members(self, name: str | None) -> Bools:
        """Which variables a name stands for; None: all."""
        wanted = self.variables if not name else self.rule.subsets.get(name, (name,))
        return np.array([one in wanted for one in self.variables], bool)

    def bounded(self, *, rows_max: int, steps_max: int) -> Program:
        return replace(self, limits=self.limits._replace(rows_max=rows_max, steps_max=steps_max))


def program(plan: Plan, schema: pa.Schema, shared: Formulas | None = None) -> Program:
    """Make the program of a rule. With `shared`, columns have the numbers that they have for other rules too."""
    rule = plan.rule
    assembly = Assembly()
    assembly.pattern(rule.pattern)
    formulas = Formulas(schema)
    if shared is not None:
        formulas.whole_columns, formulas.real_columns = shared.whole_columns, shared.real_columns
    tests = [_test(name, plan, formulas) for name in assembly.variables]
    sets = formulas.sets
    references = [(-1 if of is None else formulas.set_number(of), *rest) for of, *rest in formulas.references]
    folds = [_fold(key, formulas) for key in formulas.folds]
    after_set = formulas.set_number(rule.after.variable)
    code = Code(
        steps=_table(assembly.steps, 3),
        joints=np.array(assembly.joints(), np.int32),
        slots=assembly.slots,
        lists=np.array([one for names in assembly.lists for one in names], np.int32),
        lists_begin=np.concatenate([[0], np.cumsum([len(names) for names in assembly.lists])]).astype(np.int32),
        tests=_table(tests, 3),
        formula=_table(formulas.lines, 3),
        whole=np.array(formulas.whole, np.int64),
        real=np.array(formulas.real, np.float64),
        stack=formulas.depth(),
        references=_table(references, 4),
        folds=_table(folds, 5),
        members=np.array([_members(name, assembly, rule) for name in sets], bool).reshape(len(sets), -1),
        names=np.full(len(assembly.variables), -1, np.int64),
        memo=_forgets(plan),
        first=_first(rule.pattern, assembly, plan),
    )
    return Program(
        plan,
        code,
        _limits(plan, after_set),
        tuple(assembly.variables),
        tuple(formulas.whole_columns),
        tuple(formulas.real_columns),
        formulas.texts,
    )


def _table(values: Sequence[Sequence[int]], width: int) -> Int32s:
    return np.array(values, np.int32).reshape(-1, width)


def _test(name: str, plan: Plan, formulas: Formulas) -> tuple[int, int, int]:
    if name in plan.bits:
        return codes.BIT, plan.bits[name] // BITS, plan.bits[name] % BITS
    condition = plan.rule.define.get(name)
    if condition is None:
        return codes.ALWAYS, 0, 0
    return codes.FORMULA, *formulas.condition(condition.tree)


def _fold(key: tuple[str, int, str, bool], formulas: Formulas) -> tuple[int, int, int, int, int]:
    name, kind, column, distinct = key
    real = bool(column) and formulas.column_kind(column) == "real"
    number = 0 if not column else (formulas.real_columns if real else formulas.whole_columns)[column]
    return formulas.set_number(name), kind, number, int(real), int(distinct)


def _members(name: str, assembly: Assembly, rule: Rule) -> list[bool]:
    wanted = assembly.variables if name == ANY else rule.subsets.get(name, (name,))
    return [one in wanted for one in assembly.variables]


def _limits(plan: Plan, after_set: int) -> Limits:
    rule = plan.rule
    within = codes.NONE if rule.within_us is None else rule.within_us
    between = codes.NONE if rule.between_us is None else rule.between_us
    shifts = [one.shift for measure in rule.measures for one in references_in(measure.tree)]
    return Limits(
        within_us=within,
        between_us=between,
        after=AFTER[rule.after.where],
        after_set=after_set,
        every=rule.every and rule.after.where == "none",
        timed=within >= 0 or between >= 0,
        ahead=max(shifts, default=0) if max(shifts, default=0) > 0 else 0,
        steps_max=STEPS_MAX,
        rows_max=np.iinfo(np.int64).max,
    )


def _forgets(plan: Plan) -> bool:
    """Whether it does not matter how the search came to a row."""
    rule = plan.rule
    conditions = [one.tree for name, one in rule.define.items() if name not in plan.bits]
    by_place = all(is_place_alone(leaf) for tree in conditions for leaf in leaves(tree))
    # With rows passed by, the row taken last may be any: and so may the time since.
    steady = rule.between_us is None or not _has(rule.pattern, Skip)
    return by_place and steady and not (rule.every and rule.after.where == "none")


def _first(pattern: Node, assembly: Assembly, plan: Plan) -> Int64s:
    """The words and bits of which the first row of a match must have one, where that can be told."""
    unknown = np.zeros((0, 2), np.int64)
    if can_be_empty(pattern):
        return unknown
    variables = list(assembly.variables)
    words: dict[int, int] = {}
    todo, known = [0], set[int]()
    while todo:
        at = todo.pop()
        if at in known:
            continue
        known.add(at)
        step, a, b = assembly.steps[at]
        if step == codes.ROW:
            bit = plan.bits.get(variables[a])
            if bit is None:
                return unknown
            words[bit // BITS] = words.get(bit // BITS, 0) | 1 << bit % BITS
        elif step == codes.SPLIT:
            todo += [a, b]
        elif step == codes.JUMP:
            todo.append(a)
        elif step == codes.ACCEPT:
            return unknown
        elif step != codes.SKIP:  # before its first row a match passes none by
            todo.append(at + 1)
    return np.array(list(words.items()), np.int64).reshape(-1, 2)


def _has(node: Node, kind: type) -> bool:
    if isinstance(node, kind):
        return True
    inner = getattr(node, "parts", None) or getattr(node, "options", None) or ()
    of = getattr(node, "of", None)
    return any(_has(one, kind) for one in (*inner, *([of] if of is not None else [])))


def anchored(node: Node) -> bool:
    """Whether it matters which row is the first of a key."""
    if isinstance(node, Anchor):
        return node.where == "start"
    inner = getattr(node, "parts", None) or getattr(node, "options", None) or ()
    of = getattr(node, "of", None)
    return any(anchored(one) for one in (*inner, *([of] if of is not None else [])))

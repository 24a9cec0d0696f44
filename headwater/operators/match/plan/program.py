"""Compile a rule into flat arrays, for the one kernel that runs all rules.

A pattern's tree becomes steps that a backtracking search runs, the preferred way first. Rules may change while the
stream runs, so nothing here is compiled to machine code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.match.kernel import codes
from headwater.operators.match.kernel.codes import Bools, Code, Int32s, Int64s, Limits
from headwater.operators.match.language.rule import (
    Alternation,
    Anchor,
    Classifier,
    Exclusion,
    Expression,
    MatchNumber,
    Node,
    Nothing,
    NotNext,
    Permute,
    Repeat,
    Rule,
    Skip,
    Variable,
    can_be_empty,
    holds,
    is_place_alone,
    leaves,
    parts,
    references_in,
)
from headwater.operators.match.language.rule import Sequence as InSequence
from headwater.operators.match.plan.formula import ANY, Formulas
from headwater.operators.match.plan.rule_plan import BITS, Plan

#: A search from one start that takes more steps than this is given up.
STEPS_MAX = 1_000_000
AFTER = {
    "past_last": codes.PAST_LAST,
    "to_next": codes.TO_NEXT,
    "to_first": codes.TO_FIRST,
    "to_last": codes.TO_LAST,
    "none": codes.TO_NEXT,
}
#: The most steps of a pattern, with its repetitions and orders written out.
PATTERN_STEPS_MAX = 20_000


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
        return max([0, *(-one.shift for tree in self._trees() for one in references_in(tree))])

    @property
    def counts(self) -> bool:
        """Whether something must be remembered of a key for ever: its first row, or how many matches it has had."""
        numbered = any(isinstance(leaf, MatchNumber) for tree in self._trees() for leaf in leaves(tree))
        return numbered or _has_start_anchor(self.rule.pattern)

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
        """With at most so many rows and steps for each start.

        A search that remembers what came of all its steps takes few enough by itself. How many it takes depends on the
        starts before it, so that they cannot be its bound: what comes out must not depend on how rows were batched.
        """
        remembers = self.code.memo and self.code.slots == 0 and not self.limits.every
        steps = np.iinfo(np.int64).max if remembers else steps_max
        return replace(self, limits=self.limits._replace(rows_max=rows_max, steps_max=steps))


def program(plan: Plan, schema: pa.Schema, shared: Formulas | None = None, *, numbered: bool = False) -> Program:
    """Make the program of a rule. With `shared`, columns have the numbers that they have for other rules too.

    `numbered`: the numbers of matches are shown, so that a match must wait for all that come before it.
    """
    rule = plan.rule
    limits = _limits(plan, numbered=numbered)
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
    named = [assembly.variables if name == ANY else rule.subsets.get(name, (name,)) for name in sets]
    members = [[one in wanted for one in assembly.variables] for wanted in named]
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
        members=np.array(members, bool).reshape(len(sets), -1),
        names=np.full(len(assembly.variables), -1, np.int64),
        memo=_forgets(plan, limits),
        first=_first(rule.pattern, assembly, plan),
    )
    return Program(
        plan,
        code,
        limits._replace(after_set=after_set),
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


def _limits(plan: Plan, *, numbered: bool) -> Limits:
    rule = plan.rule
    within = codes.NONE if rule.within_us is None else rule.within_us
    between = codes.NONE if rule.between_us is None else rule.between_us
    shifts = [one.shift for measure in rule.measures for one in references_in(measure.tree)]
    trees = [*(one.tree for one in rule.define.values()), *(one.tree for one in rule.measures)]
    numbered = numbered or any(isinstance(leaf, MatchNumber) for tree in trees for leaf in leaves(tree))
    return Limits(
        within_us=within,
        between_us=between,
        after=AFTER[rule.after.where],
        after_set=codes.NONE,
        every=rule.every and rule.after.where == "none",
        timed=within >= 0 or between >= 0,
        prompt=rule.after.where in ("to_next", "none") and not numbered,
        ahead=max([*shifts, 0]),
        steps_max=STEPS_MAX,
        rows_max=np.iinfo(np.int64).max,
    )


def _forgets(plan: Plan, limits: Limits) -> bool:
    """Whether it does not matter how the search came to a row."""
    rule = plan.rule
    conditions = [one.tree for name, one in rule.define.items() if name not in plan.bits]
    by_place = all(is_place_alone(leaf) for tree in conditions for leaf in leaves(tree))
    # With rows passed by, the row taken last may be any: and so may the time since, and the rows behind it.
    steady = (limits.between_us < 0 and not (limits.prompt and limits.ahead)) or not holds(rule.pattern, Skip)
    return by_place and steady and (limits.prompt or not limits.every)


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


def _has_start_anchor(node: Node) -> bool:
    """Whether it matters which row is the first of a key."""
    return node == Anchor("start") or any(_has_start_anchor(part) for part in parts(node))


@dataclass
class Assembly:
    """Steps as they are put one after the other."""

    steps: list[list[int]] = field(default_factory=list)
    variables: dict[str, int] = field(default_factory=dict)
    lists: dict[tuple[int, ...], int] = field(default_factory=dict)
    slots: int = 0
    excluded: int = 0
    #: Rounds that must move on. What fails in them may fail only because it has not moved, and is not remembered.
    marked: list[range] = field(default_factory=list)

    def pattern(self, node: Node) -> None:
        """The whole pattern."""
        self.add(node)
        self.put(codes.ACCEPT)

    def put(self, step: int, a: int = 0, b: int = 0) -> int:
        if len(self.steps) >= PATTERN_STEPS_MAX:
            expected = f"a pattern of at most {PATTERN_STEPS_MAX} steps, with its repetitions and orders written out"
            raise ArgumentInvalid(name="pattern", value="a larger one", expected=expected)
        self.steps.append([step, a, b])
        return len(self.steps) - 1

    def variable(self, name: str) -> int:
        return self.variables.setdefault(name, len(self.variables))

    def any_of(self, names: tuple[str, ...]) -> int:
        """The number of a list of variables."""
        return self.lists.setdefault(tuple(self.variable(name) for name in names), len(self.lists))

    def add(self, node: Node) -> None:
        match node:
            case Variable(name):
                self.put(codes.ROW, self.variable(name), self.excluded)
            case InSequence(parts):
                for part in parts:
                    self.add(part)
            case Alternation(options):
                self._choose([(option,) for option in options])
            case Permute(parts):
                self._permute(list(parts))
            case Repeat():
                self._repeat(node)
            case Exclusion(of):
                before, self.excluded = self.excluded, 1
                self.add(of)
                self.excluded = before
            case Anchor(where):
                self.put(codes.AT_START if where == "start" else codes.AT_END)
            case Skip(unless):
                self._skip(unless)
            case NotNext(variables):
                self.put(codes.NOT_NEXT, self.any_of(variables))
            case Nothing(variables):
                self.put(codes.NOTHING, self.any_of(variables))

    def _choose(self, options: list[tuple[Node, ...]]) -> None:
        ends = []
        for number, option in enumerate(options):
            last = number == len(options) - 1
            split = None if last else self.put(codes.SPLIT)
            for part in option:
                self.add(part)
            if split is not None:
                ends.append(self.put(codes.JUMP))
                self.steps[split][1:] = [split + 1, len(self.steps)]
        for end in ends:
            self.steps[end][1] = len(self.steps)

    def _permute(self, parts: list[Node]) -> None:
        """All orders as a tree: after each part, all orders of what is left."""
        ends = []
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            split = None if last else self.put(codes.SPLIT)
            self.add(part)
            self._permute([*parts[:number], *parts[number + 1 :]])
            if split is not None:
                ends.append(self.put(codes.JUMP))
                self.steps[split][1:] = [split + 1, len(self.steps)]
        for end in ends:
            self.steps[end][1] = len(self.steps)

    def _repeat(self, node: Repeat) -> None:
        for _ in range(node.least):
            self.add(node.of)
        if node.most is None:
            self._loop(node.of, node.greedy)
            return
        splits = []
        for _ in range(node.most - node.least):
            splits.append(self.put(codes.SPLIT))
            self._round(node.of)
        for split in splits:
            self._fork(split, inside=split + 1, outside=len(self.steps), greedy=node.greedy)

    def _loop(self, of: Node, greedy: bool) -> None:
        split = self.put(codes.SPLIT)
        self._round(of)
        self.put(codes.JUMP, split)
        self._fork(split, inside=split + 1, outside=len(self.steps), greedy=greedy)

    def _round(self, of: Node) -> None:
        """One round that need not be: it must move on, or the search would go in circles."""
        if not can_be_empty(of):
            self.add(of)
            return
        slot, self.slots = self.slots, self.slots + 1
        begin = self.put(codes.MARK, slot)
        self.add(of)
        self.marked.append(range(begin, self.put(codes.MOVED, slot) + 1))

    def _fork(self, split: int, *, inside: int, outside: int, greedy: bool) -> None:
        self.steps[split][1:] = [inside, outside] if greedy else [outside, inside]

    def _skip(self, unless: tuple[str, ...]) -> None:
        split = self.put(codes.SPLIT)
        self.put(codes.SKIP, self.any_of(unless))
        self.put(codes.JUMP, split)
        self._fork(split, inside=split + 1, outside=len(self.steps), greedy=False)

    def joints(self) -> list[int]:
        """For each step that can be come to in several ways its number among them, and -1 for all others."""
        ways = [0] * len(self.steps)
        for at, (step, a, b) in enumerate(self.steps):
            if step == codes.SPLIT:
                ways[a] += 1
                ways[b] += 1
            elif step == codes.JUMP:
                ways[a] += 1
            elif step != codes.ACCEPT:
                ways[at + 1] += 1
        for steps in self.marked:
            for at in steps:
                ways[at] = 0
        found = [-1] * len(self.steps)
        for count, at in enumerate(at for at, number in enumerate(ways) if number > 1):
            found[at] = count
        return found

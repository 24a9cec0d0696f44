"""Check a rule against the columns of the rows: resolve names, infer types, and raise on what does not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.operators.errors import PatternInvalid
from headwater.operators.match.language.render import identifier, text_of
from headwater.operators.match.language.rule import (
    Alternation,
    Call,
    Classifier,
    Condition,
    Constant,
    Exclusion,
    Expression,
    Fold,
    MatchRowtime,
    Measure,
    Node,
    Nothing,
    Reference,
    Rule,
    Sequence,
    holds,
    mapped,
    parts,
)
from headwater.operators.match.language.source import Source

#: Where a part of an expression stands in the text, or a clause.
Where = Callable[[Expression | str], tuple[Source, int]]
NUMBER, TEXT, BOOLEAN, TIME, LENGTH, ANYTHING = (
    "a number",
    "a text",
    "a boolean",
    "a time",
    "a length of time",
    "anything",
)
COMPARED = ("=", "<>", "<", "<=", ">", ">=", "<=>")


def check(rule: Rule, schema: pa.Schema, *, where: Where | None = None) -> Rule:
    """The rule with each column by its real name and each value's type known, or one `PatternInvalid`.

    Names of columns are found whatever their case, as in Spark. `where` is given by `parse`, which
    knows the whole text; without it an error shows the condition or measure alone.
    """
    checker = _Checker(rule, schema, where)
    checker.pattern()
    define = {name: checker.condition(name, one) for name, one in rule.define.items()}
    measures = tuple(checker.measure(one) for one in rule.measures)
    by = tuple(checker.column(name, "PARTITION") for name in rule.by)
    order_by = checker.time(rule.order_by) if rule.order_by is not None else None
    checker.output(by)
    then_by = tuple(checker.column(name, "ORDER") for name in rule.then_by)
    return replace(rule, define=define, measures=measures, by=by, order_by=order_by, then_by=then_by)


@dataclass
class _Checker:
    rule: Rule
    schema: pa.Schema
    where: Where | None
    #: The text of the condition or measure at hand, for errors.
    text: str = ""
    part: str = ""

    def __post_init__(self) -> None:
        self.columns = {name.lower(): name for name in self.schema.names}

    def pattern(self) -> None:
        rule = self.rule
        if holds(rule.pattern, Nothing):
            if rule.within_us is None:
                raise self._error("PATTERN", "without a limit in time, nothing is never certain", "WITHIN INTERVAL …")
            if not _ends_with_nothing(rule.pattern):
                raise self._error("PATTERN", "NOTHING stands before other parts", "it at the end of the pattern")
        known = [*mapped(rule.pattern), *rule.subsets]
        if rule.after.variable is not None and rule.after.variable not in known:
            self.text = identifier(rule.after.variable)
            raise self._unknown("AFTER", "variable", rule.after.variable, known)
        if rule.rows == "all_with_unmatched" and holds(rule.pattern, Exclusion):
            why = "rows left out by {- -} would be neither matched nor unmatched"
            raise self._error("ROWS", why, "ALL ROWS PER MATCH, or a pattern without {- -}")

    def condition(self, name: str, condition: Condition) -> Condition:
        self.text, self.part = condition.sql, f"in the condition of {name}: "
        tree, kind = self._tree(condition.tree)
        if not fits(family(kind), BOOLEAN):
            raise self._error(condition.tree, f"the condition of {name} is {family(kind)}", "something true or false")
        return Condition(text_of(tree), tree, condition.simple)

    def measure(self, measure: Measure) -> Measure:
        self.text, self.part = measure.sql, f"in the measure {measure.name}: "
        tree, _ = self._tree(measure.tree)
        return Measure(measure.name, text_of(tree), tree)

    def column(self, name: str, at: Expression | str) -> str:
        found = name if name in self.schema.names else self.columns.get(name.lower())
        if found is None:
            self.text = self.text if not isinstance(at, str) else identifier(name)
            raise self._unknown(at, "column", name, self.schema.names)
        return found

    def time(self, name: str) -> str:
        found = self.column(name, "ORDER")
        kind = self.schema.field(found).type
        if family(kind) != TIME:
            self.text = identifier(name)
            raise self._error("ORDER", f"{found} is {family(kind)}", "the event time, of type timestamp")
        return found

    def output(self, by: tuple[str, ...]) -> None:
        taken = by if self.rule.rows == "one" else tuple(self.schema.names)
        for measure in self.rule.measures:
            if measure.name.lower() in {name.lower() for name in taken}:
                self.text = measure.sql
                why = f"the output has a column {measure.name} already"
                raise self._error(measure.tree, why, "another name for the measure")

    def _tree(self, tree: Expression) -> tuple[Expression, pa.DataType | None]:
        match tree:
            case Constant():
                return tree, tree.kind
            case Reference():
                return self._reference(tree)
            case Fold():
                return self._fold(tree)
            case Classifier():
                self._variable(tree.variable, tree)
                return tree, pa.string()
            case Call():
                return self._call(tree)
            case MatchRowtime():
                return tree, pa.timestamp("us", "UTC")
            case _:
                return tree, pa.int64()

    def _reference(self, tree: Reference) -> tuple[Expression, pa.DataType]:
        self._variable(tree.variable, tree)
        name = self.column(tree.column, tree)
        return replace(tree, column=name), self.schema.field(name).type

    def _variable(self, name: str | None, at: Expression) -> None:
        known = [*mapped(self.rule.pattern), *self.rule.subsets]
        # A variable that is only looked for may speak of itself.
        if name is not None and name not in known and name not in self.rule.define:
            raise self._unknown(at, "variable", name, known)

    def _fold(self, tree: Fold) -> tuple[Expression, pa.DataType | None]:
        self._variable(tree.variable, tree)
        if tree.of is None:
            return tree, pa.int64()
        of, inner = self._tree(tree.of)
        kind = folded(tree.name, inner)
        if isinstance(kind, str):
            raise self._error(tree, f"{kind} means nothing", "a column of numbers")
        return replace(tree, of=of), kind

    def _call(self, tree: Call) -> tuple[Expression, pa.DataType | None]:
        found = [self._tree(one) for one in tree.of]
        kind = self._kind(tree, [kind for _, kind in found])
        return Call(tree.name, tuple(one for one, _ in found), kind), kind

    def _kind(self, tree: Call, kinds: list[pa.DataType | None]) -> pa.DataType | None:
        name, families = tree.name, [family(kind) for kind in kinds]
        if name in COMPARED or name == "in":
            if not fits(*families):
                told = " with ".join(dict.fromkeys(families))
                raise self._error(tree, f"this compares {told}", "values of one kind, or a CAST")
            return pa.bool_()
        if name in ("+", "-", "*", "/", "%"):
            kind = calculated(name, kinds[0], kinds[1])
            if isinstance(kind, str):
                raise self._error(tree, kind, "numbers, or times and lengths of time")
            return kind
        if name in ("and", "or", "not") and not all(fits(one, BOOLEAN) for one in families):
            wrong = next(place for place, one in enumerate(families) if not fits(one, BOOLEAN))
            raise self._error(tree.of[wrong], f"{name.upper()} of {families[wrong]}", "a condition")
        if name == "case":
            return self._case(tree, kinds)
        if name in SAME:
            return joint(kinds)
        named = {"cast": tree.kind, **dict.fromkeys(TEXTS, pa.string()), **dict.fromkeys(TRUTHS, pa.bool_())}
        named |= {**dict.fromkeys(WHOLES, pa.int64()), **dict.fromkeys(REALS, pa.float64())}
        return named.get(name)

    def _case(self, tree: Call, kinds: list[pa.DataType | None]) -> pa.DataType | None:
        results = [*kinds[1::2], *(kinds[-1:] if len(kinds) % 2 else [])]
        if not fits(*(family(kind) for kind in results)):
            told = " and ".join(dict.fromkeys(family(kind) for kind in results))
            raise self._error(tree, f"this CASE gives {told}", "values of one kind")
        return joint(results)

    def _error(self, at: Expression | str, why: str, expected: str) -> PatternInvalid:
        source, place = self._place(at)
        return source.error(place, why if self.where is not None or isinstance(at, str) else self.part + why, expected)

    def _unknown(self, at: Expression | str, kind: str, name: str, known: list[str]) -> PatternInvalid:
        source, place = self._place(at)
        where = "the pattern" if kind == "variable" else "the input"
        within = "" if self.where is not None or isinstance(at, str) else self.part
        return source.unknown(place, kind, name, known, where=within + where)

    def _place(self, at: Expression | str) -> tuple[Source, int]:
        if self.where is not None:
            return self.where(at)
        place = self.text.find(text_of(at)) if not isinstance(at, str) else 0
        return Source(self.text), max(place, 0)


def _ends_with_nothing(node: Node) -> bool:
    """Whether `Nothing` stands only where the pattern ends."""
    match node:
        case Nothing():
            return True
        case Sequence():
            before, last = node.parts[:-1], node.parts[-1:]
            return not any(holds(part, Nothing) for part in before) and all(_ends_with_nothing(one) for one in last)
        case Alternation():
            return all(not holds(option, Nothing) or _ends_with_nothing(option) for option in node.options)
        case _:
            return not any(holds(part, Nothing) for part in parts(node))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


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

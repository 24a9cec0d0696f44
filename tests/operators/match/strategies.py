"""Random rules over the whole of the language, and random events to try them on."""

from __future__ import annotations

from typing import Any, TypeVar

import pyarrow as pa
from hypothesis import strategies as st

from headwater.operators.match.language import text_of
from headwater.operators.match.language.rule import (
    AfterMatch,
    Alternation,
    Anchor,
    Call,
    Classifier,
    Condition,
    Constant,
    Exclusion,
    Expression,
    Fold,
    MatchNumber,
    Measure,
    Node,
    Nothing,
    NotNext,
    Permute,
    Reference,
    Repeat,
    Rule,
    Sequence,
    Skip,
    Variable,
)
from tests.operators.match.conditions import looking_back

SECOND = 1_000_000
#: The columns of the events. `at` holds whole microseconds here.
COLUMNS = {"id": pa.int64(), "at": pa.int64(), "amount": pa.int64(), "price": pa.float64(), "kind": pa.string()}
VARIABLES = ("A", "B", "C", "D")
INT, FLOAT, TEXT, BOOL = pa.int64(), pa.float64(), pa.string(), pa.bool_()


Choice = TypeVar("Choice")


def often(*choices: st.SearchStrategy[Choice]) -> st.SearchStrategy[Choice]:
    """One of these; what is named twice comes twice as often, which `one_of` does not grant."""
    return st.sampled_from(range(len(choices))).flatmap(lambda which: choices[which])


@st.composite
def events(draw: st.DrawFn, *, most: int = 12, nulls: bool = True, ties: bool = False) -> list[dict[str, Any]]:
    """Events of one key in the order of time; with `ties`, some at the same moment."""
    # Few events find little; left alone, Hypothesis would try mostly those.
    count = draw(st.sampled_from([*range(most // 2, most + 1), *range(most // 2, most + 1), 0, 1, 2, 3]))
    at = 0
    rows = []
    for number in range(count):
        at += draw(st.integers(0 if ties else 1, 4)) * SECOND
        amount = draw(st.integers(0, 9) | st.none() if nulls else st.integers(0, 9))
        # Quarters are exact, so that sums of them do not depend on the order.
        price = draw(st.integers(0, 20).map(lambda quarter: quarter / 4) | st.none() if nulls else st.just(1.5))
        kind = draw(st.sampled_from(["x", "y", "z", None] if nulls else ["x", "y", "z"]))
        rows.append({"id": number, "at": at, "amount": amount, "price": price, "kind": kind})
    return rows


def patterns(*, most: int = 8, sql: bool = False) -> st.SearchStrategy[Node]:
    """Random patterns. With `sql` only what SQL can say: without the parts that the builder alone has."""
    variable = st.sampled_from(VARIABLES).map(Variable)
    names = st.lists(st.sampled_from(VARIABLES), unique=True, min_size=1, max_size=2).map(tuple)
    anchors: st.SearchStrategy[Node] = st.sampled_from([Anchor("start"), Anchor("end")])
    rare: list[st.SearchStrategy[Node]] = [anchors]
    common: list[st.SearchStrategy[Node]] = [variable] * 12
    if not sql:
        rare += [st.lists(st.sampled_from(VARIABLES), unique=True, max_size=2).map(tuple).map(Skip), names.map(NotNext)]
        common += [st.builds(lambda one: Sequence((Skip((one.name,)), one)), variable)] * 5
        common += [variable.map(lambda one: Sequence((Skip(), one)))] * 2
    any_of = st.recursive(often(*common, *rare), _larger, max_leaves=most)
    framed = st.builds(lambda *parts: Sequence(parts), *[often(*common), any_of, often(*common)])
    looped = st.builds(lambda one, rest: Sequence((Repeat(one, 1, None), rest)), variable, any_of)
    return often(framed, looped, framed, any_of)


def _larger(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    some = st.lists(inner, min_size=2, max_size=3).map(tuple)
    usual = [(0, None), (1, None), (1, None), (1, None), (0, 1), (2, 2), (2, None), (2, None), (1, 3), (1, 2)]
    bounds = st.sampled_from([*usual, *usual, (0, 2), (0, 0), (3, 3), (0, 3), (2, 4)])
    return often(
        *[some.map(Sequence)] * 6,
        *[some.map(Alternation)] * 2,
        some.map(Permute),
        st.builds(lambda of, ends, greedy: Repeat(of, ends[0], ends[1], greedy), inner, bounds, st.booleans()),
        st.builds(lambda of, ends, greedy: Repeat(of, ends[0], ends[1], greedy), inner, bounds, st.booleans()),
        inner.map(Exclusion),
        st.just(Sequence(())),
    )


def _simple() -> st.SearchStrategy[Expression]:
    """Conditions on the row at hand."""
    amount, kind = Reference("amount", here=True), Reference("kind", here=True)
    number = st.integers(-1, 9).map(lambda value: Constant(value, INT))
    compared = st.builds(lambda name, value: Call(name, (amount, value)), st.sampled_from(COMPARISONS), number)
    price = st.builds(
        lambda name, value: Call(name, (Reference("price", here=True), Constant(value / 2, FLOAT))),
        st.sampled_from(COMPARISONS),
        st.integers(0, 10),
    )
    texts = st.sampled_from(["x", "y", "z", "it's"]).map(lambda value: Constant(value, TEXT))
    same = st.builds(lambda name, value: Call(name, (kind, value)), st.sampled_from(["=", "<>", "<"]), texts)
    fixed: list[Expression] = [
        Call("in", (kind, Constant("x", TEXT), Constant("y", TEXT))),
        Call("is_null", (amount,)),
        Call("not", (Call("is_null", (amount,)),)),
        Call("=", (Call("%", (amount, Constant(2, INT))), Constant(0, INT))),
        Call("like", (kind, Constant("x%", TEXT))),
        Constant(True, BOOL),
        Constant(False, BOOL),
    ]
    loose: list[Expression] = [
        Call(">=", (amount, Constant(2, INT))),
        Call("<=", (amount, Constant(7, INT))),
        Call("<>", (kind, Constant("x", TEXT))),
        Constant(True, BOOL),
    ]
    return often(compared, compared, price, same, st.sampled_from(fixed), *[st.sampled_from(loose)] * 9)


COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]


def _seen(variables: tuple[str, ...], own: str) -> st.SearchStrategy[Expression]:
    """Numbers that depend on other rows than the one at hand."""
    others = [one for one in variables if one != own]
    other = st.sampled_from([None, *others])
    offsets = st.integers(0, 2)
    shifts = st.sampled_from([0, 0, 0, -1, 1, -2])
    numbers = st.sampled_from(["amount", "price"])
    first = st.builds(
        lambda column, name, offset, shift: Reference(column, name, "first", offset, shift),
        numbers,
        st.sampled_from([None, *variables]),
        offsets,
        shifts,
    )
    last = st.builds(
        lambda column, name, offset, shift: Reference(column, name, "last", offset + (name is None), shift),
        numbers,
        other,
        offsets,
        shifts,
    )
    near = st.builds(
        lambda column, shift: Reference(column, shift=shift, here=True), numbers, st.sampled_from([-1, -1, -2, 1])
    )
    return st.one_of(near, first, last, folds(variables, final=st.just(False)))


def folds(variables: tuple[str, ...], *, final: st.SearchStrategy[bool]) -> st.SearchStrategy[Expression]:
    """Aggregates of numbers."""
    of: list[Expression | None] = [
        None,
        Reference("amount", here=True),
        Reference("price", here=True),
        Call("+", (Reference("amount", here=True), Constant(1, INT))),
    ]
    names = ["count", "sum", "avg", "min", "max", "stddev"]

    def made(name: Any, of: Expression | None, variable: str | None, distinct: bool, final: bool) -> Fold:
        name = "count" if of is None else name
        return Fold(name, of, variable, distinct and name == "count" and of is not None, final)

    where = st.sampled_from([None, *variables])
    return st.builds(made, st.sampled_from(names), st.sampled_from(of), where, st.booleans(), final)


def _conditions(variables: tuple[str, ...], own: str, *, rare: bool = False) -> st.SearchStrategy[Condition]:
    amount = Reference("amount", here=True)
    iterative = st.builds(
        lambda name, value: Call(name, (amount, value)), st.sampled_from(COMPARISONS), _seen(variables, own)
    )
    counted = st.builds(
        lambda name, value, limit: Call(name, (value, Constant(limit, INT))),
        st.sampled_from(COMPARISONS),
        folds(variables, final=st.just(False)),
        st.integers(0, 12),
    )
    one = often(_simple(), _simple(), iterative, counted, *([looking_back(variables, own)] * 2 if rare else []))
    both = st.builds(lambda name, a, b: Call(name, (a, b)), st.sampled_from(["and", "or"]), one, one)
    return often(one, one, both).map(lambda tree: Condition(text_of(tree), tree, simple=is_simple(tree)))


def is_simple(tree: Expression) -> bool:
    match tree:
        case Constant():
            return True
        case Reference():
            return tree.here and tree.shift == 0
        case Call():
            return all(is_simple(one) for one in tree.of)
        case _:
            return False


def _measures(
    variables: tuple[str, ...], *, final: st.SearchStrategy[bool], classified: bool = False
) -> st.SearchStrategy[tuple[Measure, ...]]:
    where = st.sampled_from([None, *variables])
    references = st.builds(
        Reference,
        st.sampled_from(["id", "amount", "price", "kind"]),
        where,
        st.sampled_from(["first", "last"]),
        st.integers(0, 2),
        st.sampled_from([0, 0, 0, -1, 1]),
        st.just(False),
        final,
    )
    lists = st.builds(
        lambda column, variable, final: Fold("array_agg", Reference(column, here=True), variable, final=final),
        st.sampled_from(["id", "kind"]),
        where,
        final,
    )
    paths = st.builds(lambda variable, final: Fold("array_agg", Classifier(), variable, final=final), where, final)
    trees = st.one_of(
        references,
        references,
        folds(variables, final=final),
        lists,
        *([paths] if classified else []),
        st.builds(Classifier, where, final),
        st.just(MatchNumber()),
        st.builds(lambda a, b: Call("+", (a, b)), *[folds(variables, final=final)] * 2),
    )
    return st.lists(trees, max_size=4).map(
        lambda found: tuple(Measure(f"m{number}", text_of(tree), tree) for number, tree in enumerate(found))
    )


@st.composite
def rules(
    draw: st.DrawFn,
    *,
    most: int = 8,
    sql: bool = False,
    timed: bool | None = None,
    classified: bool = False,
    rare: bool = False,
) -> Rule:
    """A random rule over the whole grammar (or only SQL's part of it), of at most `most` leaves.

    `timed=True`: with a limit in time, so that partial matches can time out. `classified=True`: with measures such as
    ARRAY_AGG(CLASSIFIER()). `rare=True`: with conditions that look at other rows in less usual ways.
    """
    pattern = draw(patterns(most=most, sql=sql))
    used = tuple(dict.fromkeys(name for name in names_in(pattern)))
    pairs = tuple(dict.fromkeys(name for name in mapped_in(pattern)))
    subsets = {"U": pairs[:2]} if len(pairs) > 1 and draw(st.booleans()) else {}
    known = (*pairs, *subsets)
    within = draw(st.integers(2, 40).map(lambda seconds: seconds * SECOND) | (st.nothing() if timed else st.none()))
    between = draw(often(st.none(), st.none(), st.integers(2, 5).map(lambda seconds: seconds * SECOND)))
    if not sql and within is not None and used and draw(st.integers(0, 5)) == 0:
        pattern = Sequence((pattern, Nothing((draw(st.sampled_from(used)),))))
    define = {
        name: draw(_conditions(tuple(one for one in known if one != "U" or name not in subsets["U"]), name, rare=rare))
        for name in used
        if draw(st.sampled_from([True, True, False]))
    }
    rows: Any = draw(
        st.sampled_from(["one", "one", "one", "all", "all_show_empty", "all_omit_empty", "all_with_unmatched"])
    )
    if rows == "all_with_unmatched" and excludes(pattern):
        rows = "all"
    after = draw(_after(known, sql=sql))
    return Rule(
        pattern=pattern,
        define=define,
        subsets=subsets,
        measures=draw(
            _measures(known, final=st.just(False) if rows == "one" else st.booleans(), classified=classified)
        ),
        rows=rows,
        after=after,
        within_us=within,
        between_us=between,
        order_by="at",
        every=after.where == "none" and draw(st.booleans()),
    )


@st.composite
def _after(draw: st.DrawFn, known: tuple[str, ...], *, sql: bool) -> AfterMatch:
    # SKIP TO a variable raises for most random rules, so it is rare here.
    wheres = ["past_last"] * 3 + ["to_next"] * 3 + ([] if sql else ["none"] * 3) + ["to_first", "to_last"]
    where: Any = draw(st.sampled_from(wheres))
    if where in ("to_first", "to_last"):
        return AfterMatch(where, draw(st.sampled_from(known))) if known else AfterMatch()
    return AfterMatch(where)


def inner(node: Node) -> tuple[Node, ...]:
    match node:
        case Sequence() | Permute():
            return node.parts
        case Alternation():
            return node.options
        case Repeat() | Exclusion():
            return (node.of,)
        case _:
            return ()


def names_in(node: Node) -> list[str]:
    """All variables that need a condition, also those that are only looked for."""
    own: tuple[str, ...] = ()
    match node:
        case Variable():
            own = (node.name,)
        case Skip():
            own = node.unless
        case NotNext() | Nothing():
            own = node.variables
    return [*own, *(name for part in inner(node) for name in names_in(part))]


def mapped_in(node: Node) -> list[str]:
    """The variables that rows can be mapped to."""
    own = [node.name] if isinstance(node, Variable) else []
    return [*own, *(name for part in inner(node) for name in mapped_in(part))]


def excludes(node: Node) -> bool:
    return isinstance(node, Exclusion) or any(excludes(part) for part in inner(node))

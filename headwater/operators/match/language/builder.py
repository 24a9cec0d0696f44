"""Patterns written in Python: step after step, each call a new value.

    begin("small", "amount < 5").times(2).or_more().next("big", "amount > 500").within("10 minutes")

What a step may do that SQL's text cannot say as easily: skip rows that do not fit (`followed_by`), try every row that
fits (`followed_by_any`), and demand that something does not come (`not_next`, `not_followed_by`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from headwater.engine.window_spans import duration_us
from headwater.errors import ArgumentInvalid
from headwater.operators.match.language.expression_parser import ExpressionParser, Scope, check_functions
from headwater.operators.match.language.render import interval, pattern_text, text_of
from headwater.operators.match.language.rule import (
    SIZE_MAX,
    AfterMatch,
    Alternation,
    Condition,
    Measure,
    Node,
    Nothing,
    NotNext,
    Repeat,
    Rule,
    Sequence,
    Skip,
    Variable,
    can_be_empty,
    firsts,
    holds,
    is_simple,
    mapped,
    size,
    skips_to_start,
)
from headwater.operators.match.language.source import Source

Link = Literal["next", "followed_by", "followed_by_any", "not_next", "not_followed_by"]
Inside = Literal["consecutive", "relaxed", "any"]
AFTER = ("past_last", "to_next", "to_first", "to_last", "none")
ROWS = ("one", "all", "all_show_empty", "all_omit_empty", "all_with_unmatched")


@dataclass(frozen=True)
class Step:
    """One step: a variable or a pattern, how it is joined to the step before, and how often it comes."""

    of: str | Pattern
    link: Link = "next"
    where: str | None = None
    least: int = 1
    most: int | None = 1
    greedy: bool = True
    optional: bool = False
    inside: Inside = "consecutive"
    until: str | None = None

    @property
    def is_absent(self) -> bool:
        """Whether it is something that must not come."""
        return self.link in ("not_next", "not_followed_by")

    @property
    def is_optional(self) -> bool:
        return self.optional or self.least == 0


@dataclass(frozen=True, repr=False)
class Pattern:
    """A pattern that is being built. It never changes: each method gives a new one.

    Methods such as `times` and `optional` speak of the step written last. Conditions are SQL, as in DEFINE: columns of
    the row at hand, and of earlier rows by their step's name, as in `amount > 2 * LAST(small.amount)`.

    >>> begin("small", "amount < 5").times(2).or_more().next("big", "amount > 500").within("10 minutes")
    Pattern(small{2,} big WITHIN INTERVAL '10' MINUTE)
    """

    steps: tuple[Step, ...]
    within_us: int | None = None
    gap_us: int | None = None
    measured: tuple[tuple[str, str], ...] = ()
    unions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    going_on: AfterMatch | None = None
    shown: str = "one"

    # -- the next step ------------------------------------------------------------------------------------------------

    def next(self, of: str | Pattern, where: str | None = None) -> Pattern:
        """The very next row (strict contiguity)."""
        return self._with(Step(_step(of), "next", _sql("where", where)))

    def followed_by(self, of: str | Pattern, where: str | None = None) -> Pattern:
        """The first row that fits; those before it are skipped (relaxed contiguity)."""
        return self._with(Step(_step(of), "followed_by", _sql("where", where)))

    def followed_by_any(self, of: str | Pattern, where: str | None = None) -> Pattern:
        """Each row that fits, not only the first: rows that fit may be skipped too (relaxed-any contiguity).

        Unless `after` says otherwise, every match that begins at a row is then reported.
        """
        return self._with(Step(_step(of), "followed_by_any", _sql("where", where)))

    def not_next(self, name: str, where: str | None = None) -> Pattern:
        """The very next row does not fit this. The row is not taken."""
        return self._with(Step(_name(name), "not_next", _sql("where", where)))

    def not_followed_by(self, name: str, where: str | None = None) -> Pattern:
        """No row fits this until the next step's row comes; at the end of a pattern: until `within` is over."""
        return self._with(Step(_name(name), "not_followed_by", _sql("where", where)))

    # -- the step written last ----------------------------------------------------------------------------------------

    def where(self, condition: str) -> Pattern:
        """One more condition, which must hold too."""
        return self._joined("AND", condition)

    def or_where(self, condition: str) -> Pattern:
        """Another condition, which is enough."""
        return self._joined("OR", condition)

    def times(self, least: int, most: int | None = None) -> Pattern:
        """`least` times exactly, or `least` to `most` times."""
        top = least if most is None else most
        if not isinstance(least, int) or least < 0 or top < max(least, 1):
            raise ArgumentInvalid(
                name="times", value=(least, most), expected="how often, as in times(2) or times(2, 4)"
            )
        return self._changed("times", lambda step: replace(step, least=least, most=top))

    def or_more(self) -> Pattern:
        """As often as `times` says, or more often."""
        return self._changed("or_more", lambda step: replace(step, most=None))

    def one_or_more(self) -> Pattern:
        """Once, or more often."""
        return self._changed("one_or_more", lambda step: replace(step, least=1, most=None))

    def optional(self) -> Pattern:
        """Or not at all."""
        return self._changed("optional", lambda step: replace(step, optional=True))

    def greedy(self) -> Pattern:
        """As often as possible: so it is unless said otherwise."""
        return self._changed("greedy", lambda step: replace(step, greedy=True))

    def reluctant(self) -> Pattern:
        """As rarely as possible."""
        return self._changed("reluctant", lambda step: replace(step, greedy=False))

    def consecutive(self) -> Pattern:
        """Repetitions right after one another: so it is unless said otherwise."""
        return self._changed("consecutive", lambda step: replace(step, inside="consecutive"))

    def relaxed(self) -> Pattern:
        """Between repetitions, rows that do not fit are skipped (as Flink does by itself)."""
        return self._changed("relaxed", lambda step: replace(step, inside="relaxed"))

    def allow_combinations(self) -> Pattern:
        """Between repetitions, rows that fit may be skipped too; every combination is then reported."""
        return self._changed("allow_combinations", lambda step: replace(step, inside="any"))

    def until(self, condition: str) -> Pattern:
        """Repetitions end before the first row for which this holds."""
        return self._changed("until", lambda step: replace(step, until=_sql("until", condition)))

    # -- the whole pattern --------------------------------------------------------------------------------------------

    def within(self, length: str) -> Pattern:
        """The longest time from the first row to the last."""
        return replace(self, within_us=duration_us("within", length))

    def gap(self, length: str) -> Pattern:
        """The longest time between two neighbouring rows of a match."""
        return replace(self, gap_us=duration_us("gap", length))

    def measures(self, **measures: str) -> Pattern:
        """What comes out, by name: SQL as in MEASURES, such as `total="SUM(small.amount)"`."""
        return replace(
            self, measured=(*self.measured, *((name, _sql(name, one) or "") for name, one in measures.items()))
        )

    def subset(self, name: str, *variables: str) -> Pattern:
        """A name for several steps together, for measures and conditions."""
        return replace(self, unions=(*self.unions, (_name(name), variables)))

    def after(self, where: str, variable: str | None = None) -> Pattern:
        """Where the search goes on after a match: "past_last", "to_next", "to_first", "to_last" or "none".

        "none" skips nothing: every match is reported, also several that begin at one row.
        """
        if where not in AFTER or (where in ("to_first", "to_last")) != (variable is not None):
            expected = f"one of {', '.join(AFTER)}, and a variable for to_first and to_last"
            raise ArgumentInvalid(name="after", value=(where, variable), expected=expected)
        chosen: Any = where
        return replace(self, going_on=AfterMatch(chosen, variable))

    def rows(self, rows: str) -> Pattern:
        """What comes out for a match: "one" row, or "all" of its rows (also "all_with_unmatched" and the like)."""
        if rows not in ROWS:
            raise ArgumentInvalid(name="rows", value=rows, expected=f"one of {', '.join(ROWS)}")
        return replace(self, shown=rows)

    def rule(self, *, order_by: str | None = None, by: tuple[str, ...] | str = ()) -> Rule:
        """What the engine runs."""

        return _rule(self, order_by=order_by, by=(by,) if isinstance(by, str) else tuple(by))

    def __repr__(self) -> str:

        within = f" WITHIN {interval(self.within_us)}" if self.within_us is not None else ""
        gap = f" GAP {interval(self.gap_us)}" if self.gap_us is not None else ""
        return f"Pattern({pattern_text(_node(self))}{within}{gap})"

    def _with(self, step: Step) -> Pattern:
        return replace(self, steps=(*self.steps, step))

    def _changed(self, name: str, change: Callable[[Step], Step]) -> Pattern:
        last = self.steps[-1]
        if last.is_absent:
            raise ArgumentInvalid(
                name=name, value=last.of, expected=f"`{name}` after a step that comes, not after {last.link}"
            )
        return replace(self, steps=(*self.steps[:-1], change(last)))

    def _joined(self, word: str, condition: str) -> Pattern:
        last = self.steps[-1]
        if not isinstance(last.of, str):
            raise ArgumentInvalid(name="where", value=condition, expected="conditions at the steps inside the pattern")
        both = f"({last.where}) {word} ({_sql('where', condition)})" if last.where is not None else condition
        return replace(self, steps=(*self.steps[:-1], replace(last, where=both)))


def begin(of: str | Pattern, where: str | None = None) -> Pattern:
    """The first step of a pattern: a name and its condition in SQL, or a pattern, as a group.

    >>> begin(begin("a", "kind = 'x'").next("b")).times(2).followed_by("c")
    Pattern((a b){2} SKIP(c) c)
    """
    return Pattern((Step(_step(of), "next", _sql("where", where)),))


def _step(of: object) -> str | Pattern:
    if isinstance(of, Pattern):
        plain = Pattern(of.steps)
        if of != plain:
            expected = (
                "a group without `within`, `gap`, `after`, `measures` and the like: they are of the whole pattern"
            )
            raise ArgumentInvalid(name="group", value=of, expected=expected)
        return of
    return _name(of)


def _name(name: object) -> str:
    if not isinstance(name, str) or not name.isidentifier():
        raise ArgumentInvalid(name="name", value=name, expected="an identifier, such as small or step_2")
    return name


def _sql(name: str, text: object) -> str | None:
    if text is not None and (not isinstance(text, str) or not text.strip()):
        raise ArgumentInvalid(name=name, value=text, expected="a condition or a value as SQL text")
    return text


def _rule(pattern: Pattern, *, order_by: str | None, by: tuple[str, ...]) -> Rule:
    """The rule of a pattern, with all conditions read."""
    tree = _node(pattern)
    if holds(tree, Nothing) and pattern.within_us is None:
        expected = "`within(…)` as well, or a step after it: else it is never certain that nothing comes"
        absent = next(step.of for step in reversed(pattern.steps) if step.link == "not_followed_by")
        raise ArgumentInvalid(name="not_followed_by", value=absent, expected=expected)
    names = {name.lower(): name for name in mapped(tree)}
    unions = _unions(pattern, names)
    combines = any(_combines(step) for step in pattern.steps)
    after = pattern.going_on or AfterMatch("none" if combines else "past_last")
    _check_after(after, tree, unions)
    shown: Any = pattern.shown
    scope = Scope(names, unions)
    measures = [(name, ExpressionParser(Source(sql)).read(0, len(sql), scope)) for name, sql in pattern.measured]
    return Rule(
        pattern=tree,
        define={name: _condition(name, where, names, unions) for name, where in _conditions(pattern).items()},
        subsets=unions,
        measures=tuple(Measure(name, text_of(tree), tree) for name, tree in measures),
        rows=shown,
        after=after,
        within_us=pattern.within_us,
        between_us=pattern.gap_us,
        by=by,
        order_by=order_by,
        every=after.where == "none",
    )


def _node(pattern: Pattern) -> Node:
    """The pattern as a tree."""
    tree = sequence(*_steps(pattern.steps, ()))
    if size(tree) > SIZE_MAX:
        expected = f"a pattern of at most {SIZE_MAX:,} steps when its repetitions are written out"
        raise ArgumentInvalid(name="times", value=f"{size(tree):,} steps", expected=expected)
    return tree


def _steps(steps: tuple[Step, ...], absent: tuple[str, ...]) -> list[Node]:
    """Steps one after the other, where no row may fit `absent` until the next one that is taken."""
    if not steps:
        return [Nothing(absent)] if absent else []
    step, rest = steps[0], steps[1:]
    if step.link == "not_followed_by":
        _check_next(step, rest)
        return _steps(rest, (*absent, str(step.of)))
    if step.link == "not_next":
        return [NotNext((str(step.of),)), *_steps(rest, absent)]
    taken = _joined(step, absent)
    if not step.is_optional:
        return [taken, *_steps(rest, ())]
    if not absent:
        return [Repeat(taken, 0, 1, step.greedy), *_steps(rest, ())]
    # Where the step is left out, `absent` holds until the step behind it: both ways are written out up to the next
    # step that must come.
    behind = next((at + 1 for at, one in enumerate(rest) if not one.is_absent and not one.is_optional), len(rest))
    with_step = sequence(taken, *_steps(rest[:behind], ()))
    without = sequence(*_steps(rest[:behind], absent))
    return [Alternation((with_step, without) if step.greedy else (without, with_step)), *_steps(rest[behind:], ())]


def _check_next(step: Step, rest: tuple[Step, ...]) -> None:
    """Raise where nothing could lie between the steps before and behind `not_followed_by`."""
    following = next((one for one in rest if not one.is_absent), None)
    if following is not None and following.link == "next":
        expected = "`followed_by` or `followed_by_any` after it: between neighbours nothing can come"
        raise ArgumentInvalid(name="not_followed_by", value=step.of, expected=expected)


def sequence(*parts: Node) -> Node:
    """One part after the other, without needless nesting."""
    flat: list[Node] = []
    for part in parts:
        flat += part.parts if isinstance(part, Sequence) else [part]
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def _joined(step: Step, absent: tuple[str, ...]) -> Node:
    """A step with what may lie between it and the step before."""
    unit = _node(step.of) if isinstance(step.of, Pattern) else Variable(step.of)
    if isinstance(step.of, Pattern) and holds(unit, Nothing):
        raise ArgumentInvalid(
            name="group", value=step.of, expected="`not_followed_by` inside a group before another step"
        )
    if absent and can_be_empty(unit):
        expected = "a group that takes at least one row after it; `optional()` at the group as a whole may leave it out"
        raise ArgumentInvalid(name="not_followed_by", value=absent[0], expected=expected)
    before = {"next": [], "followed_by": [Skip((*firsts(unit), *absent))], "followed_by_any": [Skip(absent)]}[step.link]
    return sequence(*before, _looped(step, unit))


def _looped(step: Step, unit: Node) -> Node:
    """The repetitions of a step, once at least."""
    stop = (until_name(step),) if step.until is not None else ()
    if stop and step.most == 1:
        raise ArgumentInvalid(name="until", value=step.until, expected="`until` at a step that is repeated")
    once = sequence(NotNext(stop), unit) if stop else unit
    least, most = max(step.least, 1), step.most
    if (least, most) == (1, 1):
        return once
    if step.inside == "consecutive":
        return Repeat(once, least, most, step.greedy)
    passed = Skip((*firsts(unit), *stop) if step.inside == "relaxed" else stop)
    again = Repeat(sequence(passed, once), least - 1, None if most is None else most - 1, step.greedy)
    return sequence(once, again)


def until_name(step: Step) -> str:
    """The variable that ends a step's repetitions; rows are never mapped to it."""
    return f"until_{step.of}" if isinstance(step.of, str) else f"until_group_{'_'.join(mapped(_node(step.of)))}"


def _combines(step: Step) -> bool:
    inside = isinstance(step.of, Pattern) and any(_combines(one) for one in step.of.steps)
    return inside or step.link == "followed_by_any" or step.inside == "any"


def _conditions(pattern: Pattern) -> dict[str, str]:
    """The conditions by variable, those of groups included. A name used again must mean the same."""
    found: dict[str, str | None] = {}
    for step in pattern.steps:
        if isinstance(step.of, Pattern):
            new: dict[str, str | None] = dict(_conditions(step.of))
        else:
            new = {step.of: step.where}
        if step.until is not None:
            new[until_name(step)] = step.until
        for name, where in new.items():
            _add(found, name, where)
    return {name: where for name, where in found.items() if where is not None}


def _add(found: dict[str, str | None], name: str, where: str | None) -> None:
    twin = next((one for one in found if one.lower() == name.lower()), name)
    same = twin == name and (where is None or found.get(name) in (None, where))
    if not same:
        expected = "another name: this one has another condition already, or differs in case alone"
        raise ArgumentInvalid(name="name", value=name, expected=expected)
    found[name] = where or found.get(name)


def _unions(pattern: Pattern, names: dict[str, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, members in pattern.unions:
        unknown = [one for one in members if one not in names.values()]
        if unknown or not members or name.lower() in names:
            expected = f"a new name, and steps of the pattern: {', '.join(names.values())}"
            raise ArgumentInvalid(name="subset", value=(name, members), expected=expected)
        found[name] = members
    return found


def _check_after(after: AfterMatch, tree: Node, unions: dict[str, tuple[str, ...]]) -> None:
    if after.variable is None:
        return
    known = [*mapped(tree), *unions]
    if after.variable not in known:
        raise ArgumentInvalid(name="after", value=after.variable, expected=f"one of {', '.join(known)}")
    if skips_to_start(tree, after.where, unions.get(after.variable, (after.variable,))):
        expected = "a step behind the first row: each match begins with this one, and would be found for ever"
        raise ArgumentInvalid(name="after", value=after.variable, expected=expected)


def _condition(name: str, where: str, names: dict[str, str], unions: dict[str, tuple[str, ...]]) -> Condition:
    scope = Scope({**names, name.lower(): name}, unions, own=name)
    parser = ExpressionParser(Source(where))
    tree = parser.read(0, len(where), scope)
    check_functions(parser, tree, name, unions)
    return Condition(text_of(tree), tree, simple=is_simple(tree))

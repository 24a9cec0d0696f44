"""From steps to trees: what the builder's words mean in rows."""

from __future__ import annotations

from typing import Any

from headwater.errors import ArgumentInvalid
from headwater.operators.match.builder import Pattern, Step
from headwater.operators.match.expression import Condition, Measure, Rule
from headwater.operators.match.pattern import (
    AfterMatch,
    Node,
    Nothing,
    NotNext,
    Repeat,
    Sequence,
    Skip,
    Variable,
)
from headwater.operators.match.size import SIZE_MAX, size
from headwater.operators.match.sql.expressions import Reader, Scope
from headwater.operators.match.sql.parts import is_simple
from headwater.operators.match.sql.source import Source
from headwater.operators.match.sql.values_text import text_of
from headwater.operators.match.tree import firsts, holds, mapped, skips_to_start


def rule(pattern: Pattern, *, on: str | None, by: tuple[str, ...]) -> Rule:
    """The rule of a pattern, with all conditions read."""
    tree = node(pattern)
    if holds(tree, Nothing) and pattern.within_us is None:
        expected = "`within(…)` as well, or a step after it: else it is never certain that nothing comes"
        raise ArgumentInvalid(name="not_followed_by", value=pattern.steps[-1].of, expected=expected)
    names = {name.lower(): name for name in mapped(tree)}
    unions = _unions(pattern, names)
    combines = any(_combines(step) for step in pattern.steps)
    after = pattern.going_on or AfterMatch("none" if combines else "past_last")
    _check_after(after, tree, unions)
    shown: Any = pattern.shown
    return Rule(
        pattern=tree,
        define={name: _condition(name, where, names, unions) for name, where in _conditions(pattern).items()},
        subsets=unions,
        measures=tuple(_measure(name, sql, Scope(names, unions)) for name, sql in pattern.measured),
        rows=shown,
        after=after,
        within_us=pattern.within_us,
        between_us=pattern.gap_us,
        by=by,
        on=on,
        every=after.where == "none",
    )


def node(pattern: Pattern) -> Node:
    """The pattern as a tree."""
    parts: list[Node] = []
    absent: list[str] = []
    for step in pattern.steps:
        if step.link == "not_followed_by":
            absent.append(str(step.of))
        elif step.link == "not_next":
            parts.append(NotNext((str(step.of),)))
        else:
            parts.append(_joined(step, tuple(absent)))
            absent = []
    if absent:
        parts.append(Nothing(tuple(absent)))
    tree = sequence(*parts)
    if size(tree) > SIZE_MAX:
        expected = f"a pattern of at most {SIZE_MAX:,} steps when its repetitions are written out"
        raise ArgumentInvalid(name="times", value=f"{size(tree):,} steps", expected=expected)
    return tree


def sequence(*parts: Node) -> Node:
    """One part after the other, without needless nesting."""
    flat: list[Node] = []
    for part in parts:
        flat += part.parts if isinstance(part, Sequence) else [part]
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def _joined(step: Step, absent: tuple[str, ...]) -> Node:
    """A step with what may lie between it and the step before."""
    unit = node(step.of) if isinstance(step.of, Pattern) else Variable(step.of)
    if isinstance(step.of, Pattern) and holds(unit, Nothing):
        raise ArgumentInvalid(
            name="group", value=step.of, expected="`not_followed_by` inside a group before another step"
        )
    if step.link == "next" and absent:
        expected = "`followed_by` or `followed_by_any` after it: between neighbours nothing can come"
        raise ArgumentInvalid(name="not_followed_by", value=absent[0], expected=expected)
    before = {
        "next": [],
        "followed_by": [Skip((*firsts(unit), *absent))],
        "followed_by_any": [Skip(absent)],
    }[step.link]
    whole = sequence(*before, _looped(step, unit))
    return Repeat(whole, 0, 1, step.greedy) if step.optional or step.least == 0 else whole


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
    return f"until_{step.of}" if isinstance(step.of, str) else f"until_group_{'_'.join(mapped(node(step.of)))}"


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
        expected = "another name: this one has another condition already, or differs in the case of its letters alone"
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
    tree = Reader(Source(where)).read(0, len(where), scope)
    return Condition(text_of(tree), tree, simple=is_simple(tree))


def _measure(name: str, sql: str, scope: Scope) -> Measure:
    tree = Reader(Source(sql)).read(0, len(sql), scope)
    return Measure(name, text_of(tree), tree)

"""Going through a pattern: its parts, and the variables that it names."""

from __future__ import annotations

from headwater.operators.match.pattern import (
    Alternation,
    Exclusion,
    Node,
    Nothing,
    NotNext,
    Permute,
    Repeat,
    Sequence,
    Skip,
    Variable,
)


def parts(node: Node) -> tuple[Node, ...]:
    """The patterns inside a pattern."""
    match node:
        case Sequence() | Permute():
            return node.parts
        case Alternation():
            return node.options
        case Repeat() | Exclusion():
            return (node.of,)
        case _:
            return ()


def mapped(node: Node) -> tuple[str, ...]:
    """The variables that rows can be mapped to, in the order in which they are first written."""
    own = (node.name,) if isinstance(node, Variable) else ()
    return tuple(dict.fromkeys([*own, *(name for part in parts(node) for name in mapped(part))]))


def named(node: Node) -> tuple[str, ...]:
    """All variables, also those that are only looked for: by `Skip`, `NotNext` and `Nothing`."""
    own: tuple[str, ...] = ()
    match node:
        case Variable():
            own = (node.name,)
        case Skip():
            own = node.unless
        case NotNext() | Nothing():
            own = node.variables
    return tuple(dict.fromkeys([*own, *(name for part in parts(node) for name in named(part))]))


def can_be_empty(node: Node) -> bool:
    """Whether it can fit without taking a row."""
    match node:
        case Variable():
            return False
        case Sequence() | Permute():
            return all(can_be_empty(part) for part in node.parts)
        case Alternation():
            return any(can_be_empty(option) for option in node.options)
        case Repeat():
            return node.least == 0 or can_be_empty(node.of)
        case Exclusion():
            return can_be_empty(node.of)
        case _:
            return True


def firsts(node: Node) -> tuple[str, ...]:
    """The variables that the first row taken can be mapped to."""
    if isinstance(node, Variable):
        return (node.name,)
    if isinstance(node, Repeat) and node.most == 0:
        return ()
    found: list[str] = []
    for part in parts(node):
        found += firsts(part)
        if isinstance(node, Sequence) and not can_be_empty(part):
            break
    return tuple(dict.fromkeys(found))


def rows_most(node: Node, variables: tuple[str, ...]) -> float:
    """How many rows can be mapped to these variables in one match."""
    inside = [rows_most(part, variables) for part in parts(node)]
    match node:
        case Variable():
            return float(node.name in variables)
        case Alternation():
            return max(inside)
        case Repeat():
            return 0.0 if inside[0] == 0 else inside[0] * (float("inf") if node.most is None else node.most)
        case _:
            return sum(inside)


def skips_to_start(node: Node, where: str, variables: tuple[str, ...]) -> bool:
    """Whether SKIP TO these variables must always come back to the first row of the match."""
    begins = set(firsts(node)) <= set(variables)
    return begins and (where == "to_first" or (where == "to_last" and rows_most(node, variables) <= 1))


def holds(node: Node, kind: type[Node]) -> bool:
    """Whether a part of this kind is anywhere in it."""
    return isinstance(node, kind) or any(holds(part, kind) for part in parts(node))

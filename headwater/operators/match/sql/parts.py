"""Going through conditions and measures: their parts, and what they refer to."""

from __future__ import annotations

from dataclasses import replace

from headwater.operators.match.expression import Call, Classifier, Constant, Expression, Fold, Reference


def inner(tree: Expression) -> tuple[Expression, ...]:
    """The parts of a tree."""
    match tree:
        case Call():
            return tree.of
        case Fold():
            return () if tree.of is None else (tree.of,)
        case _:
            return ()


def references(tree: Expression) -> list[Reference]:
    """All columns that it refers to."""
    own = [tree] if isinstance(tree, Reference) else []
    return [*own, *(found for part in inner(tree) for found in references(part))]


def classifiers(tree: Expression) -> list[Classifier]:
    """All its CLASSIFIER()."""
    own = [tree] if isinstance(tree, Classifier) else []
    return [*own, *(found for part in inner(tree) for found in classifiers(part))]


def shifted(tree: Expression, by: int) -> Expression:
    """The same of the row that lies `by` rows behind."""
    match tree:
        case Reference():
            return replace(tree, shift=by)
        case Call():
            return replace(tree, of=tuple(shifted(one, by) for one in tree.of))
        case _:
            return tree


def unqualified(tree: Expression) -> Expression:
    """What an aggregate computes from one row: its variable is said once, by the aggregate."""
    match tree:
        case Reference() | Classifier():
            return replace(tree, variable=None)
        case Call():
            return replace(tree, of=tuple(unqualified(one) for one in tree.of))
        case _:
            return tree


def is_simple(tree: Expression) -> bool:
    """Whether it refers to the row at hand alone, so that it can be known before any row is mapped."""
    match tree:
        case Constant():
            return True
        case Reference():
            return tree.here and tree.shift == 0
        case Call():
            return all(is_simple(one) for one in tree.of)
        case _:
            return False

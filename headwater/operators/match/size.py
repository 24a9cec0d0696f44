"""How large a pattern is when its repetitions and permutations are written out."""

from __future__ import annotations

import math

from headwater.operators.match.pattern import Alternation, Exclusion, Node, Permute, Repeat, Sequence

#: Larger patterns are refused: they would take more time to prepare than to match. `A{1000}` is well within.
SIZE_MAX = 10_000


def size(node: Node) -> int:
    """The number of parts, with everything written out: A{2,4} has four, PERMUTE(A, B, C) eighteen."""
    match node:
        case Sequence():
            return sum(size(part) for part in node.parts)
        case Alternation():
            return sum(size(option) for option in node.options)
        case Permute():
            return math.factorial(len(node.parts)) * sum(size(part) for part in node.parts)
        case Repeat():
            return size(node.of) * max(node.least + 1 if node.most is None else node.most, 1)
        case Exclusion():
            return size(node.of)
        case _:
            return 1

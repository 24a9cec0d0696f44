"""A pattern's tree as steps that a backtracking search runs: the preferred way first."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.errors import ArgumentInvalid
from headwater.operators.match import codes
from headwater.operators.match.pattern import (
    Alternation,
    Anchor,
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

#: A pattern whose repetitions and orders are written out in more steps than this is refused.
STEPS_MAX = 20_000


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
        if len(self.steps) >= STEPS_MAX:
            expected = f"a pattern of at most {STEPS_MAX} steps, with its repetitions and orders written out"
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
            case Sequence(parts):
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


def can_be_empty(node: Node) -> bool:
    """Whether a pattern fits without a row.

    >>> can_be_empty(Repeat(Variable("a"), 0, None)), can_be_empty(Sequence((Variable("a"), Skip())))
    (True, False)
    """
    match node:
        case Variable():
            return False
        case Sequence(parts) | Permute(parts):
            return all(can_be_empty(part) for part in parts)
        case Alternation(options):
            return any(can_be_empty(option) for option in options)
        case Repeat(of, least):
            return least == 0 or can_be_empty(of)
        case Exclusion(of):
            return can_be_empty(of)
    return True

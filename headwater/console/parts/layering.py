"""Where the nodes of a graph stand when it is drawn from left to right, in the direction of the rows.

Longest-path layering: a node stands one column to the right of the last that it reads from. Within a column, nodes are
ordered by the mean place of their neighbours, which leaves few crossings. Then each comes as near to the height of its
neighbours as the order allows. Parts that have nothing to do with each other stand in bands of their own.

Everything here is pure: the same shape is always drawn in the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

NODE_WIDTH = 208.0
COLUMN = 284.0
GAP = 18.0
#: Between parts that are not connected: below each other, and beside.
BAND = 34.0
ASIDE = 96.0
#: How much room a line takes that passes through a column on its way further right.
LINE_HEIGHT = 14.0
SWEEPS = 12
#: The shape of the screen that the drawing should fill.
ASPECT = 1.6
#: So many ways to share the parts among stacks are compared.
STACKS_TRIED = 24

Edge = tuple[str, str]
Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The upper left corners of all nodes, the points that each line passes through, and how large the whole is."""

    places: Mapping[str, Point]
    lines: Mapping[Edge, tuple[Point, ...]]
    width: float
    height: float


@lru_cache(maxsize=64)
def arranged(sizes: tuple[tuple[str, float], ...], edges: tuple[Edge, ...]) -> Layout:
    """The drawing of a graph: `sizes` are its nodes with their heights."""
    heights = dict(sizes)
    known = tuple(dict.fromkeys(edge for edge in edges if edge[0] in heights and edge[1] in heights))
    parts = [_Part.of(names, known, heights) for names in connected(list(heights), known)]
    return _packed(parts)


# -- columns ----------------------------------------------------------------------------------------------------------


def connected(nodes: Sequence[str], edges: Iterable[Edge]) -> list[list[str]]:
    """The parts of a graph that have nothing to do with each other, the largest first.

    >>> connected(["a", "b", "c"], [("a", "c")])
    [['a', 'c'], ['b']]
    """
    near: dict[str, list[str]] = {name: [] for name in nodes}
    for first, second in edges:
        near[first].append(second)
        near[second].append(first)
    seen: set[str] = set()
    found = []
    for name in nodes:
        if name not in seen:
            part, todo = [], deque([name])
            seen.add(name)
            while todo:
                part.append(todo.popleft())
                fresh = [other for other in near[part[-1]] if other not in seen]
                seen.update(fresh)
                todo.extend(dict.fromkeys(fresh))
            found.append([one for one in nodes if one in set(part)] if len(part) < len(nodes) else list(nodes))
    return sorted(found, key=lambda part: -len(part))


def acyclic(nodes: Sequence[str], edges: Iterable[Edge]) -> list[Edge]:
    """The edges without those that close a circle. Apps may feed each other; a drawing still has a beginning.

    >>> acyclic(["a", "b"], [("a", "b"), ("b", "a")])
    [('a', 'b')]
    """
    after: dict[str, list[str]] = {name: [] for name in nodes}
    fed = set()
    for first, second in edges:
        after[first].append(second)
        fed.add(second)
    state: dict[str, int] = {}
    backward: set[Edge] = set()
    for root in sorted(nodes, key=lambda name: name in fed):  # what nothing feeds comes first
        if root in state:
            continue
        path = [(root, iter(after[root]))]
        state[root] = 1
        while path:
            name, further = path[-1]
            following = next(further, None)
            if following is None:
                state[name] = 2
                path.pop()
            elif state.get(following) == 1:
                backward.add((name, following))
            elif following not in state:
                state[following] = 1
                path.append((following, iter(after[following])))
    return [edge for edge in edges if edge not in backward]


def layers(nodes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """The column of each node: one more than the furthest of those that feed it.

    >>> layers(["a", "b", "c"], [("a", "b"), ("b", "c"), ("a", "c")])
    {'a': 0, 'b': 1, 'c': 2}
    """
    after: dict[str, list[str]] = {name: [] for name in nodes}
    waits = dict.fromkeys(nodes, 0)
    for first, second in edges:
        after[first].append(second)
        waits[second] += 1
    found = dict.fromkeys(nodes, 0)
    ready = deque(name for name in nodes if waits[name] == 0)
    while ready:
        name = ready.popleft()
        for following in after[name]:
            found[following] = max(found[following], found[name] + 1)
            waits[following] -= 1
            if waits[following] == 0:
                ready.append(following)
    return found


# -- one connected part -----------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Part:
    """Columns of slots: nodes, and lines that pass by. A line over several columns has a slot in each of them."""

    columns: list[list[str]]
    heights: dict[str, float]
    before: dict[str, list[str]] = field(default_factory=dict)
    after: dict[str, list[str]] = field(default_factory=dict)
    passes: dict[Edge, list[str]] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)
    top: dict[str, float] = field(default_factory=dict)
    backward: list[Edge] = field(default_factory=list)

    @classmethod
    def of(cls, names: Sequence[str], edges: Sequence[Edge], heights: Mapping[str, float]) -> _Part:
        members = set(names)
        own = [edge for edge in edges if edge[0] in members and edge[0] != edge[1]]
        forward = acyclic(names, own)
        column = layers(names, forward)
        made = cls(
            columns=[[] for _ in range(max(column.values()) + 1)],
            heights={name: heights[name] for name in names},
            nodes=members,
            backward=[edge for edge in own if edge not in set(forward)],
        )
        for name in names:
            made.columns[column[name]].append(name)
        for first, second in forward:
            made._connect(first, second, column)
        made._order()
        made._raise()
        return made

    def _connect(self, first: str, second: str, column: Mapping[str, int]) -> None:
        chain = [first]
        for place in range(column[first] + 1, column[second]):
            slot = f"\0{first}\0{second}\0{place}"
            self.columns[place].append(slot)
            self.heights[slot] = LINE_HEIGHT
            chain.append(slot)
        chain.append(second)
        self.passes[(first, second)] = chain[1:-1]
        for left, right in pairwise(chain):
            self.after.setdefault(left, []).append(right)
            self.before.setdefault(right, []).append(left)

    def _order(self) -> None:
        """Sweep to and fro: each column is put in the order of its neighbours in the column before."""
        best, fewest = [list(column) for column in self.columns], self._crossings()
        for sweep in range(SWEEPS):
            if fewest == 0:
                break
            rightward = sweep % 2 == 0
            order = range(1, len(self.columns)) if rightward else range(len(self.columns) - 2, -1, -1)
            near = self.before if rightward else self.after
            for place in order:
                other = self.columns[place - 1 if rightward else place + 1]
                rank = {name: number for number, name in enumerate(other)}
                own = {name: number for number, name in enumerate(self.columns[place])}
                self.columns[place].sort(key=lambda name: (_mean(near.get(name, ()), rank, own[name]), own[name]))
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(column) for column in self.columns], crossings
        self.columns = best

    def _crossings(self) -> int:
        """How many pairs of lines cross."""
        total = 0
        for left, right in pairwise(self.columns):
            rank = {name: number for number, name in enumerate(right)}
            ends = [end for name in left for end in sorted(rank[one] for one in self.after.get(name, ()))]
            total += _inversions(ends, len(right))
        return total

    def _raise(self) -> None:
        """Heights: begin stacked, then let every node come near to its neighbours, in turns from both sides."""
        for column in self.columns:
            at = 0.0
            for name in column:
                self.top[name] = at
                at += self.heights[name] + GAP
        for sweep in range(SWEEPS * 2):
            rightward = sweep % 2 == 0
            order = range(len(self.columns)) if rightward else range(len(self.columns) - 1, -1, -1)
            for place in order:
                self._settle(self.columns[place])
        lowest = min(self.top.values())
        self.top = {name: top - lowest for name, top in self.top.items()}

    def _settle(self, column: Sequence[str]) -> None:
        wanted = []
        for name in column:
            near = [*self.before.get(name, ()), *self.after.get(name, ())]
            middle = [self.top[one] + self.heights[one] / 2 for one in near]
            own = self.top[name] + self.heights[name] / 2
            wanted.append((sum(middle) / len(middle) if middle else own) - self.heights[name] / 2)
        for name, top in zip(column, spread(wanted, [self.heights[name] + GAP for name in column]), strict=True):
            self.top[name] = top

    @property
    def width(self) -> float:
        return (len(self.columns) - 1) * COLUMN + NODE_WIDTH

    @property
    def height(self) -> float:
        return max(self.top[name] + self.heights[name] for name in self.top)


def _mean(near: Sequence[str], rank: Mapping[str, int], own: int) -> float:
    return sum(rank[name] for name in near) / len(near) if near else float(own)


def _inversions(ends: Sequence[int], size: int) -> int:
    """How many pairs of a sequence stand in the wrong order; a Fenwick tree counts them.

    >>> _inversions([2, 0, 1], 3)
    2
    """
    tree = [0] * (size + 1)
    total = 0
    for seen, end in enumerate(ends):
        below, place = 0, end + 1
        while place > 0:
            below += tree[place]
            place -= place & -place
        total += seen - below
        place = end + 1
        while place <= size:
            tree[place] += 1
            place += place & -place
    return total


def spread(wanted: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Places in this order, each at least its size before the next, as near to what is wanted as can be.

    >>> spread([10.0, 10.0], [20.0, 20.0])
    [0.0, 20.0]
    """
    # Without sizes it is a sequence that must not fall: neighbours that do are merged into one, at their mean.
    offset, at = [], 0.0
    for size in sizes:
        offset.append(at)
        at += size
    groups: list[tuple[float, int]] = []
    for want, shift in zip(wanted, offset, strict=True):
        mean, count = want - shift, 1
        while groups and groups[-1][0] > mean:
            other, more = groups.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        groups.append((mean, count))
    level = [mean for mean, count in groups for _ in range(count)]
    return [mean + shift for mean, shift in zip(level, offset, strict=True)]


# -- all parts together -----------------------------------------------------------------------------------------------


def _packed(parts: Sequence[_Part]) -> Layout:
    """Parts below each other, in as many stacks as let the drawing fill a screen; wide ones share a stack with wide ones."""
    if not parts:
        return Layout(places={}, lines={}, width=NODE_WIDTH, height=NODE_WIDTH)
    ordered = sorted(parts, key=lambda part: (-len(part.columns), -part.height))
    total = sum(part.height + BAND for part in ordered)
    tried = [_stacks(ordered, total * share / STACKS_TRIED) for share in range(1, STACKS_TRIED + 1)]
    return _stood(min(tried, key=lambda stacks: max(_width(stacks) / ASPECT, _height(stacks))))


def _stacks(parts: Sequence[_Part], height_max: float) -> list[list[_Part]]:
    """Fill one stack after the other up to this height."""
    stacks: list[list[_Part]] = [[]]
    filled = 0.0
    for part in parts:
        if stacks[-1] and filled + part.height > height_max:
            stacks.append([])
            filled = 0.0
        stacks[-1].append(part)
        filled += part.height + BAND
    return stacks


def _width(stacks: Sequence[Sequence[_Part]]) -> float:
    return sum(max(part.width for part in stack) for stack in stacks) + (len(stacks) - 1) * ASIDE


def _height(stacks: Sequence[Sequence[_Part]]) -> float:
    return max(sum(part.height for part in stack) + (len(stack) - 1) * BAND for stack in stacks)


def _stood(stacks: Sequence[Sequence[_Part]]) -> Layout:
    places: dict[str, Point] = {}
    lines: dict[Edge, tuple[Point, ...]] = {}
    left = 0.0
    for stack in stacks:
        down = 0.0
        for part in stack:
            _put(part, left, down, places, lines)
            down += part.height + BAND
        left += max(part.width for part in stack) + ASIDE
    return Layout(places=places, lines=lines, width=_width(stacks), height=_height(stacks))


def _put(part: _Part, left: float, down: float, places: dict[str, Point], lines: dict[Edge, tuple[Point, ...]]) -> None:
    at = {
        name: (left + place * COLUMN, down + part.top[name])
        for place, column in enumerate(part.columns)
        for name in column
    }
    places.update({name: at[name] for name in part.nodes})
    for (first, second), slots in part.passes.items():
        begin = (at[first][0] + NODE_WIDTH, at[first][1] + part.heights[first] / 2)
        end = (at[second][0], at[second][1] + part.heights[second] / 2)
        passed = [
            point
            for slot in slots
            for point in (
                (at[slot][0], at[slot][1] + LINE_HEIGHT / 2),
                (at[slot][0] + NODE_WIDTH, at[slot][1] + LINE_HEIGHT / 2),
            )
        ]
        lines[(first, second)] = (begin, *passed, end)
    for first, second in part.backward:  # back to the left, below what lies between
        begin = (at[first][0] + NODE_WIDTH, at[first][1] + part.heights[first] / 2)
        end = (at[second][0], at[second][1] + part.heights[second] / 2)
        lines[(first, second)] = (begin, end)

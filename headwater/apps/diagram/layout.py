"""Lay out a graph from left to right, in the direction of the rows. The console and the drawings of an app use it.

The layered method of Sugiyama: each node gets a column by its longest path, an edge that passes a column gets a slot in
it, slots are ordered by the mean place of their neighbours so that few edges cross, and each slot is moved as near to
the height of its neighbours as the order allows. Parts of the graph that are not connected are packed so that they fill
a screen. Edges that close a cycle are drawn backwards.

All functions are pure: the same graph is always drawn in the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

SWEEPS = 12
#: Width divided by height of the screen that a drawing fills.
ASPECT = 1.6
#: How many ways to distribute the parts over stacks are compared.
STACKS_TRIED = 24

Edge = tuple[str, str]
Point = tuple[float, float]
Slot = str | tuple[str, str, int]
"""A place in a column: the name of a node, or an edge that passes the column of this number."""


@dataclass(frozen=True, kw_only=True)
class Spacing:
    """The distances in a drawing, in the drawing's own unit."""

    gap: float
    """Between two slots of a column."""
    channel: float
    """Between two columns."""
    line_height: float
    """The height of the slot of an edge that passes a column."""
    port_share: float = 0.0
    """Between two edges on one side of a node, as a share of its height; 0 if all meet in the middle."""
    band: float = 34.0
    """Between parts that are not connected, one below the other."""
    aside: float = 96.0
    """Between parts that are not connected, side by side."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """The place and size of a node; `x` and `y` are its upper left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The boxes of all nodes, the points that each edge passes, and the size of the drawing.

    The points of an edge alternate: a curve through a channel, then a straight line through a column.
    """

    boxes: Mapping[str, Box]
    lines: Mapping[Edge, tuple[Point, ...]]
    width: float = 0.0
    height: float = 0.0


@lru_cache(maxsize=64)
def arrange(nodes: tuple[tuple[str, float, float], ...], edges: tuple[Edge, ...], spacing: Spacing) -> Layout:
    """Lay out nodes, given as name, width and height, and the edges between them. Other edges are left out."""
    sizes = {name: (width, height) for name, width, height in nodes}
    known = tuple(dict.fromkeys(edge for edge in edges if edge[0] in sizes and edge[1] in sizes))
    parts = [_arranged(names, known, sizes, spacing) for names in connected(list(sizes), known)]
    return _packed(parts, spacing)


# -- columns ----------------------------------------------------------------------------------------------------------


def connected(nodes: Sequence[str], edges: Iterable[Edge]) -> list[list[str]]:
    """Split a graph into its connected parts, the largest first.

    >>> connected(["a", "b", "c"], [("a", "c")])
    [['a', 'c'], ['b']]
    """
    near: dict[str, list[str]] = {name: [] for name in nodes}
    for first, second in edges:
        near[first].append(second)
        near[second].append(first)
    part_of: dict[str, int] = {}
    for number, root in enumerate(nodes):
        reached = deque([] if root in part_of else [root])
        while reached:
            name = reached.popleft()
            if name not in part_of:
                part_of[name] = number
                reached.extend(near[name])
    parts: dict[int, list[str]] = {}
    for name in nodes:
        parts.setdefault(part_of[name], []).append(name)
    return sorted(parts.values(), key=lambda part: -len(part))


def acyclic(nodes: Sequence[str], edges: Iterable[Edge]) -> list[Edge]:
    """Return the edges without those that close a cycle. Apps may feed each other; a drawing still has a beginning.

    >>> acyclic(["a", "b"], [("a", "b"), ("b", "a")])
    [('a', 'b')]
    """
    after: dict[str, list[str]] = {name: [] for name in nodes}
    fed = set()
    for first, second in edges:
        after[first].append(second)
        fed.add(second)
    on_path: dict[str, bool] = {}
    backward: set[Edge] = set()
    for root in sorted(nodes, key=lambda name: name in fed):  # nodes without inputs come first
        if root in on_path:
            continue
        path = [(root, iter(after[root]))]
        on_path[root] = True
        while path:
            name, further = path[-1]
            following = next(further, None)
            if following is None:
                on_path[name] = False
                path.pop()
            elif following not in on_path:
                on_path[following] = True
                path.append((following, iter(after[following])))
            elif on_path[following]:
                backward.add((name, following))
    return [edge for edge in edges if edge not in backward]


def depths(nodes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Return the column of each node: one more than the last of its inputs; without inputs, right before its readers.

    >>> depths(["a", "b", "c", "d"], [("a", "b"), ("b", "c"), ("a", "c"), ("d", "c")])
    {'a': 0, 'b': 1, 'c': 2, 'd': 1}
    """
    after: dict[str, list[str]] = {name: [] for name in nodes}
    inputs = dict.fromkeys(nodes, 0)
    for first, second in edges:
        after[first].append(second)
        inputs[second] += 1
    waits = dict(inputs)
    depth = dict.fromkeys(nodes, 0)
    ready = deque(name for name in nodes if not waits[name])
    while ready:
        name = ready.popleft()
        for following in after[name]:
            depth[following] = max(depth[following], depth[name] + 1)
            waits[following] -= 1
            if not waits[following]:
                ready.append(following)
    for name in nodes:
        if not inputs[name] and after[name]:
            depth[name] = min(depth[following] for following in after[name]) - 1
    return depth


@dataclass(kw_only=True)
class Columns:
    """The slots of a graph by column, ordered so that few edges cross, and which slots are linked."""

    columns: list[list[Slot]]
    before: dict[Slot, list[Slot]] = field(default_factory=dict)
    after: dict[Slot, list[Slot]] = field(default_factory=dict)
    chains: dict[Edge, tuple[Slot, ...]] = field(default_factory=dict)
    """For each edge that goes forward, the slots from its first node to its last."""
    backward: tuple[Edge, ...] = ()

    @classmethod
    def of(cls, nodes: Sequence[str], edges: Iterable[Edge]) -> Columns:
        own = [edge for edge in dict.fromkeys(edges) if edge[0] != edge[1]]
        forward = acyclic(nodes, own)
        depth = depths(nodes, forward)
        made = cls(columns=[[] for _ in range(max(depth.values(), default=-1) + 1)])
        made.backward = tuple(edge for edge in own if edge not in set(forward))
        for name in nodes:
            made.columns[depth[name]].append(name)
        for first, second in forward:
            passed: list[Slot] = [(first, second, number) for number in range(depth[first] + 1, depth[second])]
            for number, slot in enumerate(passed, start=depth[first] + 1):
                made.columns[number].append(slot)
            made.chains[first, second] = (first, *passed, second)
            for left, right in pairwise(made.chains[first, second]):
                made.after.setdefault(left, []).append(right)
                made.before.setdefault(right, []).append(left)
        made._order()
        return made

    def _order(self) -> None:
        """Order each column by its neighbours in the column before, sweeping both ways; keep the best order."""
        best, fewest = [list(column) for column in self.columns], self.crossings()
        for sweep in range(SWEEPS):
            if fewest == 0:
                break
            rightward = sweep % 2 == 0
            near = self.before if rightward else self.after
            for number in range(1, len(self.columns)) if rightward else range(len(self.columns) - 2, -1, -1):
                fixed = self.columns[number - 1 if rightward else number + 1]
                self.columns[number] = _by_neighbours(self.columns[number], fixed, near)
            crossings = self.crossings()
            if crossings < fewest:
                best, fewest = [list(column) for column in self.columns], crossings
        self.columns = best

    def crossings(self) -> int:
        """Count the pairs of links that cross."""
        total = 0
        for left, right in pairwise(self.columns):
            rank = {slot: number for number, slot in enumerate(right)}
            ends = [end for slot in left for end in sorted(rank[other] for other in self.after.get(slot, ()))]
            total += _inversions(ends, len(right))
        return total

    def tops(self, heights: Mapping[Slot, float], gap: float) -> dict[Slot, float]:
        """Return the top of each slot: first stacked, then moved towards its neighbours in sweeps both ways."""
        tops: dict[Slot, float] = {}
        for column in self.columns:
            top = 0.0
            for slot in column:
                tops[slot] = top
                top += heights[slot] + gap
        for sweep in range(SWEEPS * 2):
            for column in self.columns if sweep % 2 == 0 else reversed(self.columns):
                wanted = []
                for slot in column:
                    near = [*self.before.get(slot, ()), *self.after.get(slot, ())] or [slot]
                    middle = sum(tops[other] + heights[other] / 2 for other in near) / len(near)
                    wanted.append(middle - heights[slot] / 2)
                tops |= zip(column, spread(wanted, [heights[slot] + gap for slot in column]), strict=True)
        lowest = min(tops.values(), default=0.0)
        return {slot: top - lowest for slot, top in tops.items()}


def _by_neighbours(column: list[Slot], fixed: Sequence[Slot], near: Mapping[Slot, Sequence[Slot]]) -> list[Slot]:
    rank = {slot: number for number, slot in enumerate(fixed)}
    scale = len(fixed) / len(column)

    def mean(slot: Slot, own: int) -> float:
        others = near.get(slot, ())
        return sum(rank[other] for other in others) / len(others) if others else own * scale

    means = {slot: (mean(slot, number), number) for number, slot in enumerate(column)}
    return sorted(column, key=means.__getitem__)


def _inversions(ends: Sequence[int], size: int) -> int:
    """Count the pairs of a sequence that are in the wrong order, by a Fenwick tree.

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
    """Return places in this order, each at least its size before the next, with the least squared distance to `wanted`.

    >>> spread([10.0, 10.0], [20.0, 20.0])
    [0.0, 20.0]
    """
    # Without sizes the places must not decrease: neighbours that do are merged, at their mean (pool adjacent violators).
    offsets, offset = [], 0.0
    for size in sizes:
        offsets.append(offset)
        offset += size
    groups: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        mean, count = want - offset, 1
        while groups and groups[-1][0] > mean:
            other, more = groups.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        groups.append((mean, count))
    level = [mean for mean, count in groups for _ in range(count)]
    return [mean + offset for mean, offset in zip(level, offsets, strict=True)]


# -- one connected part -----------------------------------------------------------------------------------------------


def _arranged(
    names: Sequence[str], edges: Sequence[Edge], sizes: Mapping[str, tuple[float, float]], spacing: Spacing
) -> Layout:
    """Lay out one connected part. All boxes of a column are as wide as the widest."""
    members = set(names)
    columns = Columns.of(names, [edge for edge in edges if edge[0] in members])
    heights: dict[Slot, float] = {
        slot: sizes[slot][1] if isinstance(slot, str) else spacing.line_height
        for column in columns.columns
        for slot in column
    }
    tops = columns.tops(heights, spacing.gap)
    sides: dict[Slot, tuple[float, float]] = {}  # the left and the right side of each slot
    left = right = 0.0
    for column in columns.columns:
        right = left + max(sizes[slot][0] for slot in column if isinstance(slot, str))
        sides |= dict.fromkeys(column, (left, right))
        left = right + spacing.channel
    boxes = {
        name: Box(x=sides[name][0], y=tops[name], width=sides[name][1] - sides[name][0], height=heights[name])
        for name in names
    }
    middles = {slot: top + heights[slot] / 2 for slot, top in tops.items()}
    leaves, enters = (
        {
            link: middles[slot] + shift
            for slot, others in near.items()
            for link, shift in _ports(slot, others, middles, heights[slot], spacing.port_share)
        }
        for near in (columns.after, columns.before)
    )
    lines: dict[Edge, tuple[Point, ...]] = {}
    for edge, chain in columns.chains.items():
        points: list[Point] = []
        for first, second in pairwise(chain):
            points += [(sides[first][1], leaves[first, second]), (sides[second][0], enters[second, first])]
        lines[edge] = tuple(points)
    for first, second in columns.backward:
        lines[first, second] = ((sides[first][1], middles[first]), (sides[second][0], middles[second]))
    return Layout(boxes=boxes, lines=lines, width=right, height=max(tops[slot] + heights[slot] for slot in tops))


def _ports(
    slot: Slot, others: Sequence[Slot], middles: Mapping[Slot, float], height: float, share: float
) -> list[tuple[tuple[Slot, Slot], float]]:
    """Distribute the links on one side of a slot, in the order of their other ends: how far each is from the middle."""
    step = min(height * share, height * 0.6 / len(others))
    ordered = sorted(others, key=middles.__getitem__)
    return [((slot, other), (number - (len(ordered) - 1) / 2) * step) for number, other in enumerate(ordered)]


# -- all parts together -----------------------------------------------------------------------------------------------


def _packed(parts: Sequence[Layout], spacing: Spacing) -> Layout:
    """Stack parts below each other, in as many stacks as make the drawing fill a screen; wide ones go together."""
    if not parts:
        return Layout(boxes={}, lines={})
    ordered = sorted(parts, key=lambda part: (-part.width, -part.height))
    total = sum(part.height + spacing.band for part in ordered)
    tried = [_stacked(ordered, total * share / STACKS_TRIED, spacing) for share in range(1, STACKS_TRIED + 1)]
    return min(tried, key=lambda layout: max(layout.width / ASPECT, layout.height))


def _stacked(parts: Sequence[Layout], height_max: float, spacing: Spacing) -> Layout:
    """Fill one stack after the other up to this height."""
    boxes: dict[str, Box] = {}
    lines: dict[Edge, tuple[Point, ...]] = {}
    left = top = width = height = 0.0
    for part in parts:
        if top and top + part.height > height_max:
            left, top = width + spacing.aside, 0.0
        for name, box in part.boxes.items():
            boxes[name] = Box(x=box.x + left, y=box.y + top, width=box.width, height=box.height)
        for edge, points in part.lines.items():
            lines[edge] = tuple((x + left, y + top) for x, y in points)
        width, height = max(width, left + part.width), max(height, top + part.height)
        top += part.height + spacing.band
    return Layout(boxes=boxes, lines=lines, width=width, height=height)

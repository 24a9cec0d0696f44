"""Where the boxes and lines of layers go: no two boxes overlap, lines are as straight as that allows.

Each layer is a column. Down a column, items keep their order and distance, and stand as near as that lets them to the
mean of their neighbours: a least-squares problem with an exact answer (pool adjacent violators).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headwater.runtime.drawing.layers import Item, Layers
from headwater.runtime.status import Node

ROUNDS = 40


@dataclass(frozen=True, kw_only=True)
class Measures:
    """The sizes of things, in whatever unit the picture has."""

    size: Callable[[Node], tuple[float, float]]
    passing_height: float
    gap: float
    """Between the items of a column."""
    channel: float
    """Between two columns."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """A node where it stands."""

    node: Node
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, kw_only=True)
class Line:
    """An edge: its names, and points from left to right. Between the points of one column it is straight."""

    edge: tuple[str, str]
    points: tuple[tuple[float, float], ...]
    backwards: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A picture before it is drawn."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


def placed(layers: Layers, measures: Measures) -> Plan:
    """Places for all boxes and lines."""
    heights = {item.key: _height(item, measures) for layer in layers.layers for item in layer}
    middles = _middles(layers, heights, measures.gap)
    columns = _columns(layers, measures)
    boxes = {}
    for (x, width), layer in zip(columns, layers.layers, strict=True):
        for item in layer:
            if item.node is not None:
                height = heights[item.key]
                y = middles[item.key] - height / 2
                boxes[item.key] = Box(node=item.node, x=x, y=y, width=width, height=height)
    column_of = {item.key: columns[number] for number, layer in enumerate(layers.layers) for item in layer}
    lines = _lines(layers, middles, heights, column_of)
    width = columns[-1][0] + columns[-1][1] if columns else 0.0
    height = max((box.y + box.height for box in boxes.values()), default=0.0)
    height = max([height, *(y for line in lines for _, y in line.points)])
    return Plan(width=width, height=height, boxes=tuple(boxes.values()), lines=tuple(lines))


def _height(item: Item, measures: Measures) -> float:
    return measures.passing_height if item.node is None else measures.size(item.node)[1]


def _columns(layers: Layers, measures: Measures) -> list[tuple[float, float]]:
    """Left edge and width of each column; all its boxes are as wide as its widest."""
    columns = []
    x = 0.0
    for layer in layers.layers:
        width = max(measures.size(item.node)[0] for item in layer if item.node is not None)
        columns.append((x, width))
        x += width + measures.channel
    return columns


def _middles(layers: Layers, heights: Mapping[int, float], gap: float) -> dict[int, float]:
    """The middle of each item, from the top of the picture."""
    middles: dict[int, float] = {}
    for layer in layers.layers:
        y = 0.0
        for item in layer:
            middles[item.key] = y + heights[item.key] / 2
            y += heights[item.key] + gap
    neighbours: dict[int, list[int]] = {}
    for first, second in layers.links:
        neighbours.setdefault(first, []).append(second)
        neighbours.setdefault(second, []).append(first)
    for number in range(ROUNDS):
        for layer in layers.layers if number % 2 == 0 else reversed(layers.layers):
            wishes = [_wish(item.key, middles, neighbours) for item in layer]
            middles |= zip(
                [item.key for item in layer], spaced(wishes, [heights[i.key] for i in layer], gap), strict=True
            )
    top = min((middles[key] - height / 2 for key, height in heights.items()), default=0.0)
    return {key: middle - top for key, middle in middles.items()}


def _wish(key: int, middles: Mapping[int, float], neighbours: Mapping[int, Sequence[int]]) -> float:
    near = neighbours.get(key, ())
    return sum(middles[other] for other in near) / len(near) if near else middles[key]


def spaced(wishes: Sequence[float], heights: Sequence[float], gap: float) -> list[float]:
    """Middles as near to the wishes as order and distance allow.

    >>> spaced([5.0, 5.0], [2.0, 2.0], 1.0)
    [3.5, 6.5]
    """
    offsets = [0.0]
    for one, following in pairwise(heights):
        offsets.append(offsets[-1] + one / 2 + gap + following / 2)
    blocks: list[tuple[float, int]] = []  # mean wish of some items that touch, and how many they are
    for wish, offset in zip(wishes, offsets, strict=False):
        mean, count = wish - offset, 1
        while blocks and blocks[-1][0] > mean:
            other, size = blocks.pop()
            mean, count = (mean * count + other * size) / (count + size), count + size
        blocks.append((mean, count))
    flat = [mean for mean, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(flat, offsets, strict=False)]


def _lines(
    layers: Layers,
    middles: Mapping[int, float],
    heights: Mapping[int, float],
    columns: Mapping[int, tuple[float, float]],
) -> list[Line]:
    ports = _ports(layers, middles, heights)
    lines = []
    for edge, chain in layers.chains.items():
        points: list[tuple[float, float]] = []
        for first, second in pairwise(chain):
            points.append((sum(columns[first]), ports[first, second, "out"]))
            points.append((columns[second][0], ports[first, second, "in"]))
        lines.append(Line(edge=edge, points=tuple(points), backwards=edge in layers.backwards))
    return lines


def _ports(
    layers: Layers, middles: Mapping[int, float], heights: Mapping[int, float]
) -> dict[tuple[int, int, str], float]:
    """Where a link leaves and enters: those of one side stand a little apart, in the order of their other ends."""
    ports: dict[tuple[int, int, str], float] = {}
    for side in ("out", "in"):
        ends: dict[int, list[tuple[int, int]]] = {}
        for link in layers.links:
            ends.setdefault(link[0] if side == "out" else link[1], []).append(link)
        for key, links in ends.items():
            links.sort(key=lambda link: middles[link[1] if side == "out" else link[0]])
            step = min(heights[key] * 0.16, heights[key] * 0.6 / len(links))
            for number, link in enumerate(links):
                ports[*link, side] = middles[key] + (number - (len(links) - 1) / 2) * step
    return ports

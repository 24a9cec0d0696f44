"""The graph as text: boxes from left to right where a terminal has room for them, else a list in the order of the rows.

Lines run in channels between the columns. All that leaves one box shares one upright, so that a fork is a fork; where
lines of two boxes cross, they only cross.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rich.cells import cell_len

from headwater.runtime.drawing.canvas import DOWN, LEFT, RIGHT, UP, Canvas
from headwater.runtime.drawing.layers import Item, Layers, layered
from headwater.runtime.drawing.placing import Measures, placed
from headwater.runtime.drawing.wording import cut_cells
from headwater.runtime.status import Graph, Node

WIDTH_MAX = 120
HEIGHT_MAX = 120
#: How much of a name is shown, and how much of what is told of it; the first that fits is drawn.
SHAPES = ((24, 24), (20, 14), (18, 0), (12, 0))
#: Corners by kind, so that boxes differ without colour: top left, top right, bottom left, bottom right.
_CORNERS = {"topic": "┌┐└┘", "query": "╭╮╰╯", "view": "╔╗╚╝", "sink": "┏┓┗┛"}
_EDGES = {"topic": ("─", "│"), "query": ("─", "│"), "view": ("═", "║"), "sink": ("━", "┃")}
_MARKS = {"topic": "≡", "query": "ƒ", "view": "▦", "sink": "▸"}
_DOTS = {"running": "●", "caught up": "●", "failed": "✗", "restarting": "↻", "stopped": "■"}


def as_text(graph: Graph, *, width: int = WIDTH_MAX) -> str:
    """The graph as lines of at most `width` columns, without a line feed at the end.

    >>> nodes = (Node(name="payments", kind="topic"), Node(name="spend()", kind="query"))
    >>> print(as_text(Graph(app="fraud", nodes=nodes, edges=(("payments", "spend()"),))))
    ┌────────────┐    ╭───────────╮
    │ ≡ payments ├───▶│ ƒ spend() │
    └────────────┘    ╰───────────╯
    """
    layers = layered(graph)
    for cells, told in SHAPES:
        drawn = _boxes(layers, cells, told, width)
        if drawn is not None and max(map(cell_len, drawn), default=0) <= width and len(drawn) <= HEIGHT_MAX:
            return "\n".join(drawn)
    return "\n".join(cut_cells(line, width) for line in _listed(graph, layers))


# -- boxes ------------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Channel:
    """The lines between two columns: for each source its row, and the rows of its targets."""

    left: int = 0
    sources: dict[int, tuple[int, list[int]]] = field(default_factory=dict)

    def tracks(self) -> list[int]:
        """The sources, in the order of their uprights from left to right.

        One whose row is that of another's target turns away before the other's upright, or the two would look like one.
        """
        straight = {key for key, (row, targets) in self.sources.items() if targets == [row]}
        waiting = [key for key in self.sources if key not in straight]
        order: list[int] = []
        while waiting:
            free = [key for key in waiting if not any(self._is_before(other, key) for other in waiting if other != key)]
            order.append((free or waiting)[0])
            waiting.remove(order[-1])
        return order

    def _is_before(self, one: int, other: int) -> bool:
        row, targets = self.sources[one]
        other_row, other_targets = self.sources[other]
        return row in other_targets and row not in targets and other_row != row


def _lines_of(node: Node, cells: int, told_cells: int) -> list[str]:
    mark = _DOTS.get(node.state or "", _MARKS[node.kind]) if node.kind == "query" else _MARKS[node.kind]
    lines = [f"{mark} {cut_cells(node.name, cells)}"]
    told = ", ".join(part for part in (node.state or "", node.label) if part)
    return [*lines, f"  {cut_cells(told, told_cells)}"] if told and told_cells else lines


def _boxes(layers: Layers, cells: int, told: int, width_max: int) -> list[str] | None:
    """The lines of a drawing; None where there is nothing to draw, or where it is clear that there is no room."""
    if not layers.layers or layers.backwards:
        return None

    nodes = [item.node for layer in layers.layers for item in layer if item.node is not None]
    # All are given the same height, so that lines, which meet boxes at their first row of text, can be straight.
    height = max(len(_lines_of(node, cells, told)) for node in nodes) + 2.0

    def size(node: Node) -> tuple[float, float]:
        return max(map(cell_len, _lines_of(node, cells, told))) + 4.0, height

    widest = [max(size(item.node)[0] for item in layer if item.node is not None) for layer in layers.layers]
    if sum(widest) + 4 * (len(widest) - 1) > width_max:
        return None
    measures = Measures(size=size, passing_height=1.0, gap=1.0, channel=0.0)
    rows = _rows(layers, measures)
    canvas = Canvas()
    x = 0
    for number, layer in enumerate(layers.layers):
        width = int(widest[number])
        for item in layer:
            _draw_item(
                canvas, item, x, rows[item.key], width, [] if item.node is None else _lines_of(item.node, cells, told)
            )
        x += width
        if number + 1 < len(layers.layers):
            x = _draw_channel(canvas, layers, number, x, rows)
    return canvas.lines()


def _rows(layers: Layers, measures: Measures) -> dict[int, int]:
    """The first row of each item, in whole rows."""
    plan = placed(layers, measures)
    tops = {box.node.name: box.y for box in plan.boxes}
    passing = {}
    for line in plan.lines:
        for key, (_, y) in zip(layers.chains[line.edge][1:-1], line.points[1::2], strict=False):
            passing[key] = y - 0.5
    rows: dict[int, int] = {}
    for layer in layers.layers:
        free = 0
        for item in layer:
            wish = tops[item.node.name] if item.node is not None else passing[item.key]
            rows[item.key] = max(free, round(wish))
            free = rows[item.key] + int(measures.size(item.node)[1] if item.node is not None else 1) + 1
    return rows


def _draw_item(canvas: Canvas, item: Item, x: int, row: int, width: int, lines: Sequence[str]) -> None:
    if item.node is None:
        for column in range(x, x + width):
            canvas.join(column, row, LEFT | RIGHT)
        return
    corners, (flat, upright) = _CORNERS[item.node.kind], _EDGES[item.node.kind]
    canvas.write(x, row, corners[0] + flat * (width - 2) + corners[1])
    for number, text in enumerate(lines, start=1):
        canvas.write(x, row + number, f"{upright} {text}{' ' * (width - 4 - cell_len(text))} {upright}")
    canvas.write(x, row + len(lines) + 1, corners[2] + flat * (width - 2) + corners[3])


def _draw_channel(canvas: Canvas, layers: Layers, number: int, x: int, rows: dict[int, int]) -> int:
    """Draw what lies between two columns, and tell where the second begins."""
    items = {item.key: item for layer in layers.layers[number : number + 2] for item in layer}
    middle = {key: rows[key] + (0 if item.node is None else 1) for key, item in items.items()}
    here = {item.key for item in layers.layers[number]}
    channel = _Channel(left=x)
    for first, second in layers.links:
        if first in here:
            channel.sources.setdefault(first, (middle[first], []))[1].append(middle[second])
    tracks = channel.tracks()
    right = x + 2 * len(tracks) + 3
    for key, (row, targets) in channel.sources.items():
        upright = x + 1 + 2 * tracks.index(key) if key in tracks else x + 1
        _draw_fork(canvas, x, upright, right, row, targets)
    for key in here & set(channel.sources):
        if (node := items[key].node) is not None:
            canvas.write(x - 1, middle[key], {"view": "╟", "sink": "┠"}.get(node.kind, "├"))
    for item in layers.layers[number + 1]:
        if item.node is not None and any(second == item.key for _, second in layers.links):
            canvas.write(right, middle[item.key], "▶")
    return right + 1


def _draw_fork(canvas: Canvas, left: int, upright: int, right: int, row: int, targets: Sequence[int]) -> None:
    """A line from a box to its upright, along it, and from it to each target."""
    for column in range(left, upright):
        canvas.join(column, row, LEFT | RIGHT)
    levels = sorted({row, *targets})
    for level in range(levels[0], levels[-1] + 1):
        ways = (UP if level > levels[0] else 0) | (DOWN if level < levels[-1] else 0)
        ways |= (LEFT if level == row else 0) | (RIGHT if level in targets else 0)
        canvas.join(upright, level, ways)
    for target in targets:
        for column in range(upright + 1, right + 1):
            canvas.join(column, target, LEFT | RIGHT)


# -- a list -----------------------------------------------------------------------------------------------------------


def _listed(graph: Graph, layers: Layers) -> list[str]:
    """Each node in one line, after all that it reads, with where its rows come from."""
    sources: dict[str, list[str]] = {}
    for first, second in dict.fromkeys(graph.edges):
        sources.setdefault(second, []).append(first)
    lines = []
    for before, layer in pairwise([None, *layers.layers]):
        lines += [""] if before is not None else []
        for item in layer or ():
            if item.node is not None:
                lines.append(_listed_node(item.node, sources.get(item.node.name, [])))
    return lines


def _listed_node(node: Node, sources: list[str]) -> str:
    told = ", ".join(part for part in (node.state or "", node.label) if part)
    text = f"{_lines_of(node, 60, 0)[0]}" + (f"  ({cut_cells(told, 40)})" if told else "")
    return text + (f"  ← {', '.join(cut_cells(name, 40) for name in sources)}" if sources else "")

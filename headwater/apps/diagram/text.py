"""Draw a graph as text: boxes from left to right if the terminal is wide enough, else a list in the order of the rows.

Lines run in channels between the columns. All lines that leave one box share one upright, so that a fork is a fork;
lines of two boxes only cross.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len, set_cell_size

from headwater.apps.diagram.layout import Columns, Slot
from headwater.apps.status import Graph, Node

WIDTH_MAX = 120
HEIGHT_MAX = 120
#: Cells for a name and for its second line; the first pair that fits is drawn.
SHAPES = ((24, 24), (20, 14), (18, 0), (12, 0))
#: Corners by kind, so that boxes differ without colour: top left, top right, bottom left, bottom right.
_CORNERS = {"topic": "┌┐└┘", "query": "╭╮╰╯", "view": "╔╗╚╝", "sink": "┏┓┗┛", "capture": "┏┓┗┛", "gateway": "┏┓┗┛"}
_EDGES = {
    "topic": ("─", "│"),
    "query": ("─", "│"),
    "view": ("═", "║"),
    "sink": ("━", "┃"),
    "capture": ("━", "┃"),
    "gateway": ("━", "┃"),
}
_MARKS = {"topic": "≡", "query": "ƒ", "view": "▦", "sink": "▸", "capture": "◂", "gateway": "⇄"}
_DOTS = {"running": "●", "caught up": "●", "failed": "✗", "restarting": "↻", "stopped": "■"}
UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
#: The character for each set of directions in which lines leave a place.
_JOINTS = {
    0: " ",
    UP | DOWN: "│",
    LEFT | RIGHT: "─",
    DOWN | RIGHT: "┌",
    DOWN | LEFT: "┐",
    UP | RIGHT: "└",
    UP | LEFT: "┘",
    UP | DOWN | RIGHT: "├",
    UP | DOWN | LEFT: "┤",
    DOWN | LEFT | RIGHT: "┬",
    UP | LEFT | RIGHT: "┴",
    UP | DOWN | LEFT | RIGHT: "┼",
    UP: "╵",
    DOWN: "╷",
    LEFT: "╴",
    RIGHT: "╶",
}


def as_text(graph: Graph, *, width: int = WIDTH_MAX) -> str:
    """Draw the graph as lines of at most `width` columns, without a line feed at the end.

    >>> nodes = (Node(name="payments", kind="topic"), Node(name="spend()", kind="query"))
    >>> print(as_text(Graph(app="fraud", nodes=nodes, edges=(("payments", "spend()"),))))
    ┌────────────┐    ╭───────────╮
    │ ≡ payments ├───▶│ ƒ spend() │
    └────────────┘    ╰───────────╯
    """
    nodes = nodes_of(graph)
    columns = Columns.of(list(nodes), graph.edges)
    for cells, label_cells in SHAPES if nodes and not columns.backward else ():
        lines = _boxes(
            columns, {name: _lines_of(node, cells, label_cells) for name, node in nodes.items()}, nodes, width
        )
        if lines is not None and max(map(cell_len, lines)) <= width and len(lines) <= HEIGHT_MAX:
            return "\n".join(lines)
    return "\n".join(cut_cells(line, width) for line in _list(graph, columns, nodes))


# -- words ------------------------------------------------------------------------------------------------------------


def nodes_of(graph: Graph) -> dict[str, Node]:
    """Return the nodes by name; a name that only an edge has is a topic."""
    nodes = {node.name: node for node in graph.nodes}
    for name in (name for edge in graph.edges for name in edge):
        nodes.setdefault(name, Node(name=name, kind="topic"))
    return nodes


def plain(text: str) -> str:
    """Return a text in one line without control characters, which neither XML nor a terminal accepts.

    >>> plain("a\\n\\x1b[2Jb")
    'a �[2Jb'
    """
    return "".join(" " if letter in "\t\r\n" else letter if letter.isprintable() else "�" for letter in text)


def cut_cells(text: str, cells: int) -> str:
    """Cut a text to so many cells of a terminal; dots at the end say that it was longer.

    >>> cut_cells("headwater", 5)
    'head…'
    """
    text = plain(text)
    return text if cell_len(text) <= cells else set_cell_size(text, max(0, cells - 1)).rstrip() + "…"


def kind_and_state(node: Node) -> str:
    return f"{node.kind} {node.state}" if node.state else node.kind


def summary(graph: Graph) -> str:
    """Describe the graph in a sentence or two, for screen readers."""
    kinds = [(kind, sum(node.kind == kind for node in graph.nodes)) for kind in _MARKS]
    names = {
        "topic": "topics",
        "query": "queries",
        "view": "views",
        "sink": "sinks",
        "capture": "captures",
        "gateway": "gateways",
    }
    counts = ", ".join(f"{count} {kind if count == 1 else names[kind]}" for kind, count in kinds if count)
    edges = "; ".join(f"{first} to {second}" for first, second in graph.edges)
    return f"{counts or 'Nothing'}. Rows flow from {edges}." if edges else f"{counts or 'Nothing'}."


# -- boxes ------------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Channel:
    """The lines between two columns: the row of each source, and the rows of its targets."""

    sources: dict[Slot, tuple[int, list[int]]] = field(default_factory=dict)

    def tracks(self) -> list[Slot]:
        """Return the sources, in the order of their uprights from left to right.

        A source in the row of another one's target turns before the other one's upright, or the two would look like one.
        """
        straight = {key for key, (row, targets) in self.sources.items() if targets == [row]}
        waiting = [key for key in self.sources if key not in straight]
        order: list[Slot] = []
        while waiting:
            free = [key for key in waiting if not any(self._is_before(other, key) for other in waiting if other != key)]
            order.append((free or waiting)[0])
            waiting.remove(order[-1])
        return order

    def _is_before(self, one: Slot, other: Slot) -> bool:
        row, targets = self.sources[one]
        other_row, other_targets = self.sources[other]
        return row in other_targets and row not in targets and other_row != row


def _lines_of(node: Node, cells: int, label_cells: int) -> list[str]:
    mark = _DOTS.get(node.state or "", _MARKS[node.kind]) if node.kind == "query" else _MARKS[node.kind]
    label = ", ".join(part for part in (node.state or "", node.label) if part)
    return [
        f"{mark} {cut_cells(node.name, cells)}",
        *([f"  {cut_cells(label, label_cells)}"] if label and label_cells else []),
    ]


def _boxes(
    columns: Columns, lines: Mapping[str, list[str]], nodes: Mapping[str, Node], width_max: int
) -> list[str] | None:
    """Return the lines of a drawing; None if it does not fit."""
    widths = [
        max(cell_len(line) + 4 for slot in column if isinstance(slot, str) for line in lines[slot])
        for column in columns.columns
    ]
    if sum(widths) + 4 * (len(widths) - 1) > width_max:
        return None
    # All boxes have the same height, so that lines, which meet boxes at their first row of text, can be straight.
    height = max(map(len, lines.values())) + 2
    heights: dict[Slot, int] = {
        slot: height if isinstance(slot, str) else 1 for column in columns.columns for slot in column
    }
    rows = _rows(columns, heights)
    canvas = Canvas()
    left = 0
    for number, (column, width) in enumerate(zip(columns.columns, widths, strict=True)):
        for slot in column:
            if isinstance(slot, str):
                _draw_box(canvas, nodes[slot], left, rows[slot], width, lines[slot])
            else:
                for place in range(left, left + width):
                    canvas.join(place, rows[slot], LEFT | RIGHT)
        left += width
        if number + 1 < len(columns.columns):
            left = _draw_channel(canvas, columns, number, left, rows, nodes)
    return canvas.lines()


def _rows(columns: Columns, heights: Mapping[Slot, int]) -> dict[Slot, int]:
    """Return the first row of each slot."""
    tops = columns.tops(heights, gap=1)
    rows: dict[Slot, int] = {}
    for column in columns.columns:
        free = 0
        for slot in column:
            rows[slot] = max(free, round(tops[slot]))
            free = rows[slot] + heights[slot] + 1
    return rows


def _draw_box(canvas: Canvas, node: Node, left: int, row: int, width: int, lines: Sequence[str]) -> None:
    corners, (flat, upright) = _CORNERS[node.kind], _EDGES[node.kind]
    canvas.write(left, row, corners[0] + flat * (width - 2) + corners[1])
    for number, text in enumerate(lines, start=1):
        canvas.write(left, row + number, f"{upright} {text}{' ' * (width - 4 - cell_len(text))} {upright}")
    canvas.write(left, row + len(lines) + 1, corners[2] + flat * (width - 2) + corners[3])


def _draw_channel(
    canvas: Canvas, columns: Columns, number: int, left: int, rows: Mapping[Slot, int], nodes: Mapping[str, Node]
) -> int:
    """Draw the lines between two columns; return where the second column begins."""
    here, there = columns.columns[number : number + 2]
    middle = {slot: rows[slot] + isinstance(slot, str) for slot in (*here, *there)}
    channel = _Channel(
        sources={
            slot: (middle[slot], [middle[other] for other in columns.after[slot]])
            for slot in here
            if slot in columns.after
        }
    )
    tracks = channel.tracks()
    right = left + 2 * len(tracks) + 3
    for slot, (row, targets) in channel.sources.items():
        upright = left + 1 + 2 * tracks.index(slot) if slot in tracks else left + 1
        _draw_fork(canvas, left, upright, right, row, targets)
        if isinstance(slot, str):
            canvas.write(
                left - 1, row, {"view": "╟", "sink": "┠", "capture": "┠", "gateway": "┠"}.get(nodes[slot].kind, "├")
            )
    for slot in there:
        if isinstance(slot, str) and slot in columns.before:
            canvas.write(right, middle[slot], "▶")
    return right + 1


def _draw_fork(canvas: Canvas, left: int, upright: int, right: int, row: int, targets: Sequence[int]) -> None:
    """Draw a line from a box to its upright, along it, and from it to each target."""
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


def _list(graph: Graph, columns: Columns, nodes: Mapping[str, Node]) -> list[str]:
    """Return a line for each node, after all nodes that it reads, with where its rows come from."""
    sources: dict[str, list[str]] = {}
    for first, second in dict.fromkeys(graph.edges):
        sources.setdefault(second, []).append(first)
    lines = []
    for number, column in enumerate(columns.columns):
        lines += [""] if number else []
        lines += [_list_line(nodes[slot], sources.get(slot, [])) for slot in column if isinstance(slot, str)]
    return lines


def _list_line(node: Node, sources: list[str]) -> str:
    label = ", ".join(part for part in (node.state or "", node.label) if part)
    text = _lines_of(node, 60, 0)[0] + (f"  ({cut_cells(label, 40)})" if label else "")
    return text + (f"  ← {', '.join(cut_cells(name, 40) for name in sources)}" if sources else "")


# -- characters --------------------------------------------------------------------------------------------------------


class Canvas:
    """A sheet of characters on which lines join where they meet; text lies above lines.

    >>> canvas = Canvas()
    >>> for way, column in ((RIGHT, 0), (LEFT | DOWN, 1)):
    ...     canvas.join(column, 0, way)
    >>> canvas.write(3, 0, "a")
    >>> canvas.lines()
    ['╶┐ a']
    """

    def __init__(self) -> None:
        self._ways: dict[tuple[int, int], int] = {}
        self._text: dict[tuple[int, int], str] = {}

    def join(self, column: int, row: int, ways: int) -> None:
        """Draw lines from a place in these directions as well."""
        self._ways[row, column] = self._ways.get((row, column), 0) | ways

    def write(self, column: int, row: int, text: str) -> None:
        """Write text from a place on; a wide character takes two places."""
        for letter in text:
            width = cell_len(letter)
            if width == 0 and (row, column - 1) in self._text:
                self._text[row, column - 1] += letter  # an accent belongs to the letter before
                continue
            self._text[row, column] = letter
            if width == 2:
                self._text[row, column + 1] = ""
            column += width

    def lines(self) -> list[str]:
        """Return all rows, without blanks at their ends."""
        places = [*self._ways, *self._text]
        if not places:
            return []
        width = max(column for _, column in places) + 1
        return ["".join(self._at(row, column) for column in range(width)).rstrip() for row in range(max(places)[0] + 1)]

    def _at(self, row: int, column: int) -> str:
        text = self._text.get((row, column))
        return _JOINTS[self._ways.get((row, column), 0)] if text is None else text

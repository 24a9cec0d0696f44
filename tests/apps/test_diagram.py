"""Graphs of every size and with every name are drawn whole: each node once, no two boxes on one another, edges forward."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rich.cells import cell_len

from headwater.apps.diagram import as_svg, as_text
from headwater.apps.diagram.layout import Box, Edge, Point
from headwater.apps.diagram.svg import COLORS, layout_of
from headwater.apps.diagram.text import plain
from headwater.apps.status import Graph, Node

SVG = "{http://www.w3.org/2000/svg}"
KINDS = ("topic", "query", "view", "sink")
NODES = st.builds(
    Node,
    name=st.text(min_size=1, max_size=50),
    kind=st.sampled_from(KINDS),
    label=st.text(max_size=80),
    state=st.none() | st.sampled_from(("running", "failed", "caught up", "waiting")),
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    nodes = draw(st.lists(NODES, min_size=1, max_size=14, unique_by=lambda node: node.name))
    pairs = [(one.name, other.name) for at, one in enumerate(nodes) for other in nodes[at + 1 :]]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []
    return Graph(app=draw(st.text(max_size=30)), nodes=tuple(nodes), edges=tuple(edges))


def large(count: int, seed: int = 3) -> Graph:
    """An app of so many nodes."""
    chance = random.Random(seed)
    nodes = [Node(name=f"source_{number}", kind="topic", label="4 partitions") for number in range(5)]
    edges: list[tuple[str, str]] = []
    while len(nodes) < count:
        query = Node(name=f"query_{len(nodes)}()", kind="query", label="12 rows/s", state="running")
        view = Node(name=f"view_{len(nodes)}", kind="view")
        known = [node.name for node in nodes if node.kind in ("topic", "view")][-8:]
        edges += [(name, query.name) for name in chance.sample(known, 2)] + [(query.name, view.name)]
        nodes += [query, view]
    return Graph(app="large", nodes=tuple(nodes), edges=tuple(edges))


def overlap(one: Box, other: Box) -> bool:
    beside = one.x + one.width <= other.x or other.x + other.width <= one.x
    apart = one.y + one.height <= other.y + 1e-6 or other.y + other.height <= one.y + 1e-6
    return not (beside or apart)


def check_layout(graph: Graph) -> None:
    layout = layout_of(graph)
    boxes = list(layout.boxes.values())
    assert sorted(layout.boxes) == sorted(node.name for node in graph.nodes)
    assert not any(overlap(one, other) for at, one in enumerate(boxes) for other in boxes[at + 1 :])
    assert set(layout.lines) == set(graph.edges)
    for edge, points in layout.lines.items():
        check_line(edge, points, layout.boxes)
    assert all(box.x >= 0 and box.y >= -1e-6 and box.x + box.width <= layout.width + 1e-6 for box in boxes)


def check_line(edge: Edge, points: Sequence[Point], boxes: Mapping[str, Box]) -> None:
    """It goes to the right from its first box to its second, and through no other."""
    first, second = boxes[edge[0]], boxes[edge[1]]
    xs = [x for x, _ in points]
    assert xs == sorted(xs)
    assert (xs[0], xs[-1]) == (first.x + first.width, second.x)
    assert first.y < points[0][1] < first.y + first.height
    assert second.y < points[-1][1] < second.y + second.height
    for (left, y), (right, _) in zip(points[1:-1:2], points[2:-1:2], strict=True):
        passed = [box for box in boxes.values() if box.x < right and left < box.x + box.width]
        assert not any(box.y < y < box.y + box.height for box in passed)


@given(graph=graphs())
def test_each_node_stands_once_and_alone_and_edges_go_forward(graph: Graph) -> None:
    check_layout(graph)


@pytest.mark.parametrize("count", [3, 10, 40, 200])
def test_large_graphs_too(count: int) -> None:
    check_layout(large(count))


@given(graph=graphs())
def test_any_name_makes_a_sound_svg_that_says_it(graph: Graph) -> None:
    root = ElementTree.fromstring(as_svg(graph))
    titles = [title.text or "" for group in root.iter(f"{SVG}g") for title in group.findall(f"{SVG}title")]
    assert len(titles) == len(graph.nodes)
    for node in graph.nodes:
        said = f"{node.kind} {plain(node.name)}".split()
        assert any(title.split()[: len(said)] == said for title in titles)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "title", "desc", "style", "defs", "marker", "path", "rect", "text", "g", "circle",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "]]><script>", '" onload="alert(1)', "&lt;b&gt;", "--><x>"]
)
def test_a_name_is_text_and_nothing_else(name: str) -> None:
    graph = Graph(
        app=name, nodes=(Node(name=name, kind="topic", label=name), Node(name="q", kind="query")), edges=((name, "q"),)
    )
    root = ElementTree.fromstring(as_svg(graph))
    assert not list(root.iter(f"{SVG}script"))
    assert not any(attribute.startswith("on") for element in root.iter() for attribute in element.attrib)
    assert any(element.text == name for element in root.iter(f"{SVG}text"))


def test_the_svg_is_told_to_readers_and_has_both_lights() -> None:
    text = as_svg(large(10))
    root = ElementTree.fromstring(text)
    assert root.attrib["role"] == "img"
    assert (root.findtext(f"{SVG}title"), "Rows flow from" in (root.findtext(f"{SVG}desc") or "")) == ("large", True)
    assert "prefers-color-scheme:dark" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


@given(graph=graphs(), width=st.sampled_from((60, 80, 120)))
def test_text_keeps_to_its_width_and_leaves_no_node_out(graph: Graph, width: int) -> None:
    lines = as_text(graph, width=width).splitlines()
    assert all(cell_len(line) <= width for line in lines)
    marks = sum(line.count(mark) for line in lines for mark in "≡ƒ▦▸●✗↻■")
    assert marks >= len(graph.nodes)


@given(graph=graphs())
def test_in_boxes_each_name_stands_once(graph: Graph) -> None:
    plain_nodes = tuple(Node(name=f"n{number}n", kind=node.kind) for number, node in enumerate(graph.nodes))
    names = {node.name: f"n{number}n" for number, node in enumerate(graph.nodes)}
    renamed = Graph(app="a", nodes=plain_nodes, edges=tuple((names[one], names[other]) for one, other in graph.edges))
    text = as_text(renamed, width=400)
    assume("←" not in text)
    assert all(text.count(node.name) == 1 for node in plain_nodes)
    assert text.count("▶") == len({other for _, other in renamed.edges})


def test_a_small_graph_is_drawn_in_boxes_and_a_large_one_listed() -> None:
    small = Graph(
        app="fraud",
        nodes=(
            Node(name="payments", kind="topic"),
            Node(name="cards", kind="topic"),
            Node(name="spend()", kind="query", state="running"),
            Node(name="spend", kind="view"),
        ),
        edges=(("payments", "spend()"), ("cards", "spend()"), ("spend()", "spend")),
    )
    assert as_text(small, width=80).splitlines() == [
        "┌────────────┐",
        "│ ≡ payments ├─┐",
        "└────────────┘ │      ╭───────────╮    ╔═════════╗",
        "               └─┬───▶│ ● spend() ├───▶║ ▦ spend ║",
        "                 │    │   running │    ╚═════════╝",
        "┌────────────┐   │    ╰───────────╯",
        "│ ≡ cards    ├───┘",
        "└────────────┘",
    ]
    listed = as_text(large(40), width=80)
    assert all(listed.count(f"{node.name}") >= 1 for node in large(40).nodes)
    assert "← " in listed


def test_a_cycle_and_a_name_that_no_node_has_are_drawn_all_the_same() -> None:
    nodes = (Node(name="a", kind="topic"), Node(name="b", kind="query"))
    graph = Graph(app="x", nodes=nodes, edges=(("a", "b"), ("b", "a"), ("b", "elsewhere"), ("a", "a")))
    assert "elsewhere" in as_svg(graph)
    assert "elsewhere" in as_text(graph)


def test_nothing_at_all_is_a_picture_too() -> None:
    empty = Graph(app="empty", nodes=(), edges=())
    assert as_text(empty) == ""
    assert ElementTree.fromstring(as_svg(empty)) is not None


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_whatever_is_written_can_be_read(theme: str) -> None:
    colors = COLORS[theme]
    for fill, stroke in colors.kinds.values():
        for ink in (colors.ink, colors.faint, stroke):
            light, dark = sorted((luminance(ink), luminance(fill)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5
    for state in colors.states.values():
        light, dark = sorted((luminance(state), luminance(colors.kinds["query"][0])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5

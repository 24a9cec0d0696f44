"""How graphs are laid out: rows flow to the right, nothing lies over anything else, and five hundred nodes take no time."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headwater.apps.diagram.layout import Columns, Layout, Spacing, acyclic, arrange, depths, spread

WIDTH = 208.0
SPACING = Spacing(gap=18.0, channel=76.0, line_height=14.0)
names = st.integers(0, 24).map(lambda number: f"n{number}")
graphs = st.lists(st.tuples(names, names), max_size=60)


def nodes_of(edges: list[tuple[str, str]]) -> list[str]:
    return sorted({name for edge in edges for name in edge})


def drawn(edges: list[tuple[str, str]], *, height: float = 60.0) -> Layout:
    return arrange(tuple((name, WIDTH, height) for name in nodes_of(edges)), tuple(edges), SPACING)


def overlaps(layout: Layout, *, height: float) -> list[tuple[str, str]]:
    """Every pair of nodes that share a point; found by comparing all with all."""
    every = list(layout.boxes.items())
    return [
        (first, second)
        for number, (first, box) in enumerate(every)
        for second, other in every[number + 1 :]
        if abs(box.x - other.x) < WIDTH and abs(box.y - other.y) < height
    ]


def has_circle(edges: list[tuple[str, str]]) -> bool:
    """Take away what nothing feeds, again and again; what is left goes in circles."""
    left = set(edges)
    while True:
        fed = {second for _, second in left}
        kept = {edge for edge in left if edge[0] in fed}
        if kept == left:
            return bool(left)
        left = kept


@given(edges=graphs)
def test_without_the_edges_that_close_circles_there_are_none(edges: list[tuple[str, str]]) -> None:
    kept = acyclic(nodes_of(edges), edges)
    assert not has_circle(kept)
    if not has_circle(edges):
        assert kept == edges


@given(edges=graphs)
def test_a_node_is_right_after_its_last_input_or_right_before_its_first_reader(edges: list[tuple[str, str]]) -> None:
    nodes = nodes_of(edges)
    forward = acyclic(nodes, edges)
    column = depths(nodes, forward)
    for name in nodes:
        inputs = [column[first] for first, second in forward if second == name]
        readers = [column[second] for first, second in forward if first == name]
        assert column[name] == (max(inputs) + 1 if inputs else min(readers) - 1 if readers else 0)


@given(edges=graphs)
def test_no_node_lies_over_another_and_all_are_inside(edges: list[tuple[str, str]]) -> None:
    layout = drawn(edges)
    assert sorted(layout.boxes) == nodes_of(edges)
    assert overlaps(layout, height=60.0) == []
    assert all(
        -0.01 <= box.x <= layout.width - WIDTH + 0.01 and -0.01 <= box.y <= layout.height - 60 + 0.01
        for box in layout.boxes.values()
    )


@given(edges=graphs)
def test_every_line_goes_from_the_edge_of_one_node_to_that_of_the_other(edges: list[tuple[str, str]]) -> None:
    layout = drawn(edges)
    assert set(layout.lines) == {edge for edge in edges if edge[0] != edge[1]}
    for (first, second), points in layout.lines.items():
        box = layout.boxes[first]
        assert points[0] == (box.x + WIDTH, box.y + 30)
        box = layout.boxes[second]
        assert points[-1] == (box.x, box.y + 30)


@given(wanted=st.lists(st.floats(-1_000, 1_000), max_size=12), size=st.floats(1, 50))
def test_places_keep_their_distance_and_one_with_room_gets_what_it_wants(wanted: list[float], size: float) -> None:
    found = spread(wanted, [size] * len(wanted))
    assert all(later - earlier >= size - 1e-6 for earlier, later in pairwise(found))
    if all(later - earlier >= size for earlier, later in pairwise(wanted)):
        assert all(abs(want - got) < 1e-6 for want, got in zip(wanted, found, strict=True))


def test_lines_that_need_not_cross_do_not() -> None:
    edges = [(f"t{n}", f"q{n}") for n in range(6)] + [(f"q{n}", f"v{5 - n}") for n in range(6)]
    edges += [("t0", "q1"), ("t2", "q3")]
    layout = drawn(edges)
    for kind in ("q", "v"):
        by_height = sorted((layout.boxes[name].y, name) for name in layout.boxes if name.startswith(kind))
        assert len(by_height) == 6
    for first, second in edges[:12]:
        for third, fourth in edges[:12]:
            if layout.boxes[first].x == layout.boxes[third].x and first != third:
                above = layout.boxes[first].y < layout.boxes[third].y
                below = layout.boxes[second].y < layout.boxes[fourth].y
                assert layout.boxes[second].x != layout.boxes[fourth].x or above == below


def test_five_hundred_nodes_are_laid_out_without_overlap() -> None:
    chance = random.Random(7)
    edges = []
    for number in range(180):
        edges += [(f"t{chance.randrange(120)}", f"q{number}"), (f"q{number}", f"v{number}")]
        if number % 3 == 0:
            edges.append((f"v{chance.randrange(number + 1)}", f"q{number + 1}" if number < 179 else "q0"))
    edges += [(f"v{number}", f"s{number}") for number in range(60)]
    layout = drawn(edges)
    assert len(layout.boxes) >= 500
    assert overlaps(layout, height=60.0) == []


def test_the_same_shape_is_drawn_in_the_same_way_and_computed_once() -> None:
    edges = [("a", "b"), ("b", "c")]
    assert drawn(edges) is drawn(list(edges))


def test_sweeps_leave_far_fewer_crossings_than_a_random_order() -> None:
    chance = random.Random(3)
    edges = [(f"a{chance.randrange(20)}", f"b{chance.randrange(20)}") for _ in range(30)]
    edges += [(f"b{chance.randrange(20)}", f"c{chance.randrange(20)}") for _ in range(30)]
    columns = Columns.of(nodes_of(edges), edges)
    ordered = columns.crossings()
    columns.columns = [chance.sample(column, len(column)) for column in columns.columns]
    assert ordered < columns.crossings() / 2

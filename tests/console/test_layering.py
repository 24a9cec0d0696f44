"""How graphs are laid out: rows flow to the right, nothing lies over anything else, and five hundred nodes are no trouble."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headwater.console.parts.layering import NODE_WIDTH, Layout, acyclic, arranged, layers, spread

names = st.integers(0, 24).map(lambda number: f"n{number}")
graphs = st.lists(st.tuples(names, names), max_size=60)


def nodes_of(edges: list[tuple[str, str]]) -> list[str]:
    return sorted({name for edge in edges for name in edge})


def drawn(edges: list[tuple[str, str]], *, height: float = 60.0) -> Layout:
    return arranged(tuple((name, height) for name in nodes_of(edges)), tuple(edges))


def overlaps(layout: Layout, *, height: float) -> list[tuple[str, str]]:
    """Every pair of nodes that share a point; found by comparing all with all."""
    every = list(layout.places.items())
    return [
        (first, second)
        for number, (first, (x, y)) in enumerate(every)
        for second, (other_x, other_y) in every[number + 1 :]
        if abs(x - other_x) < NODE_WIDTH and abs(y - other_y) < height
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
def test_a_node_stands_right_of_all_that_feed_it_and_next_to_one_of_them(edges: list[tuple[str, str]]) -> None:
    nodes = nodes_of(edges)
    forward = acyclic(nodes, edges)
    column = layers(nodes, forward)
    for name in nodes:
        fed_by = [column[first] for first, second in forward if second == name]
        assert column[name] == (max(fed_by) + 1 if fed_by else 0)


@given(edges=graphs)
def test_no_node_lies_over_another_and_all_are_inside(edges: list[tuple[str, str]]) -> None:
    layout = drawn(edges)
    assert sorted(layout.places) == nodes_of(edges)
    assert overlaps(layout, height=60.0) == []
    assert all(
        -0.01 <= x <= layout.width - NODE_WIDTH + 0.01 and -0.01 <= y <= layout.height - 60 + 0.01
        for x, y in layout.places.values()
    )


@given(edges=graphs)
def test_every_line_goes_from_the_edge_of_one_node_to_that_of_the_other(edges: list[tuple[str, str]]) -> None:
    layout = drawn(edges)
    assert set(layout.lines) == {edge for edge in edges if edge[0] != edge[1]}
    for (first, second), points in layout.lines.items():
        x, y = layout.places[first]
        assert points[0] == (x + NODE_WIDTH, y + 30)
        x, y = layout.places[second]
        assert points[-1] == (x, y + 30)


@given(wanted=st.lists(st.floats(-1_000, 1_000), max_size=12), size=st.floats(1, 50))
def test_places_keep_their_distance_and_whoever_has_room_gets_what_he_wants(wanted: list[float], size: float) -> None:
    found = spread(wanted, [size] * len(wanted))
    assert all(later - earlier >= size - 1e-6 for earlier, later in pairwise(found))
    if all(later - earlier >= size for earlier, later in pairwise(wanted)):
        assert all(abs(want - got) < 1e-6 for want, got in zip(wanted, found, strict=True))


def test_lines_that_need_not_cross_do_not() -> None:
    edges = [(f"t{n}", f"q{n}") for n in range(6)] + [(f"q{n}", f"v{5 - n}") for n in range(6)]
    edges += [("t0", "q1"), ("t2", "q3")]
    layout = drawn(edges)
    for kind in ("q", "v"):
        by_height = sorted((layout.places[name][1], name) for name in layout.places if name.startswith(kind))
        assert len(by_height) == 6
    for first, second in edges[:12]:
        for third, fourth in edges[:12]:
            if layout.places[first][0] == layout.places[third][0] and first != third:
                above = layout.places[first][1] < layout.places[third][1]
                below = layout.places[second][1] < layout.places[fourth][1]
                assert layout.places[second][0] != layout.places[fourth][0] or above == below


def test_five_hundred_nodes_are_laid_out_without_overlap() -> None:
    chance = random.Random(7)
    edges = []
    for number in range(180):
        edges += [(f"t{chance.randrange(120)}", f"q{number}"), (f"q{number}", f"v{number}")]
        if number % 3 == 0:
            edges.append((f"v{chance.randrange(number + 1)}", f"q{number + 1}" if number < 179 else "q0"))
    edges += [(f"v{number}", f"s{number}") for number in range(60)]
    layout = drawn(edges)
    assert len(layout.places) >= 500
    assert overlaps(layout, height=60.0) == []


def test_the_same_shape_is_drawn_in_the_same_way_and_computed_once() -> None:
    edges = [("a", "b"), ("b", "c")]
    assert drawn(edges) is drawn(list(edges))

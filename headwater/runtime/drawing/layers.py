"""A graph in layers: rows flow from each layer to later ones, with few crossings between neighbours.

The usual three steps (Sugiyama): a layer for each node by its longest path, places for edges that pass layers by, and an
order in each layer by the mean place of the neighbours, swept there and back while it gets better. Graphs of apps have
no cycles; should one come all the same, the edges that close it are drawn backwards, and nothing fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from headwater.runtime.status import Graph, Node

SWEEPS = 12


@dataclass(frozen=True, kw_only=True)
class Item:
    """A place in a layer: a node, or the passing of an edge that goes further."""

    key: int
    node: Node | None = None


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Items by layer, from top to bottom, and links between neighbouring layers; `chains` are the edges as keys."""

    layers: tuple[tuple[Item, ...], ...]
    links: tuple[tuple[int, int], ...]
    chains: dict[tuple[str, str], tuple[int, ...]]
    backwards: frozenset[tuple[str, str]] = frozenset()

    def __len__(self) -> int:
        return len(self.layers)


def layered(graph: Graph) -> Layers:
    """The layers of a graph."""
    nodes = _nodes(graph)
    edges = [edge for edge in dict.fromkeys(graph.edges) if edge[0] != edge[1]]
    turned = _backwards(list(nodes), edges)
    forward = [(second, first) if (first, second) in turned else (first, second) for first, second in edges]
    depth = _depths(list(nodes), forward)
    items: list[list[Item]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    keys: dict[str, int] = {}
    for name, node in nodes.items():
        keys[name] = len(keys)
        items[depth[name]].append(Item(key=keys[name], node=node))
    links: list[tuple[int, int]] = []
    chains: dict[tuple[str, str], tuple[int, ...]] = {}
    count = len(keys)
    for edge, (first, second) in zip(edges, forward, strict=True):
        passed = range(count, count + depth[second] - depth[first] - 1)
        count += len(passed)
        for layer, key in enumerate(passed, start=depth[first] + 1):
            items[layer].append(Item(key=key))
        chain = (keys[first], *passed, keys[second])
        links += pairwise(chain)
        chains[edge] = chain
    order = _ordered([[item.key for item in layer] for layer in items], list(dict.fromkeys(links)))
    known = {item.key: item for layer in items for item in layer}
    placed = tuple(tuple(known[key] for key in layer) for layer in order)
    return Layers(layers=placed, links=tuple(dict.fromkeys(links)), chains=chains, backwards=frozenset(turned))


def _nodes(graph: Graph) -> dict[str, Node]:
    nodes = {node.name: node for node in graph.nodes}
    for name in (name for edge in graph.edges for name in edge):
        nodes.setdefault(name, Node(name=name, kind="topic"))  # named by an edge alone
    return nodes


def _backwards(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """The edges that close a cycle, found by walking along all edges with a memory of the way."""
    after: dict[str, list[str]] = {name: [] for name in names}
    for first, second in edges:
        after[first].append(second)
    state: dict[str, int] = {}
    found: set[tuple[str, str]] = set()
    for root in names:
        stack = [(root, iter(after[root]))] if root not in state else []
        state.setdefault(root, 1)
        while stack:
            name, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                state[name] = 2
                stack.pop()
            elif following not in state:
                state[following] = 1
                stack.append((following, iter(after[following])))
            elif state[following] == 1:
                found.add((name, following))
    return found


def _depths(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """How many edges lie before each node at most; what nothing flows into stands right before its first reader."""
    depth = dict.fromkeys(names, 0)
    before: dict[str, list[str]] = {name: [] for name in names}
    after: dict[str, list[str]] = {name: [] for name in names}
    for first, second in edges:
        before[second].append(first)
        after[first].append(second)
    waiting = {name: len(before[name]) for name in names}
    ready = [name for name in names if not waiting[name]]
    for name in ready:  # grows as it goes
        for following in after[name]:
            depth[following] = max(depth[following], depth[name] + 1)
            waiting[following] -= 1
            if not waiting[following]:
                ready.append(following)
    for name in names:
        if not before[name] and after[name]:
            depth[name] = min(depth[following] for following in after[name]) - 1
    return depth


def _ordered(layers: list[list[int]], links: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The order with the fewest crossings that the sweeps have come across."""
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for first, second in links:
        after.setdefault(first, []).append(second)
        before.setdefault(second, []).append(first)
    best, fewest = [list(layer) for layer in layers], crossings(layers, links)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        numbers = range(1, len(layers)) if down else range(len(layers) - 2, -1, -1)
        for number in numbers:
            fixed = layers[number - 1 if down else number + 1]
            layers[number] = _by_neighbours(layers[number], fixed, before if down else after)
        found = crossings(layers, links)
        if found < fewest:
            best, fewest = [list(layer) for layer in layers], found
    return best


def _by_neighbours(layer: list[int], fixed: Sequence[int], neighbours: dict[int, list[int]]) -> list[int]:
    place = {key: number for number, key in enumerate(fixed)}
    own = {key: number for number, key in enumerate(layer)}

    def mean(key: int) -> float:
        found = [place[other] for other in neighbours.get(key, ()) if other in place]
        return sum(found) / len(found) if found else own[key] * max(1, len(fixed)) / max(1, len(layer))

    return sorted(layer, key=lambda key: (mean(key), own[key]))


def crossings(layers: Sequence[Sequence[int]], links: Sequence[tuple[int, int]]) -> int:
    """How many pairs of links cross.

    >>> crossings([[1, 2], [3, 4]], [(1, 4), (2, 3)]), crossings([[1, 2], [4, 3]], [(1, 4), (2, 3)])
    (1, 0)
    """
    place = {key: (number, at) for number, layer in enumerate(layers) for at, key in enumerate(layer)}
    gaps: dict[int, list[tuple[int, int]]] = {}
    for first, second in links:
        gaps.setdefault(place[first][0], []).append((place[first][1], place[second][1]))
    total = 0
    for pairs in gaps.values():
        pairs.sort()
        total += sum(
            one[1] > other[1] for at, one in enumerate(pairs) for other in pairs[at + 1 :] if one[0] != other[0]
        )
    return total

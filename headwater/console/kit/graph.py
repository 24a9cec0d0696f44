"""A graph that is drawn once and then only changes its numbers: nodes keep their places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from nicegui.element import Element

from headwater.apps.diagram.layout import Edge, Layout


@dataclass(frozen=True, kw_only=True)
class Node:
    """What does not change of a node while it is shown."""

    id: str
    kind: str
    name: str
    icon: str
    said: str
    """What it is, for screen readers."""
    height: float
    line: Sequence[float] = ()
    """Its recent rates, oldest first."""


@dataclass(frozen=True, kw_only=True)
class NodeNumbers:
    """The numbers of a node as they are now, as texts with their units."""

    rate: float = 0.0
    first: str = ""
    second: str = ""
    state: str = ""
    """A class of the stylesheet: `off` is dashed, `on` is lit; `warn` and `bad` need attention."""
    busy: float | None = None
    busiest: bool = False
    waits: bool = False
    """Whether rows wait for it: only then does a busy node need attention."""
    facts: Sequence[tuple[str, str, str]] = field(default=())
    """Name, value and tone of each."""


class GraphView(Element, component="graph.js"):
    """The graph on the page: moved and zoomed by mouse, fingers and keys."""

    def __init__(self, *, label: str, on_pick: Callable[[str], Any], on_leave: Callable[[], Any] | None = None) -> None:
        super().__init__()
        self._props.update(label=label, nodes=[], edges=[], width=0, height=0)
        self._shape: object = None
        self.on("pick", lambda event: on_pick(str(event.args)))
        if on_leave is not None:
            self.on("leave", lambda: on_leave())

    def draw(self, nodes: Sequence[Node], edges: Sequence[tuple[Edge, bool]], layout: Layout) -> None:
        """Draw these nodes and edges, each edge with whether it is a side output. The same shape is not drawn again."""
        shape = (tuple((node.id, node.kind) for node in nodes), tuple(edges))
        if shape == self._shape:
            return
        self._shape = shape
        self._props["nodes"] = [
            {**asdict(node), "x": layout.boxes[node.id].x, "y": layout.boxes[node.id].y} for node in nodes
        ]
        self._props["edges"] = [
            {"from": edge[0], "to": edge[1], "aside": is_side_output, "points": layout.lines.get(edge, ())}
            for edge, is_side_output in edges
        ]
        self._props.update(width=layout.width, height=layout.height)
        self.update()

    def set_numbers(self, nodes: Mapping[str, NodeNumbers], rates: Sequence[float]) -> None:
        """Set the numbers: of the nodes by id, and of the edges in the order in which they were drawn."""
        self.run_method(
            "tell", {id: asdict(numbers) for id, numbers in nodes.items()}, [round(rate, 2) for rate in rates]
        )

    def highlight(self, ids: Sequence[str] | None) -> None:
        """Highlight these nodes; None for none."""
        self.run_method("mark", ids)

    def go_to(self, id: str, *, pick: bool = False) -> None:
        """Move a node to the centre."""
        self.run_method("goTo", id, pick)

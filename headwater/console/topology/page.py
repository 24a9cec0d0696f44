"""The topology: topics, queries, views and sinks of all apps as a graph, with the rates of the rows between them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from nicegui import ui

from headwater.apps.diagram.layout import Layout, Spacing, arrange
from headwater.apps.status import Graph
from headwater.console.context import Visit, context
from headwater.console.kit.controls import button, search_box, select
from headwater.console.kit.graph import GraphView, Node
from headwater.console.kit.layout import block, empty, heading, note
from headwater.console.kit.live import LivePage
from headwater.console.kit.words import count
from headwater.console.pages import path_to, screen
from headwater.console.queries.status import by_node
from headwater.console.topology.flow import Flow, GraphNumbers, Station, around, flow_of, numbers_of
from headwater.console.topology.panel import NodePanel

#: A larger graph is shown in parts.
NODES_MAX = 100
HOPS = {1: "1 step around", 2: "2 steps around", 3: "3 steps around", 99: "all that is connected"}
ICONS = {
    "topic": "view_stream",
    "query": "bolt",
    "view": "table_chart",
    "sink": "output",
    "group": "group",
    "capture": "cable",
    "gateway": "settings_input_antenna",
    "queue": "assignment",
}
#: The size of a node, as `graph.js` and the stylesheet draw it.
NODE_WIDTH = 208.0
HEIGHT = 84.0
HEIGHTS = {"query": 112.0}
SPACING = Spacing(gap=16.0, channel=52.0, line_height=14.0)
GRAPH_SECONDS = 4.0


@screen("/topology", title="Topology", icon="account_tree", key="y", order=10)
def topology(visit: Visit, node: str = "", hops: int = 2) -> None:
    TopologyPage(visit, node=node, hops=hops if hops in HOPS else 2).start()


class _Graphs:
    """The graphs of all apps, read for all visitors at once: they seldom change."""

    def __init__(self) -> None:
        self._read_at: float | None = None
        self._graphs: list[Graph] = []

    def now(self) -> list[Graph]:
        if self._read_at is None or time.monotonic() - self._read_at > GRAPH_SECONDS:
            self._read_at, self._graphs = time.monotonic(), context().services.queries.graphs()
        return self._graphs


def shared_graphs() -> list[Graph]:
    """The graphs of all apps."""
    return context().share("topology.graphs", _Graphs).now()


@dataclass(frozen=True, kw_only=True)
class TopologyContent:
    """The whole graph, the part that is shown with its layout, and its numbers."""

    whole: Flow
    shown: Flow
    layout: Layout
    nodes: Sequence[Node]
    numbers: GraphNumbers
    centre: str
    apps: Sequence[str]


class TopologyPage(LivePage[TopologyContent]):
    """The drawing, its search box, and the panel beside it."""

    def __init__(self, visit: Visit, *, node: str, hops: int) -> None:
        self._visit = visit
        self._history = context().history
        self._centre, self._hops, self._app, self._all = node, hops, "", False
        self._content: TopologyContent | None = None
        under = "What rows flow through, and how fast. Pick a node to look closer."
        with heading("Topology", under=under, why="topology"):
            self._apps = select({"": "All apps"}, value="", label="App", on_change=self._choose_app)
            self._apps.set_visibility(False)
            self._search = search_box("Find a node", self._highlight)
            # The text comes with the key, for the value of the box is set a moment later.
            self._search.on(
                "keydown.enter", lambda event: self._go(str(event.args)), js_handler="(e) => emit(e.target.value)"
            )
        self._notes = block("stack tight")
        self._split = block("flow-split")
        with self._split:
            self._graph = GraphView(label="Topology", on_pick=self._pick, on_leave=self._close)
            self._panel = NodePanel(visit, on_close=self._close, on_centre=self._draw_around)
        self._nothing = empty(
            "Nothing flows yet",
            "Run an app, and its topics, queries, views and sinks are drawn here.",
            icon="account_tree",
            command="headwater run app.py",
        )
        self._nothing.set_visibility(False)
        self._noted: tuple[object, ...] = ()

    # -- loading ------------------------------------------------------------------------------------------------------

    def load(self) -> TopologyContent:
        history, sees = self._history, self._visit.caller.sees
        history.wait()
        graphs = shared_graphs()
        topics = [name for name in history.topics if sees(name)]
        # Captures belong to the whole log: only callers who see all of it see them.
        captures = history.captures if self._visit.caller.may("read", "*") else []
        gateways = history.gateways if self._visit.caller.may("read", "*") else []
        whole = flow_of(
            graphs,
            history.statuses,
            lags=history.lags,
            topics=topics,
            captures=captures,
            gateways=gateways,
            queues=[queue for queue in history.queues if sees(queue.name)],
            sees=sees,
        )
        shown, centre = self._part(whole)
        sizes = tuple((id, NODE_WIDTH, HEIGHTS.get(station.kind, HEIGHT)) for id, station in shown.stations.items())
        series = {id: name for id, (_, name) in by_node(history.statuses).items()}
        return TopologyContent(
            whole=whole,
            shown=shown,
            layout=arrange(sizes, shown.edges, SPACING),
            nodes=[self._node(station, series.get(id, station.name)) for id, station in shown.stations.items()],
            numbers=numbers_of(shown, whole, history),
            centre=centre,
            apps=[graph.app for graph in graphs],
        )

    def _part(self, whole: Flow) -> tuple[Flow, str]:
        """The part to show, and its centre: around a chosen node, of one app, or all if that is not too much."""
        part = whole
        if self._app:
            own = [id for id, station in whole.stations.items() if station.app == self._app]
            part = whole.only({*own, *(near for id in own for near in (*whole.before(id), *whole.after(id)))})
        if self._centre in part.stations:
            return around(part, self._centre, hops=self._hops), self._centre
        if len(part.stations) <= NODES_MAX or self._all:
            return part, ""
        centre = self._default_centre(part)
        return around(part, centre, hops=self._hops), centre

    def _default_centre(self, part: Flow) -> str:
        """A query that has failed, or else the busiest, or else the node with the most edges."""
        queries = by_node(self._history.statuses)
        degree: dict[str, int] = {}
        for first, second in part.edges:
            degree[first], degree[second] = degree.get(first, 0) + 1, degree.get(second, 0) + 1

        def weight(id: str) -> tuple[bool, float, int]:
            if id not in queries:
                return False, 0.0, degree.get(id, 0)
            status, _ = queries[id]
            return status.state in ("failed", "restarting"), round(status.busy, 1), degree.get(id, 0)

        return max(part.stations, key=weight)

    def _node(self, station: Station, series: str) -> Node:
        kind = "topic" if station.kind == "view" else station.kind
        measure = "lag" if kind == "group" else "rate"
        return Node(
            id=station.id,
            kind=station.kind,
            name=station.title,
            icon=ICONS[station.kind],
            said=f"{kind} of {station.app}" if station.app and kind == "query" else station.kind,
            height=HEIGHTS.get(station.kind, HEIGHT),
            line=[] if kind == "sink" else self._history.values(kind, series, measure),
        )

    # -- showing ------------------------------------------------------------------------------------------------------

    def show(self, content: TopologyContent) -> None:
        self._content = content
        is_empty = not content.whole.stations
        self._split.set_visibility(not is_empty)
        self._nothing.set_visibility(is_empty)
        self._show_notes(content)
        if is_empty:
            return
        if (options := {"": "All apps", **{app: app for app in content.apps}}) != self._apps.options:
            self._apps.set_visibility(len(content.apps) > 1)
            self._apps.set_options(options, value=self._app if self._app in options else "")
        edges = [(edge, edge in content.shown.side_outputs) for edge in content.shown.edges]
        self._graph.draw(content.nodes, edges, content.layout)
        self._graph.set_numbers(content.numbers.nodes, content.numbers.rates)
        self._panel.show(content.whole)

    def _show_notes(self, content: TopologyContent) -> None:
        """The notes above the drawing; replaced only when they change, for one has a box to choose from."""
        starting, total = context().is_starting, len(content.whole.stations)
        centre = content.whole.stations.get(content.centre)
        has_no_app = not content.apps and total > 0
        noted = (starting, total > NODES_MAX and total, centre, self._hops, has_no_app)
        if noted == self._noted:
            return
        self._noted = noted
        self._notes.clear()
        has_notes = starting or centre is not None or has_no_app
        self._split.classes(add="noted" if has_notes else "", remove="" if has_notes else "noted")
        with self._notes:
            if starting:
                note("Spark is starting. Rows are kept meanwhile; each query lights up when it has come up.")
            if centre is not None:
                self._note_part(centre, total)
            elif has_no_app:
                note(
                    "No app has run on this log, so only topics, queues, captures, gateways and the groups that read are drawn."
                )

    def _note_part(self, centre: Station, total: int) -> None:
        with block("note info"), block("row-flex grow"):
            many = f"{count(total)} nodes are more than one can look at. " if total > NODES_MAX else ""
            ui.label(f"{many}This is the part around {centre.title}; the box above finds another.").classes("grow")
            select(HOPS, value=self._hops, label="How far", on_change=lambda event: self._set_hops(int(event.value)))
            button(f"All {count(total)}", self._draw_all, icon="fit_screen")

    # -- actions ------------------------------------------------------------------------------------------------------

    def _matching(self, typed: str) -> list[str]:
        text = typed.strip().lower()
        if not text or self._content is None:
            return []
        fitting = [station for station in self._content.whole.stations.values() if text in station.name.lower()]
        fitting.sort(key=lambda station: (not station.name.lower().startswith(text), len(station.name)))
        return [station.id for station in fitting]

    def _highlight(self) -> None:
        typed = self._search.value or ""
        self._graph.highlight(self._matching(typed) if typed.strip() else None)

    def _go(self, typed: str) -> None:
        """Go to the first node that fits; of a large graph, draw the part around it."""
        ids = self._matching(typed)
        if not ids or self._content is None:
            return
        if ids[0] not in self._content.shown.stations:
            self._draw_around(ids[0])
        else:
            self._graph.go_to(ids[0], pick=True)
        self._pick(ids[0])

    def _refresh_soon(self) -> None:
        ui.timer(0.01, self.refresh, once=True)

    def _draw_around(self, id: str) -> None:
        self._centre, self._all = id, False
        self._search.set_value("")
        ui.navigate.history.replace(f"{path_to('topology')}?node={quote(id, safe='')}&hops={self._hops}")
        self._refresh_soon()

    def _set_hops(self, hops: int) -> None:
        self._hops = hops
        if self._content is not None:
            self._draw_around(self._content.centre)

    def _draw_all(self) -> None:
        self._centre, self._all = "", True
        ui.navigate.history.replace(path_to("topology"))
        self._refresh_soon()

    def _choose_app(self) -> None:
        self._app, self._centre = str(self._apps.value or ""), ""
        self._refresh_soon()

    def _pick(self, id: str) -> None:
        if self._content is not None and id in self._content.whole.stations:
            self._split.classes(add="open")
            self._panel.open(self._content.whole.stations[id], self._content.whole)

    def _close(self) -> None:
        self._split.classes(remove="open")
        self._panel.close()
        self._graph.run_method("leave")

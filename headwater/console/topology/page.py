"""The topology, drawn live: topics, queries, views and sinks of all apps, and how the rows flow between them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from nicegui import ui

from headwater.apps.diagram.layout import Layout, Spacing, arrange
from headwater.apps.status import Graph
from headwater.console.context import context
from headwater.console.kit.graph import GraphView, Node
from headwater.console.kit.layout import block, button, empty, heading, note, search_box, select
from headwater.console.kit.live import every
from headwater.console.kit.words import count
from headwater.console.pages import screen
from headwater.console.topology.flow import Flow, Station, around, flow_of
from headwater.console.topology.numbers import GraphNumbers, measured, series_by_query
from headwater.console.topology.panel import NodePanel
from headwater.console.visit import Visit

#: More nodes than this are shown in parts.
NODES_MAX = 100
HOPS = {1: "1 step around", 2: "2 steps around", 3: "3 steps around", 99: "all that is connected"}
ICONS = {"topic": "view_stream", "query": "bolt", "view": "table_chart", "sink": "output", "group": "group"}
#: The size of a node, as `graph.js` and the stylesheet draw it.
NODE_WIDTH = 208.0
HEIGHT = 56.0
HEIGHTS = {"query": 82.0}
SPACING = Spacing(gap=18.0, channel=76.0, line_height=14.0)
GRAPH_SECONDS = 4.0


@screen("/topology", title="Topology", icon="account_tree", key="y", order=10)
def topology(visit: Visit, node: str = "", hops: int = 2) -> None:
    page = TopologyPage(visit, node=node, hops=hops if hops in HOPS else 2)
    every(2.0, page.look, page.show)


class Graphs:
    """The graphs of all apps, asked for once for all visitors: their shape seldom changes."""

    def __init__(self) -> None:
        self._asked = 0.0
        self._graphs: list[Graph] = []

    def now(self) -> list[Graph]:
        if time.monotonic() - self._asked > GRAPH_SECONDS or not self._asked:
            self._asked, self._graphs = time.monotonic(), context().services.queries.graphs()
        return self._graphs


@dataclass(frozen=True, kw_only=True)
class TopologyContent:
    """What a look has found: the whole, the part that is shown, where it stands, and its numbers."""

    whole: Flow
    shown: Flow
    layout: Layout
    nodes: Sequence[Node]
    numbers: GraphNumbers
    centre: str
    apps: Sequence[str]
    left_out: int


class TopologyPage:
    """The drawing, what is searched for in it, and the panel beside it."""

    def __init__(self, visit: Visit, *, node: str, hops: int) -> None:
        self._visit = visit
        self._history = context().history
        self._graphs = context().share("topology.graphs", Graphs)
        self._centre, self._hops, self._app, self._all = node, hops, "", False
        self._last: TopologyContent | None = None
        with heading(
            "Topology", under="What rows flow through, and how fast. Pick a node to look closer.", why="topology"
        ):
            self._apps = select({"": "All apps"}, value="", label="App", on_change=self._choose_app)
            self._apps.set_visibility(False)
            self._box = search_box("Find a node", self._search)
            # What is typed comes with the key: the box itself tells of it a moment later.
            self._box.on(
                "keydown.enter", lambda event: self._go(str(event.args)), js_handler="(e) => emit(e.target.value)"
            )
        self._told = block("stack tight")
        self._split = block("flow-split")
        with self._split:
            self._graph = GraphView(label="Topology", on_pick=self._pick, on_leave=self._leave)
            self._beside = NodePanel(visit, on_close=self._leave, on_centre=self._around)
        self._nothing = block("")
        self._said: tuple[object, ...] = ()

    # -- looking ------------------------------------------------------------------------------------------------------

    def look(self) -> TopologyContent:
        self._history.wait()
        history, sees = self._history, self._visit.caller.sees
        graphs = self._graphs.now()
        topics = [name for name in history.topics if sees(name)]
        whole = flow_of(graphs, history.statuses, lags=history.lags, topics=topics, sees=sees)
        shown, centre = self._part(whole)
        sizes = tuple((id, NODE_WIDTH, HEIGHTS.get(one.kind, HEIGHT)) for id, one in shown.stations.items())
        named = {one.name for one in whole.stations.values() if one.kind in ("topic", "view")}
        left_out = sum(1 for name in topics if name not in named and not name.startswith("__"))
        return TopologyContent(
            whole=whole,
            shown=shown,
            layout=arrange(sizes, shown.edges, SPACING),
            nodes=self._nodes(shown),
            numbers=measured(shown, whole, history),
            centre=centre,
            apps=[graph.app for graph in graphs],
            left_out=left_out,
        )

    def _part(self, whole: Flow) -> tuple[Flow, str]:
        """The part to show: around a node that was chosen, of one app, or all where that is not too much."""
        part = whole
        if self._app:
            own = [id for id, one in whole.stations.items() if one.app == self._app]
            part = whole.only({*own, *(near for id in own for near in (*whole.before(id), *whole.after(id)))})
        if self._centre in part.stations:
            return around(part, self._centre, hops=self._hops), self._centre
        if len(part.stations) <= NODES_MAX or self._all:
            return part, ""
        centre = self._most_wanted(part)
        return around(part, centre, hops=self._hops), centre

    def _most_wanted(self, part: Flow) -> str:
        """Where to begin: what has failed, what is busiest, what most others are connected with."""
        trouble = {f"query:{one.app}/{one.name}": one for one in self._history.statuses}
        degree: dict[str, int] = {}
        for first, second in part.edges:
            degree[first], degree[second] = degree.get(first, 0) + 1, degree.get(second, 0) + 1

        def weight(id: str) -> tuple[bool, float, int]:
            one = trouble.get(id)
            bad = one is not None and one.state in ("failed", "restarting")
            return bad, 0.0 if one is None else round(one.busy, 1), degree.get(id, 0)

        return max(part.stations, key=weight)

    # -- showing ------------------------------------------------------------------------------------------------------

    def show(self, found: TopologyContent) -> None:
        self._last = found
        is_empty = not found.whole.stations
        self._split.set_visibility(not is_empty)
        self._show_words(found)
        if is_empty:
            return
        if (options := {"": "All apps", **{app: app for app in found.apps}}) != self._apps.options:
            self._apps.set_visibility(len(found.apps) > 1)
            self._apps.set_options(options, value=self._app if self._app in options else "")
        edges = [(edge, edge in found.shown.asides) for edge in found.shown.edges]
        self._graph.draw(found.nodes, edges, found.layout)
        self._graph.tell(found.numbers.nodes, found.numbers.rates)
        self._beside.show(found.whole)

    def _nodes(self, shown: Flow) -> list[Node]:
        series = series_by_query(self._history.statuses)
        return [self._node(one, series.get(one.id, one.name)) for one in shown.stations.values()]

    def _node(self, one: Station, series: str) -> Node:
        kind = "topic" if one.kind in ("topic", "view") else one.kind
        measure = "lag" if kind == "group" else "rate"
        return Node(
            id=one.id,
            kind=one.kind,
            name=one.title,
            icon=ICONS[one.kind],
            said=f"{one.kind} of {one.app}" if one.app and one.kind == "query" else one.kind,
            height=HEIGHTS.get(one.kind, HEIGHT),
            line=[] if kind == "sink" else self._history.values(kind, series, measure),
        )

    def _show_words(self, found: TopologyContent) -> None:
        """The notes above the drawing; replaced only when their text changes."""
        starting = context().is_starting
        total, centre = len(found.whole.stations), found.whole.stations.get(found.centre)
        said = (
            bool(total),
            starting,
            total > NODES_MAX and total,
            centre,
            self._hops,
            found.left_out if not found.apps else 0,
        )
        if said == self._said:
            return
        self._said = said
        self._told.clear()
        self._nothing.clear()
        noted = starting or centre is not None or (not found.apps and bool(found.whole.stations))
        self._split.classes(add="noted" if noted else "", remove="" if noted else "noted")
        with self._told:
            if starting:
                note("Spark is starting. Rows are kept meanwhile; each query lights up when it has come up.")
            if centre is not None:
                self._ask_for_part(centre, total)
            elif not found.apps and found.whole.stations:
                note("No app runs on this log, so only topics and the groups that read them are drawn.")
        with self._nothing:
            if not found.whole.stations:
                empty(
                    "Nothing flows yet",
                    "Run an app, and its topics, queries, views and sinks are drawn here.",
                    icon="account_tree",
                    command="headwater run app.py",
                )

    def _ask_for_part(self, centre: Station, total: int) -> None:
        with block("note info"), block("row-flex grow"):
            many = f"{count(total)} nodes are more than one can look at. " if total > NODES_MAX else ""
            ui.label(f"{many}This is the part around {centre.title}; the box above finds another.").classes("grow")
            select(HOPS, value=self._hops, label="How far", on_change=lambda event: self._go_far(int(event.value)))
            button(f"All {count(total)}", self._show_all, icon="fit_screen")

    # -- what people do -----------------------------------------------------------------------------------------------

    def _matching(self, typed: str) -> list[str]:
        text = typed.strip().lower()
        if not text or self._last is None:
            return []
        every_one = self._last.whole.stations.values()
        fit = [one for one in every_one if text in one.name.lower()]
        return [one.id for one in sorted(fit, key=lambda one: (not one.name.lower().startswith(text), len(one.name)))]

    def _search(self) -> None:
        found = self._matching(self._box.value or "")
        self._graph.stand_out(found if (self._box.value or "").strip() else None)

    def _go(self, typed: str) -> None:
        """To the first that was found; in a large graph the part around it is drawn."""
        found = self._matching(typed)
        if not found or self._last is None:
            return
        if found[0] not in self._last.shown.stations:
            self._around(found[0])
        else:
            self._graph.go_to(found[0], pick=True)
        self._pick(found[0])

    async def _again(self) -> None:
        from headwater.console.kit.live import read

        self.show(await read(self.look))

    def _around(self, id: str) -> None:
        self._centre, self._all = id, False
        self._box.set_value("")
        ui.navigate.history.replace(f"/console/topology?node={quote(id, safe='')}&hops={self._hops}")
        ui.timer(0.01, self._again, once=True)

    def _go_far(self, hops: int) -> None:
        self._hops = hops
        if self._last is not None:
            self._around(self._last.centre)

    def _show_all(self) -> None:
        self._centre, self._all = "", True
        ui.navigate.history.replace("/console/topology")
        ui.timer(0.01, self._again, once=True)

    def _choose_app(self) -> None:
        self._app, self._centre = str(self._apps.value or ""), ""
        ui.timer(0.01, self._again, once=True)

    def _pick(self, id: str) -> None:
        if self._last is not None and id in self._last.whole.stations:
            self._split.classes(add="open")
            self._beside.open(self._last.whole.stations[id], self._last.whole)

    def _leave(self) -> None:
        self._split.classes(remove="open")
        self._beside.close()
        self._graph.run_method("leave")

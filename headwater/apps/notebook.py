"""Apps and queries in a notebook: the graph as a picture, with the state of each query if the app runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headwater.apps.diagram import as_svg
from headwater.apps.diagram.text import summary
from headwater.apps.errors import RunnerNotFound
from headwater.apps.graph import picture as drawn_of
from headwater.apps.graph import picture_from
from headwater.apps.home import DeclaredQuery, Home
from headwater.errors import HeadwaterError
from headwater.notebook import card, grid, picture

if TYPE_CHECKING:
    from headwater.apps.app import App
    from headwater.apps.declaration import Query
    from headwater.apps.status import Graph, QueryStatus

#: How long a notebook waits for the state of a running app.
SECONDS_MAX = 2.0
NODES_MAX = 200
VIEWS_MAX = 50


def app_html(app: App) -> str:
    """Show an app as its graph: as it runs if it answers in time, otherwise as it is declared."""
    declared = [DeclaredQuery.of(query) for query in app.queries]
    graph, note = drawn_of(app.name, declared, labels={}), "It is not running; `headwater run` runs it."
    try:
        with Home(app.home).connected(seconds_max=SECONDS_MAX) as connection:
            [body] = connection.get("/graphs", app=app.name)
        graph, note = picture_from(body), ""
    except RunnerNotFound:
        pass
    except (HeadwaterError, ImportError) as error:
        note = f"It runs, but does not say how it does: {error}"
    return graph_html(graph, note=note)


def graph_html(graph: Graph, *, note: str = "") -> str:
    """Show a graph as a drawing; a very large one in words."""
    if len(graph.nodes) > NODES_MAX:
        size = f"It has {len(graph.nodes):,} nodes; `headwater query graph --to graph.svg` draws it."
        return card("app", graph.app, note=f"{size} {note}".strip())
    return card("", "", body=picture(as_svg(graph), alt=summary(graph)), note=note)


def views_html(app: App) -> str:
    """Show the views of an app: their keys, and what they are computed from."""
    views = [query for query in app.queries if query.kind == "view"]
    rows = [[query.name, ", ".join(query.key), ", ".join(query.reads)] for query in views]
    body = grid(["view", "key", "computed from"], rows, rows_max=VIEWS_MAX) if rows else ""
    note = f'`app.views["{views[0].name}"]` shows its rows.' if views else "The app declares no views."
    return card("views of", app.name, body=body, note=note)


def query_html(query: Query) -> str:
    """Show a declared query."""
    facts = {
        "reads": ", ".join(query.reads) or None,
        "writes": query.output,
        "key": ", ".join(query.key) or None,
        "sinks": ", ".join(sink.name for sink in query.sinks) or None,
        **{f"{side} rows to": topic for side, topic in query.side_outputs.items()},
        "declared in": query.where,
    }
    return card(f"query of a {query.kind}", query.name, facts=facts)


def status_html(status: QueryStatus) -> str:
    """Show the status of a query."""
    watermark = status.watermark_us
    facts = {
        "state": status.state,
        "rows/s": f"{status.rows_per_second:,.0f}",
        "rows read": f"{status.rows_total:,}",
        "behind by": None if status.lag_rows is None else f"{status.lag_rows:,} rows",
        "watermark": None if watermark is None else datetime.fromtimestamp(watermark / 1e6, tz=UTC),
        "late": f"{status.late:,}" if status.late else None,
        "dead letters": f"{status.dead_letters:,}" if status.dead_letters else None,
        "restarts": status.restarts or None,
    }
    return card(f"query of a {status.kind}", status.name, facts=facts, note=status.error or "")

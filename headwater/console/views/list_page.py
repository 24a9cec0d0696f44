"""Views: tables that follow their queries, with their key, columns, sources and freshness."""

from __future__ import annotations

from headwater.console.context import Visit, context
from headwater.console.kit.list_page import ListPage
from headwater.console.kit.table import Column, Row, link, mark, toned
from headwater.console.kit.words import ago, span
from headwater.console.pages import path_to, screen
from headwater.schema import parse_schema
from headwater.services.views import ViewDescription

#: A view that is further behind is marked.
LATE_SECONDS = 5.0


@screen("/views", title="Views", group="Data", icon="table_chart", key="v", order=30)
def views(visit: Visit) -> None:
    ViewList(visit).start()


class ViewList(ListPage[ViewDescription]):
    """The list of views."""

    title = "Views"
    under = "Tables that follow their queries: always up to date, and asked by key or in SQL."
    why = "freshness"
    columns = (
        Column(name="name", label="View"),
        Column(name="key", label="Key"),
        Column(name="columns", label="Columns"),
        Column(name="sources", label="Made of"),
        Column(name="app", label="App"),
        Column(name="fresh", label="Freshness"),
        Column(name="applied", label="Last change", align="right"),
    )
    none = "No view fits."
    nothing = {
        "title": "No views yet",
        "hint": "A function with @app.view makes one.",
        "icon": "table_chart",
        "command": "headwater init",
    }

    def items(self) -> list[ViewDescription]:
        """Views, the worst first: those that are stuck, then by how far they are behind."""
        found = self.visit.services.views.all().views
        return sorted(
            found, key=lambda view: (view.problem is None, -max(view.freshness, view.lag_seconds or 0.0), view.name)
        )

    def row(self, item: ViewDescription) -> Row:
        queries = [status.inputs for status in context().history.statuses if status.name == item.name]
        sources = sorted(item.sources or (queries[0] if queries else ()))
        text, tone = freshness(item)
        cells = [
            link(item.name, path_to("views", item.name)),
            ", ".join(item.key),
            ", ".join(parse_schema(item.schema).names),
            ", ".join(sources[:3]) + (f" and {len(sources) - 3} more" if len(sources) > 3 else ""),
            item.app,
            mark(text, tone) if item.running else toned(text, "quiet"),
            ago(item.applied_at_us or None),
        ]
        return Row(cells, key=item.name)


def freshness(view: ViewDescription) -> tuple[str, str]:
    """How fresh a view is, in words, and the tone of that."""
    if view.problem:
        return "stuck", "bad"
    behind = max(view.freshness, view.lag_seconds or 0.0)
    text = "up to date" if behind < 1.0 else f"{span(behind)} behind"
    if not view.running:
        return f"stopped, {text}", ""
    return text, "good" if behind < 1.0 else "warn" if behind > LATE_SECONDS else ""

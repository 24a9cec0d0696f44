"""Views: tables that follow their queries, with how fresh each is. Pages of fifty."""

from __future__ import annotations

from urllib.parse import quote

from headwater.console.context import context
from headwater.console.kit.layout import card, empty, heading, search_box
from headwater.console.kit.live import every
from headwater.console.kit.table import Column, Pages, Row, Table, link, mark, toned
from headwater.console.kit.words import ago, span
from headwater.console.pages import screen
from headwater.console.visit import Visit
from headwater.services.views import ViewDescription

COLUMNS = (
    Column(name="name", label="View"),
    Column(name="key", label="Key"),
    Column(name="columns", label="Columns"),
    Column(name="sources", label="Made of"),
    Column(name="app", label="App"),
    Column(name="fresh", label="Freshness"),
    Column(name="applied", label="Last change", align="right"),
)
#: A change that waits longer than this is worth a look.
LATE_SECONDS = 5.0


@screen("/views", title="Views", group="Data", icon="table_chart", key="v", order=30)
def views(visit: Visit) -> None:
    page = ViewList(visit)
    every(2.0, page.look, page.show)


class ViewList:
    """The list and its filter."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._found: list[ViewDescription] = []
        with heading(
            "Views",
            under="Tables that follow their queries: always up to date, and asked by key or in SQL.",
            why="freshness",
        ):
            self._box = search_box("Filter views", lambda: self.show(self._found))
        with card(flush=True) as self._card:
            self._table = Table(COLUMNS, label="Views", none="No view fits.")
            self._pages = Pages(lambda: self.show(self._found))
        self._nothing = empty(
            "No views yet", "A function with @app.view makes one.", icon="table_chart", command="headwater init"
        )
        self._card.set_visibility(False)
        self._nothing.set_visibility(False)

    def look(self) -> list[ViewDescription]:
        return self._visit.services.views.all().views

    def show(self, found: list[ViewDescription]) -> None:
        self._found = found
        self._card.set_visibility(bool(found))
        self._nothing.set_visibility(not found)
        text = (self._box.value or "").lower()
        fit = [one for one in found if text in one.name.lower()]
        self._table.set_rows([_row(one) for one in self._pages.part(fit)])


def _row(one: ViewDescription) -> Row:
    sources = sorted(one.sources) or next(
        (sorted(status.inputs) for status in context().history.statuses if status.name == one.name), []
    )
    cells = [
        link(one.name, f"/console/views/{quote(one.name, safe='')}"),
        ", ".join(one.key),
        names_of(one.schema),
        ", ".join(sources[:3]) + (f" and {len(sources) - 3} more" if len(sources) > 3 else ""),
        one.app,
        fresh_cell(one),
        ago(one.applied_at_us or None),
    ]
    return Row(cells, key=one.name)


def fresh_cell(one: ViewDescription) -> dict[str, str]:
    text, tone = freshness(one)
    return mark(text, tone) if one.running else toned(text, "quiet")


def freshness(one: ViewDescription) -> tuple[str, str]:
    """How fresh a view is, in words, and the tone of that."""
    if one.problem:
        return "stuck", "bad"
    if not one.running:
        return "as its app left it", ""
    behind = one.freshness
    return (
        ("up to date", "good") if behind < 1.0 else (f"{span(behind)} behind", "warn" if behind > LATE_SECONDS else "")
    )


def names_of(schema: str) -> str:
    """The names of the columns of a written schema.

    >>> names_of("card int64, total decimal(12,2), at timestamp")
    'card, total, at'
    """
    from headwater.schema import parse_schema

    return ", ".join(parse_schema(schema).names)

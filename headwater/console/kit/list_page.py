"""A page that lists things of one kind: a filter in its heading, a table that can be sorted, and pages of fifty."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from headwater.console.context import Visit
from headwater.console.kit.controls import search_box
from headwater.console.kit.layout import card, empty, heading
from headwater.console.kit.live import LivePage
from headwater.console.kit.table import Column, Pages, Row, Table
from headwater.errors import HeadwaterError

Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class ListContent:
    """One page of the list, with what the user had chosen when it was loaded."""

    chosen: tuple[object, ...]
    total: int
    """How many things there are; 0 means that there are none at all, whatever the filter."""
    count: int
    """How many of them the filter leaves."""
    rows: list[Row]


class ListPage(LivePage[ListContent], Generic[Item]):
    """Subclasses say which things there are, which text the filter searches, and what the row of one thing is.

    Rows are made for one page of the list only: there may be ten thousand things, and a row may need the disk.
    """

    title: str
    under: str
    why: str
    columns: Sequence[Column]
    none: str
    """What the table says if nothing fits the filter."""
    nothing: Mapping[str, str] | None = None
    """The arguments of `empty`, which stands in place of the table if there is nothing to list."""
    placeholder: str = ""
    classes: str = ""
    #: The value that each sortable column is sorted by. Any: what can be compared.
    sort_keys: Mapping[str, Callable[[Item], Any]] = {}
    sort: str = ""
    """The column that the table is sorted by at first."""
    ascending: Collection[str] = ("name",)
    """The columns that begin with the smallest when they are chosen; others begin with the largest."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self._down = bool(self.sort) and self.sort not in self.ascending
        self.buttons = heading(self.title, under=self.under, why=self.why)
        with self.buttons:
            self.filter = search_box(self.placeholder or f"Filter {self.title.lower()}", self.refresh)
        self.build_above()
        with card(flush=True, classes=self.classes) as self._card:
            self._table = Table(
                [replace(column, sortable=column.name in self.sort_keys) for column in self.columns],
                label=self.title,
                none=self.none,
                sort=self.sort,
                down=self._down,
                on_sort=self._sort_by,
                on_act=self.act,
            )
            self._pages = Pages(self.refresh)
        if self.nothing is not None:
            self._nothing = empty(**self.nothing)
            self._card.set_visibility(False)
            self._nothing.set_visibility(False)

    def build_above(self) -> None:
        """Make what stands between the heading and the table."""

    async def act(self, action: str, key: str) -> None:
        """Do what a button in a row says; `key` is that of the row."""

    @abstractmethod
    def items(self) -> Sequence[Item]:
        """All things that the caller may see, in their order where no column is chosen."""

    def text(self, item: Item) -> str:
        """What the filter searches: the name."""
        return str(getattr(item, "name", item))

    @abstractmethod
    def row(self, item: Item) -> Row:
        """The row of a thing; a `HeadwaterError` leaves it out, for it may have been deleted meanwhile."""

    def load(self) -> ListContent:
        chosen = self._chosen()
        wanted = (self.filter.value or "").lower()
        items = self.items()
        fitting = [item for item in items if wanted in self.text(item).lower()]
        if self.sort:
            fitting.sort(key=self.sort_keys[self.sort], reverse=self._down)
        first = self._pages.first if self._pages.first < len(fitting) else 0
        rows = []
        for item in fitting[first : first + self._pages.size]:
            with contextlib.suppress(HeadwaterError):
                rows.append(self.row(item))
        return ListContent(chosen=chosen, total=len(items), count=len(fitting), rows=rows)

    def show(self, content: ListContent) -> None:
        if self.nothing is not None:
            self._card.set_visibility(content.total > 0)
            self._nothing.set_visibility(not content.total)
        if content.chosen == self._chosen():  # else the user has chosen something else, and another load is under way
            self._pages.set_count(content.count)
            self._table.set_rows(content.rows)

    def _chosen(self) -> tuple[object, ...]:
        return self.filter.value or "", self.sort, self._down, self._pages.first

    async def _sort_by(self, column: str) -> None:
        self._down = not self._down if column == self.sort else column not in self.ascending
        self.sort = column
        self._table.set_sort(column, down=self._down)
        await self.refresh()

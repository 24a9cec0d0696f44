"""A view in a notebook: a card with its first rows, and the same card as the view changes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.notebook import card, follow, grid

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX = 10
LIVE_ROWS_MAX = 1_000


class Showable(Protocol):
    """What all kinds of views can do."""

    @property
    def name(self) -> str: ...

    # Any, here and below: whatever the methods of `View` take and give.
    def describe(self) -> dict[str, Any]: ...
    def table(self, *, limit: int | None = None) -> pa.Table: ...
    def sql(self, statement: str) -> pa.Table: ...
    def subscribe(self, start: Any = None) -> Any: ...


def view_html(view: Showable, *, rows_max: int = ROWS_MAX, order: str | None = None, note: str = "") -> str:
    """A view as a card. Reads so many rows and one more, and no others; a view that cannot be read says why."""
    try:
        told = view.describe()
        rows = _rows(view, rows_max=rows_max, order=order)
    except HeadwaterError as error:
        return card("view", view.name, note=str(error))
    applied = told["applied_at_us"]
    facts = {
        "key": ", ".join(told["key"]),
        "version": told["version"],
        "applied": datetime.fromtimestamp(applied / 1e6, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if applied else None,
        "behind by": f"{told['freshness']:.1f} s" if told["freshness"] else None,
    }
    values = [list(row.values()) for row in rows.to_pylist(maps_as_pydicts="strict")]
    if order is None:  # which rows these are is left to the store, but not their order
        keys = [rows.schema.names.index(name) for name in told["key"]]
        values.sort(key=lambda row: [(row[number] is None, row[number]) for number in keys])
    return card(
        "view",
        view.name,
        facts=facts,
        body=grid(rows.schema.names, values, rows_max=rows_max),
        note=" ".join(filter(None, [told["problem"], note])),
    )


def live(view: Showable, *, seconds: float, rows_max: int, order: str | None, position: Any) -> None:
    """The card in one output that follows the view, until the time is over or the user interrupts it."""
    if not 1 <= rows_max <= LIVE_ROWS_MAX:
        raise ArgumentInvalid(name="rows_max", value=rows_max, expected=f"from 1 to {LIVE_ROWS_MAX:,}")
    _rows(view, rows_max=1, order=order)  # an order that is none is refused at once, and not shown for half a minute
    follow(
        lambda note: view_html(view, rows_max=rows_max, order=order, note=note),
        lambda: view.subscribe(position),
        name=repr(view),
        seconds=seconds,
    )


def _rows(view: Showable, *, rows_max: int, order: str | None) -> pa.Table:
    if order is None:
        return view.table(limit=rows_max + 1)
    name = view.name.replace('"', '""')
    return view.sql(f'SELECT * FROM "{name}" ORDER BY {order} LIMIT {rows_max + 1}')

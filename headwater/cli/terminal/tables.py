"""Values, times and counts as text, and rows of text as a table that fits its terminal; a pipe gets every column whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len, set_cell_size

GAP = "  "
WIDTH_MIN = 6


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: its title, whether its cells are aligned to the right, and whether a narrow terminal may cut them."""

    title: str
    right: bool = False
    cut: bool = False


def columns(*titles: str) -> list[Column]:
    """Columns by their titles: `>` in front aligns to the right, `…` at the end lets a narrow terminal cut the cells.

    >>> columns("TOPIC…", ">ROWS")
    [Column(title='TOPIC', right=False, cut=True), Column(title='ROWS', right=True, cut=False)]
    """
    return [Column(title=title.strip(">…"), right=title.startswith(">"), cut=title.endswith("…")) for title in titles]


def data_column(name: str, kind: str) -> Column:
    """The column of a table for rows of this type. Numbers are not cut: half a number is a wrong number."""
    is_number = kind.startswith(("int", "uint", "float", "double", "decimal"))
    return Column(title=name, right=is_number, cut=not is_number)


def cut(text: str, width: int) -> str:
    """A text in at most so many columns; `…` at the end says that there was more.

    >>> cut("headwater", 5), cut("log", 5)
    ('head…', 'log')
    """
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def widths(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, width: int) -> list[int]:
    """The width of each column.

    >>> columns = [Column(title="id", right=True), Column(title="text", cut=True)]
    >>> widths(columns, [["1", "a long text that does not fit"]], width=20)
    [2, 16]
    """
    natural = [cell_len(column.title) for column in columns]
    for row in rows:
        natural = [max(wide, cell_len(cell)) for wide, cell in zip(natural, row, strict=True)]
    excess = sum(natural) + len(GAP) * (len(columns) - 1) - width
    while excess > 0:
        # The widest column is cut first, one step at a time, so that no column is cut more than needed.
        candidates = [i for i, column in enumerate(columns) if column.cut and natural[i] > WIDTH_MIN]
        if not candidates:
            break
        widest = max(candidates, key=lambda i: natural[i])
        natural[widest] -= 1
        excess -= 1
    return natural


def line(cells: Sequence[str], columns: Sequence[Column], sizes: Sequence[int]) -> str:
    """One row of a table, without blanks at its end."""
    parts = []
    for cell, column, size in zip(cells, columns, sizes, strict=True):
        text = cut(cell, size)
        space = " " * (size - cell_len(text))
        parts.append(space + text if column.right else text + space)
    return GAP.join(parts).rstrip()


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int) -> tuple[str, list[str]]:
    """The title line and the other lines of a table."""
    sizes = widths(columns, rows, width=width)
    title = line([column.title for column in columns], columns, sizes)
    return title, [line(row, columns, sizes) for row in rows]


# -- values -----------------------------------------------------------------------------------------------------------


# Any: a JSON value.
def cell(value: Any) -> str:
    """A value as printable text: a dash for null, JSON for nested values.

    >>> cell(None), cell("a\\tb"), cell([1, "x"])
    ('-', 'a\\\\tb', '[1, "x"]')
    """
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def iso_time(time_us: int | None) -> str | None:
    """Microseconds since 1970 as ISO 8601 in UTC.

    >>> iso_time(1_700_000_000_500_000), iso_time(None)
    ('2023-11-14T22:13:20.500Z', None)
    """
    if time_us is None:
        return None
    precision = "milliseconds" if time_us % 1000 == 0 else "microseconds"
    moment = datetime.fromtimestamp(time_us // 1_000_000, UTC).replace(microsecond=time_us % 1_000_000)
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def short_time(time_us: int | None) -> str:
    """Microseconds since 1970 as UTC to the second; a dash for None.

    >>> short_time(1_700_000_000_500_000), short_time(None)
    ('2023-11-14 22:13:20', '-')
    """
    return "-" if time_us is None else datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def counted(count: int, thing: str) -> str:
    """A number of things.

    >>> counted(1, "row"), counted(1200, "row"), counted(2, "query")
    ('1 row', '1,200 rows', '2 queries')
    """
    things = f"{thing[:-1]}ies" if thing.endswith("ry") else f"{thing}s"
    return f"{count:,} {thing if count == 1 else things}"

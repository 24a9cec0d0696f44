"""Rows of text as a table that fits its terminal: columns that may be cut give way first, and a pipe gets everything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

GAP = "  "
WIDTH_MIN = 6


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: its title, the side its cells lean to, and whether a narrow terminal may cut it."""

    title: str
    right: bool = False
    cut: bool = False


def cut(text: str, width: int) -> str:
    """A text in at most so many columns; a dot at the end says that there was more.

    >>> cut("headwater", 5), cut("log", 5)
    ('head…', 'log')
    """
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def padded(text: str, width: int, *, right: bool = False) -> str:
    """A text in exactly so many columns."""
    text = cut(text, width)
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def widths(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, width: int) -> list[int]:
    """How wide each column becomes.

    >>> columns = [Column(title="id", right=True), Column(title="text", cut=True)]
    >>> widths(columns, [["1", "a long text that does not fit"]], width=20)
    [2, 16]
    """
    natural = [cell_len(column.title) for column in columns]
    for row in rows:
        natural = [max(wide, cell_len(cell)) for wide, cell in zip(natural, row, strict=True)]
    excess = sum(natural) + len(GAP) * (len(columns) - 1) - width
    while excess > 0:
        # The widest gives way first, one step at a time, so that no column is cut more than it must.
        candidates = [i for i, column in enumerate(columns) if column.cut and natural[i] > WIDTH_MIN]
        if not candidates:
            break
        widest = max(candidates, key=lambda i: natural[i])
        natural[widest] -= 1
        excess -= 1
    return natural


def line(cells: Sequence[str], columns: Sequence[Column], sizes: Sequence[int]) -> str:
    """One row of a table, without blanks at its end."""
    parts = [padded(cell, size, right=column.right) for cell, column, size in zip(cells, columns, sizes, strict=True)]
    return GAP.join(parts).rstrip()


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int) -> tuple[str, list[str]]:
    """The title line and the other lines of a table."""
    sizes = widths(columns, rows, width=width)
    title = line([column.title for column in columns], columns, sizes)
    return title, [line(row, columns, sizes) for row in rows]

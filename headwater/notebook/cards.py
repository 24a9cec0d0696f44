"""Cards: a few facts and a small table as HTML, for the output of a notebook's cell.

Every text is escaped and cut; rows and columns are bounded. Text and background are those of the notebook, so that a card
can be read in light and dark themes; the other colours are those of the console, in its light or dark form.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from html import escape

ROWS_MAX = 10
COLUMNS_MAX = 20
TEXT_MAX = 80

STYLE = (
    "<style>"
    ".hw-card{--hw-accent:#0b7a75;--hw-line:#c3cece}"
    "[data-jp-theme-light='false'] .hw-card,.vscode-dark .hw-card,[data-theme='dark'] .hw-card"
    "{--hw-accent:#3fbfb5;--hw-line:#374848}"
    ".hw-card{font-family:system-ui,sans-serif;font-size:13px;line-height:1.45;color:inherit;max-width:100%;"
    "border:1px solid var(--hw-line);border-radius:8px;padding:10px 14px;display:inline-block;overflow-x:auto}"
    ".hw-card .hw-kind{font-size:10px;letter-spacing:.8px;text-transform:uppercase;color:var(--hw-accent);font-weight:600;margin-right:8px}"
    ".hw-card .hw-name{font-size:15px;font-weight:600}"
    ".hw-card .hw-facts{margin:2px 0 8px;opacity:.8}.hw-card .hw-facts b{font-weight:500}"
    ".hw-card .hw-fact{white-space:nowrap;margin-right:14px}"
    ".hw-card table{border-collapse:collapse;margin:0;border:0;font-size:12.5px}"
    ".hw-card th,.hw-card td{text-align:left;padding:3px 16px 3px 0;border:0;background:none;color:inherit;"
    "border-bottom:1px solid var(--hw-line);font-variant-numeric:tabular-nums;white-space:nowrap}"
    ".hw-card th{font-weight:600}.hw-card .hw-number{text-align:right}"
    ".hw-card .hw-null,.hw-card .hw-note{opacity:.7}.hw-card .hw-note{margin-top:6px;font-size:12px}"
    ".hw-card img{max-width:100%;height:auto;border-radius:6px}"
    "</style>"
)


def card(kind: str, name: str, *, facts: Mapping[str, object] | None = None, body: str = "", note: str = "") -> str:
    """A card with a heading, facts and a body. `body` is HTML of `grid` or `picture`; all else is text. Facts that are None are
    left out.

    Without a kind and a name the card has no heading: a picture may have its own.

    >>> "<script>" in card("topic", "<script>", facts={"<b>": "<i>"}, note="<u>")
    False
    """
    shown = "".join(
        f'<span class="hw-fact">{cut(name)} <b>{_cell_text(value)}</b></span>'
        for name, value in (facts or {}).items()
        if value is not None
    )
    parts = [
        STYLE,
        '<div class="hw-card">',
        f'<div><span class="hw-kind">{cut(kind)}</span><span class="hw-name">{cut(name)}</span></div>'
        if kind or name
        else "",
        f'<div class="hw-facts">{shown}</div>' if shown else "",
        body,
        f'<div class="hw-note">{escape(note)}</div>' if note else "",
        "</div>",
    ]
    return "".join(parts)


def grid(columns: Sequence[str], rows: Sequence[Sequence[object]], *, rows_max: int = ROWS_MAX) -> str:
    """A table of at most `rows_max` rows; a note says what was left out.

    >>> grid(["n"], [[73314510714175488]]).count("73314510714175488")
    1
    """
    shown = columns[:COLUMNS_MAX]
    head = "".join(f"<th>{cut(name)}</th>" for name in shown)
    lines = ["".join(_cell(value) for value in row[:COLUMNS_MAX]) for row in rows[:rows_max]]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    left = [] if len(rows) <= rows_max else ["There are more rows."]
    left += [] if len(columns) <= COLUMNS_MAX else [f"{len(columns) - COLUMNS_MAX} more columns are not shown."]
    note = f'<div class="hw-note">{" ".join(left)}</div>' if left else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def picture(svg: str, *, alt: str) -> str:
    """An SVG as an image: its styles do not affect the page, and its scripts cannot run. `alt` describes it in words."""
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{escape(alt)}" src="data:image/svg+xml;base64,{data}">'


def cut(text: str) -> str:
    """A text, escaped, and cut at the length that fits into a card.

    >>> cut("<" * 100).count("&lt;"), cut("a\\nb")
    (79, 'a b')
    """
    line = " ".join(str(text)[: TEXT_MAX * 4].split())
    return escape(line if len(line) <= TEXT_MAX else f"{line[: TEXT_MAX - 1]}…")


def _cell(value: object) -> str:
    if value is None:
        return '<td class="hw-null">null</td>'
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return f'<td class="hw-number">{_cell_text(value)}</td>' if number else f"<td>{_cell_text(value)}</td>"


def _cell_text(value: object) -> str:
    """A value as text: numbers with all their digits, times in UTC, the first bytes of a binary value."""
    if isinstance(value, bytes):
        return cut(repr(value[:TEXT_MAX]))
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return cut(value.astimezone(UTC).isoformat().replace("+00:00", "Z"))
    if isinstance(value, date):
        return cut(value.isoformat())
    return cut(repr(value) if isinstance(value, float) else str(value))

"""The statuses of an app's queries, one line each: a live table on a terminal, log lines elsewhere.

Pure functions over statuses make the cells; `Display` keeps the last rates and draws.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headwater.cli.session import Session
from headwater.cli.terminal.streams import is_terminal
from headwater.cli.terminal.tables import Column, columns, counted, cut, line, short_time, widths
from headwater.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Group

    from headwater.apps.status import QueryStatus

HISTORY = 60
LINE_SECONDS = 10.0
BARS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH_MAX = 30
#: A sign and a style for each state. The state stands beside them as a word, for users who do not see the colour.
STATES = {
    "waiting": ("○", "dim"),
    "starting": ("◌", "cyan"),
    "running": ("●", "green"),
    "caught up": ("●", "bold green"),
    "restarting": ("↻", "yellow"),
    "stopped": ("■", "dim"),
    "failed": ("✗", "bold red"),
}
COLUMNS = columns("QUERY…", "STATE", ">ROWS/S", ">LAG", ">WATERMARK", ">KEPT", ">LATE", ">ERRORS")
#: The style of a query's line, where it is not plain.
STYLES = {"failed": "red", "restarting": "yellow", "stopped": "dim", "waiting": "dim"}
#: Columns that a narrow terminal leaves out, the first of them first.
_SPARE = ("KEPT", "WATERMARK", "LATE", "ERRORS")
#: Names are cut to this width before a column is left out; bars are drawn only where this many fit.
NAME_WIDTH_MIN = 14
SPARK_WIDTH_MIN = 5


def short(number: float) -> str:
    """A count in at most five characters.

    >>> [short(number) for number in (0, 7, 999.6, 12_345, 1_250_000, 3e9)]
    ['0', '7', '1.0k', '12k', '1.2M', '3.0G']
    """
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= scale * 0.9995:
            value = number / scale
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:,.0f}{unit}"
    return f"{number:.1f}" if 0 < number < 9.95 and number != int(number) else f"{number:.0f}"


def sparkline(values: Sequence[float], width: int = SPARK_WIDTH_MAX) -> str:
    """The newest values as bars, the highest of them at full height.

    >>> sparkline([0.0, 5.0, 10.0])
    '▁▄█'
    """
    newest = list(values)[-width:] if width > 0 else []
    top = max(newest, default=0.0) or 1.0
    return "".join(BARS[min(7, int(value / top * 7.5))] for value in newest)


def table_of(statuses: Sequence[QueryStatus], *, now_us: int | None = None) -> tuple[list[Column], list[list[str]]]:
    """The statuses as a plain table."""
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    return COLUMNS, [_cells(one, now_us) for one in statuses]


def _cells(one: QueryStatus, now_us: int) -> list[str]:
    return [
        name_of(one),
        one.state,
        short(one.rows_per_second),
        lag_of(one),
        _watermark(one.watermark_us, now_us),
        f"{short(one.state_bytes)}B" if one.state_bytes else "-",
        short(one.late) if one.late else "-",
        errors_of(one),
    ]


def name_of(one: QueryStatus) -> str:
    return one.name if one.version == 1 else f"{one.name} v{one.version}"


def lag_of(one: QueryStatus) -> str:
    """How far behind a query is, in rows and, where it is known, in time."""
    if one.lag_rows is None:
        return "-"
    if one.lag_rows == 0:
        return "0"
    age = "" if one.lag_seconds is None else f" {format_seconds(round(one.lag_seconds, 1))}"
    return short(one.lag_rows) + age


def errors_of(one: QueryStatus) -> str:
    """How many rows became dead letters or were rejected, and how often the query was restarted.

    >>> from headwater.apps.status import QueryStatus
    >>> errors_of(QueryStatus(name="spend", kind="view", dead_letters=7, restarts=2))
    '7 ↻2'
    """
    bad = one.rejected + one.dead_letters
    return " ".join([short(bad)] * bool(bad) + [f"↻{one.restarts}"] * bool(one.restarts)) or "-"


def _watermark(time_us: int | None, now_us: int) -> str:
    """How far the watermark is behind the clock; its time if that is a day or more."""
    if time_us is None:
        return "-"
    behind = (now_us - time_us) / 1_000_000
    if behind >= 86_400:
        return short_time(time_us)
    return f"-{format_seconds(round(behind, 1))}" if behind > 0 else f"+{format_seconds(round(-behind, 1))}"


def rows(
    statuses: Sequence[QueryStatus],
    *,
    width: int,
    title: str = "",
    rates: Mapping[str, Sequence[float]] | None = None,
    now_us: int | None = None,
    apps: Mapping[str, str] | None = None,
) -> Group:
    """The statuses for a terminal of this width: a line per query, and below it the query's last error.

    `apps` maps queries to their apps; with it, the queries of one app stand together under its name.
    """
    from rich.console import Group
    from rich.text import Text

    columns, cells = _fitting(*table_of(statuses, now_us=now_us), width - 2)
    sizes = widths(columns, cells, width=width - 2)
    begin = 2 + sum(sizes) + 2 * len(sizes)  # of the bars
    room = width - begin if width - begin >= SPARK_WIDTH_MIN else 0
    titles = line([column.title for column in columns], columns, sizes)
    lines = [Text(cut(title, width), style="bold")] if title else []
    lines.append(Text("  " + titles, style="dim", no_wrap=True))
    app = None
    for one, row in zip(statuses, cells, strict=True):
        if apps is not None and apps.get(one.name) != app:
            app = apps.get(one.name)
            lines.append(Text(cut(str(app), width), style="bold"))
        dot, style = STATES[one.state]
        text = Text(no_wrap=True).append(f"{dot} ", style=style)
        text.append(line(row, columns, sizes), style=STYLES.get(one.state, ""))
        bars = sparkline((rates or {}).get(one.name, ()), min(room, SPARK_WIDTH_MAX))
        if bars:
            text.append(" " * (begin - text.cell_len) + bars, style="cyan")
        lines.append(text)
        if one.error and one.state in ("failed", "restarting"):
            lines.append(Text(cut(f"    {_one_line(one.error)}", width), style="red", no_wrap=True))
    if not statuses:
        lines.append(Text("  no queries", style="dim"))
    return Group(*lines)


def _fitting(columns: list[Column], cells: list[list[str]], width: int) -> tuple[list[Column], list[list[str]]]:
    """Leave out columns that are empty, and columns that do not fit into a narrow terminal."""
    for title in _SPARE:
        place = [column.title for column in columns].index(title)
        if all(row[place] == "-" for row in cells) or _width_min(columns, cells) > width:
            columns = columns[:place] + columns[place + 1 :]
            cells = [row[:place] + row[place + 1 :] for row in cells]
    return columns, cells


def _width_min(columns: list[Column], cells: list[list[str]]) -> int:
    """The least width of a table, with its names cut."""
    name, *others = widths(columns, cells, width=10_000)
    return min(name, NAME_WIDTH_MIN) + sum(others) + 2 * len(others)


def _one_line(text: str) -> str:
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def status_line(one: QueryStatus) -> str:
    """The status of one query as a log line.

    >>> from headwater.apps.status import QueryStatus
    >>> status_line(QueryStatus(name="spend", kind="view", state="running", rows_per_second=120.0, lag_rows=3))
    'spend running: 120 rows/s, lag 3'
    """
    parts = [f"{short(one.rows_per_second)} rows/s", f"lag {lag_of(one)}"]
    parts += [f"late {one.late:,}"] if one.late else []
    parts += [counted(one.dead_letters, "dead letter")] if one.dead_letters else []
    parts += [counted(one.restarts, "restart")] if one.restarts else []
    parts += [_one_line(one.error)] if one.error and one.state in ("failed", "restarting") else []
    return f"{name_of(one)} {one.state}: {', '.join(parts)}"


class Display:
    """Shows statuses: as a live table on a terminal, elsewhere as one line per query every ten seconds and per change."""

    def __init__(self, session: Session, *, title: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._session = session
        self._title = title
        self._clock = clock
        self._rates: dict[str, deque[float]] = {}
        self._told: dict[str, tuple[str, float]] = {}
        # Any: rich is imported only where it is shown.
        self._live: Any = None

    def __enter__(self) -> Self:
        if is_terminal(sys.stderr) and not self._session.flags.quiet:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, no_color=self._session.config.color == "never")
            self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(
        self, statuses: Sequence[QueryStatus], *, title: str | None = None, apps: Mapping[str, str] | None = None
    ) -> None:
        self._title = self._title if title is None else title
        for one in statuses:
            self._rates.setdefault(one.name, deque(maxlen=HISTORY)).append(one.rows_per_second)
        if self._live is None:
            self._tell(statuses)
            return
        width = self._live.console.width
        picture = rows(statuses, width=width, title=self._title, rates=self._rates, apps=apps)
        self._live.update(picture, refresh=True)

    def _tell(self, statuses: Sequence[QueryStatus]) -> None:
        now = self._clock()
        for one in statuses:
            state, at = self._told.get(one.name, ("", now - LINE_SECONDS))
            if one.state != state or now - at >= LINE_SECONDS:
                self._told[one.name] = (one.state, now)
                self._session.say(status_line(one))

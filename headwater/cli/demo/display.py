"""What a person sees of the company: what happens, line by line, and below it a table that moves; elsewhere only lines."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from headwater.cli.session import Session
from headwater.cli.terminal.query_table import Display, short, sparkline
from headwater.cli.terminal.tables import columns, counted

if TYPE_CHECKING:
    from company.check import Outcome

    from headwater.cli.demo.process import Progress

LINE_SECONDS = 10.0
RATES = 30
COLUMNS = columns("OUTPUT", "WHAT", ">EXPECTED", ">GOT", ">LOST", ">DOUBLED")


class Stage:
    """Shows how the company does."""

    def __init__(self, session: Session, *, browser: bool) -> None:
        self._session = session
        self._browser = browser
        self._display = Display(session)
        self._began = self._looked = self._told = time.monotonic()
        self._appended = 0
        self._rates: deque[float] = deque(maxlen=RATES)
        self._opened = False

    def __enter__(self) -> Self:
        if self._session.shows_progress:
            self._display.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session.shows_progress:
            self._display.__exit__(kind, error, trace)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def happened(self, text: str) -> None:
        """Tell of something; on a terminal the line stays above the table."""
        self._session.say(f"{self.seconds:5.1f} s  {text}")

    def opened(self, page: str) -> None:
        """There is something to look at."""
        self.happened(f"open {page}")
        if self._browser and not self._opened:
            import webbrowser

            webbrowser.open(page)
        self._opened = True

    def look(self, progress: Progress, *, appended: int) -> None:
        now = time.monotonic()
        self._rates.append((appended - self._appended) / max(now - self._looked, 1e-3))
        self._appended, self._looked = appended, now
        line = self._line(progress)
        if self._session.shows_progress:
            self._display.show(progress.statuses, title=f"{line}  {sparkline(self._rates)}")
        elif now - self._told >= LINE_SECONDS:
            self._told = now
            self._session.say(line)

    def _line(self, progress: Progress) -> str:
        rate = sum(self._rates) / len(self._rates)
        parts = [f"{self.seconds:5.1f} s  {self._appended:,} rows in, {short(rate)}/s"]
        if progress.address is None:
            parts.append("the server starts")
        elif not progress.spark:
            parts.append("Spark starts")
        else:
            lag = sum(one.lag_rows or 0 for one in progress.statuses)
            late = sum(one.late for one in progress.statuses)
            parts.append(f"{progress.at_work} of {len(progress.statuses)} queries at work, {short(lag)} rows behind")
            parts += [counted(late, "late row")] if late else []
        return "; ".join(parts)


def show_outcomes(session: Session, outcomes: Sequence[Outcome], *, appended: int, crashed: bool) -> bool:
    """Show the outcomes of the check, and return whether every output holds."""
    records = [{**vars(one), "holds": one.holds} for one in outcomes]
    cells = [
        [one.name, one.kind, f"{one.expected:,}", f"{one.got:,}", f"{one.lost:,}", f"{one.doubled:,}"]
        for one in outcomes
    ]
    if session.output == "table":
        title, *lines = session.table(COLUMNS, cells)
        session.write(title)
        for one, line in zip(outcomes, lines, strict=True):
            session.write(session.paint(line, "green" if one.holds else "red"))
    else:
        session.show_all(records, COLUMNS, cells)
    wrong = [one.name for one in outcomes if not one.holds]
    if wrong:
        session.warn(f"{', '.join(wrong)}: not what the input topics say. This is a bug; please report it (--keep).")
        return False
    through = ", through a crash" if crashed else ""
    text = f"{appended:,} rows in, {len(outcomes)} outputs{through}: nothing lost, nothing doubled."
    session.say(session.paint(text, "bold", error=True))
    return True

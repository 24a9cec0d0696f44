"""The periods in which each rule was evaluated: outside of them its state is not known.

A rule that is new, a rule that was paused, and all rules while no process evaluated them have no state, and no page may
draw one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwater.units import DAY

#: Evaluations that are further apart belong to two periods.
GAP_SECONDS = 60.0
#: The end of a current period is written so often.
WRITE_SECONDS = 60.0
#: Periods that ended earlier are deleted; no page looks further back than 7 days.
KEPT_SECONDS = 8 * DAY
#: Periods of a rule that are kept at most; the oldest are deleted first.
PERIODS_MAX = 500

#: From when to when, in microseconds since 1970.
Period = tuple[int, int]


class Evaluations:
    """When each rule was evaluated, as the log says and as this process has done since.

    >>> evaluations = Evaluations()
    >>> for at in (0, 5_000_000, 10_000_000, 500_000_000):
    ...     evaluations.evaluated(["slow"], at)
    >>> evaluations.periods("slow")
    ((0, 10000000), (500000000, 500000000))
    """

    def __init__(self) -> None:
        self._periods: dict[str, dict[int, int]] = {}
        #: The period of each rule that this process extends, by its begin.
        self._current: dict[str, int] = {}
        #: Periods of rules that are not evaluated any more, whose ends are not written yet.
        self._ended: set[tuple[str, int]] = set()
        #: The ends that the log has, by rule and begin.
        self._written: dict[tuple[str, int], int] = {}

    def evaluated(self, rules: Iterable[str], now_us: int) -> None:
        """Note that these rules, and no others, were evaluated now."""
        current = {}
        for rule in rules:
            periods, begin = self._periods.setdefault(rule, {}), self._current.get(rule, now_us)
            if not 0 <= now_us - periods.get(begin, now_us) <= GAP_SECONDS * 1e6:
                begin = now_us
            periods[begin], current[rule] = now_us, begin
        self._ended |= self._current.items() - current.items()
        self._current = current

    def periods(self, rule: str) -> tuple[Period, ...]:
        """The periods in which a rule was evaluated, oldest first; those that meet are one."""
        joined: list[Period] = []
        for begin, end in sorted(self._periods.get(rule, {}).items()):
            if joined and begin - joined[-1][1] <= GAP_SECONDS * 1e6:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((begin, end))
        return tuple(joined)

    def take(self, rule: str, begin_us: int, end_us: int | None) -> None:
        """Take over a row of the log; None as its end means that the period was deleted."""
        periods = self._periods.setdefault(rule, {})
        if end_us is None:
            periods.pop(begin_us, None)
            self._written.pop((rule, begin_us), None)
        else:
            periods[begin_us] = max(end_us, periods.get(begin_us, end_us))
            self._written[rule, begin_us] = end_us
        if not periods:
            del self._periods[rule]

    def due(self, now_us: int, *, everything: bool = False) -> list[tuple[str, int, int | None]]:
        """The periods that are to be written, as rule, begin and end; those to be deleted have no end."""
        rows: list[tuple[str, int, int | None]] = []
        for rule, begin in (*self._current.items(), *self._ended):
            end, written = self._periods[rule][begin], self._written.get((rule, begin))
            is_last = everything or (rule, begin) in self._ended
            if written is None or (end > written if is_last else end - written >= WRITE_SECONDS * 1e6):
                rows.append((rule, begin, end))
        # Looked for only where a period began: that is when their number grows.
        if any((rule, begin) not in self._written for rule, begin, _ in rows):
            rows += self._expired(now_us)
        return rows

    def _expired(self, now_us: int) -> list[tuple[str, int, int | None]]:
        oldest = now_us - round(KEPT_SECONDS * 1e6)
        rows: list[tuple[str, int, int | None]] = []
        for rule, periods in self._periods.items():
            begins = sorted(periods)
            rows += [
                (rule, begin, None) for begin in begins if periods[begin] < oldest or begin in begins[:-PERIODS_MAX]
            ]
        return rows

    def written(self, rows: Sequence[tuple[str, int, int | None]]) -> None:
        """Note what was written of `due`."""
        self._ended.clear()
        for rule, begin, end in rows:
            self.take(rule, begin, end)

"""Times and counts as programs and people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(time_us: int | None) -> str | None:
    """Microseconds since 1970 as ISO 8601 in UTC.

    >>> iso(1_700_000_000_500_000), iso(None)
    ('2023-11-14T22:13:20.500Z', None)
    """
    if time_us is None:
        return None
    precision = "milliseconds" if time_us % 1000 == 0 else "microseconds"
    moment = datetime.fromtimestamp(time_us // 1_000_000, UTC).replace(microsecond=time_us % 1_000_000)
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def shown(time_us: int | None) -> str:
    """The same for a table: to the second, and a dash for never.

    >>> shown(1_700_000_000_500_000), shown(None)
    ('2023-11-14 22:13:20', '-')
    """
    return "-" if time_us is None else datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def counted(count: int, thing: str) -> str:
    """A number of things.

    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {thing}{'' if count == 1 else 's'}"

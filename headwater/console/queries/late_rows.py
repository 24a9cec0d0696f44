"""Late rows: how many, how late, and samples of them, from the state of operators or from the topic of their side output.

An operator that drops late rows keeps a few of each batch in the state folder, with how late they were. An operator with a
side output for them keeps all, and so does the topic of the side output. Spark's own operators only count what they drop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.apps.home import Home
from headwater.apps.status import QueryStatus
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.log import Log

#: The newest samples are read: at most so many files and rows of them.
FILES_MAX = 200
ROWS_MAX = 5_000
SHOWN_MAX = 50
LATE_BY = "late_by_us"
#: The classes of the histogram: their bounds in seconds, and their names.
CLASSES: tuple[tuple[float, str], ...] = (
    (1, "1 s"),
    (10, "10 s"),
    (60, "1 min"),
    (600, "10 min"),
    (3_600, "1 h"),
    (86_400, "1 d"),
    (float("inf"), "more"),
)


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Late rows of a query. `rows` are the newest, each with how late it was in microseconds."""

    source: str = "none"
    """`topic`, `kept` by an operator, or `none`."""
    topic: str = ""
    counts: tuple[int, ...] = (0,) * len(CLASSES)
    rows: pa.Table = field(default_factory=lambda: pa.table({}))
    median_us: int | None = None

    @property
    def total(self) -> int:
        return sum(self.counts)


def samples_of(log: Log, status: QueryStatus) -> Samples:
    """Late rows of a query: from the topic of their side output, or else those that its operators kept."""
    topic = status.side_outputs.get("late", "")
    if topic:
        with contextlib.suppress(HeadwaterError):  # not created yet, or deleted
            return _samples([_newest(log, topic)], source="topic", topic=topic)
        return Samples(source="topic", topic=topic)
    tables = list(_kept(Home(log.home / "apps" / status.app), status)) if status.app else []
    return _samples(tables, source="kept") if tables else Samples()


def _newest(log: Log, topic: str) -> pa.Table:
    """The last rows of a topic, newest first."""
    starts, ends = log.start_offsets(topic), log.end_offsets(topic)
    share = ROWS_MAX // max(1, len(ends))
    begins = {number: max(starts[number], end - share) for number, end in ends.items()}
    table = log.read(topic, start=begins, stop=ends).table().sort_by([("_appended_at", "descending")])
    return table.select([name for name in table.column_names if not name.startswith("_")])


def _kept(home: Home, status: QueryStatus) -> Iterator[pa.Table]:
    """The late rows that operators have kept, newest first. Files may be deleted meanwhile."""
    query = home.query_id(status.name, status.version)
    if query is None:
        return
    files = sorted(home.state.glob(f"{query}/*/sides/late/*.arrow"), key=lambda path: path.name, reverse=True)
    for path in islice(files, FILES_MAX):
        with contextlib.suppress(OSError, pa.ArrowInvalid), pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
            yield table.select([name for name in table.column_names if not name.startswith("_")])


def _samples(tables: Sequence[pa.Table], *, source: str, topic: str = "") -> Samples:
    known = [table for table in tables if LATE_BY in table.column_names]
    if not known:
        return Samples(source=source, topic=topic)
    late = pa.chunked_array([table.column(LATE_BY).cast(pa.int64()) for table in known]).drop_null()[:ROWS_MAX]
    shown: list[pa.Table] = []
    for table in known:
        if sum(other.num_rows for other in shown) < SHOWN_MAX:
            shown.append(table)
    median = pc.quantile(late, 0.5)[0].as_py() if len(late) else None
    return Samples(
        source=source,
        topic=topic,
        counts=histogram(late.to_pylist()),
        rows=pa.concat_tables(shown, promote_options="permissive").slice(0, SHOWN_MAX),
        median_us=None if median is None else int(median),
    )


def histogram(late_us: Sequence[int]) -> tuple[int, ...]:
    """How many rows were late by how much, in the order of `CLASSES`.

    >>> histogram([400_000, 1_000_000, 59_000_000, 10**12])
    (2, 0, 1, 0, 0, 0, 1)
    """
    counts = [0] * len(CLASSES)
    for us in late_us:
        counts[next(n for n, (bound, _) in enumerate(CLASSES) if us <= bound * 1e6)] += 1
    return tuple(counts)

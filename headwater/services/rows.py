"""Rows of a topic: read in pages, looked up by offset, searched, followed, waited for, and appended."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from headwater.errors import ArgumentInvalid, NotFound
from headwater.log.client_config import Start
from headwater.log.errors import OffsetExpired
from headwater.log.port import OFFSETS_TOPIC, Appended, EventTimes, Offsets
from headwater.log.remote.wire import offsets_from_text, schema_to_text, start_from_text
from headwater.log.topic import Topic
from headwater.services.host import ExpiringCache
from headwater.services.positions import Position, parse_position, resolve
from headwater.services.route import Service, route
from headwater.services.row_pages import (
    BYTES_MAX,
    BatchPage,
    RangePage,
    check_partitions,
    joined,
    last_offsets,
    last_places,
    read_on,
    read_page,
    read_range_page,
    within,
)
from headwater.services.row_tail import TRIES_MAX, Follower, tail_page
from headwater.services.row_text import PARTS, Part, Row, decoded_rows, json_lines_of, text_rows
from headwater.services.wait import WaitFor, WaitResult, wait_for
from headwater.units import MIB

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.services.row_search import Matcher, Scan

PAGE_ROWS_MAX = 1_000
#: Searches that are kept between their steps, and for how long after the last one.
SEARCHES_MAX = 1_000
SEARCH_SECONDS_MAX = 600.0
STEP_SECONDS_MAX = 10.0
#: Rows and bytes that `read` yields at once.
READ_ROWS_MAX = 16_384
READ_BYTES_MAX = 4 * MIB


@dataclass(frozen=True, kw_only=True)
class RowPage:
    """Some rows of a topic, the offsets to go on from, and whether it is the last page in its direction."""

    rows: list[Row]
    next: Offsets
    is_last: bool


@dataclass(frozen=True, kw_only=True)
class ReadRange:
    """The offsets of each partition at which a read begins and ends, and the schema of its rows."""

    start: Offsets
    stop: Offsets
    arrow_schema: str


@dataclass(frozen=True, kw_only=True)
class RowAt:
    """The row at an offset, the offsets of the rows before and after it, and the offsets that its partition holds.

    There is no row if retention or compaction has deleted it, or if it does not exist yet.
    """

    row: Row | None
    before: int | None
    after: int | None
    offset_start: int
    offset_next: int


@dataclass(frozen=True, kw_only=True)
class RowTail:
    """New rows, oldest first; how many offsets were left out before them, and how many are not read yet."""

    rows: list[Row]
    skipped: int
    waiting: int
    next: Offsets
    topic_id: str


@dataclass(frozen=True, kw_only=True)
class SearchQuery:
    """What to search: rows that contain a text, match a regular expression, or meet a condition in SQL."""

    text: str = ""
    kind: Literal["text", "pattern", "sql"] = "text"
    parts: tuple[Part, ...] = PARTS
    match_case: bool = False
    order: Literal["newest", "oldest"] = "newest"
    partition: int | None = None


@dataclass(frozen=True, kw_only=True)
class SearchStep:
    """Rows that a step of a search has found, and the progress of the search."""

    id: str
    rows: list[Row] = field(default_factory=list)
    #: Offsets at the beginning of the search, those that it has passed, and those that retention deleted before.
    total: int
    scanned: int
    expired: int
    #: The range of append times of the rows that were searched.
    from_us: int | None
    to_us: int | None
    #: Whether all rows were searched, and all that were found are returned.
    is_done: bool


@dataclass(frozen=True, kw_only=True)
class Draft:
    """Rows as text: JSON for a topic with a schema, else one key and one value."""

    value: str = ""
    key: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    partition: int | None = None


@dataclass(frozen=True, kw_only=True)
class Produced:
    """How many rows were appended, or would be, and their offsets in each partition."""

    count: int
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)


class Rows(Service):
    """What can be done with rows."""

    @route("GET", "/topics/{topic}/page", scope="read:{topic}")
    def page(
        self,
        topic: str,
        *,
        start: str = "end",
        backwards: bool = True,
        partition: int | None = None,
        limit: int = 50,
    ) -> RowPage:
        """Read rows as text, over all partitions in the order of their appends.

        Backwards, the rows before the position come, newest first; otherwise those from it on, oldest first. An offset
        outside a partition means its nearer end.
        """
        _check_limit(limit, least=1)
        about, position = self.log.topic(topic), parse_position(start, name="start")
        partitions = None if partition is None else [partition]
        place = within(self.log, topic, resolve(self.log, topic, position, partitions))
        for _ in range(TRIES_MAX):
            try:
                begin = last_offsets(self.log, topic, place, rows=limit) if backwards else place
                stop = place if backwards else None
                page = read_page(self.log, topic, start=begin, stop=stop, partitions=list(place), rows_max=limit)
            except OffsetExpired:  # retention has deleted rows meanwhile
                place = within(self.log, topic, place)
                continue
            rows = text_rows(about, page.batches)
            if not backwards:
                return RowPage(rows=rows, next=page.next, is_last=not page.more)
            starts = self.log.start_offsets(topic)
            return RowPage(rows=rows[::-1], next=begin, is_last=all(begin[one] <= starts[one] for one in begin))
        return RowPage(rows=[], next=place, is_last=False)

    @route("GET", "/topics/{topic}/rows/{partition}/{offset}", scope="read:{topic}")
    def row(self, topic: str, partition: int, offset: int) -> RowAt:
        """Look one row up by its offset, whole, with the rows before and after it."""
        about = self.log.topic(topic)
        check_partitions(about.partitions, topic, [partition])
        start, end = self.log.start_offsets(topic)[partition], self.log.end_offsets(topic)[partition]
        rows = list[Row]()
        if start <= offset < end:
            page = self._from(topic, partition, offset, stop=offset + 1)
            rows = text_rows(about, page.batches, whole=True)
        before = last_places(self.log, topic, partition, min(max(offset, start), end), rows=1)
        after = self._from(topic, partition, min(max(offset + 1, start), end), columns=["_offset"])
        following = [batch.data.column(0)[0].as_py() for batch in after.batches if batch.data.num_rows]
        return RowAt(
            row=rows[0] if rows else None,
            before=before[0][2] if before else None,
            after=following[0] if following else None,
            offset_start=start,
            offset_next=end,
        )

    @route("GET", "/topics/{topic}/follow", scope="read:{topic}")
    def follow(
        self,
        topic: str,
        *,
        after: str | None = None,
        topic_id: str = "",
        partition: int | None = None,
        limit: int = 500,
        behind_max: int = 10_000,
        context: int = 0,
    ) -> RowTail:
        """Read the rows appended since the last call, as text; at most the last `behind_max` of them.

        The first call begins with the last `context` rows. Each further one passes `next` and `topic_id` of the answer
        before, as `after` and `topic_id`. With `limit=0` nothing is read: the answer says how many offsets are `waiting`.
        """
        _check_limit(limit)
        _check_limit(context)
        about = self.log.topic(topic)
        check_partitions(about.partitions, topic, None if partition is None else [partition])
        page = tail_page(
            self.log,
            topic,
            None if after is None else offsets_from_text(after, name="after"),
            topic_id=topic_id,
            partition=partition,
            rows_max=limit,
            behind_max=behind_max,
            context_rows=context,
        )
        return RowTail(
            rows=text_rows(about, page.batches),
            skipped=page.skipped,
            waiting=page.waiting,
            next=page.next,
            topic_id=page.topic_id,
        )

    # -- search -------------------------------------------------------------------------------------------------------

    @route("POST", "/topics/{topic}/searches", scope="read:{topic}", audited=False)
    def search(self, topic: str, query: SearchQuery) -> SearchStep:
        """Begin a search over the current rows. The answer has its id, and no rows yet."""
        from headwater.services.row_search import ConditionMatcher, Scan, TextMatcher

        about = self.log.topic(topic)
        check_partitions(about.partitions, topic, None if query.partition is None else [query.partition])
        matcher: Matcher
        if query.kind == "sql":
            matcher = ConditionMatcher(about, query.text, statements=self.host.statements)
        else:
            is_pattern = query.kind == "pattern"
            matcher = TextMatcher(query.text, is_pattern=is_pattern, match_case=query.match_case, parts=query.parts)
        scan = Scan(self.log, topic, matcher, newest_first=query.order == "newest", partition=query.partition)
        search = _Search(secrets.token_hex(16), topic, self.caller.name, scan)
        self._searches.put(search.id, search)
        return search.step()

    @route("POST", "/topics/{topic}/searches/{search}", scope="read:{topic}", audited=False)
    def search_on(self, topic: str, search: str, *, seconds: float = 0.25, limit: int = 50) -> SearchStep:
        """Continue a search for so many seconds, or until so many rows are found. The answer has its progress."""
        _check_limit(limit)
        known = self._search(topic, search)
        with known.lock:
            return known.step(known.scan.step(seconds=min(max(0.0, seconds), STEP_SECONDS_MAX), found_max=limit))

    @route("DELETE", "/topics/{topic}/searches/{search}", scope="read:{topic}", audited=False)
    def stop_search(self, topic: str, search: str) -> None:
        """Stop the current step of a search; the next one continues where it stopped."""
        self._search(topic, search).scan.cancel()

    # -- append -------------------------------------------------------------------------------------------------------

    @route("POST", "/topics/{topic}/produce")
    def produce(self, topic: str, draft: Draft, *, dry_run: bool = False) -> Produced:
        """Append rows that are given as text, checked by the schema first: all of them or none."""
        from headwater.schema.rows import to_batches

        self.caller.require("write", topic)
        about = self.log.topic(topic)
        rows = _drafted(about, draft)
        to_batches(rows, about.schema, topic=topic, key=about.key)
        if dry_run:
            return Produced(count=len(rows))
        headers = {name: value.encode() for name, value in draft.headers.items()}
        done = self.append(topic, rows, partition=draft.partition, headers=headers or None)
        return Produced(count=done.count, ranges=done.ranges)

    # Any: rows in a shape that `Log.append` takes, and its arguments, each of its own type.
    def append(self, topic: str, rows: Any, **details: Any) -> Appended:
        """Append rows; see `Log.append`."""
        self.caller.require("write", topic)
        return self.log.append(topic, rows, **details)

    # -- for clients of the remote log ---------------------------------------------------------------------------------

    @route("GET", "/topics/{topic}/positions", scope="read:{topic}")
    def positions(
        self,
        topic: str,
        *,
        start: str = "earliest",
        stop: str | None = None,
        partition: list[int] | None = None,
        column: list[str] | None = None,
        archived: bool = False,
    ) -> ReadRange:
        """Read the offsets that a start and a stop mean now, and the Arrow schema in which rows will come."""
        check_partitions(self.log.topic(topic).partitions, topic, partition)
        reader = self.log.read(
            topic,
            start=start_from_text(start),
            stop=None if stop is None else start_from_text(stop, name="stop"),
            partitions=partition,
            columns=column,
            archived=archived,
        )
        return ReadRange(
            start={number: span[0] for number, span in reader.ranges.items()},
            stop={number: span[1] for number, span in reader.ranges.items()},
            arrow_schema=schema_to_text(reader.schema),
        )

    @route("GET", "/topics/{topic}/partitions/{partition}/punctuations", scope="read:{topic}")
    def punctuations(self, topic: str, partition: int, offset: int) -> list[int]:
        """Read the times of the punctuations just before an offset, in microseconds since 1970."""
        check_partitions(self.log.topic(topic).partitions, topic, [partition])
        if offset < 0:
            raise ArgumentInvalid(name="offset", value=offset, expected="0 or more")
        return self.log.punctuations_at(topic, partition, offset)

    @route("GET", "/topics/{topic}/partitions/{partition}/event-times", scope="read:{topic}")
    def event_times(
        self, topic: str, partition: int, start: int, stop: int, *, until_us: int | None = None
    ) -> EventTimes:
        """Read the latest event time of a range of offsets up to `until_us`, and the latest promise of its punctuations."""
        check_partitions(self.log.topic(topic).partitions, topic, [partition])
        return self.log.event_times(topic, partition, start=start, stop=stop, until_us=until_us)

    @route("GET", "/topics/{topic}/tails", scope="read:{topic}")
    def tails(self, topic: str) -> dict[int, tuple[int, int]]:
        """Read the end of each partition as a place that moves with each append, also with that of a punctuation."""
        return self.log.tails(topic)

    @route("POST", "/wait", audited=False)
    async def wait(self, wanted: WaitFor, *, seconds: float = 20.0) -> WaitResult:
        """Wait until a partition has rows behind a position, or until the catalogue or a group has changed.

        `signs` says what has happened: rows, topics, state (of the group) or members. It is empty when the time is over.
        """
        for topic in wanted.topics:
            if topic != OFFSETS_TOPIC:  # that some group has committed is no secret
                self.caller.require("read", topic)
        return await wait_for(self.host, wanted, seconds=self.host.seconds(seconds))

    # -- as Arrow -----------------------------------------------------------------------------------------------------

    # Any: further arguments of `read_page`, each of its own type.
    def batches(
        self,
        topic: str,
        *,
        start: Start,
        rows_max: int,
        bytes_max: int = BYTES_MAX,
        columns: Sequence[str] | None = None,
        cursor: str | None = None,
        topic_id: str | None = None,
        **others: Any,
    ) -> BatchPage:
        """Read a page of rows as Arrow batches; with `cursor`, on with the cursor of this name in one partition."""
        self.caller.require("read", topic)
        bounds: Any = {"rows_max": rows_max, "bytes_max": bytes_max, "columns": columns}
        if cursor is not None and isinstance(start, Mapping) and len(start) == 1:
            [(number, offset)] = start.items()
            return read_on(self.log, self.host.cursors, cursor, topic, number, offset, topic_id=topic_id, **bounds)
        return read_page(self.log, topic, start=start, **bounds, **others)

    # Any: arguments of `read_range_page`, each of its own type.
    def range(self, topic: str, partition: int, **details: Any) -> RangePage:
        """Read the beginning of a range of one partition as Arrow batches; see `Log.read_range`."""
        self.caller.require("read", topic)
        return read_range_page(self.log, topic, partition, **details)

    def read(
        self,
        topic: str,
        start: Position,
        *,
        partitions: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        wait_seconds: float | None = None,
    ) -> Iterator[pa.RecordBatch | None]:
        """Read all rows from a position on, in the order of their appends, as Arrow batches.

        Without `wait_seconds`, reading ends with the current rows. With it, reading follows the topic, and yields None
        each time before it waits for so long.
        """
        self.caller.require("read", topic)
        positions = within(self.log, topic, resolve(self.log, topic, start, partitions))
        ends = self.log.end_offsets(topic)
        follower = Follower(self.log, topic, positions, columns=columns, chosen=partitions is not None)
        while True:
            found = follower.read(rows_max=READ_ROWS_MAX, bytes_max=READ_BYTES_MAX)
            yield from joined(batch.data for batch in found if batch.data.num_rows)
            if found or follower.change:
                if wait_seconds is None and all(at >= ends.get(one, 0) for one, at in follower.positions.items()):
                    return
                continue
            if wait_seconds is None:
                return
            yield None
            while not follower.wait(seconds=wait_seconds):
                yield None

    # -- inside -------------------------------------------------------------------------------------------------------

    def _from(
        self, topic: str, partition: int, offset: int, *, stop: int | None = None, columns: Sequence[str] | None = None
    ) -> BatchPage:
        until = None if stop is None else {partition: stop}
        start = {partition: offset}
        return read_page(self.log, topic, start=start, stop=until, partitions=[partition], columns=columns, rows_max=1)

    def _search(self, topic: str, search: str) -> _Search:
        known = self._searches.get(search)
        if known is None or (known.topic, known.caller) != (topic, self.caller.name):
            raise NotFound(kind="search", name=search)
        return known

    @property
    def _searches(self) -> ExpiringCache[_Search]:
        def make() -> ExpiringCache[_Search]:
            return ExpiringCache(
                count_max=SEARCHES_MAX, seconds_max=SEARCH_SECONDS_MAX, drop=lambda one: one.scan.cancel()
            )

        return self.host.share("searches", make)


@dataclass(frozen=True)
class _Search:
    """A search between its steps."""

    id: str
    topic: str
    caller: str
    scan: Scan
    lock: threading.Lock = field(default_factory=threading.Lock)

    def step(self, rows: Sequence[Row] = ()) -> SearchStep:
        scan = self.scan
        return SearchStep(
            id=self.id,
            rows=list(rows),
            total=scan.total,
            scanned=scan.scanned,
            expired=scan.expired,
            from_us=scan.from_us,
            to_us=scan.to_us,
            is_done=scan.is_done,
        )


# Any: rows in a shape that `Log.append` takes.
def _drafted(topic: Topic, draft: Draft) -> list[Any]:
    if topic.schemaless:
        return [(draft.key.encode() if draft.key else None, draft.value.encode())]
    if not draft.value.strip():
        raise ArgumentInvalid(name="rows", value="", expected="a JSON object, or several")
    body = draft.value.encode()
    rows = decoded_rows(body if _are_lines(draft.value) else json_lines_of(body), topic)
    if not rows:
        raise ArgumentInvalid(name="rows", value=draft.value, expected="at least one row")
    return rows


def _are_lines(text: str) -> bool:
    """Whether each line is an object of its own."""
    import json

    lines = [line for line in text.splitlines() if line.strip()]
    try:
        return len(lines) > 1 and all(isinstance(json.loads(line), dict) for line in lines)
    except ValueError:
        return False


def _check_limit(limit: int, *, least: int = 0) -> None:
    if not least <= limit <= PAGE_ROWS_MAX:
        raise ArgumentInvalid(name="limit", value=limit, expected=f"a number from {least} to {PAGE_ROWS_MAX:,}")

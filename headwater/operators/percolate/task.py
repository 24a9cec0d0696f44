"""What a worker does: catch up with the stored queries, match the documents of its task, and tell what was refused."""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.batches import MicroBatch, batch_time_us, current_batch, record_once, recorded, time_folder
from headwater.clock import SystemClock
from headwater.errors import ArgumentInvalid
from headwater.log import EmbeddedLog
from headwater.log.deadletters import DeadLetter, append_dead_letters
from headwater.operators.keyed.files import open_folder
from headwater.operators.keyed.plan import open_log_once
from headwater.operators.percolate.costs import write_costs
from headwater.operators.percolate.documents import Documents, Floats
from headwater.operators.percolate.fields import Fields
from headwater.operators.percolate.highlights import HIGHLIGHT_TYPE, Highlighter, Marking
from headwater.operators.percolate.index import Matches
from headwater.operators.percolate.stored import Held, Refused, TopicQueries, without_pauses

#: Documents that are matched together.
DOCUMENTS_MAX = 1_000
#: Indexes that a worker keeps.
HELD_MAX = 4
#: So many letters are appended at once, and so many appends has a batch at most.
LETTERS_MAX, APPENDS_MAX = 1_000, 10_000


@dataclass
class Kept:
    """An index that stays in a worker, and when its costs were last written."""

    held: Held
    number: int
    costs_at: float = float("-inf")


_kept: OrderedDict[str, Kept] = OrderedDict()
_numbers = iter(range(1 << 62))


def match_fields(columns: Sequence[pa.Field], metadata_type: pa.DataType, *, collect: bool) -> pa.Schema:
    """The columns of the result."""
    match = [
        pa.field("query_id", pa.string()),
        pa.field("score", pa.float64()),
        pa.field("highlights", HIGHLIGHT_TYPE),
        pa.field("metadata", metadata_type),
    ]
    own = [pa.field("matches", pa.list_(pa.struct(match)))] if collect else match
    own = [*own, pa.field("queries_version", pa.int64())]
    taken = {one.name for one in columns} & {one.name for one in own}
    if taken:
        expected = "columns of the documents that are not called as those of the result"
        raise ArgumentInvalid(name="columns", value=", ".join(sorted(taken)), expected=expected)
    return pa.schema([*columns, *own])


@dataclass(frozen=True, kw_only=True)
class PercolateTask:
    """Travels to the workers."""

    name: str
    source: TopicQueries | pa.Table
    fields: Fields
    on: str | None
    columns: tuple[str, ...]
    output: pa.Schema
    collect: bool
    marking: Marking | None
    costs_seconds: float
    state: str
    streaming: bool
    #: Of bounded documents: the time, and up to where the queries count, for all tasks alike.
    now_us: int
    ends: Mapping[int, int]
    #: Tells this operator's queries and fields from those of others.
    mark: str

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batch = current_batch() if self.streaming else None
        kept = self._kept(batch)
        now_us = self._now_us(batch)
        for rows in batches:
            for start in range(0, rows.num_rows, DOCUMENTS_MAX):
                with without_pauses():
                    result = self.matched(rows.slice(start, DOCUMENTS_MAX), kept.held, now_us)
                yield result
        self._write_costs(kept, batch)

    def matched(self, rows: pa.RecordBatch, held: Held, now_us: int) -> pa.RecordBatch:
        """The result for some documents."""
        matches, documents = held.index.match(rows, self._times(rows, now_us))
        found = self._of_matches(matches, documents, held)
        shown = rows.select(list(self.columns))
        if not self.collect:
            columns = [*shown.take(pa.array(matches.documents)).columns, *found]
            version = np.full(len(matches.slots), held.version)
            return pa.RecordBatch.from_arrays([*columns, pa.array(version)], schema=self.output)
        structs = pa.StructArray.from_arrays(found, fields=list(self.output.field("matches").type.value_type))
        starts = np.searchsorted(matches.documents, np.arange(rows.num_rows + 1)).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(starts), structs).cast(self.output.field("matches").type)
        version = np.full(rows.num_rows, held.version)
        return pa.RecordBatch.from_arrays([*shown.columns, lists, pa.array(version)], schema=self.output)

    def _of_matches(self, matches: Matches, documents: Documents, held: Held) -> list[pa.Array]:
        slots = matches.slots.tolist()
        ids = pa.array([held.index.ids[slot] for slot in slots], pa.string())
        highlights: pa.Array = pa.nulls(len(slots), HIGHLIGHT_TYPE)
        if self.marking is not None:
            asked = [held.index.asked_by(slot) for slot in slots]
            pairs = list(zip(matches.documents.tolist(), asked, strict=True))
            highlights = Highlighter(documents, self.marking).column(pairs)
        return [ids, pa.array(matches.scores), highlights, held.metadata(pa.array(matches.slots))]

    # -- time ---------------------------------------------------------------------------------------------------------

    def _now_us(self, batch: MicroBatch | None) -> int:
        """The processing time: of a batch that is done again, the same."""
        if batch is None:
            return self.now_us
        known = batch_time_us(Path(self.state), batch)
        if known is not None:
            return known
        folder = time_folder(Path(self.state), batch.query)
        found = record_once(folder, f"percolate-{batch.number}-{self.name}", {"at_us": SystemClock().now_us()})
        return int(found["at_us"])

    def _times(self, rows: pa.RecordBatch, now_us: int) -> Floats:
        """What "now" is to each document: its event time where it has one."""
        if self.on is None:
            return np.full(rows.num_rows, float(now_us))
        times = rows.column(self.on)
        micros = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
        return np.asarray(pc.fill_null(micros, now_us)).astype(np.float64)

    # -- stored queries -----------------------------------------------------------------------------------------------

    def _kept(self, batch: MicroBatch | None) -> Kept:
        """The index of this worker, at the version that this batch uses."""
        key = self._key(batch)
        before = _kept.pop(key, None)
        if isinstance(self.source, TopicQueries):
            held = self._caught_up(self.source, before.held if before is not None else None, batch)
        elif before is not None:
            held = before.held
        else:
            held = Held(self.fields)
            held.store(self.source)
        kept = before if before is not None and before.held is held else Kept(held, next(_numbers))
        _kept[key] = kept
        while len(_kept) > HELD_MAX:
            _kept.popitem(last=False)
        return kept

    def _key(self, batch: MicroBatch | None) -> str:
        return f"{batch.query if batch is not None else ''}/{self.name}/{self.mark}"

    def _caught_up(self, source: TopicQueries, before: Held | None, batch: MicroBatch | None) -> Held:
        log = open_log_once(source.log)
        stop, since = self._offsets(log, source, batch)
        held = source.caught_up(before, self.fields, log, stop)
        refused = [one for one in held.refused if one.offset >= since.get(one.partition, 0)]
        held.refused.clear()
        if refused:
            self._post(log, source, refused, batch, stop)
        return held

    def _offsets(
        self, log: EmbeddedLog, source: TopicQueries, batch: MicroBatch | None
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Up to where the queries count in this batch, and from where on they are new to it."""
        if batch is None:
            return dict(self.ends), {}
        ends = {str(number): offset for number, offset in log.end_offsets(source.topic).items()}
        folder = time_folder(Path(self.state), batch.query)
        name = f"table-{batch.number}-{self.name}-queries"
        found = recorded(folder, name)
        if found is None:
            found = record_once(folder, name, {"ends": ends, "before": self._before(folder, batch.number)})
        return _by_number(found["ends"]), _by_number(found["before"])

    def _before(self, folder: Path, number: int) -> dict[str, int]:
        """The ends that the batch before has recorded."""
        found = recorded(folder, f"table-{number - 1}-{self.name}-queries")
        if found is None:
            paths = folder.glob(f"table-*-{self.name}-queries.json")
            earlier = [int(path.name.split("-")[1]) for path in paths]
            newest = max((one for one in earlier if one < number), default=None)
            found = recorded(folder, f"table-{newest}-{self.name}-queries") if newest is not None else None
        return dict(found["ends"]) if found is not None else {}

    def _post(
        self,
        log: EmbeddedLog,
        source: TopicQueries,
        refused: list[Refused],
        batch: MicroBatch | None,
        stop: dict[int, int],
    ) -> None:
        """Refused queries become dead letters of their topic. All tasks find the same ones, and the log takes them once."""
        run = batch.query if batch is not None else hashlib.sha256(repr(sorted(stop.items())).encode()).hexdigest()[:16]
        first = (batch.number if batch is not None else 0) * APPENDS_MAX
        at_us = SystemClock().now_us()
        ordered = sorted(refused, key=lambda one: (one.partition, one.offset))
        for number, start in enumerate(range(0, len(ordered), LETTERS_MAX)):
            letters = [_letter(source.topic, one, self.name, at_us) for one in ordered[start : start + LETTERS_MAX]]
            append_dead_letters(
                log, source.topic, letters, producer=f"{run}.{self.name}.refused", sequence=first + number
            )

    # -- costs --------------------------------------------------------------------------------------------------------

    def _write_costs(self, kept: Kept, batch: MicroBatch | None) -> None:
        now = time.monotonic()
        if batch is None or now - kept.costs_at < self.costs_seconds:
            return
        kept.costs_at = now
        folder = open_folder(self.state).within(batch.query).within(self.name)
        write_costs(folder, kept.held.index, number=kept.number)


def _by_number(offsets: dict[str, Any]) -> dict[int, int]:
    return {int(number): int(offset) for number, offset in offsets.items()}


def _letter(topic: str, refused: Refused, operator: str, at_us: int) -> DeadLetter:
    return DeadLetter(
        topic=topic,
        partition=refused.partition,
        offset=refused.offset,
        row=json.dumps({"id": refused.id, "query": refused.query}),
        query=operator,
        error="QueryInvalid",
        message=refused.why,
        at_us=at_us,
    )

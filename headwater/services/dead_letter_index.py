"""An index of the dead letters of a topic, so that they are counted and selected without reading all of them again.

For each dead letter the index keeps its place, reason, query, attempt and time: forty-eight bytes. The dead letters
themselves are read only for a page that shows them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa

from headwater.log.dead_letters import (
    STATES,
    STATUS_TOPIC,
    Place,
    Selection,
    Status,
    Statuses,
    StoredDeadLetter,
    stored_dead_letters,
)
from headwater.log.errors import OffsetExpired
from headwater.log.topic import Topic

if TYPE_CHECKING:
    from headwater.log import Log

_COLUMNS = ("error", "query", "attempt", "at", "_offset")
# Any: the kind of numbers is known where they are made.
Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Reason:
    """The dead letters with one reason."""

    name: str
    states: dict[str, int]
    attempts: int
    """The highest attempt among them."""
    first_us: int
    last_us: int

    @property
    def open(self) -> int:
        return self.states["open"]

    @property
    def total(self) -> int:
        return sum(self.states.values())


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """How many dead letters were written in each interval of time, by reason."""

    starts_us: list[int] = field(default_factory=list)
    step_us: int = 1
    counts: dict[str, list[int]] = field(default_factory=dict)


class Places(Sequence[Place]):
    """Many places, stored as arrays of numbers.

    >>> list(Places(np.array([0, 1]), np.array([7, 8]))[:1])
    [Place(partition=0, offset=7)]
    """

    def __init__(self, partitions: Numbers, offsets: Numbers) -> None:
        self._partitions, self._offsets = partitions, offsets

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, at: int) -> Place: ...
    @overload
    def __getitem__(self, at: slice) -> Places: ...
    def __getitem__(self, at: int | slice) -> Place | Places:
        if isinstance(at, slice):
            return Places(self._partitions[at], self._offsets[at])
        return Place(int(self._partitions[at]), int(self._offsets[at]))

    def where(self, fit: set[Place]) -> Places:
        mask = np.fromiter((place in fit for place in self), bool, len(self))
        return Places(self._partitions[mask], self._offsets[mask])


class DeadLetterIndex:
    """The dead letters of one dead-letter topic; each call catches up with the topic, from any thread."""

    def __init__(self, log: Log, topic: Topic) -> None:
        self.topic = topic
        self._log = log
        self._lock = threading.Lock()
        self._statuses = Statuses(log, topic)
        self._next: dict[int, int] = {}
        self._codes: dict[str, int] = {}
        self._query_codes: dict[str | None, int] = {}
        names = ("partition", "offset", "reason", "query", "attempt", "at")
        self._rows: dict[str, Numbers] = {name: np.zeros(0, np.int64) for name in names}
        self._seen = (-1, 0, 0)
        self._states: Numbers = np.zeros(0, np.int64)

    # -- queries ------------------------------------------------------------------------------------------------------

    def reasons(self) -> list[Reason]:
        """Count by reason, the reasons with the most open dead letters first."""
        with self._lock:
            self._catch_up()
            reasons = [self._reason(name, code) for name, code in self._codes.items()]
        return sorted((one for one in reasons if one.total), key=lambda one: (-one.open, -one.total, one.name))

    def timeline(self, *, intervals: int = 48) -> Timeline:
        """Count over the time that the dead letters span: the commonest reasons by name, the others together."""
        with self._lock:
            self._catch_up()
            at, reasons = self._rows["at"], self._rows["reason"]
            if not len(at):
                return Timeline()
            first, last = int(at.min()), int(at.max())
            step = max(1_000_000, -(-(last - first + 1) // intervals))
            slots = (at - first) // step
            counts = {
                name: np.bincount(slots[reasons == code], minlength=int((last - first) // step) + 1).tolist()
                for name, code in self._codes.items()
            }
        starts = [first + number * step for number in range(int((last - first) // step) + 1)]
        return Timeline(starts_us=starts, step_us=step, counts=_commonest(counts))

    def places(self, selection: Selection) -> Places:
        """The places of the selected dead letters, newest first."""
        with self._lock:
            self._catch_up()
            chosen = np.flatnonzero(self._mask(selection))
            chosen = chosen[np.argsort(self._rows["at"][chosen], kind="stable")][::-1]
            places = Places(self._rows["partition"][chosen], self._rows["offset"][chosen])
        return places if selection.text is None else self._with_text(places, selection.text)

    def read(self, places: Sequence[Place]) -> list[StoredDeadLetter]:
        """Read the dead letters at these places; those that retention has deleted meanwhile are left out."""
        with self._lock:
            now = self._statuses.now()
            statuses = {place: now[place] for place in places if place in now}
        found: list[StoredDeadLetter] = []
        for place in places:
            with contextlib.suppress(OffsetExpired):
                reader = self._log.read(
                    self.topic.name,
                    start={place.partition: place.offset},
                    stop={place.partition: place.offset + 1},
                    partitions=[place.partition],
                )
                for batch in reader.batches():
                    found += stored_dead_letters(batch.data, batch.partition, statuses)
        return found

    # -- the index ----------------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        name = self.topic.name
        starts, ends = self._log.start_offsets(name), self._log.end_offsets(name)
        for partition, end in ends.items():
            start = max(self._next.get(partition, 0), starts[partition])
            if start < end:
                self._take(partition, start, end)
                self._next[partition] = end
        kept = self._rows["offset"] >= np.array([starts[n] for n in sorted(starts)])[self._rows["partition"]]
        if not kept.all():
            self._rows = {column: values[kept] for column, values in self._rows.items()}
        self._catch_up_states()

    def _catch_up_states(self) -> None:
        """Read the states again if a dead letter or a status was added or deleted: there may be many statuses."""
        known = self._log.topics(STATUS_TOPIC, internal=True)
        seen = (self._log.end_offsets(STATUS_TOPIC)[0] if known else 0, len(self._rows["at"]), sum(self._next.values()))
        if seen != self._seen:
            self._states = self._current_states(self._statuses.now())
            self._seen = seen

    def _take(self, partition: int, start: int, end: int) -> None:
        reader = self._log.read(
            self.topic.name, start={partition: start}, stop={partition: end}, partitions=[partition], columns=_COLUMNS
        )
        parts = [self._rows]
        for data in reader:
            parts.append(
                {
                    "partition": np.full(data.num_rows, partition, np.int64),
                    "offset": data.column("_offset").to_numpy(zero_copy_only=False).astype(np.int64),
                    "reason": _coded(self._codes, data.column("error")),
                    "query": _coded(self._query_codes, data.column("query")),
                    "attempt": data.column("attempt").to_numpy(zero_copy_only=False).astype(np.int64),
                    "at": data.column("at").cast(pa.int64()).to_numpy(zero_copy_only=False).astype(np.int64),
                }
            )
        self._rows = {column: np.concatenate([part[column] for part in parts]) for column in self._rows}

    def _current_states(self, statuses: dict[Place, Status]) -> Numbers:
        """The state of each dead letter, as its index in `STATES`; those without a status are open."""
        states = np.zeros(len(self._rows["offset"]), np.int64)
        for partition in sorted({place.partition for place in statuses}):
            mine = np.flatnonzero(self._rows["partition"] == partition)
            offsets = self._rows["offset"][mine]  # sorted, because each partition is read in order
            changed = [(place.offset, status) for place, status in statuses.items() if place.partition == partition]
            at = np.searchsorted(offsets, [offset for offset, _ in changed])
            for (offset, status), index in zip(changed, at, strict=True):
                if index < len(offsets) and offsets[index] == offset:
                    states[mine[index]] = STATES.index(status.state)
        return states

    def _mask(self, selection: Selection) -> Numbers:
        """Which dead letters are selected, without regard to the selection's text."""
        rows = self._rows
        mask = np.ones(len(rows["at"]), bool)
        if selection.reasons:
            mask &= np.isin(rows["reason"], [self._codes[name] for name in selection.reasons if name in self._codes])
        if selection.states:
            mask &= np.isin(self._states, [STATES.index(state) for state in selection.states])
        if selection.since_us is not None:
            mask &= rows["at"] >= selection.since_us
        if selection.until_us is not None:
            mask &= rows["at"] < selection.until_us
        if selection.query is not None:
            mask &= rows["query"] == self._query_codes.get(selection.query, -1)
        if selection.partition is not None:
            mask &= rows["partition"] == selection.partition
        if selection.offsets:
            spans = [(rows["offset"] >= span.start) & (rows["offset"] < span.stop) for span in selection.offsets]
            mask &= np.logical_or.reduce(spans)
        return mask

    def _with_text(self, places: Places, text: str) -> Places:
        """The places whose message contains the text. This reads the messages of all dead letters."""
        fit: set[Place] = set()
        for batch in self._log.read(self.topic.name, columns=("message", "_offset")).batches():
            messages = batch.data.column("message").to_pylist()
            for message, offset in zip(messages, batch.data.column("_offset").to_pylist(), strict=True):
                if text.casefold() in message.casefold():
                    fit.add(Place(batch.partition, offset))
        return places.where(fit)

    def _reason(self, name: str, code: int) -> Reason:
        mine = self._rows["reason"] == code
        states = np.bincount(self._states[mine], minlength=len(STATES))
        at, some = self._rows["at"][mine], bool(mine.any())
        return Reason(
            name=name,
            states={state: int(number) for state, number in zip(STATES, states, strict=True)},
            attempts=int(self._rows["attempt"][mine].max()) if some else 0,
            first_us=int(at.min()) if some else 0,
            last_us=int(at.max()) if some else 0,
        )


def _coded(codes: dict[Any, int], names: pa.Array) -> Numbers:
    """The names as numbers; a new name gets the next one."""
    return np.array([codes.setdefault(name, len(codes)) for name in names.to_pylist()], np.int64)


def _commonest(counts: dict[str, list[int]], *, most: int = 5) -> dict[str, list[int]]:
    """Keep the commonest names, and add the others up.

    >>> _commonest({"a": [1, 0], "b": [2, 2], "c": [0, 0], "d": [0, 1]}, most=1)
    {'b': [2, 2], 'others': [1, 1]}
    """
    order = sorted((name for name in counts if any(counts[name])), key=lambda name: (-sum(counts[name]), name))
    found = {name: counts[name] for name in order[:most]}
    if order[most:]:
        found["others"] = [sum(each) for each in zip(*(counts[name] for name in order[most:]), strict=True)]
    return found

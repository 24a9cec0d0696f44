"""Versions of an operator's state: for each partition a chain of runs per batch, so that batch n can always be done
again from version n-1.

A version is a small manifest that names its runs, oldest first. A run is the state of some keys as one batch left it, in
a file that is written once and then only mapped: rows sorted by the hash of their key, and timers in a second file,
sorted by time. Batch n adds one run with the keys it touched; runs of similar size are merged as they pile up, so a key
is found in a handful of binary searches, however many are held, and the work of a batch grows with the keys it touches
only. Nothing is changed in place: a killed or repeated attempt leaves files that no manifest names, and the next
clean-up removes them.

All partitions publish a version in each batch, and each manifest says how many there were, so the manifest of partition 0
tells how the state of a batch was cut. A batch that finds it cut otherwise takes the keys of its partition out of all of
them: a query may go on with another number of partitions, and the versions from before are not touched.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.columns import HASH, LIVE, TIMERS
from headwater.engine.errors import StateMissing
from headwater.engine.event_time import NEVER, SourceProgress, merge_learnt, merge_progress
from headwater.engine.state_folder import RUN, SUFFIX, Folder
from headwater.faults import reach
from headwater.schema import conform

Hashes = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]


class Match(NamedTuple):
    """Where keys were found in a run: `keys[i]` owns the row `rows[i]`."""

    keys: Rows
    rows: Rows


class Run:
    """A run on disk, mapped: what is looked at is read, the rest is not."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.name = name
        self._folder = folder
        self.table = folder.map(name)
        self.hashes: Hashes = _array(self.table, HASH)

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    def find(self, hashes: Hashes) -> Match:
        """The rows of these hashes, in their order. Two keys of one hash both come: the caller compares the keys."""
        first = np.searchsorted(self.hashes, hashes, side="left")
        inside = np.flatnonzero(first < self.rows)
        found = inside[self.hashes[first[inside]] == hashes[inside]]
        first = first[found]
        counts = np.searchsorted(self.hashes, hashes[found], side="right") - first
        return Match(np.repeat(found, counts), ranges(first, counts))

    def due(self, timer: str, *, after_us: int | None, until_us: int) -> Rows:
        """The rows whose timer lies in (after, until]."""
        timers = self._folder.map_if_there(timer_name(self.name, timer))
        if timers is None:
            return np.empty(0, np.int64)
        at: Rows = _array(timers, "at_us")
        start = 0 if after_us is None else int(np.searchsorted(at, after_us, side="right"))
        stop = int(np.searchsorted(at, until_us, side="right"))
        rows: Rows = _array(timers, "row")
        return rows[start:stop]


def write_run(folder: Folder, name: str, table: pa.Table) -> None:
    """Write a table that is sorted by hash, and its timers."""
    for timer in TIMERS:
        if timer in table.column_names:
            at = table.column(timer).cast(pa.int64())
            rows = np.flatnonzero(np.asarray(at.is_valid()))
            if len(rows):
                times = np.asarray(at.take(pa.array(rows)))
                order = np.argsort(times, kind="stable")
                timers = pa.table({"at_us": times[order], "row": rows[order]})
                folder.write(timer_name(name, timer), timers)
    folder.write(name, table)


def timer_name(run: str, timer: str) -> str:
    return f"{run}.{timer[1:]}"


def ranges(starts: Rows, counts: Rows) -> Rows:
    """All numbers of several ranges, one after the other.

    >>> ranges(np.array([3, 10]), np.array([2, 3])).tolist()
    [3, 4, 10, 11, 12]
    """
    ends = np.cumsum(counts)
    numbers: Rows = np.arange(int(counts.sum())) + np.repeat(starts - (ends - counts), counts)
    return numbers


def _array(table: pa.Table, column: str) -> Any:
    """A column as an array over the mapped bytes. Any: the caller knows the type, Arrow does not say it."""
    chunks = table.column(column)
    return np.asarray(chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks())


#: So many runs of similar size are merged into one that is about so many times larger.
FAN_IN = 8
SMALLEST_ROWS = 1024


def runs_to_merge(rows: Sequence[int]) -> tuple[int, int] | None:
    """Neighbouring runs, as [first, last), that have piled up on one level; None while there are few.

    >>> runs_to_merge([100_000, 900, 900, 900])
    >>> runs_to_merge([100_000] + [900] * 8)
    (1, 9)
    """
    levels = [_level(count) for count in rows]
    last = len(levels)
    while last > 0:
        first = last - 1
        while first > 0 and levels[first - 1] <= levels[last - 1]:
            first -= 1
        if last - first >= FAN_IN:
            return first, last
        last = first
    return None


def _level(rows: int) -> int:
    level, size = 0, SMALLEST_ROWS
    while rows > size:
        level, size = level + 1, size * FAN_IN
    return level


def merge_runs(tables: Sequence[pa.Table], *, key: Sequence[str], drop_dead: bool) -> pa.Table:
    """One run with the newest rows of each key, sorted by hash; dead keys go where no older run can have them."""
    table = pa.concat_tables(tables).combine_chunks()
    hashes = np.asarray(table.column(HASH).combine_chunks())
    # The runs stand from the oldest to the newest, and rows of one hash stay in that order. Each is sorted already, which
    # a stable sort makes use of.
    order = np.argsort(hashes, kind="stable")
    hashes, ages = hashes[order], np.repeat(np.arange(len(tables)), [one.num_rows for one in tables])[order]
    groups = key_groups(table.select([HASH, *key]).take(pa.array(order)), hashes, key)
    newest = np.zeros(int(groups.max()) + 1 if len(groups) else 0, ages.dtype)
    newest[groups] = ages  # of several the last is kept, which is the newest
    keep = ages == newest[groups]
    if drop_dead:
        keep &= np.asarray(table.column(LIVE).combine_chunks(), dtype=bool)[order]
    return table.take(pa.array(order[keep])).combine_chunks()


def key_groups(table: pa.Table, hashes: npt.NDArray[np.uint64], key: Sequence[str]) -> npt.NDArray[np.int64]:
    """A number for each distinct key of rows sorted by hash; rows of one key have the same."""
    if not len(hashes):
        return np.empty(0, np.int64)
    starts = np.concatenate([[True], hashes[1:] != hashes[:-1]])
    groups = np.cumsum(starts) - 1
    keys = table.select(list(key)).combine_chunks()
    # Rows of one hash stand together: if each has the key of the one before it, all have the same.
    if (starts[1:] | same_keys(keys.slice(1), keys.slice(0, len(hashes) - 1))).all():
        return groups.astype(np.int64)
    # Two keys with one 64-bit hash: rare enough to be slow, not rare enough to be wrong.
    numbers: dict[tuple[object, ...], int] = {}
    tuples = zip(*(column.to_pylist() for column in keys.columns), strict=True)
    return np.array([numbers.setdefault(one, len(numbers)) for one in tuples], dtype=np.int64)


def same_keys(left: pa.Table, right: pa.Table) -> npt.NDArray[np.bool_]:
    """Row by row, whether two tables hold the same keys."""
    same = np.ones(left.num_rows, dtype=bool)
    for name in left.column_names:
        equal = pc.equal(left.column(name), right.column(name))
        both_null = pc.and_(pc.is_null(left.column(name)), pc.is_null(right.column(name)))
        same &= np.asarray(pc.or_(pc.fill_null(equal, False), both_null).combine_chunks(), dtype=bool)
    return same


VERSIONS_KEPT = 3


@dataclass(kw_only=True)
class Manifest:
    """One version of one partition's state."""

    batch: int
    partitions: int
    runs: list[dict[str, Any]] = field(default_factory=list)
    progress: SourceProgress = field(default_factory=dict)
    watermark_us: int = NEVER
    local_watermark_us: int = NEVER
    processing_us: int | None = None
    timers_checked: dict[str, dict[str, int]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    learnt: dict[str, list[int]] = field(default_factory=dict)
    of_inputs_us: dict[str, int] = field(default_factory=dict)
    #: Whether the progress was recorded by the sources of the batch, and not by the rows that came here.
    is_recorded: bool = False
    #: For each column of event time of the output the time before which no later result comes.
    output_us: dict[str, int] = field(default_factory=dict)

    def dumps(self) -> str:
        return json.dumps(self.__dict__)

    @staticmethod
    def loads(text: str) -> Manifest:
        body = json.loads(text)
        body["progress"] = {
            name: {place: (latest, at) for place, (latest, at) in places.items()}
            for name, places in body["progress"].items()
        }
        return Manifest(**body)


def versions_of(folder: Folder) -> list[int]:
    """The versions of one partition's state, the oldest first."""
    return sorted(int(name.removesuffix(".json")) for name in folder.names() if name.endswith(".json"))


def manifest_of(folder: Folder, batch: int, *, operator: str) -> Manifest:
    """One version of one partition's state; raise `StateMissing` if it is not there."""
    text = folder.read_text(f"{batch:012d}.json")
    if text is None:
        raise StateMissing(operator=operator, batch=batch)
    return Manifest.loads(text)


def latest_of_inputs(manifests: Iterable[Manifest]) -> dict[str, int]:
    """The watermark of each input, as far as any partition has it."""
    found: dict[str, int] = {}
    for one in manifests:
        found |= {name: max(at_us, found.get(name, NEVER)) for name, at_us in one.of_inputs_us.items()}
    return found


def recut_manifest(
    manifests: Sequence[Manifest], *, slot: int, partitions: int, runs: list[dict[str, Any]]
) -> Manifest:
    """What one of `partitions` partitions has to know of a version that was cut into others."""
    newest = max(manifests, key=lambda one: one.batch)
    names = sorted({name for one in manifests for name in one.counts})
    return replace(
        newest,
        partitions=partitions,
        runs=runs,
        progress=merge_progress(one.progress for one in manifests),
        watermark_us=max(one.watermark_us for one in manifests),
        local_watermark_us=max(one.local_watermark_us for one in manifests),
        processing_us=max((one.processing_us for one in manifests if one.processing_us is not None), default=None),
        timers_checked={},
        # What is summed over the partitions stays with one of them.
        counts={name: sum(one.counts.get(name, 0) for one in manifests) for name in names} if slot == 0 else {},
        learnt=merge_learnt(one.learnt for one in manifests) if slot == 0 else {},
        of_inputs_us=latest_of_inputs(manifests),
    )


class StateStore:
    """The state of one partition of one operator, whose folder is `place`."""

    def __init__(
        self, place: Folder, *, slot: int, operator: str, key: pa.Schema, state: pa.Schema, partitions: int
    ) -> None:
        self._place = place
        self._slot = slot
        self._folder = place.within(str(slot))
        self._operator = operator
        self._key = key
        self._schema = state
        self._stored = pa.schema([pa.field(HASH, pa.uint64()), pa.field(LIVE, pa.bool_()), *key, *state])
        self._partitions = partitions
        self._opened: dict[str, Run] = {}

    # -- versions -----------------------------------------------------------------------------------------------------

    def load(self, batch: int) -> Manifest:
        """The version that batch `batch` begins with: the newest one before it."""
        return self.part_of(self.load_all(batch), batch)

    def load_all(self, batch: int) -> list[Manifest]:
        """The version that a batch begins with, of every partition that it was cut into."""
        newest = self._newest_before(batch)
        if newest is None:
            return [Manifest(batch=-1, partitions=self._partitions)]
        return [self._noted(slot, newest) for slot in range(newest.partitions)]

    def part_of(self, manifests: Sequence[Manifest], batch: int) -> Manifest:
        """This partition's part of what `load_all` found: taken out of all if they were cut into another number."""
        if manifests[0].batch < 0 and len(manifests) == 1:
            return Manifest(batch=-1, partitions=self._partitions)
        return manifests[self._slot] if len(manifests) == self._partitions else self._recut(manifests, batch)

    def _newest_before(self, batch: int) -> Manifest | None:
        """The newest version before a batch, of partition 0; of another one where partition 0 never had any."""
        for slot in self._slots():
            folder = self._place.within(slot)
            earlier = [number for number in versions_of(folder) if number < batch]
            if earlier:
                return manifest_of(folder, max(earlier), operator=self._operator)
        return None

    def _slots(self) -> Iterator[str]:
        yield "0"
        yield from filter(str.isdigit, self._place.folders())

    def _noted(self, slot: int, newest: Manifest) -> Manifest:
        """The newest version of a partition; an empty one if the partition never had any."""
        folder = self._place.within(str(slot))
        text = folder.read_text(f"{newest.batch:012d}.json")
        if text is not None:
            return Manifest.loads(text)
        if any(number <= newest.batch for number in versions_of(folder)):
            raise StateMissing(operator=self._operator, batch=newest.batch + 1)
        return Manifest(batch=-1, partitions=newest.partitions)

    def manifest(self, batch: int) -> Manifest:
        return manifest_of(self._folder, batch, operator=self._operator)

    def _recut(self, manifests: Sequence[Manifest], batch: int) -> Manifest:
        """This partition's part of a version that was cut into another number of partitions.

        It is written as a run of batch `batch`, which no manifest names before that batch publishes its own.
        """
        count = len(manifests)
        # A key of this partition can only come from partitions whose numbers agree by the common divisor.
        common = math.gcd(count, self._partitions)
        tables = []
        for slot in range(self._slot % common, count, common):
            store = StateStore(
                self._place,
                slot=slot,
                operator=self._operator,
                key=self._key,
                state=self._schema,
                partitions=count,
            )
            table = store.everything(manifests[slot])
            places = np.mod(_array(table, HASH).view(np.int64), self._partitions)
            tables.append(table.filter(pa.array(places == self._slot)))
        table = pa.concat_tables(tables).combine_chunks()
        runs = []
        if table.num_rows:
            order = np.argsort(_array(table, HASH), kind="stable")
            name = f"{RUN}{batch:012d}-{secrets.token_hex(4)}"
            write_run(self._folder, name, table.take(pa.array(order)))
            runs = [{"name": name, "rows": table.num_rows}]
            reach("state.recut")
        return recut_manifest(manifests, slot=self._slot, partitions=self._partitions, runs=runs)

    def save(self, before: Manifest, after: Manifest, changes: pa.Table | None) -> None:
        """Publish version `after`: the runs of `before` and one more with `changes`, sorted by hash."""
        runs = list(before.runs)
        if changes is not None and changes.num_rows:
            name = f"{RUN}{after.batch:012d}-{secrets.token_hex(4)}"
            write_run(self._folder, name, changes.select(self._stored.names).cast(self._stored))
            runs.append({"name": name, "rows": changes.num_rows})
            reach("run.written")
        after.runs = self._merged(runs, after.batch)
        names = {run["name"] for run in after.runs}
        after.timers_checked = {name: checked for name, checked in after.timers_checked.items() if name in names}
        if after.runs:
            self._folder.sync()  # the runs are safe before a manifest names them
        reach("manifest.before")
        self._folder.write_text(f"{after.batch:012d}.json", after.dumps())
        reach("manifest.written")
        self._folder.sync()
        self._clean(after.batch)

    # -- looking ------------------------------------------------------------------------------------------------------

    def look_up(self, manifest: Manifest, hashes: Hashes, keys: pa.Table) -> pa.Table:
        """The state of the given keys, with the number of the key as `_key`, sorted by it. Newer runs win."""
        missing: Rows = np.arange(len(hashes))
        pieces: list[pa.Table] = []
        for run in reversed(self._runs(manifest)):
            if not len(missing):
                break
            match = run.find(hashes[missing])
            if not len(match.rows):
                continue
            numbers = missing[match.keys]
            rows = run.table.take(pa.array(match.rows))
            same = same_keys(rows.select(self._key.names), keys.take(pa.array(numbers)))
            if not same.all():
                numbers, rows = numbers[same], rows.filter(pa.array(same))
            live = np.asarray(rows.column(LIVE).combine_chunks(), dtype=bool)
            piece = self._conformed(rows.filter(pa.array(live)))
            pieces.append(piece.append_column("_key", pa.array(numbers[live])))
            still = np.ones(len(hashes), dtype=bool)
            still[numbers] = False
            missing = missing[still[missing]]
        return self._joined(pieces)

    def due(self, manifest: Manifest, *, event_us: int, processing_us: int | None) -> pa.Table:
        """The keys, with their hashes, that may have a timer due by now; some may have been moved since."""
        found = []
        runs = self._runs(manifest) if any(timer in self._schema.names for timer in TIMERS) else []
        for run in runs:
            checked = manifest.timers_checked.get(run.name, {})
            for timer, until in zip(TIMERS, (event_us, processing_us), strict=True):
                if until is not None and until > NEVER:
                    rows = run.due(timer, after_us=checked.get(timer), until_us=until)
                    if len(rows):
                        found.append(run.table.select([HASH, *self._key.names]).take(pa.array(rows)))
        empty = pa.schema([pa.field(HASH, pa.uint64()), *self._key]).empty_table()
        return pa.concat_tables(found) if found else empty

    def checked(self, manifest: Manifest, *, event_us: int, processing_us: int | None) -> dict[str, dict[str, int]]:
        """What to note so that the same timers are not looked at again."""
        until = dict(zip(TIMERS, (event_us, processing_us), strict=True))
        return {
            run["name"]: {
                timer: max(at, manifest.timers_checked.get(run["name"], {}).get(timer, NEVER))
                for timer, at in until.items()
                if at is not None
            }
            for run in manifest.runs
        }

    def everything(self, manifest: Manifest, choose: Callable[[pa.Table], pa.Table] | None = None) -> pa.Table:
        """All live state, with hash and key: for people who look, for questions, and for rescaling.

        `choose` may leave out keys: all rows of a key, or none.
        """
        runs = self._runs(manifest)
        if not runs:
            return self._stored.empty_table()
        tables = [self._stored_rows(run.table) for run in runs]
        chosen = tables if choose is None else [choose(table) for table in tables]
        return merge_runs(chosen, key=self._key.names, drop_dead=True)

    # -- behind -------------------------------------------------------------------------------------------------------

    def _runs(self, manifest: Manifest) -> list[Run]:
        return [self._open(run["name"]) for run in manifest.runs]

    def _open(self, name: str) -> Run:
        run = self._opened.get(name)
        if run is None:
            try:
                run = self._opened[name] = Run(self._folder, name)
            except FileNotFoundError:
                raise StateMissing(operator=self._operator, batch=-1) from None
        return run

    def _merged(self, runs: list[dict[str, Any]], batch: int) -> list[dict[str, Any]]:
        """The runs after those that have piled up were merged."""
        while (span := runs_to_merge([run["rows"] for run in runs])) is not None:
            first, last = span
            tables = [self._stored_rows(self._open(run["name"]).table) for run in runs[first:last]]
            table = merge_runs(tables, key=self._key.names, drop_dead=first == 0)
            name = f"{RUN}{batch:012d}-{secrets.token_hex(4)}"
            write_run(self._folder, name, table)
            reach("run.merged")
            runs = [*runs[:first], {"name": name, "rows": table.num_rows}, *runs[last:]]
        return runs

    def _stored_rows(self, table: pa.Table) -> pa.Table:
        if table.schema.equals(self._stored):
            return table
        return pa.Table.from_batches([conform(batch, self._stored) for batch in table.to_batches()], self._stored)

    def _conformed(self, table: pa.Table) -> pa.Table:
        wanted = pa.schema([*self._key, *self._schema])
        table = table.select([name for name in table.column_names if name not in (HASH, LIVE)])
        if table.schema.equals(wanted):
            return table
        return pa.Table.from_batches([conform(batch, wanted) for batch in table.to_batches()], wanted)

    def _joined(self, pieces: list[pa.Table]) -> pa.Table:
        wanted = pa.schema([*self._key, *self._schema, pa.field("_key", pa.int64())])
        if not pieces:
            return wanted.empty_table()
        if len(pieces) == 1:
            return pieces[0]
        table = pa.concat_tables(pieces).combine_chunks()
        order = np.argsort(np.asarray(table.column("_key")), kind="stable")
        return table.take(pa.array(order))

    def _clean(self, batch: int) -> None:
        """Remove versions that no retry can ask for, and files that no version names."""
        versions = versions_of(self._folder)
        old, kept = versions[:-VERSIONS_KEPT], versions[-VERSIONS_KEPT:]
        manifests = [self.manifest(number) for number in kept]
        if self._slot == 0 and old and all(one.partitions == self._partitions for one in manifests):
            # No version that a retry could ask for lies in more partitions than there are now.
            for slot in range(self._partitions, self.manifest(old[-1]).partitions):
                self._place.within(str(slot)).clear()
        wanted = {run["name"] for manifest in manifests for run in manifest.runs}
        files = {f"{name}{SUFFIX}" for name in wanted}
        files |= {f"{timer_name(name, timer)}{SUFFIX}" for name in wanted for timer in TIMERS}
        for name in self._folder.names():
            is_old_version = name.endswith(".json") and int(name.removesuffix(".json")) in old
            is_old_run = name.startswith(RUN) and name not in files and int(name[4:16]) < batch
            if is_old_version or is_old_run:
                self._folder.remove(name)
        self._folder.sweep()
        self._opened = {name: run for name, run in self._opened.items() if name in wanted}

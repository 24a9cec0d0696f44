"""Whether a history is one that a log may have: a naive judge that knows journals only, and nothing of the log.

Each check is a claim that the log's documentation makes. All times are of one clock, and an operation happens at some
moment between its beginning and its end. Hence "before" below always means: ended before the other one began.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.crash.history.record import History, Operation, Positions, Read, Span
from tests.crash.journal import IDS_PER_ACT

#: Two clocks are compared where retention by age is judged: that of the log and that of the journals.
CLOCK_SLACK_NS = 1_000_000_000


class Place(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A claim that does not hold, by the name of its check."""

    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


@dataclass
class Verdict:
    """How often each claim was checked, and what does not hold."""

    checks: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class World:
    """What the checker must know: the settings of the topics, and which topics each group consumes."""

    topics: Mapping[str, Mapping[str, Any]]
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def is_compact(self, topic: str) -> bool:
        return bool(self.topics[topic].get("compact"))

    def keeps_all(self, topic: str) -> bool:
        return not self.is_compact(topic) and "retention" not in self.topics[topic]

    def keep_seconds(self, topic: str) -> float | None:
        """After how many seconds retention may delete rows of a topic; None for never."""
        number, _, unit = str(self.topics[topic].get("retention", "")).partition(" ")
        return float(number) if unit == "seconds" else None


def check(history: History, world: World) -> Verdict:
    """All claims about one history. The final reads must be in it."""
    checker = _Checker(history, world)
    checker.run()
    return checker.verdict


class _Checker:
    def __init__(self, history: History, world: World) -> None:
        self.verdict = Verdict()
        self._world = world
        self._operations = history.operations
        self._reads = sorted(history.reads, key=lambda read: read.ended_ns)
        self._positions = sorted(history.positions, key=lambda positions: positions.ended_ns)
        self._errors = history.errors
        self._home = {
            row: part.topic for one in self._operations.values() for part in one.act.parts for row in part.ids
        }
        #: Which operation was told that an offset is its own.
        self._claims: dict[Place, dict[int, int]] = defaultdict(dict)
        #: Which row was read at an offset, by anybody at any time.
        self._rows: dict[Place, dict[int, int]] = defaultdict(dict)
        self._offset_of: dict[int, tuple[Place, int]] = {}
        #: When a read that had seen the row was over.
        self._seen_ns: dict[int, int] = {}
        self._final: dict[Place, Span] = {}

    def run(self) -> None:
        for text in self._errors:
            self._wrong("errors", text)
        self._acknowledgements()
        for read in self._reads:
            self._sight(read)
        self._real_time_order()
        self._writer_order()
        self._conditions()
        self._visibility()
        self._atomic_reads()
        self._starts()
        self._groups()
        self._group_positions()
        self._copies()
        self._final_rows()
        self._final_transactions()
        self._newest_of_keys()

    def _wrong(self, check: str, text: str) -> None:
        self.verdict.violations.append(Violation(check=check, text=text))

    def _is(self, check: str, holds: bool, text: str) -> None:
        self.verdict.checks[check] += 1
        if not holds:
            self._wrong(check, text)

    def _owner(self, row: int) -> Operation:
        return self._operations[row // IDS_PER_ACT]

    # -- what was acknowledged ----------------------------------------------------------------------------------------

    def _acknowledgements(self) -> None:
        """Each offset is assigned once, to as many rows as were appended, and a retry gets the same offsets."""
        for number, operation in self._operations.items():
            for answer in operation.answers[1:]:
                same = answer.ranges == operation.answers[0].ranges
                self._is("retries", same, f"{operation.act} was answered differently: {operation.answers}")
            if not operation.answers or not operation.act.parts:
                continue
            ranges = operation.answers[0].ranges
            for topic in {part.topic for part in operation.act.parts}:
                places = ranges.get(topic, {})
                count = sum(stop - start for start, stop in places.values())
                told = count == len(operation.ids_of(topic))
                self._is("acknowledged places", told, f"{operation.act} of {topic} was told {places}")
                for partition, (start, stop) in places.items():
                    for offset in range(start, stop):
                        other = self._claims[Place(topic, partition)].setdefault(offset, number)
                        text = f"{topic}/{partition}: offset {offset} was given to acts {other} and {number}"
                        self._is("offsets given once", other == number, text)

    def _real_time_order(self) -> None:
        """An append that began after another was acknowledged is behind it."""
        appends: dict[Place, list[tuple[int, int, int, int, int]]] = defaultdict(list)
        for number, operation in self._operations.items():
            if operation.ok_ns is not None:
                for topic, places in operation.answers[0].ranges.items():
                    for partition, (start, stop) in places.items():
                        entry = (operation.invoked_ns, operation.ok_ns, start, stop, number)
                        appends[Place(topic, partition)].append(entry)
        for place, entries in appends.items():
            ended = sorted(entries, key=lambda entry: entry[1])
            done, end, last = 0, 0, -1
            for invoked_ns, _, start, _, number in sorted(entries):
                while done < len(ended) and ended[done][1] < invoked_ns:
                    if ended[done][3] > end:
                        end, last = ended[done][3], ended[done][4]
                    done += 1
                text = f"{place}: act {number} began after act {last} had been given {end - 1}, but was given {start}"
                self._is("real-time order", start >= end, text)

    # -- what was read ------------------------------------------------------------------------------------------------

    def _sight(self, read: Read) -> None:
        for span in read.spans:
            place = Place(span.topic, span.partition)
            self._shape(place, span, read)
            known = self._rows[place]
            for offset, row in span.rows():
                before = known.setdefault(offset, row)
                if before != row:
                    self._wrong("stable offsets", f"{place}: offset {offset} was {before}, and {row} for {read.reader}")
                elif row not in self._offset_of:
                    self._first_sight(place, offset, row, read)
                elif self._offset_of[row] != (place, offset):
                    there, at = self._offset_of[row]
                    self._wrong("once only", f"row {row} is in {there} at {at} and in {place} at {offset}")
                if not read.group:
                    self._seen_ns.setdefault(row, read.ended_ns)
            self.verdict.checks["stable offsets"] += len(span.ids)
            self.verdict.checks["once only"] += len(span.ids)
            if read.final:
                self._final[place] = span

    def _shape(self, place: Place, span: Span, read: Read) -> None:
        """Offsets follow one another without a gap; in a compacted topic they grow."""
        if span.offsets is None:
            holds = len(span.ids) == span.stop - span.start
        else:
            grow = all(one < other for one, other in zip(span.offsets, span.offsets[1:], strict=False))
            inside = not span.offsets or (span.start <= span.offsets[0] and span.offsets[-1] < span.stop)
            holds = grow and inside and self._world.is_compact(place.topic)
        text = f"{place}: {read.reader} read [{span.start}, {span.stop}) and got {len(span.ids)} rows at {span.offsets}"
        self._is("dense offsets", holds, text)

    def _first_sight(self, place: Place, offset: int, row: int, read: Read) -> None:
        self._offset_of[row] = (place, offset)
        operation = self._operations.get(row // IDS_PER_ACT)
        if operation is None or self._home.get(row) != place.topic:
            self._wrong("known rows", f"{place}: row {row} at {offset} was never appended to this topic")
            return
        claimed = self._claims[place].get(offset, operation.act.number)
        text = f"{place}: offset {offset} was acknowledged to act {claimed}, but holds row {row}"
        self._is("acknowledged places", claimed == operation.act.number, text)
        is_transaction = operation.act.kind == "transaction"
        kind = "aborted transactions" if is_transaction else "refused appends"
        self._is(kind, operation.status != "failed", f"{place}: row {row} at {offset} is of {operation}")
        text = f"{place}: {read.reader} saw row {row} at {offset} before it could be there: {operation}"
        self._is("no row too early", operation.visible_from_ns <= read.ended_ns, text)

    def _writer_order(self) -> None:
        """Rows of one writer are in each partition in the order in which it appended them."""
        for place, rows in self._rows.items():
            last: dict[str, int] = {}
            for offset in sorted(rows):
                row = rows[offset]
                operation = self._operations.get(row // IDS_PER_ACT)
                if operation is None or operation.prepared:  # that one is committed later than it was made
                    continue
                writer = operation.act.writer
                text = f"{place}: row {row} of {writer} at {offset} stands behind row {last.get(writer)}"
                self._is("order of a producer", row > last.get(writer, -1), text)
                last[writer] = row

    def _places_of(self, operation: Operation) -> Iterator[tuple[Place, int]]:
        """Where rows of an operation are known to be or to have been, by its answer or by any read."""
        if operation.answers:
            for topic, places in operation.answers[0].ranges.items():
                if topic in self._world.topics:
                    for partition, (start, stop) in places.items():
                        for offset in range(start, stop):
                            yield Place(topic, partition), offset
            return
        for row in operation.act.ids:
            if row in self._offset_of:
                yield self._offset_of[row]

    def _visibility(self) -> None:
        """A read sees all rows that were acknowledged or read before it began; a transaction counts as a whole."""
        known: dict[Place, list[tuple[int, int, int]]] = defaultdict(list)
        for number, operation in self._operations.items():
            for place, offset in self._places_of(operation):
                # An append to several partitions is no transaction: each of them may show at another moment.
                whole = operation.act.kind == "transaction"
                row = self._rows[place].get(offset)
                rows = operation.act.ids if whole else [] if row is None else [row]
                times = [self._seen_ns[one] for one in rows if one in self._seen_ns]
                times += [] if operation.ok_ns is None else [operation.ok_ns]
                if times:
                    known[place].append((min(times), offset, number))
        for place, entries in known.items():
            entries.sort()
            highest: list[tuple[int, int]] = []
            for _, offset, number in entries:
                highest.append(max(highest[-1], (offset, number)) if highest else (offset, number))
            times = [entry[0] for entry in entries]
            for read, span in self._tails(place):
                before = bisect_left(times, read.began_ns)
                if before:
                    self._reaches(place, span, read, *highest[before - 1])

    def _tails(self, place: Place) -> Iterator[tuple[Read, Span]]:
        for read in self._reads:
            if read.tail:
                for span in read.spans:
                    if (span.topic, span.partition) == place:
                        yield read, span

    def _reaches(self, place: Place, span: Span, read: Read, offset: int, number: int) -> None:
        operation = self._operations[number]
        acknowledged = operation.ok_ns is not None and operation.ok_ns < read.began_ns
        torn = operation.act.kind == "transaction" and not acknowledged
        text = f"{place}: {read.reader} read up to {span.stop} only, after act {number} was known to be at {offset}"
        self._is("atomic transactions" if torn else "no stale read", offset < span.stop, text)

    def _atomic_reads(self) -> None:
        """A read of several partitions shows all rows of a transaction, or none."""
        for read in self._reads:
            if not read.tail or len(read.spans) < 2:
                continue
            spans = {Place(span.topic, span.partition): span for span in read.spans}
            numbers = {row // IDS_PER_ACT for span in read.spans for row in span.ids}
            for number in numbers & self._operations.keys():
                operation = self._operations[number]
                if operation.act.kind != "transaction":
                    continue
                missing = [
                    (place, offset)
                    for place, offset in self._places_of(operation)
                    if place in spans and offset >= spans[place].stop
                ]
                text = f"{read.reader} saw rows of transaction {number} in {list(spans)}, but not {missing}"
                self._is("atomic transactions", not missing, text)

    # -- conditional appends ------------------------------------------------------------------------------------------

    def _conditions(self) -> None:
        """A conditional append happens if the end, or the key, is as expected; otherwise its error has the actual one."""
        keys = {
            row: key
            for one in self._operations.values()
            for part in one.act.parts
            for row, key in zip(part.ids, part.keys, strict=True)
        }
        for operation in self._operations.values():
            act = operation.act
            if act.expected_offset is not None:
                self._end_condition(operation, act.expected_offset)
            elif act.expected_key_offset is not None:
                self._key_condition(operation, act.expected_key_offset, keys)

    def _end_condition(self, operation: Operation, expected: int) -> None:
        act = operation.act
        topic, partition = act.parts[0].topic, act.parts[0].partition or 0
        place = Place(topic, partition)
        if operation.answers:
            start, _ = operation.answers[0].ranges[topic].get(partition, (-1, -1))
            text = f"{place}: act {act.number} expected the end at {expected}, and was appended at {start}"
            self._is("conditional appends", start == expected, text)
            return
        for row in act.ids:
            if row in self._offset_of:
                at = self._offset_of[row][1]
                text = f"{place}: row {row} expected the end at {expected}, but is at {at}"
                self._is("conditional appends", at - act.ids.index(row) == expected, text)
        if operation.refused_ns is None:
            return
        text = f"{place}: act {act.number} was refused because the end was {operation.actual}, not {expected}"
        self._is("conditional appends", operation.actual != expected, text)
        # The end that it was told must have been the end at some moment of the operation.
        last = self._by_offset(place, operation.actual - 1)
        begun = operation.actual == 0 or (last is not None and last.invoked_ns <= operation.refused_ns)
        self._is("conditional appends", begun, text + ", which it never was")
        after = self._by_offset(place, operation.actual)
        passed = after is not None and after.ok_ns is not None and after.ok_ns < operation.invoked_ns
        self._is("conditional appends", not passed, text + ", which it was no longer")

    def _by_offset(self, place: Place, offset: int) -> Operation | None:
        number = self._claims[place].get(offset)
        if number is None and offset in self._rows[place]:
            number = self._rows[place][offset] // IDS_PER_ACT
        return None if number is None else self._operations.get(number)

    def _key_condition(self, operation: Operation, expected: int, keys: Mapping[int, str]) -> None:
        act = operation.act
        key = act.parts[0].keys[0]
        if operation.answers:
            ((partition, (start, _)),) = operation.answers[0].ranges[act.parts[0].topic].items()
            rows = self._rows[Place(act.parts[0].topic, partition)]
            between = [
                offset for offset in range(expected + 1, start) if offset in rows and keys.get(rows[offset]) == key
            ]
            text = f"act {act.number} expected key {key} at {expected}, but it was also at {between} before {start}"
            self._is("conditional appends", not between, text)
        elif operation.refused_ns is not None:
            text = f"act {act.number} was refused because key {key} was at {operation.actual}, not behind {expected}"
            self._is("conditional appends", operation.actual > expected, text)

    # -- retention and compaction -------------------------------------------------------------------------------------

    def _starts(self) -> None:
        """Retention deletes only a prefix, only of topics with a retention, not too early, and for ever."""
        before: dict[Place, tuple[int, int]] = {}
        for positions in self._positions:
            if positions.group:
                continue
            for partition, start in positions.offsets.items():
                place = Place(positions.topic, partition)
                last_ns, last = before.get(place, (0, 0))
                if positions.began_ns > last_ns:
                    self._is("retention", start >= last, f"{place}: the start went back from {last} to {start}")
                if "retention" not in self._world.topics[positions.topic]:
                    self._is("retention", start == 0, f"{place} keeps everything, but begins at {start}")
                self._young(place, last, start, positions)
                before[place] = (positions.ended_ns, max(start, last))

    def _young(self, place: Place, last: int, start: int, positions: Positions) -> None:
        seconds = self._world.keep_seconds(place.topic)
        if seconds is None:
            return
        for offset in range(last, start):
            operation = self._by_offset(place, offset)
            if operation is not None:
                age_ns = positions.ended_ns - operation.visible_from_ns
                text = f"{place}: offset {offset} went after {age_ns / 1e9:.3f} seconds"
                self._is("retention", age_ns + CLOCK_SLACK_NS >= seconds * 1e9, text)

    def _newest_of_keys(self) -> None:
        """A scan of a compacted topic has the last row of each key, or a newer one."""
        for topic in self._world.topics:
            if not self._world.is_compact(topic):
                continue
            places = sorted({place for place in (*self._rows, *self._claims, *self._final) if place.topic == topic})
            for place in places:
                newest = self._keyed(place)
                for read in self._reads:
                    for span in read.spans:
                        if (span.topic, span.partition) == place and span.start == 0 and not read.group:
                            self._scan(place, span, read, newest)

    def _keyed(self, place: Place) -> dict[str, list[tuple[int, int]]]:
        """Of each key, the offsets of its rows and when they were begun."""
        found: dict[int, int] = dict(self._rows[place])
        for operation in self._operations.values():
            if operation.answers:
                places = operation.answers[0].ranges.get(place.topic, {})
                if len(places) == 1 and place.partition in places:
                    start, stop = places[place.partition]
                    for offset, row in zip(range(start, stop), operation.ids_of(place.topic), strict=False):
                        found.setdefault(offset, row)
        keys: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for offset in sorted(found):
            owner = self._operations.get(found[offset] // IDS_PER_ACT)
            for part in [] if owner is None else owner.act.parts:
                if owner is not None and found[offset] in part.ids:
                    keys[part.keys[part.ids.index(found[offset])]].append((offset, owner.invoked_ns))
        return keys

    def _scan(self, place: Place, span: Span, read: Read, newest: Mapping[str, list[tuple[int, int]]]) -> None:
        there = {offset for offset, _ in span.rows()}
        for key, offsets in newest.items():
            at = bisect_left(offsets, (span.stop, 0))
            overtaken = any(begun_ns <= read.ended_ns for _, begun_ns in offsets[at:])
            if at == 0 or overtaken:
                continue
            last = offsets[at - 1][0]
            text = f"{place}: key {key} was last at {last}, but {read.reader} did not find that row in [0, {span.stop})"
            self._is("newest row of each key", last in there, text)

    # -- groups -------------------------------------------------------------------------------------------------------

    def _groups(self) -> None:
        """A group skips no row, commits only rows that it has read, and reaches the end."""
        for group, topics in self._world.groups.items():
            events: list[tuple[int, int, Read | Operation]] = [
                (read.ended_ns, place, read) for place, read in enumerate(self._reads) if read.group == group
            ]
            events += [
                (operation.invoked_ns, operation.act.number, operation)
                for operation in self._operations.values()
                if operation.act.kind == "offsets"
            ]
            consumed: dict[Place, int] = defaultdict(int)
            for _, _, event in sorted(events, key=lambda event: event[:2]):
                if isinstance(event, Read):
                    for span in event.spans:
                        place = Place(span.topic, span.partition)
                        text = f"group {group} read {place} from {span.start}, but had come to {consumed[place]} only"
                        self._is("consumed at least once", span.start <= consumed[place], text)
                        consumed[place] = max(consumed[place], span.stop)
                else:
                    for place, offset in _committed(event, group):
                        text = f"group {group} committed {offset} in {place}, but has read up to {consumed[place]}"
                        self._is("commits of what was read", offset <= consumed[place], text)
            for place, span in self._final.items():
                if place.topic in topics:
                    text = f"group {group} has read {place} up to {consumed[place]}, which ends at {span.stop}"
                    self._is("consumed at least once", consumed[place] >= span.stop, text)

    def _group_positions(self) -> None:
        """The offsets of a group are ones that were committed, and never decrease."""
        moments: dict[tuple[str, Place], list[tuple[int, int, int, bool]]] = defaultdict(list)
        tried: dict[tuple[str, Place], set[int]] = defaultdict(set)
        for operation in self._operations.values():
            for name, offset in operation.act.offsets.items():
                group, topic, partition = name.split("/")
                where = (group, Place(topic, int(partition)))
                tried[where].add(offset)
                if operation.ok_ns is not None:
                    moments[where].append((operation.invoked_ns, operation.ok_ns, offset, False))
        for positions in self._positions:
            for number, offset in positions.offsets.items() if positions.group else ():
                where = (positions.group, Place(positions.topic, number))
                text = f"group {positions.group} is at {offset} in {where[1]}, which was never committed"
                self._is("group positions", offset in tried[where], text)
                moments[where].append((positions.began_ns, positions.ended_ns, offset, True))
        for (group, place), entries in moments.items():
            ended = sorted(entries, key=lambda entry: entry[1])
            done, highest = 0, -1
            for began_ns, _, offset, looked in sorted(entries):
                while done < len(ended) and ended[done][1] < began_ns:
                    highest = max(highest, ended[done][2])
                    done += 1
                text = (
                    f"group {group} {'is' if looked else 'was put'} at {offset} in {place}, after it was at {highest}"
                )
                self._is("group positions", offset >= highest, text)

    def _copies(self) -> None:
        """A program that appends rows and commits its position in one transaction has copied each row once."""
        chains: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for operation in self._operations.values():
            done = operation.answers or any(row in self._offset_of for row in operation.act.ids)
            for place, start in operation.act.starts.items() if done else ():
                chains[place].append((start, operation.act.offsets[place], operation.act.number))
        for place, links in chains.items():
            end = 0
            for start, stop, number in sorted(links):
                text = f"{place}: act {number} copied [{start}, {stop}), after what was copied up to {end}"
                self._is("copied exactly once", start == end, text)
                end = stop

    # -- what is left -------------------------------------------------------------------------------------------------

    def _final_rows(self) -> None:
        """Each row that was acknowledged or read exists at the end, unless retention has deleted it."""
        present = {row for span in self._final.values() for row in span.ids}
        for place, rows in (*self._claims.items(), *self._rows.items()):
            final = self._final.get(place)
            end = 0 if final is None else final.stop
            for offset in rows:
                text = f"{place}: offset {offset} was acknowledged or seen, but the partition ends at {end}"
                self._is("no lost row", offset < end, text)
        for operation in self._operations.values():
            if not operation.answers:
                continue
            for topic in {part.topic for part in operation.act.parts}:
                if self._world.is_compact(topic):
                    continue
                left = sum(
                    1
                    for place, offset in self._places_of(operation)
                    if place.topic == topic and place in self._final and offset >= self._final[place].start
                )
                there = sum(1 for row in operation.ids_of(topic) if row in present)
                text = f"{topic}: {operation} has {there} rows left of {left} that retention did not take"
                self._is("no lost row", there == left, text)
        for place, rows in self._rows.items():
            if not self._world.is_compact(place.topic) and place in self._final:
                gone = [
                    offset for offset, row in rows.items() if offset >= self._final[place].start and row not in present
                ]
                self._is("no lost row", not gone, f"{place}: rows at {gone} were seen and are gone")

    def _final_transactions(self) -> None:
        """In topics without retention, all rows of a transaction exist, or none."""
        present = {row for span in self._final.values() for row in span.ids}
        for operation in self._operations.values():
            if operation.act.kind == "transaction":
                kept = [row for part in operation.act.parts if self._world.keeps_all(part.topic) for row in part.ids]
                there = [row for row in kept if row in present]
                seen = any(row in self._offset_of for row in operation.act.ids)
                text = f"{operation} was seen, and of its rows {kept} there are {there}"
                self._is("atomic transactions", len(there) == (len(kept) if seen else 0), text)
            elif operation.status == "unknown":
                for part in operation.act.parts:
                    if self._world.keeps_all(part.topic) and "key" not in self._world.topics[part.topic]:
                        there = [row for row in part.ids if row in present]
                        text = f"{operation} is there in part: {there}"
                        self._is("whole appends", len(there) in (0, len(part.ids)), text)


def _committed(operation: Operation, group: str) -> Iterator[tuple[Place, int]]:
    for name, offset in operation.act.offsets.items():
        of, topic, partition = name.split("/")
        if of == group:
            yield Place(topic, int(partition)), offset

"""Checks of a log after a crash, by the next process that opens it. Each check returns the violations as text."""

from __future__ import annotations

import traceback
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from headwater.errors import HeadwaterError, NotFound
from headwater.log.embedded import EmbeddedLog, repair
from headwater.log.errors import OffsetExpired
from tests.crash.journal import IDS_PER_ACT, Act, Journal, Outcome, Story
from tests.crash.scenarios import KEEP_SECONDS, Scenario
from tests.crash.workload import retry_unacknowledged

#: Findings of `repair` that are allowed after a crash. Any other is a loss.
HARMLESS = {"half-made topic", "leftover of a rewrite", "torn end", "unused segment"}


@dataclass
class Verdict:
    """How much was checked, and the violations."""

    acknowledged: int = 0
    seen: int = 0
    lost: int = 0
    doubled: int = 0
    reused: int = 0
    wrong: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Place:
    """The place of a row."""

    partition: int
    offset: int


@dataclass
class Found:
    """All rows of a topic, by id and by place."""

    ids: dict[int, list[Place]]
    places: dict[Place, int]
    keys: dict[str, int | None]
    starts: Mapping[int, int]
    ends: Mapping[int, int]


def look(log: EmbeddedLog, topic: str, *, archived: bool) -> Found:
    """Read a whole topic; again from the new start if retention has deleted rows meanwhile."""
    while True:
        starts = log.start_offsets(topic)
        with suppress(OffsetExpired):
            found = _look(log, topic, archived=archived)
            if found.starts == starts:
                return found


def _look(log: EmbeddedLog, topic: str, *, archived: bool) -> Found:
    settings = log.topic(topic)
    ids: dict[int, list[Place]] = defaultdict(list)
    places: dict[Place, int] = {}
    keys: dict[str, int | None] = {}
    last: dict[int, int] = {}
    for batch in log.read(topic, archived=archived).batches():
        for row in batch.rows():
            place = Place(row["_partition"], row["_offset"])
            if place.offset <= last.get(place.partition, -1):
                raise AssertionError(f"{topic}: offset {place.offset} comes after {last[place.partition]}")
            last[place.partition] = place.offset
            ids[row["id"]].append(place)
            places[place] = row["id"]
            keys[row["key"]] = None if settings.compact and row["_tombstone"] else row["id"]
    return Found(ids, places, keys, log.start_offsets(topic), log.end_offsets(topic))


class Checker:
    """Compares a log with the journal of its workload."""

    def __init__(self, log: EmbeddedLog, scenario: Scenario, story: Story, *, power_lost: bool) -> None:
        self._log = log
        self._scenario = scenario
        self._story = story
        self._power_lost = power_lost
        self.verdict = Verdict()
        self._found: dict[str, Found] = {}

    def run(self, journal: Journal) -> Verdict:
        """Check the log, retry as a careful program would, check again, and continue to work."""
        self._look_at_everything()
        retry_unacknowledged(self._log, journal, self._story)
        self._resolve_prepared(journal)
        ends = {topic: found.ends for topic, found in self._found.items()}
        self._story = Story.read(journal.path)
        self.verdict = Verdict(wrong=self.verdict.wrong)
        self._look_at_everything()
        for topic, offsets in ends.items():
            for partition, end in offsets.items():
                if self._found[topic].ends[partition] < end:
                    self._wrong(f"{topic}/{partition} ended at {end} and now ends earlier")
        self._goes_on()
        self._is_sound()
        return self.verdict

    def _wrong(self, what: str) -> None:
        self.verdict.wrong.append(what)

    # -- looking ------------------------------------------------------------------------------------------------------

    def _look_at_everything(self) -> None:
        self._found = {
            topic: look(self._log, topic, archived=bool(self._scenario.topics[topic].get("archive")))
            for topic in self._scenario.topics
        }
        for topic in self._scenario.topics:
            self._rows(topic)
            self._order(topic)
            self._contiguous(topic)
            self._retention(topic)
            if self._scenario.topics[topic].get("compact"):
                self._table(topic)
        self._transactions()
        self._sights()
        self._offsets()
        self._topics()

    def _volatile(self, topic: str) -> bool:
        """Whether a power cut may take rows of this topic."""
        return self._power_lost and self._scenario.topics[topic].get("durability") == "os"

    def _may_lose(self, topic: str, outcome: Outcome) -> bool:
        settings = self._scenario.topics[topic]
        if self._volatile(topic) or settings.get("compact"):
            return True
        if settings.get("archive") or "retention" not in settings:
            return False
        if "seconds" in settings["retention"]:
            return outcome.at_us + KEEP_SECONDS * 1e6 < max(self._story.now_us, self._log.clock.now_us())
        return True  # by bytes: see `_retention`

    def _rows(self, topic: str) -> None:
        """Each acknowledged row once, each other row at most once, each where its acknowledgement said."""
        found = self._found[topic]
        for outcome in self._story.outcomes.values():
            for part in outcome.act.parts:
                if part.topic != topic:
                    continue
                for row in part.ids:
                    places = found.ids.get(row, [])
                    if len(places) > 1:
                        self.verdict.doubled += 1
                        self._wrong(f"{topic}: row {row} is there {len(places)} times: {places}")
                    if outcome.acknowledged:
                        self.verdict.acknowledged += 1
                        if not places and not self._may_lose(topic, outcome):
                            self.verdict.lost += 1
                            self._wrong(f"{topic}: acknowledged row {row} of act {outcome.act} is gone")
                if outcome.acknowledged:
                    self._ranges(topic, outcome)
        known = {row for one in self._story.outcomes.values() for row in one.act.ids}
        for row in set(found.ids) - known:
            if row >= 0:
                self._wrong(f"{topic}: row {row} was never written")

    def _ranges(self, topic: str, outcome: Outcome) -> None:
        found = self._found[topic]
        mine = set(outcome.act.ids)
        for partition, (start, stop) in outcome.ranges.get(topic, {}).items():
            for offset in range(start, stop):
                there = found.places.get(Place(int(partition), offset))
                if there is not None and there not in mine and not self._volatile(topic):
                    self.verdict.reused += 1
                    self._wrong(f"{topic}/{partition}: offset {offset} was acknowledged for {mine}, but holds {there}")

    def _order(self, topic: str) -> None:
        """Rows of one writer are in the order in which it wrote them."""
        writers = {one.act.number: one.act.writer for one in self._story.outcomes.values()}
        prepared = {one.act.number for one in self._story.outcomes.values() if one.prepared}
        last: dict[tuple[int, str], int] = {}
        for place, row in self._found[topic].places.items():
            number = row // IDS_PER_ACT
            if row < 0 or number in prepared:
                continue
            writer = (place.partition, writers.get(number, ""))
            if row < last.get(writer, -1):
                self._wrong(f"{topic}/{place.partition}: row {row} of {writer[1]} comes after {last[writer]}")
            last[writer] = row

    def _contiguous(self, topic: str) -> None:
        if self._scenario.topics[topic].get("compact") or self._volatile(topic):
            return
        found = self._found[topic]
        archived = bool(self._scenario.topics[topic].get("archive"))
        for partition, end in found.ends.items():
            offsets = [place.offset for place in found.places if place.partition == partition]
            start = 0 if archived else found.starts[partition]
            if offsets != list(range(start, end)):
                missing = sorted(set(range(start, end)) - set(offsets))
                self._wrong(f"{topic}/{partition}: offsets {missing} are missing from [{start}, {end})")

    def _retention(self, topic: str) -> None:
        settings = self._scenario.topics[topic]
        if "retention" not in settings:
            if any(self._found[topic].starts.values()) and not self._volatile(topic):
                self._wrong(f"{topic} keeps everything, but begins at {self._found[topic].starts}")
        elif "seconds" not in settings["retention"]:
            for info in self._log.describe(topic).partitions:
                if info.offset_start and info.offset_next == info.offset_start and info.segments > 1:
                    self._wrong(f"{topic}: retention by bytes has left nothing in {info}")

    def _table(self, topic: str) -> None:
        """The last row of each key is the last acknowledged one, or one that was tried after it."""
        if self._volatile(topic):
            return
        allowed: dict[str, set[int | None]] = defaultdict(lambda: {None})
        for outcome in sorted(self._story.outcomes.values(), key=self._when_applied):
            there = self._applied(outcome)
            for part in outcome.act.parts:
                if part.topic == topic:
                    for row, key, dead in zip(part.ids, part.keys, part.dead, strict=True):
                        value = None if dead else row
                        if there is True:
                            allowed[key] = {value}
                        elif there is None:
                            allowed[key].add(value)
        table = self._found[topic].keys
        for key, values in allowed.items():
            if table.get(key) not in values:
                self.verdict.lost += 1
                self._wrong(f"{topic}: key {key} is {table.get(key)}, expected one of {values}")

    @staticmethod
    def _when_applied(outcome: Outcome) -> tuple[int, int]:
        # A transaction that was left prepared takes effect when the checker commits it, behind everything else.
        return (1 if outcome.resolved == "late" else 0, outcome.act.number)

    def _applied(self, outcome: Outcome) -> bool | None:
        """Whether an act must be there (True), must not (False), or may be (None)."""
        if outcome.acknowledged:
            return True
        if outcome.resolving == "rollback" or (outcome.prepared and not outcome.resolving):
            return False
        return None

    def _transactions(self) -> None:
        """All rows of a transaction are there, or none; and none where it was rolled back or only prepared."""
        for outcome in self._story.outcomes.values():
            if outcome.act.kind != "transaction":
                continue
            there: dict[int, bool] = {}
            for part in outcome.act.parts:
                settings = self._scenario.topics[part.topic]
                if self._volatile(part.topic) or settings.get("compact") or self._expired(part.topic, outcome):
                    continue
                there |= {row: row in self._found[part.topic].ids for row in part.ids}
            if len(set(there.values())) > 1:
                self._wrong(f"transaction {outcome.act.number} is there in part: {there} ({outcome})")
            if self._applied(outcome) is False and any(there.values()):
                self._wrong(f"transaction {outcome.act.number} was not committed, but shows: {outcome}")

    def _expired(self, topic: str, outcome: Outcome) -> bool:
        return "retention" in self._scenario.topics[topic] and self._may_lose(topic, outcome)

    # -- what readers saw ---------------------------------------------------------------------------------------------

    def _sights(self) -> None:
        """Every row that a reader saw is still there, and no reader ever saw a transaction in part."""
        for sight in self._story.sights:
            topic = sight["topic"]
            if self._volatile(topic):
                continue
            found = self._found[topic]
            for partition, offset, row in sight["rows"]:
                self.verdict.seen += 1
                there = found.places.get(Place(partition, offset))
                if offset >= found.ends[partition] or (there is not None and there != row):
                    self.verdict.reused += 1
                    self._wrong(f"{topic}/{partition}: {sight['reader']} saw row {row} at {offset}, now it is {there}")
                elif there is None and not self._gone_by_right(topic, found, Place(partition, offset)):
                    self.verdict.lost += 1
                    self._wrong(f"{topic}/{partition}: {sight['reader']} saw row {row} at {offset}, now it is gone")
        self._partial_sights()

    def _gone_by_right(self, topic: str, found: Found, place: Place) -> bool:
        settings = self._scenario.topics[topic]
        if settings.get("compact"):
            return True
        return "retention" in settings and not settings.get("archive") and place.offset < found.starts[place.partition]

    def _partial_sights(self) -> None:
        order = list(self._scenario.topics)
        transactions = {
            one.act.number: one.act for one in self._story.outcomes.values() if one.act.kind == "transaction"
        }
        seen: dict[str, set[int]] = defaultdict(set)
        turns: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        for sight in self._story.sights:
            turns[sight["reader"], sight["turn"]].append(sight)
        for (reader, turn), sights in turns.items():
            new: dict[int, set[int]] = defaultdict(set)
            for sight in sights:
                for _, _, row in sight["rows"]:
                    seen[reader].add(row)
                    if row // IDS_PER_ACT in transactions:
                        new[row // IDS_PER_ACT].add(order.index(sight["topic"]))
            if (reader, turn) not in self._story.turns:
                continue  # killed in the middle of its turn
            for number, topics in new.items():
                for part in self._later_parts(transactions[number], order, min(topics)):
                    missing = set(part.ids) - seen[reader]
                    if missing:
                        self._wrong(f"{reader} saw a part of transaction {number}, but not {missing} of {part.topic}")

    def _later_parts(self, act: Act, order: list[str], first: int) -> Iterator[Any]:
        for part in act.parts:
            settings = self._scenario.topics[part.topic]
            if settings.get("compact") or "retention" in settings or self._volatile(part.topic):
                continue
            if order.index(part.topic) >= first:
                yield part

    # -- groups and topics --------------------------------------------------------------------------------------------

    def _offsets(self) -> None:
        """The offsets of a group are those of its last acknowledged commit, or of a later attempt."""
        allowed: dict[str, set[int | None]] = defaultdict(lambda: {None})
        for outcome in sorted(self._story.outcomes.values(), key=self._when_applied):
            there = self._applied(outcome)
            for place, offset in outcome.act.offsets.items():
                if there is True:
                    allowed[place] = {offset}
                elif there is None:
                    allowed[place].add(offset)
        for place, offsets in allowed.items():
            group, topic, partition = place.split("/")
            committed = self._log.committed(group, topic).get(int(partition))
            if committed not in offsets:
                self.verdict.lost += 1
                self._wrong(f"group {group} stands at {committed} in {topic}/{partition}, expected one of {offsets}")

    def _topics(self) -> None:
        there = set(self._log.topics())
        made: dict[str, Outcome] = {}
        deleted: dict[str, Outcome] = {}
        for outcome in self._story.outcomes.values():
            if outcome.act.kind in ("create", "delete"):
                (made if outcome.act.kind == "create" else deleted)[outcome.act.topic] = outcome
        for topic, outcome in made.items():
            if topic in deleted:
                if deleted[topic].acknowledged and topic in there:
                    self._wrong(f"topic {topic} was deleted, but is there")
            elif outcome.acknowledged and topic not in there:
                self.verdict.lost += 1
                self._wrong(f"topic {topic} was created, but is gone")
        for topic in there & set(made):
            # A topic that is marked as deleted but not renamed is listed until a process opens it.
            with suppress(NotFound) if topic in deleted else nullcontext():
                self._made_topic(topic)

    def _made_topic(self, topic: str) -> None:
        rows = [row["id"] for row in self._log.read(topic).rows()]
        if len(rows) != len(set(rows)):
            self.verdict.doubled += 1
            self._wrong(f"topic {topic} holds rows twice: {rows}")
        for outcome in self._story.outcomes.values():
            if outcome.acknowledged and any(part.topic == topic for part in outcome.act.parts):
                self.verdict.acknowledged += len(outcome.act.ids)
                missing = set(outcome.act.ids) - set(rows)
                if missing:
                    self.verdict.lost += len(missing)
                    self._wrong(f"topic {topic} has lost {missing}")

    # -- going on -----------------------------------------------------------------------------------------------------

    def _resolve_prepared(self, journal: Journal) -> None:
        """Prepared transactions still exist, and can be committed or rolled back."""
        waiting = set(self._log.prepared())
        for outcome in self._story.outcomes.values():
            if not outcome.prepared or outcome.resolving:
                continue
            if outcome.prepared not in waiting:
                self._wrong(f"prepared transaction {outcome.act.number} is forgotten")
                continue
            if outcome.act.number % 2:
                journal.tell("resolving", number=outcome.act.number, value="rollback")
                self._log.rollback(outcome.prepared)
                journal.tell("resolved", number=outcome.act.number, value="rollback")
                continue
            journal.tell("resolving", number=outcome.act.number, value="commit")
            done = self._log.commit(outcome.prepared)
            journal.acknowledged(outcome.act, {topic: one.ranges for topic, one in done.items()})
            journal.tell("resolved", number=outcome.act.number, value="late")
        left = set(self._log.prepared())
        known = {one.prepared for one in self._story.outcomes.values()}
        unsaid = sum(1 for one in self._story.outcomes.values() if one.act.kind == "transaction" and not one.prepared)
        if left & known or len(left) > unsaid:
            self._wrong(f"prepared transactions are left: {left}")

    def _goes_on(self) -> None:
        """New rows are appended behind all others, and can be read."""
        for number, topic in enumerate(self._scenario.topics):
            ends = self._log.end_offsets(topic)
            for partition in ends:
                row = -1 - number * 100 - partition
                if "key" in self._scenario.topics[topic]:
                    done = self._log.append(topic, [{"id": row, "writer": "z", "key": f"z{row}", "pad": ""}])
                else:
                    done = self._log.append(
                        topic, [{"id": row, "writer": "z", "key": "z", "pad": ""}], partition=partition
                    )
                ((where, (start, stop)),) = done.ranges.items()
                if start < ends[where] or stop != start + 1:
                    self.verdict.reused += 1
                    self._wrong(f"{topic}/{where} ended at {ends[where]}, but a new row went to {start}")
                ends[where] = stop
                rows = self._log.read(topic, start={where: start}, partitions=[where]).rows()
                if [one["id"] for one in rows] != [row]:
                    self._wrong(f"{topic}/{where}: the new row {row} at {start} is read as {rows}")

    def _is_sound(self) -> None:
        for finding in repair.repair(self._log).findings:
            if finding.kind not in HARMLESS and not self._is_known_loss(finding):
                self._wrong(f"repair found {finding}")
        for finding in repair.verify(self._log).findings:
            if not self._is_known_loss(finding):
                self._wrong(f"verify found {finding}")

    def _is_known_loss(self, finding: repair.Finding) -> bool:
        """Rows of a topic without durability that a power cut has lost stay lost."""
        return finding.kind == "missing rows" and self._volatile(finding.topic)


def check(log: EmbeddedLog, scenario: Scenario, journal: Journal, *, power_lost: bool) -> Verdict:
    """Run all checks; an error of the log is a violation like any other."""
    checker = Checker(log, scenario, Story.read(journal.path), power_lost=power_lost)
    try:
        return checker.run(journal)
    except (HeadwaterError, AssertionError, OSError, ValueError, KeyError) as error:
        checker.verdict.wrong.append("".join(traceback.format_exception(error)))
        return checker.verdict

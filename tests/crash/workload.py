"""A seeded workload: writers that record acts and their acknowledgements, and a reader that records its rows."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwater.clock import ManualClock
from headwater.errors import NotFound
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open
from headwater.log.errors import KeyConflict, OffsetConflict, OffsetExpired
from tests.crash.journal import IDS_PER_ACT, Act, Journal, Outcome, Part, Story
from tests.crash.scenarios import Scenario

SCHEMA = {"id": "int64", "writer": "string", "key": "string", "pad": "string"}
KEYS = tuple(f"k{number}" for number in range(6))
GROUPS = ("g", "h")
#: In place of a topic's name: the rows of this transaction are staged first.
STAGED = "(staged)"
CLOCK_START_US = 1_700_000_000_000_000


def open_log(folder: Path, story: Story) -> EmbeddedLog:
    """The log with a clock that continues from the time in the journal."""
    return open(folder, clock=ManualClock(start_us=max(CLOCK_START_US, story.now_us + 1_000)))


def work(folder: Path, journal_path: Path, scenario: Scenario, *, seed: int) -> None:
    """Run the workload to its end; the crash test ends it earlier."""
    journal = Journal(journal_path)
    story = Story.read(journal_path)
    log = open_log(folder, story)
    numbers = Numbers(story.number_next)
    make_topics(log, scenario)
    retry_unacknowledged(log, journal, story)
    stop = threading.Event()
    reader = Watcher(log, journal, scenario, name=f"reader{story.number_next}")
    watching = threading.Thread(target=reader.run, args=(stop,))
    watching.start()
    writers = [
        Writer(log, journal, scenario, numbers, name=f"w{place}", seed=seed * 100 + place, story=story)
        for place in range(scenario.writers)
    ]
    threads = [threading.Thread(target=writer.run) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    watching.join()
    reader.look()
    errors = [*reader.errors, *(error for writer in writers for error in writer.errors)]
    if errors:
        raise errors[0]


def join_in(folder: Path, journal_path: Path, scenario: Scenario, *, place: int, first: int, seed: int) -> None:
    """The short work of one of several processes that start at the same time; its acts are numbered from `first`."""
    journal = Journal(journal_path)
    story = Story.read(journal_path)
    log = open_log(folder, story)
    make_topics(log, scenario)
    watcher = Watcher(log, journal, scenario, name=f"visitor{place}")
    watcher.look()
    visit = replace(scenario, count=3)
    writer = Writer(log, journal, visit, Numbers(first), name=f"v{place}", seed=seed * 100 + 50 + place, story=story)
    writer.run()
    watcher.look()
    for error in [*writer.errors, *watcher.errors]:
        raise error


def make_topics(log: EmbeddedLog, scenario: Scenario) -> None:
    for name, settings in scenario.topics.items():
        log.create(name, SCHEMA, exist_ok=True, **settings)


class Numbers:
    """Hands out act numbers to all writers."""

    def __init__(self, start: int) -> None:
        self._next = start
        self._lock = threading.Lock()

    def take(self) -> int:
        with self._lock:
            self._next += 1
            return self._next - 1


class Writer:
    """One thread that does acts, one after the other."""

    def __init__(
        self,
        log: EmbeddedLog,
        journal: Journal,
        scenario: Scenario,
        numbers: Numbers,
        *,
        name: str,
        seed: int,
        story: Story,
    ) -> None:
        self._log = log
        self._journal = journal
        self._scenario = scenario
        self._numbers = numbers
        self._name = name
        self._random = random.Random(seed)
        self._made: list[str] = []
        self._positions: dict[str, int] = _positions_of(story, name)
        self.errors: list[BaseException] = []

    def run(self) -> None:
        try:
            for producer in (self._name, f"{self._name}.t"):
                self._log.open_producer(producer)
            kinds = list(self._scenario.acts)
            weights = list(self._scenario.acts.values())
            for _ in range(self._scenario.count):
                self._do(self._random.choices(kinds, weights)[0])
        except BaseException as error:
            self.errors.append(error)

    def _do(self, kind: str) -> None:
        match kind:
            case "append" | "wide" | "flush":
                act = self._act("append", parts=[self._part(rows=25 if kind == "wide" else None)])
                self._try(act, lambda: append(self._log, act, durable=kind != "flush"))
            case "idempotent":
                act = self._act("append", parts=[self._part()], numbered=True, producer=self._name)
                self._try(act, lambda: append(self._log, act))
            case "transaction" | "numbered":
                act = self._transaction(numbered=kind == "numbered")
                if self._random.random() < 0.15:
                    self._rolled_back(act)
                else:
                    self._try(act, lambda: commit(self._log, act))
            case "staged":
                act = self._transaction(numbered=True, staged=True)
                self._try(act, lambda: commit(self._log, act))
            case "prepare":
                self._prepare(self._transaction(numbered=self._random.random() < 0.5))
            case "offsets":
                act = self._act("offsets", offsets=self._offsets())
                self._try(act, lambda: commit_offsets(self._log, act))
            case "create":
                act = self._act("create", topic=f"new-{self._name}-{self._random.getrandbits(30)}")
                self._try(act, lambda: create(self._log, act))
                self._made.append(act.topic)
            case "delete" if self._made:
                act = self._act("delete", topic=self._made.pop(self._random.randrange(len(self._made))))
                self._try(act, lambda: delete(self._log, act))
            case "new append" if self._made:
                act = self._act("append", parts=[self._part(topic=self._random.choice(self._made))])
                self._try(act, lambda: append(self._log, act))
            case "maintain":
                self._log.maintain(self._random.choice(list(self._scenario.topics)), seal=self._random.random() < 0.5)
            case "maintain offsets":
                if self._log.topics("__offsets", internal=True):
                    self._log.maintain("__offsets", seal=True)
            case "advance":
                self._advance(seconds=self._random.choice((1.0, 20.0, 60.0)))
            case "punctuate":
                self._log.punctuate(self._random.choice(list(self._scenario.topics)), self._log.clock.now_us())

    def _advance(self, *, seconds: float) -> None:
        clock = self._log.clock
        assert isinstance(clock, ManualClock)
        # Recorded before it is done: the checks must never assume an earlier time than the log had.
        self._journal.tell("clock", at_us=clock.now_us() + round((seconds + 1) * 1e6))
        clock.advance(seconds=seconds)

    def _try(self, act: Act, do: Any) -> None:
        self._journal.tried(act, at_us=self._log.clock.now_us())
        attempt(self._journal, act, do)

    def _rolled_back(self, act: Act) -> None:
        self._journal.tried(act, at_us=self._log.clock.now_us())
        self._journal.tell("resolving", number=act.number, value="rollback")
        build(self._log, act).rollback()
        self._journal.tell("resolved", number=act.number, value="rollback")

    def _prepare(self, act: Act) -> None:
        self._journal.tried(act, at_us=self._log.clock.now_us())
        transaction = build(self._log, act)
        self._journal.tell("prepared", number=act.number, value=transaction.prepare())
        decision = self._random.choice(("commit", "commit", "rollback", "leave"))
        if decision == "leave":
            return
        self._journal.tell("resolving", number=act.number, value=decision)
        if decision == "commit":
            done = transaction.commit() if self._random.random() < 0.5 else self._log.commit(transaction.id)
            self._journal.acknowledged(act, {topic: one.ranges for topic, one in done.items()})
        else:
            transaction.rollback()
        self._journal.tell("resolved", number=act.number, value=decision)

    def _act(self, kind: str, *, numbered: bool = False, producer: str | None = None, **facts: Any) -> Act:
        number = self._numbers.take()
        parts = [part(number) for part in facts.pop("parts", [])]
        return Act(
            number=number,
            kind=kind,
            writer=self._name,
            producer=producer if numbered else None,
            sequence=number if numbered else None,
            parts=_numbered(parts, number),
            **facts,
        )

    def _transaction(self, *, numbered: bool, staged: bool = False) -> Act:
        topics = self._random.sample(list(self._scenario.topics), k=min(3, len(self._scenario.topics)))
        parts = [self._part(topic=topic) for topic in topics]
        if self._random.random() < 0.3:
            parts.append(self._part(topic=topics[0]))
        offsets = self._offsets() if self._random.random() < 0.4 and not staged else {}
        return self._act(
            "transaction",
            parts=parts,
            numbered=numbered,
            producer=f"{self._name}.t",
            offsets=offsets,
            topic=STAGED if staged else "",
        )

    def _part(self, *, topic: str | None = None, rows: int | None = None) -> Any:
        name = topic or self._random.choice(list(self._scenario.topics))
        settings = self._scenario.topics.get(name, {})
        count = rows or self._random.choice((1, 1, 2, 3, 6))
        keys = [self._random.choice(KEYS) + self._name for _ in range(count)]
        partitions = settings.get("partitions", 1)
        partition = None if self._random.random() < 0.3 or "key" in settings else self._random.randrange(partitions)
        dead = [bool(settings.get("compact")) and self._random.random() < 0.2 for _ in range(count)]
        return lambda number: Part(topic=name, partition=partition, ids=[number] * count, keys=keys, dead=dead)

    def _offsets(self) -> dict[str, int]:
        group = self._random.choice(GROUPS)
        place = f"{group}-{self._name}/{next(iter(self._scenario.topics))}/0"
        self._positions[place] = self._positions.get(place, 0) + 1
        return {place: self._positions[place]}


def _numbered(parts: list[Part], number: int) -> list[Part]:
    """Give every row of an act an id of its own."""
    ids = iter(range(number * IDS_PER_ACT, (number + 1) * IDS_PER_ACT))
    return [
        Part(
            topic=part.topic,
            partition=part.partition,
            ids=[next(ids) for _ in part.ids],
            keys=part.keys,
            dead=part.dead,
        )
        for part in parts
    ]


def _positions_of(story: Story, writer: str) -> dict[str, int]:
    positions: dict[str, int] = {}
    for outcome in story.outcomes.values():
        for place, offset in outcome.act.offsets.items():
            if outcome.act.writer == writer:
                positions[place] = max(positions.get(place, 0), offset)
    return positions


def rows_of(part: Part, writer: str) -> list[dict[str, Any]]:
    return [
        {"id": row, "writer": writer, "key": key, "pad": "p" * (row * 7 % 60), **({"_tombstone": True} if dead else {})}
        for row, key, dead in zip(part.ids, part.keys, part.dead, strict=True)
    ]


# -- the acts, each also used to try again after a crash --------------------------------------------------------------

Ranges = dict[str, dict[int, tuple[int, int]]]


def attempt(journal: Journal, act: Act, do: Callable[[], Ranges]) -> None:
    """Do an act and record its answer; a conditional one may be refused."""
    try:
        ranges = do()
    except (OffsetConflict, KeyConflict) as error:
        journal.refused(act, actual=error.actual)
    else:
        journal.acknowledged(act, ranges)


def append(log: EmbeddedLog, act: Act, *, durable: bool = True) -> Ranges:
    (part,) = act.parts
    done = log.append(
        part.topic,
        rows_of(part, act.writer),
        partition=part.partition,
        producer=act.producer,
        sequence=act.sequence,
        durable=durable,
        expected_offset=act.expected_offset,
        expected_key_offset=act.expected_key_offset,
    )
    if not durable:
        log.flush(part.topic)
    return {part.topic: done.ranges}


def build(log: EmbeddedLog, act: Act) -> Any:
    transaction = log.transaction(act.producer, sequence=act.sequence)
    for part in act.parts:
        transaction.append(part.topic, rows_of(part, act.writer), partition=part.partition)
    for place, offset in act.offsets.items():
        group, topic, partition = place.split("/")
        transaction.commit_offsets(group, topic, {int(partition): offset})
    return transaction


def commit(log: EmbeddedLog, act: Act) -> Ranges:
    if act.topic == STAGED:
        return {topic: done.ranges for topic, done in commit_staged(log, act).items()}
    return {topic: done.ranges for topic, done in build(log, act).commit().items()}


def commit_staged(log: EmbeddedLog, act: Act) -> dict[str, Any]:
    """Write the rows to a staged file, and commit it in one transaction."""
    assert act.producer is not None
    assert act.sequence is not None
    with log.stage(act.producer, sequence=act.sequence, attempt=uuid.uuid4().hex) as stage:
        for part in act.parts:
            stage.append(part.topic, rows_of(part, act.writer))
        staged = stage.finish()
    return dict(log.commit_staged([staged], producer=act.producer, sequence=act.sequence))


def commit_offsets(log: EmbeddedLog, act: Act) -> Ranges:
    for place, offset in act.offsets.items():
        group, topic, partition = place.split("/")
        log.commit_offsets(group, topic, {int(partition): offset})
    return {}


def create(log: EmbeddedLog, act: Act) -> Ranges:
    log.create(act.topic, SCHEMA)
    return {}


def delete(log: EmbeddedLog, act: Act) -> Ranges:
    log.delete(act.topic)
    return {}


def retry_unacknowledged(log: EmbeddedLog, journal: Journal, story: Story) -> None:
    """Retry every act that may not have happened, as a careful program does after a restart."""
    for outcome in story.outcomes.values():
        act = outcome.act
        if outcome.prepared and outcome.resolving and not outcome.resolved:
            _resolve_again(log, journal, outcome)
        decided = outcome.acknowledged or outcome.refused or outcome.resolving or outcome.prepared
        if decided or act.sequence is None:
            continue
        attempt(journal, act, lambda act=act: append(log, act) if act.kind == "append" else commit(log, act))  # type: ignore[misc]


def _resolve_again(log: EmbeddedLog, journal: Journal, outcome: Outcome) -> None:
    if outcome.resolving == "commit":
        done = log.commit(outcome.prepared)
        journal.acknowledged(outcome.act, {topic: one.ranges for topic, one in done.items()})
    elif outcome.prepared in log.prepared():
        log.rollback(outcome.prepared)
    journal.tell("resolved", number=outcome.act.number, value=outcome.resolving)


class Watcher:
    """Reads all topics repeatedly, and records every row with its place."""

    def __init__(self, log: EmbeddedLog, journal: Journal, scenario: Scenario, *, name: str) -> None:
        self._log = log
        self._journal = journal
        self._topics = list(scenario.topics)
        self._name = name
        self._next: dict[str, dict[int, int]] = {}
        self._turn = 0
        self.errors: list[BaseException] = []

    def run(self, stop: threading.Event) -> None:
        try:
            while not stop.wait(0.002):
                self.look()
        except BaseException as error:
            self.errors.append(error)

    def look(self) -> None:
        """Read all topics once, in one order: a transaction that is visible in one topic must be in all later ones."""
        self._turn += 1
        for topic in self._topics:
            rows = self._read(topic)
            if rows:
                self._journal.saw(self._name, self._turn, topic, rows)
        self._journal.tell("turn", reader=self._name, turn=self._turn)

    def _read(self, topic: str) -> list[tuple[int, int, int]]:
        while True:
            try:
                position = self._next.setdefault(topic, {})
                rows = []
                ends = dict(position)
                for batch in self._log.read(topic, start=position, columns=["id", "_offset"]).batches():
                    for row in batch.rows():
                        rows.append((batch.partition, row["_offset"], row["id"]))
                    ends[batch.partition] = max(ends.get(batch.partition, 0), batch.offset_next)
            except OffsetExpired:
                starts = self._log.start_offsets(topic)
                self._next[topic] = {number: max(start, position.get(number, 0)) for number, start in starts.items()}
            except NotFound:
                return []
            else:
                self._next[topic] = ends
                return rows

"""What each process of a history does until it is killed: it writes, reads and consumes, one thread for each."""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headwater.log import Reader
from headwater.log.embedded import EmbeddedLog, open_folder
from headwater.log.errors import MemberFenced, OffsetExpired
from tests.crash.history.check import World
from tests.crash.history.plant import PLANTS
from tests.crash.journal import Act, Journal, Part, Story
from tests.crash.scenarios import Scenario
from tests.crash.workload import (
    KEYS,
    Numbers,
    Writer,
    append,
    attempt,
    build,
    commit,
    make_topics,
    retry_unacknowledged,
)

ACTS_PER_PROCESS = 10_000_000
COMMITS_FIRST = 1_000_000_000
COMMITS_PER_LIFE = 100_000
CONSUMED = ("orders", "payments")
GROUP = "readers"
SMALL = 6_000
"""Bytes of a segment that some dozen appends fill."""

HISTORY = Scenario(
    name="history",
    topics={
        "orders": {"partitions": 2, "segment_bytes_max": 5 * SMALL},
        "payments": {"segment_bytes_max": 3 * SMALL},
        "keyed": {"partitions": 2, "key": "key", "segment_bytes_max": 5 * SMALL},
        "loose": {"durability": "os", "segment_bytes_max": 3 * SMALL},
        "table": {"key": "key", "compact": True, "segment_bytes_max": SMALL},
        "ring": {"partitions": 2, "segment_bytes_max": SMALL, "retention": f"{5 * SMALL} B"},
        "recent": {"segment_bytes_max": SMALL, "retention": "4 seconds"},
        "copies": {"segment_bytes_max": 3 * SMALL},
        "register": {"segment_bytes_max": 3 * SMALL},
        "accounts": {"partitions": 2, "key": "key", "compact": True, "segment_bytes_max": SMALL},
    },
    acts={
        "append": 4,
        "wide": 1,
        "flush": 1,
        "idempotent": 6,
        "transaction": 3,
        "numbered": 4,
        "staged": 1,
        "prepare": 3,
        "conditional": 6,
        "account": 2,
        "copy": 3,
        "maintain": 1,
        "maintain offsets": 1,
    },
)
WORLD = World(topics=HISTORY.topics, groups={GROUP: CONSUMED})
#: Those that only acts of their own write to.
OWN_TOPICS = ("copies", "register", "accounts")


def journals_of(home: Path, writer: str = "*") -> list[Path]:
    """The journals of a writer's processes, in their order."""
    return sorted(home.glob(f"{writer}-*.jsonl"))


def live(folder: Path, home: Path, *, slot: int, life: int, seed: int, plant: str | None = None) -> None:
    """A process of a history: do again what may not have happened, then work until the end comes from outside."""
    name = f"p{slot}"
    story = Story.read(*journals_of(home, f"{name}.writer"))
    paths = {part: home / f"{name}.{part}-{life:06}.jsonl" for part in ("writer", "reader", "consumer")}
    journal = Journal(paths["writer"])
    first = max(story.number_next, slot * ACTS_PER_PROCESS + 1)
    with _errors_in(journal):
        log = open_folder(folder) if plant is None else PLANTS[plant](folder)
        make_topics(log, HISTORY)
        catch_up(log, journal, story, leave=lambda number: (number + life) % 3 == 0)
        reader = HistoryReader(log, Journal(paths["reader"]), name=f"{name}.{life}", seed=seed + 1)
        numbers = Numbers(COMMITS_FIRST + slot * ACTS_PER_PROCESS * 10 + life * COMMITS_PER_LIFE)
        consumer = HistoryConsumer(log, Journal(paths["consumer"]), numbers, name=f"{name}.{life}")
        for part in (reader, consumer):
            threading.Thread(target=part.run, daemon=True).start()
        HistoryWriter(log, journal, HISTORY, Numbers(first), name=name, seed=seed, story=story).run()


def end(folder: Path, home: Path, *, slots: int) -> None:
    """After the last kill: resolve what is open, and consume what is left."""
    journal = Journal(home / "end.writer-000000.jsonl")
    with _errors_in(journal):
        log = open_folder(folder)
        make_topics(log, HISTORY)
        for slot in range(slots):
            catch_up(log, journal, Story.read(*journals_of(home, f"p{slot}.writer")))
        for transaction in log.prepared():  # their processes died before they could write down that it was prepared
            log.rollback(transaction)
        numbers = Numbers(COMMITS_FIRST - COMMITS_PER_LIFE)
        HistoryConsumer(log, Journal(home / "end.consumer-000000.jsonl"), numbers, name="end").drain()
        log.close()


def look(folder: Path, home: Path) -> None:
    """Read everything, in a process that has never seen the log."""
    journal = Journal(home / "look.reader-000000.jsonl")
    with _errors_in(journal):
        log = open_folder(folder)
        reader = HistoryReader(log, journal, name="look", seed=0)
        reader.positions()
        for topic in HISTORY.topics:
            reader.scan(topic, final=True)
        log.close()


def catch_up(
    log: EmbeddedLog, journal: Journal, story: Story, *, leave: Callable[[int], bool] = lambda _number: False
) -> None:
    """Try again what may not have happened, and resolve what was left prepared; some of that may wait once more."""
    retry_unacknowledged(log, journal, story)
    for number, outcome in story.outcomes.items():
        if not outcome.prepared or outcome.resolving or leave(number):
            continue
        decision = "rollback" if number % 2 else "commit"
        journal.tell("resolving", number=number, value=decision)
        if decision == "commit":
            done = log.commit(outcome.prepared)
            journal.acknowledged(outcome.act, {topic: one.ranges for topic, one in done.items()})
        else:
            log.rollback(outcome.prepared)
        journal.tell("resolved", number=number, value=decision)


class _errors_in:  # noqa: N801  # used like a function
    """Write an error into the journal, where the checker finds it: no operation of a history may fail unforeseen."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self._journal.tell("error", text="".join(traceback.format_exception(error)))


class HistoryWriter(Writer):
    """Does acts one after the other, some of them twice, until it is killed."""

    def run(self) -> None:
        for producer in (self._name, f"{self._name}.t"):
            self._log.open_producer(producer)
        kinds, weights = list(self._scenario.acts), list(self._scenario.acts.values())
        while True:
            self._do(self._random.choices(kinds, weights)[0])

    def _do(self, kind: str) -> None:
        match kind:
            case "conditional":
                self._conditional()
            case "account":
                self._account()
            case "copy":
                self._copy()
            case _:
                super()._do(kind)

    def _try(self, act: Act, do: Any) -> None:
        super()._try(act, do)
        if act.sequence is not None and self._random.random() < 0.15:
            attempt(self._journal, act, do)  # as after an answer that was lost

    def _conditional(self) -> None:
        end = self._log.end_offsets("register")[0]
        if self._random.random() < 0.15:
            end = max(0, end - self._random.randrange(3))
        numbered = self._random.random() < 0.3
        act = self._act(
            "append",
            parts=[self._part(topic="register")],
            numbered=numbered,
            producer=self._name,
            expected_offset=end,
        )
        self._try(act, lambda: append(self._log, act))

    def _account(self) -> None:
        key = self._random.choice(KEYS)
        rows = self._log.read("accounts", columns=["key", "_offset"]).rows()
        last = max((row["_offset"] for row in rows if row["key"] == key), default=-1)
        part = Part(topic="accounts", partition=None, ids=[0, 0], keys=[key, key], dead=[False, False])
        act = self._act("append", parts=[lambda _number: part], expected_key_offset=last)
        self._try(act, lambda: append(self._log, act))

    def _copy(self) -> None:
        """Read on from a group's position, and append a row for each one along with the new position."""
        group, partition = f"copy-{self._name}", self._random.randrange(2)
        start = self._log.committed(group, "orders").get(partition, 0)
        read = self._log.read("orders", start={partition: start}, partitions=[partition], columns=["id"], limit=40)
        count = len(read.rows())
        if count == 0:
            return
        place = f"{group}/orders/{partition}"
        part = Part(topic="copies", partition=None, ids=[0] * count, keys=["c"] * count, dead=[False] * count)
        act = self._act(
            "transaction",
            parts=[lambda _number: part],
            numbered=True,
            producer=f"{self._name}.t",
            starts={place: start},
            offsets={place: start + count},
        )
        self._try(act, lambda: commit(self._log, act))

    def _rolled_back(self, act: Act) -> None:
        # Half of them as a program does it that fails in the middle.
        if self._random.random() < 0.5:
            super()._rolled_back(act)
            return
        self._journal.tried(act, at_us=self._log.clock.now_us())
        self._journal.tell("resolving", number=act.number, value="rollback")
        build(self._log, act)

    def _part(self, *, topic: str | None = None, rows: int | None = None) -> Any:
        name = topic or self._random.choice([name for name in self._scenario.topics if name not in OWN_TOPICS])
        settings = self._scenario.topics[name]
        count = rows or self._random.choice((1, 1, 2, 3, 6))
        keys = [self._random.choice(KEYS) for _ in range(count)]
        partition = None
        if "key" not in settings and self._random.random() < 0.7:
            partition = self._random.randrange(settings.get("partitions", 1))
        dead = [bool(settings.get("compact")) and self._random.random() < 0.2 for _ in range(count)]
        return lambda number: Part(topic=name, partition=partition, ids=[number] * count, keys=keys, dead=dead)

    def _transaction(self, *, numbered: bool, staged: bool = False) -> Act:
        shared = [name for name in self._scenario.topics if name not in OWN_TOPICS]
        topics = self._random.sample(shared, k=self._random.choice((2, 3, 4)))
        return self._act(
            "transaction",
            parts=[self._part(topic=topic) for topic in topics],
            numbered=numbered,
            producer=f"{self._name}.t",
            topic="(staged)" if staged else "",
        )


class HistoryReader:
    """Follows all topics, and looks back now and then."""

    ROWS_BACK = 300

    def __init__(self, log: EmbeddedLog, journal: Journal, *, name: str, seed: int) -> None:
        self._log = log
        self._journal = journal
        self._name = name
        self._random = random.Random(seed)
        self._next: dict[str, dict[int, int]] = {}

    def run(self) -> None:
        with _errors_in(self._journal):
            while True:
                topic = self._random.choice(list(HISTORY.topics))
                chance = self._random.random()
                if chance < 0.8:
                    self.follow(topic)
                elif chance < 0.9:
                    self.look_back(topic)
                elif chance < 0.95:
                    self.scan(self._random.choice(("table", "accounts", "ring")))
                else:
                    self.positions()
                time.sleep(0.002)  # leaves the processor to the writers; nothing depends on it

    def follow(self, topic: str) -> None:
        """Read on up to the end."""
        if topic not in self._next:
            starts, ends = self._log.start_offsets(topic), self._log.end_offsets(topic)
            self._next[topic] = {number: max(starts[number], end - self.ROWS_BACK) for number, end in ends.items()}
        spans = self._read(topic, tail=True, start=self._next[topic])
        self._next[topic] = {number: stop for _, number, _, stop, _, _ in spans} or self._log.start_offsets(topic)

    def look_back(self, topic: str) -> None:
        """Read once more what was read before."""
        starts, ends = self._log.start_offsets(topic), self._log.end_offsets(topic)
        number = self._random.choice(list(ends))
        start = self._random.randint(starts[number], max(starts[number], ends[number]))
        stop = min(ends[number], start + self.ROWS_BACK)
        self._read(topic, tail=False, start={number: start}, stop={number: stop}, partitions=[number])

    def scan(self, topic: str, *, final: bool = False) -> None:
        """Read a topic from its start."""
        self._read(topic, tail=True, final=final)

    def positions(self) -> None:
        """Ask for the starts of topics and the positions of groups."""
        for topic in HISTORY.topics:
            began_ns = time.monotonic_ns()
            starts = self._log.start_offsets(topic)
            self._journal.tell("positions", topic=topic, began_ns=began_ns, offsets=starts, group="")
        for topic in CONSUMED:
            began_ns = time.monotonic_ns()
            offsets = self._log.committed(GROUP, topic)
            self._journal.tell("positions", topic=topic, began_ns=began_ns, offsets=offsets, group=GROUP)

    def _read(self, topic: str, *, tail: bool, final: bool = False, **bounds: Any) -> list[list[Any]]:
        began_ns = time.monotonic_ns()
        try:
            reader = self._log.read(topic, columns=["id", "_offset"], **bounds)
            spans = spans_of(topic, reader.ranges, reader)
        except OffsetExpired:  # retention was quicker
            return []
        self._journal.tell("read", reader=self._name, group="", began_ns=began_ns, tail=tail, final=final, spans=spans)
        return spans


def spans_of(topic: str, ranges: dict[int, tuple[int, int]], reader: Reader) -> list[list[Any]]:
    """Rows with their offsets as a line of a journal has them."""
    rows: dict[int, tuple[list[int], list[int]]] = {number: ([], []) for number in ranges}
    for batch in reader.batches():
        ids, offsets = rows[batch.partition]
        ids += batch.data.column("id").to_pylist()
        offsets += batch.data.column("_offset").to_pylist()
    return [_span(topic, number, *ranges[number], ids, offsets) for number, (ids, offsets) in rows.items()]


def _span(topic: str, number: int, start: int, stop: int, ids: Sequence[int], offsets: Sequence[int]) -> list[Any]:
    dense = list(offsets) == list(range(start, stop))
    return [topic, number, start, stop, ids, None if dense else offsets]


class HistoryConsumer:
    """A member of the one group, which commits what it has written down."""

    def __init__(self, log: EmbeddedLog, journal: Journal, numbers: Numbers, *, name: str) -> None:
        self._log = log
        self._journal = journal
        self._numbers = numbers
        self._name = name

    def run(self) -> None:
        with _errors_in(self._journal), self._consumer() as consumer:
            while True:
                self._step(consumer)

    def drain(self) -> None:
        """Consume up to the end, after the last append."""
        ends = {topic: self._log.end_offsets(topic) for topic in CONSUMED}
        with self._consumer() as consumer:
            while consumer.positions != ends:
                self._step(consumer)

    def _consumer(self) -> Any:
        return self._log.consumer(CONSUMED, GROUP, auto_commit=False, rows_max=60, columns=["id", "_offset"])

    def _step(self, consumer: Any) -> None:
        began_ns = time.monotonic_ns()
        spans = [
            _span(
                batch.topic,
                batch.partition,
                batch.offset,
                batch.offset_next,
                batch.data.column("id").to_pylist(),
                batch.data.column("_offset").to_pylist(),
            )
            for batch in consumer.poll(seconds=0.05)
        ]
        if not spans:
            return
        self._journal.tell(
            "read", reader=self._name, group=GROUP, began_ns=began_ns, tail=False, final=False, spans=spans
        )
        offsets: dict[str, dict[int, int]] = {}
        for topic, number, _, stop, _, _ in spans:
            offsets.setdefault(topic, {})[number] = stop
        act = Act(
            number=self._numbers.take(),
            kind="offsets",
            writer=f"consumer of {self._name}",
            offsets={f"{GROUP}/{topic}/{number}": at for topic, ats in offsets.items() for number, at in ats.items()},
        )
        self._journal.tried(act, at_us=self._log.clock.now_us())
        try:
            consumer.commit(offsets)
        except MemberFenced:
            self._journal.refused(act, actual=-1)
        else:
            self._journal.acknowledged(act)

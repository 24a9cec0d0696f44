"""Redrive of dead letters: append their rows to their topics again, exactly once; and park, which excludes them from it.

One transaction appends the rows and the status of their dead letters, so that a crash leaves both or neither. Processes
that work on the same dead letters at once are ordered by the sequence of the transaction: it is chosen *before* the
statuses are read, and each sequence commits once. The second process finds its sequence used, reads the statuses again,
and selects again. So no lock is held while rows are read or the rate is limited, and a dead process blocks no other.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.errors import ArgumentInvalid, NotFound, UsageError
from headwater.faults import reach
from headwater.log.dead_letters import (
    ATTEMPT_HEADER,
    ATTEMPT_MAX,
    LETTER_HEADER,
    STATUS_TOPIC,
    SUFFIX,
    TOPIC_ID,
    DeadLetter,
    Place,
    Selection,
    State,
    Status,
    Statuses,
    StoredDeadLetter,
    find_dead_letter_topic,
    make_status_topic,
    stored_dead_letters,
)
from headwater.log.errors import RowTooLarge
from headwater.log.port import Log, Offsets
from headwater.log.topic import Topic
from headwater.schema.encodings import json as json_lines

#: Dead letters in one transaction.
LETTERS_MAX = 1_000
_OWN_HEADERS = (ATTEMPT_HEADER, LETTER_HEADER)

# Any: a row of a topic.
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A dead letter whose row its topic does not accept. It stays open."""

    place: Place
    why: str


@dataclass(kw_only=True)
class Outcome:
    """What was done so far, or would be: counts of dead letters by their error."""

    redriven: Counter[str] = field(default_factory=Counter)
    parked: Counter[str] = field(default_factory=Counter)
    unparked: Counter[str] = field(default_factory=Counter)
    refused: list[Refusal] = field(default_factory=list)
    seen: int = 0

    @property
    def changed(self) -> int:
        return self.redriven.total() + self.parked.total() + self.unparked.total()


@dataclass(kw_only=True)
class Choice:
    """A decision about some dead letters: rows to append by topic and partition, and new states (None for open)."""

    rows: dict[tuple[str, int | None], list[Row]] = field(default_factory=dict)
    states: list[tuple[StoredDeadLetter, State | None, str | None]] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)

    def count(self, outcome: Outcome) -> None:
        counters = {"redriven": outcome.redriven, "parked": outcome.parked, None: outcome.unparked}
        for stored, state, _ in self.states:
            counters[state][stored.letter.error] += 1
        outcome.refused += self.refused


Choose = Callable[[Sequence[StoredDeadLetter]], Choice]
OnProgress = Callable[[Outcome], None]


def redrive(
    log: Log,
    topic: str,
    selection: Selection | None = None,
    *,
    to: str | None = None,
    attempts_max: int | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    pause: Callable[[float], None] = time.sleep,
    may_write: Callable[[str], bool] | None = None,
) -> Outcome:
    """Append the rows of open dead letters to their topic again, or to another one, exactly once.

    Dead letters that have failed `attempts_max` times are parked instead. Those written meanwhile are left for the next
    call, so that rows which fail again are not redriven without end. `rate` is in rows per second. The topic of a row is
    stored in its dead letter, and any writer of dead letters could name another topic: `may_write` is called for each,
    and internal topics are refused.

    >>> import tempfile, headwater
    >>> from headwater.log.dead_letters import append_dead_letters
    >>> with tempfile.TemporaryDirectory() as folder, headwater.open(folder) as log:
    ...     _ = log.create("orders")
    ...     letter = DeadLetter(topic="orders", partition=0, offset=0, value=b"{", error="E", message="", at_us=0)
    ...     _ = append_dead_letters(log, "orders", [letter])
    ...     first, second = redrive(log, "orders"), redrive(log, "orders")
    ...     [row["value"] for row in log.read("orders").rows()], first.changed, second.changed
    ([b'{'], 1, 0)
    """
    if to is not None and to.endswith(SUFFIX):
        raise ArgumentInvalid(name="to", value=to, expected="a topic that is read, not one of dead letters")
    if attempts_max is not None and attempts_max < 1:
        raise ArgumentInvalid(name="attempts_max", value=attempts_max, expected="at least 1")
    if rate is not None and not 0 < rate < float("inf"):
        raise ArgumentInvalid(name="rate", value=rate, expected="a number of rows per second, above 0")
    if to is not None:
        log.topic(to)
    source = find_dead_letter_topic(log, topic)
    wanted = replace(selection or Selection(), states=("open",))

    def choose(letters: Sequence[StoredDeadLetter]) -> Choice:
        choice = Choice()
        selected = [one for one in letters if wanted.includes(one)]
        failed = [one for one in selected if attempts_max is not None and one.letter.attempt >= attempts_max]
        choice.states += [(one, "parked", None) for one in failed]
        again = [one for one in selected if attempts_max is None or one.letter.attempt < attempts_max]
        for name in dict.fromkeys(to or one.letter.topic for one in again):
            rows = [one for one in again if (to or one.letter.topic) == name]
            if name.startswith("__") or (may_write is not None and not may_write(name)):
                why = f"You may not append rows to {name!r}. Name another topic with `to`."
                choice.refused += [Refusal(place=one.place, why=why) for one in rows]
                continue
            try:
                target = log.topic(name)
            except NotFound:  # dead letters of a sink may name a query, and a topic may be deleted
                why = f"There is no topic {name!r} to append it to. Name another with `to`."
                choice.refused += [Refusal(place=one.place, why=why) for one in rows]
            else:
                _append_again(log, rows, target, source.name, choice)
        return choice

    started = time.monotonic()

    def progressed(outcome: Outcome) -> None:
        if on_progress is not None:
            on_progress(outcome)
        if rate is not None and not dry_run:
            ahead = started + outcome.redriven.total() / rate - time.monotonic()
            if ahead > 0:
                pause(ahead)

    work = _Work(log, source, choose, letters_max=LETTERS_MAX if rate is None else max(1, int(rate)))
    return work.run(dry_run=dry_run, on_progress=progressed)


def park(
    log: Log, topic: str, selection: Selection | None = None, *, undo: bool = False, dry_run: bool = False
) -> Outcome:
    """Park open dead letters, so that `redrive` skips them; or unpark them (`undo`)."""
    wanted = replace(selection or Selection(), states=("parked" if undo else "open",))

    def choose(letters: Sequence[StoredDeadLetter]) -> Choice:
        states: list[tuple[StoredDeadLetter, State | None, str | None]]
        states = [(one, None if undo else "parked", None) for one in letters if wanted.includes(one)]
        return Choice(states=states)

    work = _Work(log, find_dead_letter_topic(log, topic), choose, letters_max=LETTERS_MAX)
    return work.run(dry_run=dry_run)


class _Work:
    """Reads the dead letters of a topic, and commits a choice for some of them at a time."""

    def __init__(self, log: Log, topic: Topic, choose: Choose, *, letters_max: int) -> None:
        self._log = log
        self._topic = topic
        self._choose = choose
        self._letters_max = min(letters_max, LETTERS_MAX)
        self._statuses = Statuses(log, topic)
        self._producer = f"letters.{topic.id}"
        self._starts: Offsets = log.start_offsets(topic.name)

    def run(self, *, dry_run: bool, on_progress: OnProgress | None = None) -> Outcome:
        outcome = Outcome()
        if not dry_run:
            make_status_topic(self._log)
        for letters in self._pieces():
            choice = self._choose(self._with_status(letters)) if dry_run else self._commit_choice(letters)
            choice.count(outcome)
            outcome.seen += len(letters)
            if on_progress is not None:
                on_progress(outcome)
        return outcome

    def _pieces(self) -> Iterator[list[StoredDeadLetter]]:
        """The dead letters up to the current end, some at a time, without their statuses."""
        stop = self._log.end_offsets(self._topic.name)
        for batch in self._log.read(self._topic.name, stop=stop).batches():
            for start in range(0, batch.data.num_rows, self._letters_max):
                yield stored_dead_letters(batch.data.slice(start, self._letters_max), batch.partition, {})

    def _with_status(self, letters: Sequence[StoredDeadLetter]) -> list[StoredDeadLetter]:
        statuses = self._statuses.now()
        return [replace(one, status=statuses.get(one.place)) for one in letters]

    def _commit_choice(self, letters: Sequence[StoredDeadLetter]) -> Choice:
        while True:
            # In this order: the statuses then include everything that was committed with earlier sequences.
            sequence = self._log.committed_sequence(self._producer) + 1
            choice = self._choose(self._with_status(letters))
            reach("letters.chosen")
            if not choice.states or self._commit(choice, sequence):
                return choice

    def _commit(self, choice: Choice, sequence: int) -> bool:
        """Commit a choice with a sequence; return False if another process has used the sequence."""
        transaction = self._log.transaction(self._producer, sequence=sequence)
        for (topic, partition), rows in choice.rows.items():
            transaction.append(topic, rows, partition=partition)
        now = self._log.clock.now_us()
        changed = [self._row(one.place, state and Status(state, to, now)) for one, state, to in choice.states]
        # Tombstones for dead letters that retention has deleted, whose statuses are no longer needed.
        expired = [place for place in self._statuses.now() if place.offset < self._starts[place.partition]]
        transaction.append(STATUS_TOPIC, [*changed, *(self._row(place, None) for place in expired)])
        reach("letters.before_commit")
        appended = transaction.commit()
        reach("letters.committed")
        return bool(appended) and not any(one.duplicate for one in appended.values())

    def _row(self, place: Place, status: Status | None) -> Row:
        key = {TOPIC_ID: self._topic.id, "partition": place.partition, "offset": place.offset}
        if status is None:
            return {**key, "_tombstone": True}
        return {**key, "state": status.state, "to": status.to, "at": status.at_us}


def _append_again(log: Log, letters: Sequence[StoredDeadLetter], target: Topic, source: str, choice: Choice) -> None:
    """Add the rows of dead letters to a choice, or the reasons why their topic does not accept them."""
    rows: dict[int | None, list[tuple[StoredDeadLetter, Row]]] = {}
    for one in letters:
        letter = one.letter
        try:
            row = original_row(letter, target) | {"_headers": _headers(one, source)}
        except UsageError as error:
            choice.refused.append(Refusal(place=one.place, why=str(error)))
            continue
        # With a key it decides; otherwise the rows go to their original partition, if it exists.
        is_original = target.name == letter.topic and 0 <= letter.partition < target.partitions
        partition = letter.partition if is_original and not target.key else None
        rows.setdefault(partition, []).append((one, row))
    for partition, pairs in rows.items():
        accepted = _accepted(log, target.name, partition, pairs, choice)
        if accepted:
            choice.rows[target.name, partition] = [row for _, row in accepted]
            choice.states += [(one, "redriven", target.name) for one, _ in accepted]


def _accepted(
    log: Log, topic: str, partition: int | None, pairs: list[tuple[StoredDeadLetter, Row]], choice: Choice
) -> list[tuple[StoredDeadLetter, Row]]:
    """The rows that a topic accepts; checked together, and if that fails, by halves."""
    try:
        # A transaction that is never committed: appending to it checks the rows, and writes nothing.
        log.transaction().append(topic, [row for _, row in pairs], partition=partition)
    except (UsageError, RowTooLarge) as error:
        if len(pairs) == 1:
            choice.refused.append(Refusal(place=pairs[0][0].place, why=str(error)))
            return []
        half = len(pairs) // 2
        return [
            pair for part in (pairs[:half], pairs[half:]) for pair in _accepted(log, topic, partition, part, choice)
        ]
    return pairs


def original_row(letter: DeadLetter, topic: Topic) -> Row:
    """The row of a dead letter for a topic: bytes if the topic has no schema, otherwise the columns in the JSON."""
    if topic.schemaless:
        value = letter.value if letter.row is None else letter.row.encode()
        return {"key": letter.key, "value": value}
    text = letter.row if letter.row is not None else letter.value or b""
    line = text.replace("\n", " ") if isinstance(text, str) else text.replace(b"\n", b" ")
    rows = [row for some in json_lines.decode_lines([line], topic.schema, topic=topic.name) for row in some]
    if len(rows) != 1:
        raise ArgumentInvalid(name="letter", value=text, expected=f"a row as JSON for topic {topic.name!r}")
    return rows[0]


def _headers(stored: StoredDeadLetter, source: str) -> list[tuple[str, bytes | None]]:
    kept = [pair for pair in stored.letter.headers or () if pair[0] not in _OWN_HEADERS]
    attempt = min(stored.letter.attempt + 1, ATTEMPT_MAX)
    place = f"{source}/{stored.place.partition}/{stored.place.offset}"
    return [*kept, (ATTEMPT_HEADER, str(attempt).encode()), (LETTER_HEADER, place.encode())]

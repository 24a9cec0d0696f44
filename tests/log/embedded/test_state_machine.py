"""For all sequences of operations, a log agrees with a model of plain lists."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.clock import ManualClock
from headwater.config import Config
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log
from headwater.log.embedded.repair import verify
from headwater.log.errors import OffsetConflict

TOPICS = ("a", "b")
PARTITIONS = 2
VALUES = st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=5)


class LogMachine(RuleBasedStateMachine):
    """Two handles on one folder, as two processes would have, used in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.clock = ManualClock()
        self.model: dict[tuple[str, int], list[int]] = {
            (topic, number): [] for topic in TOPICS for number in range(PARTITIONS)
        }
        self.starts = dict.fromkeys(self.model, 0)
        self.prepared: dict[str, list[tuple[str, int, list[int]]]] = {}
        self.sequences: dict[str, int] = {}
        self.groups: dict[tuple[str, str], dict[int, int]] = {}
        self.logs: list[EmbeddedLog] = []

    @initialize(durability=st.sampled_from(["fsync", "os"]), codec=st.sampled_from(["none", "lz4"]))
    def open_both(self, durability: Any, codec: Any) -> None:
        self.logs = [self._open(), self._open()]
        for topic in TOPICS:
            self.logs[0].create(
                topic,
                {"value": "int64"},
                partitions=PARTITIONS,
                durability=durability,
                codec=codec,
                segment_bytes_max=1500,
            )

    def _open(self) -> EmbeddedLog:
        return open_log(self.folder, clock=self.clock, config=Config(maintenance="manual"))

    @rule(who=st.integers(0, 1), topic=st.sampled_from(TOPICS), number=st.integers(0, 1), values=VALUES)
    def append(self, who: int, topic: str, number: int, values: list[int]) -> None:
        placed = self.logs[who].append(topic, [{"value": value} for value in values], partition=number)
        model = self.model[topic, number]
        assert placed.ranges == {number: (len(model), len(model) + len(values))}
        model += values

    @rule(who=st.integers(0, 1), topic=st.sampled_from(TOPICS), values=VALUES, again=st.booleans())
    def append_as_a_producer(self, who: int, topic: str, values: list[int], again: bool) -> None:
        sequence = self.sequences.get(topic, -1) + (0 if again and topic in self.sequences else 1)
        placed = self.logs[who].append(
            topic, [{"value": value} for value in values], partition=0, producer="p", sequence=sequence
        )
        assert placed.duplicate == (sequence == self.sequences.get(topic, -1))
        if not placed.duplicate:
            self.model[topic, 0] += values
        self.sequences[topic] = sequence

    @rule(who=st.integers(0, 1), topic=st.sampled_from(TOPICS), wrong=st.integers(0, 2), values=VALUES)
    def append_on_condition(self, who: int, topic: str, wrong: int, values: list[int]) -> None:
        model = self.model[topic, 1]
        rows = [{"value": value} for value in values]
        if wrong:
            with pytest.raises(OffsetConflict) as caught:
                self.logs[who].append(topic, rows, partition=1, expected_offset=len(model) - wrong)
            assert caught.value.actual == len(model)
        else:
            self.logs[who].append(topic, rows, partition=1, expected_offset=len(model))
            model += values

    @rule(
        who=st.integers(0, 1),
        parts=st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 1), VALUES), max_size=4),
        end=st.sampled_from(["commit", "rollback", "prepare"]),
    )
    def transact(self, who: int, parts: list[tuple[str, int, list[int]]], end: str) -> None:
        transaction = self.logs[who].transaction()
        for topic, number, values in parts:
            transaction.append(topic, [{"value": value} for value in values], partition=number)
        if end == "commit":
            transaction.commit()
            self._show(parts)
        elif end == "rollback":
            transaction.rollback()
        else:
            self.prepared[transaction.prepare()] = parts

    def _show(self, parts: list[tuple[str, int, list[int]]]) -> None:
        for topic, number, values in parts:
            self.model[topic, number] += values

    @precondition(lambda self: self.prepared)
    @rule(who=st.integers(0, 1), commit=st.booleans())
    def decide(self, who: int, commit: bool) -> None:
        name = next(iter(self.prepared))  # names are random, and their order would not be the same again
        parts = self.prepared.pop(name)
        if commit:
            self.logs[who].commit(name)
            self._show(parts)
        else:
            self.logs[who].rollback(name)

    @rule(who=st.integers(0, 1), topic=st.sampled_from(TOPICS), number=st.integers(0, 1))
    def punctuate(self, who: int, topic: str, number: int) -> None:
        self.logs[who].punctuate(topic, self.clock.now_us(), partition=number)

    @rule(
        who=st.integers(0, 1),
        group=st.sampled_from(["g", "h"]),
        topic=st.sampled_from(TOPICS),
        number=st.integers(0, 1),
    )
    def commit_offsets(self, who: int, group: str, topic: str, number: int) -> None:
        offset = len(self.model[topic, number])
        self.logs[who].commit_offsets(group, topic, {number: offset})
        self.groups.setdefault((group, topic), {})[number] = offset

    @rule(who=st.integers(0, 1), topic=st.sampled_from(TOPICS), seal=st.booleans())
    def maintain(self, who: int, topic: str, seal: bool) -> None:
        self.logs[who].maintain(topic, seal=seal)

    @rule(who=st.integers(0, 1), seconds=st.integers(0, 50))
    def reopen(self, who: int, seconds: int) -> None:
        self.clock.advance(seconds=seconds)
        self.logs[who].close()
        self.logs[who] = self._open()

    @rule(who=st.integers(0, 1), topic=st.sampled_from(TOPICS), number=st.integers(0, 1), data=st.data())
    def read_a_part(self, who: int, topic: str, number: int, data: st.DataObject) -> None:
        model = self.model[topic, number]
        start = data.draw(st.integers(0, len(model)))
        stop = data.draw(st.integers(start, len(model)))
        rows = self.logs[who].read(topic, start=start, stop=stop, partitions=[number]).rows()
        assert [row["value"] for row in rows] == model[start:stop]
        assert [row["_offset"] for row in rows] == list(range(start, stop))

    @invariant()
    def both_see_what_the_model_holds(self) -> None:
        for log in self.logs:
            for topic in TOPICS:
                ends = {number: len(self.model[topic, number]) for number in range(PARTITIONS)}
                assert log.end_offsets(topic) == ends
                for number in range(PARTITIONS):
                    rows = log.read(topic, partitions=[number], columns=["value"]).table()["value"].to_pylist()
                    assert rows == self.model[topic, number]
            for (group, topic), offsets in self.groups.items():
                assert log.committed(group, topic) == offsets
            assert log.prepared() == sorted(self.prepared)

    def teardown(self) -> None:
        if self.logs:
            report = verify(self.logs[0])
            assert report.ok, [str(finding) for finding in report.findings]
        for log in self.logs:
            log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(stateful_step_count=30)

"""Whatever damage a file of a log has, every user of the log gets all acknowledged rows, or an error that names the place.

A sample log is copied, one file of it is damaged, and the copy is opened by a read-only reader, a reader, a consumer, a
writer, `verify` and `repair`, each under a deadline. The law:

1. each gets all rows that were acknowledged, or an error of Headwater; no row is missing silently, and no call hangs;
2. `verify` finds every damage that a reader finds;
3. an append takes no offset that was acknowledged, and a retried batch is not appended twice;
4. after a repair all rows can be read except those in the ranges that it reported, and `verify` finds nothing more.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import HeadwaterError, NotFound, StorageError
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.repair import Report, repair, verify
from headwater.log.errors import FileCorrupt
from headwater.log.port import Appended
from tests.log.damage.kinds import DAMAGES, FILES
from tests.log.damage.sample import ROWS, Rows, Sample, build, open_sample, rows_of

SEEDS = 20
SECONDS_MAX = 240
T = TypeVar("T")
KINDS = sorted(FILES)


class Overdue(BaseException):
    """A call did not end by its deadline. Not an `Exception`, so that no handler takes it for a failure."""


@contextlib.contextmanager
def deadline() -> Iterator[None]:
    """Interrupt the main thread after `SECONDS_MAX`, even if it loops or waits for a lock."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise Overdue

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS_MAX)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A folder for copies; in memory if possible, since the disk is not tested here."""
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="headwater-damage-", dir=shared if os.access(shared, os.W_OK) else None))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def sample(memory: Path) -> Sample:
    return build(memory)


# -- the openers -------------------------------------------------------------------------------------------------------


def opened(folder: Path, act: Callable[[EmbeddedLog], T], *, read_only: bool = False) -> T | HeadwaterError:
    """The result of a call, or its error; an error that is not Headwater's fails the test."""
    with deadline():
        try:
            with open_sample(folder, read_only=read_only) as log:
                return act(log)
        except HeadwaterError as error:
            return error


def consume(log: EmbeddedLog, topic: str) -> Rows:
    rows: Rows = {}
    with log.consumer(topic, columns=["_partition", "_offset", "id"]) as consumer:
        while batches := consumer.poll(seconds=0):
            for batch in batches:
                for row in batch.rows():
                    rows.setdefault(row["_partition"], {})[row["_offset"]] = row["id"]
    return rows


def append(log: EmbeddedLog, topic: str) -> Appended:
    return log.append(topic, [{"id": 77}], producer="p")


def check_place(error: HeadwaterError, folder: Path, topic: str) -> None:
    """An error of damage names a file of the log, or the partition."""
    assert isinstance(error, StorageError), error
    assert str(folder) in str(error) or f"{topic}/" in str(error), error


def check(sample: Sample, kind: str, damage: str, seed: int) -> None:
    """Damage one file of a copy, and open it in every way."""
    chance = random.Random(f"{kind} {damage} {seed}")
    folder = sample.folder.with_name("copy")
    shutil.copytree(sample.folder, folder)
    try:
        path = chance.choice(FILES[kind](folder))
        DAMAGES[damage](path, chance, sample.older / path.relative_to(folder))
        check_copy(sample, folder, path)
    except BaseException as error:
        error.add_note(f"{damage}: {path.relative_to(folder)} (kind {kind!r}, seed {seed})")
        raise
    finally:
        shutil.rmtree(folder)


def check_copy(sample: Sample, folder: Path, damaged: Path) -> None:
    report = opened(folder, verify)
    errors = check_readers(sample, folder, damaged)
    errors += check_retries(sample, folder)
    errors += check_writers(sample, folder)
    if any(isinstance(error, StorageError) for error in errors):
        assert isinstance(report, HeadwaterError) or not report.ok, f"verify finds nothing, but: {errors[0]}"
    check_repair(sample, folder)


def check_readers(sample: Sample, folder: Path, damaged: Path) -> list[HeadwaterError]:
    errors = []
    for topic, rows in sample.rows.items():
        results = [
            opened(folder, partial(rows_of, topic=topic), read_only=True),
            opened(folder, partial(rows_of, topic=topic)),
        ]
        if folder / "topics" not in damaged.parents or folder / "topics" / topic in damaged.parents:
            results.append(opened(folder, partial(consume, topic=topic)))
        for found in results:
            if isinstance(found, HeadwaterError):
                check_place(found, folder, topic)
                errors.append(found)
            else:
                assert found == rows, f"{topic}: rows are missing in silence"
    offsets = opened(folder, lambda log: log.committed("g", "plain"))
    if isinstance(offsets, HeadwaterError):
        check_place(offsets, folder, "__offsets")
        errors.append(offsets)
    else:
        assert offsets == sample.committed
    return errors


def check_retries(sample: Sample, folder: Path) -> list[HeadwaterError]:
    """Retry acknowledged batches: they are duplicates, or an error says that this is not known."""

    def send_rows(log: EmbeddedLog) -> None:
        assert log.append("joined", [{"id": ROWS - 1}], producer="p", sequence=ROWS - 1).duplicate, "appended twice"

    def send_transaction(log: EmbeddedLog) -> None:
        with log.transaction("q", sequence=ROWS - 1) as transaction:
            transaction.append("parts", [{"id": ROWS - 1}], partition=0)
        assert rows_of(log, "parts") == sample.rows["parts"], "committed twice"

    errors = [opened(folder, send) for send in (send_rows, send_transaction)]
    return [error for error in errors if error is not None]


def check_writers(sample: Sample, folder: Path) -> list[HeadwaterError]:
    errors = []
    for topic, rows in sample.rows.items():
        ends = {partition: max(offsets) + 1 for partition, offsets in rows.items()}
        placed = opened(folder, partial(append, topic=topic))
        if isinstance(placed, HeadwaterError):
            errors.append(placed)
        else:
            for partition, (start, _) in placed.ranges.items():
                assert start >= ends[partition], f"{topic}: offset {start} was acknowledged before"
    for act in (lambda log: log.commit(sample.prepared), lambda log: log.commit_staged(sample.staged)):
        done = opened(folder, act)
        if isinstance(done, HeadwaterError):
            assert isinstance(done, (StorageError, NotFound)), done
    return errors


def check_repair(sample: Sample, folder: Path) -> None:
    report = opened(folder, repair)
    if isinstance(report, HeadwaterError):
        assert isinstance(report, FileCorrupt), report  # the log itself has no description: only a copy helps
        return
    unreadable = {finding.topic for finding in report.findings if not finding.action}
    for topic, rows in sample.rows.items():
        found = opened(folder, partial(rows_of, topic=topic))
        if isinstance(found, HeadwaterError):
            assert topic in unreadable, f"{topic} cannot be read after a repair: {found}"
            continue
        lost = lost_rows(report, topic)
        for partition, values in rows.items():
            kept = {offset: value for offset, value in values.items() if offset not in lost.get(partition, ())}
            read = found.get(partition, {})
            assert {offset: read.get(offset) for offset in kept} == kept, f"{topic}: lost more than was reported"
            assert all(values.get(offset, read[offset]) == read[offset] for offset in read), f"{topic}: invented"
    again = opened(folder, verify)
    assert not isinstance(again, HeadwaterError), again
    left = [finding for finding in again.findings if finding.topic not in unreadable and finding.topic]
    assert not left, f"left after a repair: {left[0]}"


def lost_rows(report: Report, topic: str) -> dict[int, set[int]]:
    lost: dict[int, set[int]] = {}
    for finding in report.findings:
        if finding.topic == topic and finding.offset_next > finding.offset >= 0:
            lost.setdefault(finding.partition, set()).update(range(finding.offset, finding.offset_next))
    return lost


# -- the runs ----------------------------------------------------------------------------------------------------------


def test_the_sample_has_a_file_of_every_kind(sample: Sample) -> None:
    assert [kind for kind, files in FILES.items() if not files(sample.folder)] == []


def test_a_sound_copy_has_all_rows(sample: Sample) -> None:
    folder = shutil.copytree(sample.folder, sample.folder.with_name("sound"))
    try:
        assert check_readers(sample, folder, folder) == []
        assert check_retries(sample, folder) == []
        report = opened(folder, verify)
        assert isinstance(report, Report)
        assert report.ok, report.findings
        assert check_writers(sample, folder) == []
    finally:
        shutil.rmtree(folder)


SEGMENTS = [kind for kind in KINDS if "segment" in kind or kind == "state"]


@given(kind=st.sampled_from(SEGMENTS), damage=st.sampled_from(sorted(DAMAGES)), seed=st.integers(0, 10**6))
def test_damage_to_segments_and_state_is_never_silent(sample: Sample, kind: str, damage: str, seed: int) -> None:
    check(sample, kind, damage, seed)


@given(
    kind=st.sampled_from([kind for kind in KINDS if kind not in SEGMENTS]),
    damage=st.sampled_from(sorted(DAMAGES)),
    seed=st.integers(0, 10**6),
)
def test_damage_to_other_files_is_never_silent(sample: Sample, kind: str, damage: str, seed: int) -> None:
    check(sample, kind, damage, seed)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_damage_to_every_kind_of_file_twenty_times(sample: Sample, kind: str) -> None:
    for damage in DAMAGES:
        for seed in range(SEEDS):
            check(sample, kind, damage, seed)

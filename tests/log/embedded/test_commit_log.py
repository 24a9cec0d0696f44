"""The commit log: damage is distinguished from a torn end, refused, found by verify, and repaired."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import faults
from headwater.config import Config
from headwater.filelock import FileLock
from headwater.log.embedded import EmbeddedLog, commits
from headwater.log.embedded import open_folder as open_log
from headwater.log.embedded.commit_log import framed, whole_records
from headwater.log.embedded.repair import repair, verify
from headwater.log.errors import CommitLogCorrupt
from tests.laws import costly

COMMITS = 6
SCHEMA = {"id": "int64"}


class Died(BaseException):
    """Stands for `kill -9`."""


@pytest.fixture
def opened() -> Iterator[Callable[[Path], EmbeddedLog]]:
    logs: list[EmbeddedLog] = []

    def open_again(path: Path) -> EmbeddedLog:
        logs.append(open_log(path, config=Config(maintenance="manual")))
        return logs[-1]

    yield open_again
    for log in logs:
        log.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log with six commits of one producer, each of a row in two topics."""
    path = tmp_path / "log"
    with open_log(path, config=Config(maintenance="manual")) as log:
        for topic in ("a", "b"):
            log.create(topic, SCHEMA)
        for sequence in range(COMMITS):
            commit(log, sequence)
    return path


def commit(log: EmbeddedLog, sequence: int, *, producer: str = "p") -> bool:
    """Commit one transaction of a row in each topic; returns whether it was there already."""
    transaction = log.transaction(producer, sequence=sequence)
    for topic in ("a", "b"):
        transaction.append(topic, [{"id": sequence}])
    return all(one.duplicate for one in transaction.commit().values())


def ids(log: EmbeddedLog, topic: str = "a") -> list[int]:
    return [row["id"] for row in log.read(topic).rows()]


def commits_of(folder: Path) -> Path:
    return folder / "transactions" / "commits.log"


def ends(folder: Path) -> list[int]:
    """Where the records of the commit log end."""
    return [one.position + one.size for one in whole_records(commits_of(folder).read_bytes())]


def flip(path: Path, position: int, bit: int = 4) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def refused(log: EmbeddedLog) -> CommitLogCorrupt:
    """The error with which the log refuses everything that needs the whole commit log."""
    for ask in (
        lambda: commit(log, COMMITS),
        lambda: commit(log, 0),
        lambda: log.committed_sequence("p"),
        lambda: log.transaction_metadata("p"),
        log.prepared,
    ):
        with pytest.raises(CommitLogCorrupt) as caught:
            ask()
    return caught.value


@costly(2)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_each_flipped_bit_is_reported_refused_and_repaired(
    tmp_path_factory: pytest.TempPathFactory, place: float, bit: int
) -> None:
    path = tmp_path_factory.mktemp("flip") / "log"
    with open_log(path, config=Config(maintenance="manual")) as log:
        for topic in ("a", "b"):
            log.create(topic, SCHEMA)
        for sequence in range(3):
            commit(log, sequence)
    sound = commits_of(path).read_bytes()
    position = int(place * len(sound))
    begins = [0, *ends(path)]
    flip(commits_of(path), position, bit)
    with open_log(path, config=Config(maintenance="manual")) as log:
        with pytest.raises(CommitLogCorrupt) as caught:
            commit(log, 0)
        assert caught.value.position == max(begin for begin in begins if begin <= position)
        assert caught.value.path == str(commits_of(path))
        assert [finding.kind for finding in verify(log).findings] == ["damaged commit log"]
        assert ids(log) == [0, 1, 2], "committed rows can be read"
        repair(log)
        assert commits_of(path).read_bytes() == sound
        assert verify(log).ok
        commit(log, 2)
        assert ids(log) == ids(log, "b") == [0, 1, 2], "a repeated transaction changes nothing"


@pytest.mark.parametrize("records", range(COMMITS))
def test_a_shortened_commit_log_is_noticed(folder: Path, opened: Callable[[Path], EmbeddedLog], records: int) -> None:
    cut(commits_of(folder), [0, *ends(folder)][records])
    error = refused(opened(folder))
    assert error.position == [0, *ends(folder)][records]


def test_a_commit_log_that_is_cut_inside_a_record_is_noticed(
    folder: Path, opened: Callable[[Path], EmbeddedLog]
) -> None:
    cut(commits_of(folder), ends(folder)[-1] - 9)
    refused(opened(folder))


def test_a_record_that_was_taken_out_is_noticed(folder: Path, opened: Callable[[Path], EmbeddedLog]) -> None:
    data, places = commits_of(folder).read_bytes(), ends(folder)
    commits_of(folder).write_bytes(data[: places[1]] + data[places[2] :])
    assert "commit 4 follows where 3 was due" in str(refused(opened(folder)))


@pytest.mark.parametrize("others", [(), ("state",), ("commits.copy",)])
def test_a_deleted_commit_log_is_noticed(
    folder: Path, opened: Callable[[Path], EmbeddedLog], others: tuple[str, ...]
) -> None:
    for name in ("commits.log", *others):
        (folder / "transactions" / name).unlink()
    log = opened(folder)
    refused(log)
    assert "damaged commit log" in [finding.kind for finding in verify(log).findings]


def test_a_process_that_is_running_notices_too(folder: Path, opened: Callable[[Path], EmbeddedLog]) -> None:
    log = opened(folder)
    commit(log, COMMITS)
    commits_of(folder).unlink()
    refused(log)


def test_nothing_is_written_while_the_commit_log_is_damaged(
    folder: Path, opened: Callable[[Path], EmbeddedLog]
) -> None:
    flip(commits_of(folder), 40)
    before = {path: path.read_bytes() for path in folder.rglob("*.log")}
    refused(opened(folder))
    assert {path: path.read_bytes() for path in folder.rglob("*.log")} == before


def test_a_torn_end_is_set_aside_and_the_log_goes_on(folder: Path, opened: Callable[[Path], EmbeddedLog]) -> None:
    sound = commits_of(folder).read_bytes()
    torn = framed({"number": 7, "name": "torn"})[:-10]
    commits_of(folder).write_bytes(sound + torn)
    log = opened(folder)
    commit(log, COMMITS)
    [kept] = (folder / "quarantine").iterdir()
    assert kept.read_bytes() == torn
    assert log.committed_sequence("p") == COMMITS
    assert verify(log).ok


def test_a_log_whose_state_is_lost_believes_whole_records(folder: Path, opened: Callable[[Path], EmbeddedLog]) -> None:
    (folder / "transactions" / "state").unlink()
    log = opened(folder)
    assert log.committed_sequence("p") == COMMITS - 1
    commit(log, 0)
    assert ids(log) == list(range(COMMITS))


def in_doubt(folder: Path, opened: Callable[[Path], EmbeddedLog]) -> EmbeddedLog:
    """A log whose last transaction was recorded, but not shown in its partitions, by a process that died."""
    log = opened(folder)

    def hook(point: str) -> None:
        if point == "commit.recorded":
            raise Died

    faults.install(hook)
    try:
        with pytest.raises(Died):
            commit(log, COMMITS)
    finally:
        faults.install(None)
    return log


def test_reads_of_rows_whose_fate_is_not_known_raise(folder: Path, opened: Callable[[Path], EmbeddedLog]) -> None:
    in_doubt(folder, opened)
    cut(commits_of(folder), ends(folder)[-2])
    log = opened(folder)
    with pytest.raises(CommitLogCorrupt):
        ids(log)
    with pytest.raises(CommitLogCorrupt):
        log.append("a", [{"id": 99}])
    with pytest.raises(CommitLogCorrupt):
        log.end_offsets("b")
    repair(log)
    assert ids(log) == ids(log, "b") == list(range(COMMITS + 1)), "the copy knows that it was committed"


def test_repair_rebuilds_from_the_copy_what_the_log_has_lost(
    folder: Path, opened: Callable[[Path], EmbeddedLog]
) -> None:
    sound = commits_of(folder).read_bytes()
    commits_of(folder).unlink()
    log = opened(folder)
    planned = repair(log, dry_run=True)
    assert "would be set aside and rebuilt: 0 commits from whole records, 6 from the copy" in str(planned.findings[0])
    assert not commits_of(folder).exists()
    assert [finding.kind for finding in repair(log).findings] == ["damaged commit log"]
    assert commits_of(folder).read_bytes() == sound


def test_repair_rebuilds_what_the_partitions_prove_and_says_what_is_lost(
    folder: Path, opened: Callable[[Path], EmbeddedLog]
) -> None:
    data, places = commits_of(folder).read_bytes(), ends(folder)
    for name in ("commits.log", "commits.copy"):
        (folder / "transactions" / name).write_bytes(data[: places[2]])
    (
        folder / "topics" / "a" / "state"
    ).unlink()  # recovery finds the end of `a` from the segments, and needs each transaction
    log = opened(folder)
    with pytest.raises(CommitLogCorrupt):
        ids(log)
    report = repair(log)
    assert [finding.kind for finding in report.findings] == ["damaged commit log", "lost commits"]
    assert "3 commits from whole records, 0 from the copy, 3 from the partitions" in str(report.findings[0])
    assert "commits 4 to 6" in str(report.findings[1])
    assert ids(log) == ids(log, "b") == list(range(COMMITS))
    assert verify(log).ok
    assert repair(log).ok
    assert log.committed_sequence("p") == 2, "the sequences of the lost ones are lost"
    commit(log, COMMITS)
    assert ids(log)[-1] == COMMITS


def test_transactions_without_any_record_are_found_by_verify_and_recorded_by_repair(
    folder: Path, opened: Callable[[Path], EmbeddedLog]
) -> None:
    for name in ("commits.log", "commits.copy", "state"):
        (folder / "transactions" / name).unlink()
    log = opened(folder)
    assert {finding.kind for finding in verify(log).findings} == {"misplaced frame"}
    assert "6 from the partitions" in str(repair(log).findings[0])
    assert verify(log).ok


def test_the_quarantine_has_what_repair_replaced(folder: Path, opened: Callable[[Path], EmbeddedLog]) -> None:
    flip(commits_of(folder), ends(folder)[1] + 30)
    damaged = commits_of(folder).read_bytes()
    repair(opened(folder))
    assert [path.read_bytes() for path in (folder / "quarantine").iterdir()] == [damaged]


def test_a_damaged_copy_is_found_and_replaced(folder: Path, opened: Callable[[Path], EmbeddedLog]) -> None:
    flip(folder / "transactions" / "commits.copy", 40)
    log = opened(folder)
    assert [finding.kind for finding in verify(log).findings] == ["damaged copy of the commit log"]
    assert not commit(log, COMMITS)
    repair(log)
    assert (folder / "transactions" / "commits.copy").read_bytes() == commits_of(folder).read_bytes()
    assert verify(log).ok


@pytest.mark.parametrize("point", ["commit.recording", "commit.durable", "commit.copied", "commit.recorded"])
def test_a_crash_between_the_record_and_its_witness_is_no_damage(
    folder: Path, opened: Callable[[Path], EmbeddedLog], point: str
) -> None:
    """The record, its copy and its witness are three writes; a process may die between any two."""
    log = opened(folder)
    state = folder / "transactions" / "state"
    before = {path: path.read_bytes() for path in (folder / "transactions").iterdir() if path.is_file()}

    def hook(reached: str) -> None:
        if reached == point:
            after.update({path: path.read_bytes() for path in (folder / "transactions").iterdir() if path.is_file()})

    after: dict[Path, bytes] = {}
    faults.install(hook)
    try:
        commit(log, COMMITS)
    finally:
        faults.install(None)
    log.close()
    for path, data in after.items():
        path.write_bytes(data)
    state.write_bytes(before[state][:4] + after[state][4:])
    again = opened(folder)
    assert again.committed_sequence("p") == COMMITS
    commit(again, COMMITS)
    assert ids(again) == ids(again, "b") == list(range(COMMITS + 1))
    commit(again, COMMITS + 1)
    assert verify(again).ok


def test_an_older_copy_of_the_whole_state_is_no_damage(folder: Path, opened: Callable[[Path], EmbeddedLog]) -> None:
    """A power cut may leave the witness of any earlier commit: it is never synced with the record."""
    state = folder / "transactions" / "state"
    early = state.read_bytes()
    log = opened(folder)
    for sequence in range(COMMITS, COMMITS + 3):
        commit(log, sequence)
    log.close()
    state.write_bytes(early)
    again = opened(folder)
    assert again.committed_sequence("p") == COMMITS + 2
    assert verify(again).ok


@pytest.mark.parametrize("how", ["flipped", "cut", "deleted"])
def test_damage_of_a_second_commit_log_is_noticed_and_repaired(
    folder: Path, opened: Callable[[Path], EmbeddedLog], how: str
) -> None:
    """It is used while another process holds the lock of the first."""
    with FileLock(folder / "transactions" / "lock"):
        log = opened(folder)
        commit(log, COMMITS)
        commit(log, 0, producer="q")
        log.close()
    second = folder / "transactions" / "commits-1.log"
    sound = second.read_bytes()
    if how == "flipped":
        flip(second, 40)
    elif how == "cut":
        cut(second, 0)
    else:
        second.unlink()
    log = opened(folder)
    assert refused(log).path == str(second)
    assert [finding.path for finding in verify(log).findings] == ["transactions/commits-1.log"]
    assert ids(log) == [*range(COMMITS + 1), 0], "committed rows can be read"
    repair(log)
    assert second.read_bytes() == sound
    assert verify(log).ok
    assert commit(log, COMMITS)
    assert commit(log, 0, producer="q")


def test_a_shortened_file_still_tells_damage(
    folder: Path, opened: Callable[[Path], EmbeddedLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large commit log is replaced by a horizon and the last record of each producer."""
    log = opened(folder)
    monkeypatch.setattr(commits, "COMMITS_BYTES_MAX", 1)
    commit(log, 0, producer="q")
    monkeypatch.undo()
    log.close()
    assert len(ends(folder)) == 3  # the horizon, p and q
    again = opened(folder)
    assert (again.committed_sequence("p"), again.committed_sequence("q")) == (COMMITS - 1, 0)
    assert verify(again).ok
    again.close()
    flip(commits_of(folder), ends(folder)[-1] - 20)
    damaged = opened(folder)
    with pytest.raises(CommitLogCorrupt, match="1 records of older commits are missing"):
        damaged.committed_sequence("q")
    repair(damaged)
    assert (damaged.committed_sequence("p"), damaged.committed_sequence("q")) == (COMMITS - 1, 0)

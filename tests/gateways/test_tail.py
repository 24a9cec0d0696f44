"""Tailed files: every line is one row, through rotation, truncation and `kill -9`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists, sampled_from, tuples

import headwater
from headwater.clock import ManualClock
from headwater.errors import ArgumentInvalid, NotFound
from headwater.faults import TAIL_CRASH_POINTS
from headwater.gateways import GatewayRunner, Tail
from headwater.gateways.file_lines import FileLines, FilePosition
from headwater.gateways.kinds import gateway_from_text
from headwater.gateways.tail import TailSession
from headwater.log import Log
from headwater.log.errors import ProducerFenced
from headwater.testing import CrashAt, run_until_killed
from tests.conditions import until
from tests.laws import costly


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return headwater.open(tmp_path / "log", clock=ManualClock())


def opened(log: Log, folder: Path, **settings: object) -> TailSession:
    return Tail(paths=(f"{folder}/*.log",), **settings).open(log)  # type: ignore[arg-type]  # settings of Tail


def drain(session: TailSession) -> None:
    while session.step():
        pass


def lines(log: Log) -> list[str]:
    return [row["line"] for row in log.read("lines").rows()]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(data)


@given(
    acts=lists(
        tuples(sampled_from(["write", "half", "step", "rename", "truncate", "delete", "restart"]), integers(1, 4))
    )
)
@costly(10)
def test_whatever_happens_to_a_file_each_line_is_one_row(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("tail")
    clock = ManualClock()
    log = headwater.open(folder / "log", clock=clock)
    path, written, half, renamed = folder / "app.log", list[str](), "", 0
    session = opened(log, folder)

    def write(text: str) -> None:
        nonlocal half
        append(path, text.encode())
        *whole, half = (half + text).split("\n")
        written.extend(whole)

    for act, count in acts:
        if act == "write":
            for _ in range(count):
                write(f"line {len(written)}\n")
        elif act == "half":
            write(f"part {len(written)} ")
        elif act == "step":
            session.step()
        elif act == "restart":
            session.close()
            session = opened(log, folder)
        elif path.exists():
            if act == "truncate":  # as a tool that copies the file first; lines not read by then would be lost
                drain(session)
                os.truncate(path, 0)
                drain(session)
            else:  # the end of the last line never comes: it is a line
                session.step()  # a file that appears and is renamed between two looks is never seen
                if act == "rename":
                    renamed += 1
                    path.rename(folder / f"app.log.{renamed}")
                else:
                    path.unlink()
                drain(session)
                clock.advance(seconds=6)
                drain(session)
                if half:
                    written.append(half)
            half = ""
    drain(session)
    assert lines(log) == written
    session.close()
    log.close()


def test_a_file_renamed_while_no_gateway_runs_is_read_to_its_end(tmp_path: Path, log: Log) -> None:
    append(tmp_path / "app.log", b"one\n")
    session = opened(log, tmp_path)
    drain(session)
    session.close()
    append(tmp_path / "app.log", b"two\n")
    (tmp_path / "app.log").rename(tmp_path / "app.log.1")
    append(tmp_path / "app.log", b"three\n")
    session = opened(log, tmp_path)
    drain(session)
    assert sorted(lines(log)) == ["one", "three", "two"]
    session.close()


def test_a_file_replaced_in_place_is_another_file_even_if_it_is_longer(tmp_path: Path, log: Log) -> None:
    path = tmp_path / "app.log"
    append(path, b"old\n")
    session = opened(log, tmp_path)
    drain(session)
    session.close()
    path.write_bytes(b"quite another\nfile\n")  # the same inode, as after a deletion and a creation
    session = opened(log, tmp_path)
    drain(session)
    assert lines(log) == ["old", "quite another", "file"]
    session.close()


def test_lines_that_are_no_text_or_too_long_are_dead_letters(tmp_path: Path, log: Log) -> None:
    path = tmp_path / "app.log"
    append(path, b"good\r\n\xff\xfe\n" + b"x" * 30 + b"\nend\n")
    session = opened(log, tmp_path, line_bytes_max=10)
    drain(session)
    assert lines(log) == ["good", "end"]
    found = log.read("lines.dlq").rows()
    assert [row["value"] for row in found] == [b"x" * 10, b"\xff\xfe"]
    assert "longer than 10 bytes" in found[0]["message"]
    counts = session.counters
    assert (counts.received, counts.appended, counts.rejected, counts.bytes) == (4, 2, 2, path.stat().st_size)
    session.close()


def test_a_line_longer_than_what_is_read_at_once_is_one_dead_letter(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.gateways.tail.PIECE_BYTES", 8)
    append(tmp_path / "app.log", b"x" * 50)
    session = opened(log, tmp_path, line_bytes_max=10)
    drain(session)
    session.close()
    session = opened(log, tmp_path, line_bytes_max=10)  # inside of the line
    append(tmp_path / "app.log", b"yy\nnext\n")
    drain(session)
    assert lines(log) == ["next"]
    assert [row["value"] for row in log.read("lines.dlq").rows()] == [b"x" * 10]
    session.close()


def test_json_lines_become_rows_and_others_dead_letters(tmp_path: Path, log: Log) -> None:
    append(
        tmp_path / "app.log", b'{"id": 1, "name": "Zo\xc3\xab"}\n\n{"id": "x"}\n[1]\n{"id": 2, "extra": 1}\n{"id": 3}\n'
    )
    session = opened(log, tmp_path, topic="people", format="json", schema="id int64 not null, name string")
    drain(session)
    assert [(row["id"], row["name"]) for row in log.read("people").rows()] == [(1, "Zoë"), (3, None)]
    found = log.read("people.dlq").rows()
    assert [row["value"] for row in found] == [b'{"id": "x"}', b"[1]", b'{"id": 2, "extra": 1}']
    assert session.counters.rejected == 3
    session.close()


def test_only_what_comes_after_the_first_start_is_read_if_so_declared(tmp_path: Path, log: Log) -> None:
    path = tmp_path / "app.log"
    append(path, b"old\nhalf")
    session = opened(log, tmp_path, start="end")
    drain(session)
    session.close()
    append(path, b" a line\n")
    append(tmp_path / "later.log", b"later\n")
    session = opened(log, tmp_path, start="end")
    drain(session)
    assert sorted(lines(log)) == ["half a line", "later"]
    session.close()


def test_a_second_process_takes_over_and_the_first_appends_no_more(tmp_path: Path, log: Log) -> None:
    first = opened(log, tmp_path)
    second = opened(log, tmp_path)
    append(tmp_path / "app.log", b"one\n")
    drain(second)
    with pytest.raises(ProducerFenced):
        first.step()
    assert lines(log) == ["one"]
    first.close()
    second.close()


def test_a_file_that_may_not_be_read_holds_no_other_back(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = FileLines.open

    def opens(path: Path, position: FilePosition | None = None) -> FileLines | None:
        if path.name == "secret.log":
            raise PermissionError(13, "Permission denied")
        return real(path, position)

    monkeypatch.setattr(FileLines, "open", opens)
    for name in ("secret.log", "open.log"):
        append(tmp_path / name, b"line\n")
    session = opened(log, tmp_path)
    drain(session)
    assert lines(log) == ["line"]
    assert caplog.text.count("secret.log cannot be read: Permission denied") == 1
    session.close()


def test_settings_that_cannot_be_are_named(tmp_path: Path, log: Log) -> None:
    with pytest.raises(ArgumentInvalid, match="at least one path"):
        Tail()
    with pytest.raises(ArgumentInvalid, match="beginning or end"):
        gateway_from_text("tail", [f"paths={tmp_path}/*.log", "start=middle"])
    with pytest.raises(NotFound, match="people"):
        opened(log, tmp_path, topic="people", format="json")
    for name in ("a.log", "b.log"):
        append(tmp_path / name, b"")
    with pytest.raises(ArgumentInvalid, match="files_max"):
        opened(log, tmp_path, files_max=1)


def test_a_gateway_at_work_follows_a_file_until_it_is_stopped(tmp_path: Path) -> None:
    log = headwater.open(tmp_path / "log")
    gateway = gateway_from_text("tail", [f"paths={tmp_path}/*.log,{tmp_path}/*.txt", "interval=10 ms"])
    runner = GatewayRunner(log, gateway)
    runner.start()
    append(tmp_path / "new.txt", b"one\n")
    until(lambda: lines(log) == ["one"])
    append(tmp_path / "new.txt", b"two\n")
    runner.stop()
    assert (runner.status().counters["appended"], lines(log)) == (2, ["one", "two"])


@pytest.mark.process
@pytest.mark.parametrize("point", TAIL_CRASH_POINTS)
@pytest.mark.parametrize("visit", [1, 3])
def test_no_line_is_lost_or_doubled_by_kill_9(tmp_path: Path, point: str, visit: int) -> None:
    def work() -> None:
        with headwater.open(tmp_path / "log") as log:
            session = opened(log, tmp_path)
            for number in range(5):
                append(tmp_path / "app.log", b"line %d\nand its second\nhalf " % number)
                drain(session)

    ended = run_until_killed(work, at=CrashAt(point=point, visit=visit), errors=tmp_path / "errors")
    assert ended.killed, ended
    written = (tmp_path / "app.log").read_text().split("\n")[:-1]
    with headwater.open(tmp_path / "log") as log:
        session = opened(log, tmp_path)
        drain(session)
        assert lines(log) == written
        session.close()

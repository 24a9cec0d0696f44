"""Background maintenance: its failures are seen by users, and a busy process still applies retention by age."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest

from headwater.clock import ManualClock
from headwater.config import Config
from headwater.log.embedded import EmbeddedLog, maintenance
from headwater.log.embedded import open_folder as open_log
from headwater.log.embedded.maintenance import MaintenanceThread
from headwater.log.embedded.repair import repair, verify

SCHEMA = {"id": "int64"}


def filled(path: Path, topic: str = "t", *, rows: int = 12) -> EmbeddedLog:
    log = open_log(path, clock=ManualClock(), config=Config(maintenance="manual"))
    log.create(topic, SCHEMA, segment_bytes_max=900)
    for number in range(rows):
        log.append(topic, [{"id": number}])
    return log


def damage_the_first_segment(path: Path, topic: str = "t") -> None:
    segment = min((path / "topics" / topic / "0").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[200] ^= 1
    segment.write_bytes(data)


def maintain_in_background(log: EmbeddedLog) -> None:
    handle = log.handle("t")
    MaintenanceThread(log)._maintain(handle, handle.partition(0))


def test_a_failure_is_found_by_verify_until_maintenance_succeeds(tmp_path: Path) -> None:
    with filled(tmp_path / "log") as log:
        damage_the_first_segment(log.path)
        maintain_in_background(log)
        [(place, why)] = log.maintenance_failures().items()
        assert place == ("t", 0)
        assert "does not match its checksum" in why
        assert [finding.why for finding in verify(log).findings if finding.kind == "maintenance failed"] == [why]
        assert "maintenance failed" in {finding.kind for finding in repair(log).findings}
        assert log.maintenance_failures() == {}
        assert verify(log).ok
        maintain_in_background(log)
        assert log.maintenance_failures() == {}


def test_a_busy_process_applies_retention_by_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "AGEING_SECONDS", 0.0)
    with filled(tmp_path / "log") as log:
        thread, handle, aged = MaintenanceThread(log), log.handle("t"), []
        monkeypatch.setattr(thread, "_maintain_ageing", lambda: aged.append(thread._queue.qsize()))
        for _ in range(3):
            thread._queue.put((handle, handle.partition(0)))
        thread._queue.put(None)
        thread._run()
        assert aged == [4, 3, 2, 1], "before each partition that waits"


def test_the_quarantine_has_the_bytes_durably_before_a_repair_replaces_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "t" * 200
    with filled(tmp_path / "log", topic) as log:
        damage_the_first_segment(log.path, topic)
        steps: list[str] = []
        sync, replace = os.fsync, os.replace

        def fsync(descriptor: int) -> None:
            steps.append(f"sync {os.readlink(f'/proc/self/fd/{descriptor}')}")
            sync(descriptor)

        def replaced(source: Path, target: Path) -> None:
            steps.append(f"replace {target}")
            replace(source, target)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "replace", replaced)
        assert not repair(log, topic).ok
        monkeypatch.undo()
        [kept] = (log.path / "quarantine").iterdir()
        target = min((log.path / "topics" / topic / "0").glob("*-*.log"))
        assert kept.stat().st_size > 800, "the whole segment"
        before = steps[: steps.index(f"replace {target}")]
        assert before.index(f"sync {kept}") < before.index(f"sync {kept.parent}")
        assert verify(log).ok


def test_a_torn_end_of_a_topic_with_a_long_name_can_be_set_aside(tmp_path: Path) -> None:
    topic = "t" * 200
    with filled(tmp_path / "log", topic) as log:
        segment = max((log.path / "topics" / topic / "0").glob("*.log"))
        with segment.open("ab") as file:
            file.write(b"torn" * 20)
    with open_log(tmp_path / "log") as log:
        log.append(topic, [{"id": 12}])
        assert log.end_offsets(topic) == {0: 13}
        [kept] = (log.path / "quarantine").iterdir()
        assert kept.read_bytes() == b"torn" * 20


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_punctuations_before_the_first_row_stay_when_the_segment_is_full(
    tmp_path: Path, durability: Literal["fsync", "os"]
) -> None:
    clock = ManualClock()
    with open_log(tmp_path / "log", clock=clock, config=Config(maintenance="manual")) as log:
        log.create("t", SCHEMA, durability=durability, segment_bytes_max=600, retention="60 seconds")
        for time in range(8):
            log.punctuate("t", time)
        log.maintain("t", seal=True)
        clock.advance(seconds=120)
        log.maintain("t")
        log.append("t", [{"id": 1}])
        log.append("t", [{"id": 2}])
        marks = [batch.punctuation_us for batch in log.read("t").batches()]
        assert [mark for mark in marks if mark is not None] == list(range(8))
        assert [row["id"] for row in log.read("t").rows()] == [1, 2]
        assert verify(log).ok

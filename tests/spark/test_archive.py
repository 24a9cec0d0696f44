"""The class archive: made once, adopted whole, and never in the way of a start."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.spark import archive_creation
from headwater.spark.java import UNFINISHED_SECONDS_MAX, Archive, Java

JAVA = Java(home=Path("/opt/java"), version="17.0.15")


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return of(tmp_path, JAVA)


def of(folder: Path, java: Java, *, spark: str = "4.3.0") -> Archive:
    return Archive.of(java, spark=spark, jars=folder, environ={"XDG_CACHE_HOME": str(folder)})


def part_of(archive: Archive) -> Path:
    assert archive.claim()
    [option] = [one for one in archive.creation_options() if one.startswith("-XX:ArchiveClassesAtExit=")]
    return Path(option.partition("=")[2])


def files_of(archive: Archive) -> list[Path]:
    return sorted(path for path in archive.path.parent.iterdir() if path.suffix != ".claim")


def test_one_process_makes_it_and_the_next_session_uses_it(archive: Archive) -> None:
    assert archive.options() == []
    part = part_of(archive)
    part.write_bytes(b"\xba\xba\x0b\xf0 classes")
    assert f"-XX:SharedArchiveFile={archive.path}" in archive.options()
    assert archive.path.read_bytes().endswith(b"classes")
    assert files_of(archive) == [archive.path]
    assert not archive.claim()


def test_an_unfinished_one_is_neither_used_nor_made_twice(archive: Archive) -> None:
    part_of(archive).write_bytes(bytes(4096))
    assert archive.options() == []
    assert not archive.claim()


def test_what_a_killed_jvm_left_is_removed_and_made_again(archive: Archive) -> None:
    left = part_of(archive)
    left.write_bytes(bytes(4096))
    for path in archive.path.parent.iterdir():
        os.utime(path, (0, path.stat().st_mtime - UNFINISHED_SECONDS_MAX - 1))
    assert archive.options() == []
    assert not left.exists()
    assert part_of(archive) != left


def test_the_process_that_makes_it_is_silent_and_not_waited_for(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, Any]] = []

    class Process:
        def __init__(self, _: list[str], **settings: Any) -> None:
            started.append(settings)

    monkeypatch.setattr(subprocess, "Popen", Process)
    for _ in range(2):  # the second finds the claim of the first
        archive_creation.create_in_background(archive, JAVA, quiet=True)
    [settings] = started
    assert {settings[name] for name in ("stdin", "stdout", "stderr")} == {subprocess.DEVNULL}
    assert settings["start_new_session"]
    assert settings["env"]["JAVA_HOME"] == "/opt/java"


def test_another_java_or_spark_has_another_archive(tmp_path: Path, archive: Archive) -> None:
    paths = {
        archive.path,
        of(tmp_path, replace(JAVA, version="17.0.16")).path,
        of(tmp_path, replace(JAVA, home=Path("/other"))).path,
        of(tmp_path, JAVA, spark="4.3.1").path,
    }
    assert len(paths) == 4


def test_a_newer_java_keeps_an_ahead_of_time_cache(tmp_path: Path) -> None:
    newer = of(tmp_path, replace(JAVA, version="25.0.2"))
    assert any(option.startswith("-XX:AOTCacheOutput=") for option in newer.creation_options())
    newer.path.parent.mkdir(parents=True)
    newer.path.write_bytes(b"made")
    assert newer.options()[-2:] == ["-XX:AOTMode=auto", f"-XX:AOTCache={newer.path}"]  # -Xshare beside it is refused


def test_a_home_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    place = Archive.of(JAVA, spark="4.3.0", jars=tmp_path, environ={"XDG_CACHE_HOME": str(blocked)})
    assert place.claim()

"""The class archive: made once, adopted whole, and never in the way of a start."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.spark.java import UNFINISHED_SECONDS_MAX, Archive, Java

JAVA = Java(home=Path("/opt/java"), version="17.0.15")


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return of(tmp_path, JAVA)


def of(folder: Path, java: Java, *, spark: str = "4.3.0") -> Archive:
    return Archive.of(java, spark=spark, jars=folder, environ={"XDG_CACHE_HOME": str(folder)})


def part_of(options: list[str]) -> Path:
    [option] = [option for option in options if option.startswith("-XX:ArchiveClassesAtExit=")]
    return Path(option.partition("=")[2])


def test_the_first_session_makes_it_and_the_next_one_uses_it(archive: Archive) -> None:
    part = part_of(archive.options())
    part.write_bytes(b"\xba\xba\x0b\xf0 classes")
    assert f"-XX:SharedArchiveFile={archive.path}" in archive.options()
    assert archive.path.read_bytes().endswith(b"classes")
    assert list(archive.path.parent.iterdir()) == [archive.path]


def test_an_unfinished_one_is_neither_used_nor_made_twice(archive: Archive) -> None:
    part_of(archive.options()).write_bytes(bytes(4096))
    assert archive.options() == []


def test_what_a_killed_jvm_left_is_removed_and_made_again(archive: Archive) -> None:
    left = part_of(archive.options())
    left.write_bytes(bytes(4096))
    os.utime(left, (0, left.stat().st_mtime - UNFINISHED_SECONDS_MAX - 1))
    assert part_of(archive.options()) != left
    assert not left.exists()


def test_two_first_sessions_write_to_places_of_their_own(archive: Archive) -> None:
    one, other = part_of(archive.options()), part_of(archive.options())
    assert one != other
    for part in (one, other):
        part.write_bytes(b"whole")
    assert f"-XX:SharedArchiveFile={archive.path}" in archive.options()
    assert list(archive.path.parent.iterdir()) == [archive.path]


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
    assert any(option.startswith("-XX:AOTCacheOutput=") for option in newer.options())
    newer.path.write_bytes(b"made")
    assert newer.options()[-2:] == ["-XX:AOTMode=auto", f"-XX:AOTCache={newer.path}"]  # -Xshare beside it is refused


def test_a_home_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    place = Archive.of(JAVA, spark="4.3.0", jars=tmp_path, environ={"XDG_CACHE_HOME": str(blocked)})
    assert place.options()

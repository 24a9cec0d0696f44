"""A folder for state behaves alike on a disk and in an object store, and one of several writers of a name wins."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.engine.object_folder import ObjectFolder, ObjectStoreFailed, forget_settings, object_folder
from headwater.engine.state_folder import Folder, LocalFolder, open_folder
from headwater.errors import ArgumentInvalid

ROWS = pa.table({"n": [1, 2, 3]})
WRITERS, RACES = 4, 60
#: Writes its own number under the name of each race, as soon as the others are ready, and prints the races that it has won.
RACER = """
import sys, time
from headwater.engine.state_folder import open_folder

address, number, races, start = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
folder = open_folder(address)
folder.names()
time.sleep(max(0.0, start - time.time()))
print([race for race in range(races) if folder.write_text_if_absent(f"race-{race}", number)])
"""


@pytest.fixture(params=["disk", "memory", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "s3":
        return open_folder(request.getfixturevalue("objects"))
    return open_folder(tmp_path) if request.param == "disk" else open_folder(f"memory://test/{uuid.uuid4().hex}")


@pytest.mark.process
class TestEveryFolder:
    def test_tables_and_texts_are_read_as_they_were_written(self, folder: Folder) -> None:
        folder.write("run-1", ROWS)
        folder.write("side", ROWS.slice(1))
        folder.write("side", ROWS)  # a second attempt writes the same name again
        assert folder.map("run-1").equals(ROWS)
        assert folder.map("side").equals(ROWS)
        assert folder.map_if_there("run-2") is None
        folder.write_text("1.json", "a")
        folder.write_text("1.json", "b")
        assert folder.read_text("1.json") == "b"
        assert folder.read_text("2.json") is None
        assert folder.size() > 0

    def test_the_first_writer_of_a_name_wins(self, folder: Folder) -> None:
        assert folder.write_text_if_absent("name", "first")
        assert not folder.write_text_if_absent("name", "second")
        assert folder.read_text("name") == "first"

    def test_names_are_listed_by_prefix_and_folders_apart(self, folder: Folder) -> None:
        for name in ("time-1-a", "time-1-b", "time-10-a", "zoo"):
            folder.write_text(name, "")
        folder.within("sub").write_text("time-1-c", "")
        assert folder.names("time-1-") == ["time-1-a", "time-1-b"]
        assert folder.names("nothing") == []
        assert folder.names() == ["sub", "time-1-a", "time-1-b", "time-10-a", "zoo"]
        assert folder.folders() == ["sub"]
        assert folder.within("sub").names("time-") == ["time-1-c"]

    def test_what_was_removed_is_gone(self, folder: Folder) -> None:
        folder.write("run-1", ROWS)
        folder.within("sub").write_text("a", "")
        folder.remove("run-1.arrow")
        folder.remove("run-1.arrow")
        assert folder.map_if_there("run-1") is None
        assert folder.modified("run-1.arrow") is None
        folder.within("sub").clear()
        assert folder.within("sub").names() == []

    def test_a_file_tells_when_it_was_written(self, folder: Folder) -> None:
        folder.write_text("a", "")
        assert (folder.modified("a") or 0.0) > 1.7e9


def test_a_race_of_processes_for_a_name_has_one_winner(objects: str) -> None:
    start = str(time.time() + 2.0)
    words = [sys.executable, "-c", RACER, objects]
    racers = [
        subprocess.Popen([*words, str(number), str(RACES), start], stdout=subprocess.PIPE, text=True)
        for number in range(WRITERS)
    ]
    won = [json.loads(racer.communicate(timeout=60)[0]) for racer in racers]
    assert sorted(race for races in won for race in races) == list(range(RACES))
    folder = open_folder(objects)
    for number, races in enumerate(won):
        assert {folder.read_text(f"race-{race}") for race in races} <= {str(number)}


def test_runs_are_fetched_once_by_a_machine_and_bounded_there(objects: str, tmp_path: Path) -> None:
    writer = open_folder(objects)
    assert isinstance(writer, ObjectFolder)
    for number in range(20):
        writer.write(f"run-{number}", ROWS)
    copies = sorted(path.name for path in (tmp_path / "copies").rglob("run-*"))
    assert copies == sorted(f"run-{number}" for number in range(20))
    for path in (tmp_path / "copies").rglob("run-*"):
        path.unlink()
    assert writer.map("run-3").equals(ROWS)
    assert [path.name for path in (tmp_path / "copies").rglob("run-*")] == ["run-3"]
    kept = writer._copies
    assert kept is not None
    small = type(kept)(kept.folder, kept.root, 2_000)
    reader = ObjectFolder(writer._store, writer._base, writer._prefix, small)
    for number in range(20):
        assert reader.map(f"run-{number}").equals(ROWS)
    assert sum(path.stat().st_size for path in (tmp_path / "copies").rglob("run-*")) <= 2_000


def test_an_object_store_that_refuses_is_named_with_what_to_check(
    objects: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    forget_settings()
    with pytest.raises(ObjectStoreFailed, match="AWS_SECRET_ACCESS_KEY") as raised:
        open_folder(objects).write_text("a", "")
    assert objects in raised.value.address + "/"
    forget_settings()


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(ArgumentInvalid, match="s3://bucket/prefix"):
        object_folder("ftp://host/folder")


def test_a_path_is_a_folder_on_disk(tmp_path: Path) -> None:
    assert isinstance(open_folder(tmp_path), LocalFolder)
    assert isinstance(open_folder(f"file://{tmp_path}"), LocalFolder)

"""Connectors of others: a package brings a source and a target by its entry points."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.capture import Capture, CaptureConfig, CaptureStore, SourceReplaced
from headwater.errors import ArgumentInvalid
from headwater.sync import Sync, SyncConfig, SyncStore
from tests.capture.shop import log_at, table_of

ENTRY_POINTS = """
[headwater.sources]
jsonlines = tests.capture.example_package.source:JsonLinesConnector

[headwater.targets]
jsonfile = tests.capture.example_package.target:JsonFileTarget
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the example package for this test: what pip would write, in a folder of its own."""
    folder = tmp_path / "site" / "headwater_jsonfiles-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: headwater-jsonfiles\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(folder.parent))


def change(path: Path, operation: str, number: int, name: str) -> None:
    with path.open("a") as file:
        file.write(json.dumps({"op": operation, "row": {"id": number, "name": name}}) + "\n")


@pytest.mark.usefixtures("installed")
def test_a_source_and_a_target_of_another_package_work_end_to_end(tmp_path: Path) -> None:
    people = tmp_path / "people.jsonl"
    people.write_text(json.dumps({"columns": {"id": "int64", "name": "string"}, "key": ["id"]}) + "\n")
    change(people, "c", 1, "ada")
    change(people, "c", 2, "bob")
    with log_at(tmp_path) as log:
        CaptureStore(log).create(CaptureConfig(name="files", url=f"jsonlines:///{people}"))
        SyncStore(log).create(SyncConfig(name="copy", url=f"jsonfile:///{tmp_path}/copy.json", topics=("files.*",)))
        with Capture.open(log, "files") as capture:
            assert capture.catch_up() == 2
        change(people, "u", 1, "Ada")
        change(people, "d", 2, "bob")
        with Capture.open(log, "files") as capture:  # it goes on where it was
            assert capture.health().pending > 0
            assert capture.catch_up() == 2
        assert list(table_of(log, "files.people", ("id",)).values()) == [{"id": 1, "name": "Ada"}]
        with Sync.open(log, "copy") as sync:
            sync.catch_up()
        assert list(json.loads((tmp_path / "copy.json").read_text())["people"]["rows"].values()) == [
            {"id": 1, "name": "Ada"}
        ]
        people.write_text(people.read_text().splitlines(keepends=True)[0])
        with pytest.raises(SourceReplaced), Capture.open(log, "files") as capture:
            capture.catch_up()


def test_without_the_package_its_addresses_are_refused(tmp_path: Path) -> None:
    with log_at(tmp_path) as log, pytest.raises(ArgumentInvalid, match="sqlite:///path"):
        CaptureStore(log).create(CaptureConfig(name="files", url="jsonlines:///people.jsonl"))

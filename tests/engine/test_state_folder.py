"""The folder of state files: what killed processes leave behind goes, and what is being written stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa

from headwater.engine.state_folder import UNFINISHED_SECONDS_MAX, LocalFolder
from headwater.testing import Disk


def test_files_that_a_killed_process_had_begun_are_swept_and_those_in_the_making_stay(tmp_path: Path) -> None:
    killed, writing, whole = tmp_path / ".run-1.x.tmp", tmp_path / ".run-2.y.tmp", tmp_path / "run-0.arrow"
    long_ago = time.time() - UNFINISHED_SECONDS_MAX - 1
    for path in (killed, writing, whole):
        path.write_bytes(b"")
    for path in (killed, whole):
        os.utime(path, (long_ago, long_ago))
    LocalFolder(tmp_path).sweep()
    assert sorted(tmp_path.iterdir()) == sorted([writing, whole])


def test_a_folder_that_is_not_there_needs_no_sweep(tmp_path: Path) -> None:
    LocalFolder(tmp_path / "nothing").sweep()


def test_what_was_written_and_synced_is_there_after_a_power_cut(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "live", tmp_path / "record")
    rows = pa.table({"n": [1, 2, 3]})
    with disk.watching():
        folder = LocalFolder(disk.folder)
        folder.write("run-0", rows)
        folder.write_text("manifest", "whole")
        folder.sync()
    disk.cut(tmp_path / "after", loss="lost", names="lost", seed=1)
    after = LocalFolder(tmp_path / "after")
    assert after.map("run-0").equals(rows)
    assert after.read_text("manifest") == "whole"

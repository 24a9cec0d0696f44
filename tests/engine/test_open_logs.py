"""Logs that a process has open for its tasks."""

from __future__ import annotations

import shutil
from pathlib import Path

from headwater.engine.open_logs import shared_log
from headwater.log import open as open_log


def test_a_log_is_opened_once(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    assert shared_log(str(tmp_path)) is shared_log(str(tmp_path))


def test_a_log_that_was_closed_is_opened_again(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    shared_log(str(tmp_path)).close()
    assert not shared_log(str(tmp_path)).closed


def test_a_log_that_was_created_again_in_the_same_folder_is_another_one(tmp_path: Path) -> None:
    home, spare = tmp_path / "log", tmp_path / "spare"
    for folder, text in ((home, "old"), (spare, "new")):
        with open_log(folder) as log:
            log.create("words", {"text": "string"})
            log.append("words", [{"text": text}])
    assert [row["text"] for row in shared_log(str(home)).read("words").rows()] == ["old"]
    shutil.rmtree(home)
    spare.rename(home)
    assert [row["text"] for row in shared_log(str(home)).read("words").rows()] == ["new"]

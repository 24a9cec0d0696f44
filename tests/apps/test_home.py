"""The folder of an app: one process runs it, others find that process, and versions are remembered."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.apps.errors import AppSilent, RunnerNotFound
from headwater.apps.home import Home, Version
from headwater.errors import InUse

HOLD = """
import sys, time
from pathlib import Path
from headwater.apps.home import Home
home = Home(Path(sys.argv[1]))
with home.held("shop", wait=len(sys.argv) > 2):
    home.announce("http://127.0.0.1:9")
    print("held", flush=True)
    time.sleep(600)
"""


def holder(path: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", HOLD, str(path), *more], stdout=subprocess.PIPE, text=True)


def line_of(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def end(child: subprocess.Popen[str], number: int = signal.SIGKILL) -> None:
    child.send_signal(number)
    child.wait(30)
    if child.stdout is not None:
        child.stdout.close()


@pytest.mark.process
def test_a_second_runner_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    child = holder(tmp_path)
    try:
        assert line_of(child) == "held"
        with (
            pytest.raises(InUse, match=f"process {child.pid} at http://127.0.0.1:9"),
            Home(tmp_path).held("shop"),
        ):
            pass
        assert Home(tmp_path).is_held()
    finally:
        end(child)


@pytest.mark.process
def test_a_runner_killed_with_its_lock_held_leaves_the_way_free(tmp_path: Path) -> None:
    child = holder(tmp_path)
    assert line_of(child) == "held"
    end(child)
    assert not Home(tmp_path).is_held()
    assert Home(tmp_path).active_runner() is None  # although its address and token still stand there
    assert Home(tmp_path).runner() is not None
    with Home(tmp_path).held("shop"):
        assert Home(tmp_path).is_held()


@pytest.mark.core
@pytest.mark.process
def test_a_standby_takes_over_when_the_first_dies(tmp_path: Path) -> None:
    first = holder(tmp_path)
    assert line_of(first) == "held"
    second = holder(tmp_path, "--standby")
    try:
        end(first)
        assert line_of(second) == "held"
        runner = Home(tmp_path).active_runner()
        assert runner is not None
        assert runner.pid == second.pid
    finally:
        end(second)


def test_only_the_user_may_read_the_token(tmp_path: Path) -> None:
    runner = Home(tmp_path).announce("http://127.0.0.1:1")
    assert stat.S_IMODE(os.stat(tmp_path / "api.json").st_mode) == 0o600
    assert runner.token not in repr(runner)
    Home(tmp_path).withdraw()
    assert Home(tmp_path).runner() is None


def test_a_stale_token_file_is_no_runner(tmp_path: Path) -> None:
    Home(tmp_path).announce("http://127.0.0.1:1")
    with pytest.raises(RunnerNotFound, match="headwater run"):
        Home(tmp_path).connect(seconds_max=1.0)


@pytest.mark.process
def test_a_runner_whose_address_does_not_answer_is_silent(tmp_path: Path) -> None:
    child = holder(tmp_path)
    try:
        assert line_of(child) == "held"
        with pytest.raises(AppSilent), Home(tmp_path).connected(seconds_max=1.0) as connection:
            connection.get("/queries")
    finally:
        end(child)


@pytest.mark.parametrize("body", ["", "{", "[]", '{"pid": 1}'])
def test_a_damaged_token_file_is_no_runner(tmp_path: Path, body: str) -> None:
    (tmp_path / "api.json").write_text(body)
    assert Home(tmp_path).runner() is None


def test_versions_are_remembered(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.versions("spend", topic="spend").active == Version(number=1, topic="spend")
    tried = home.try_version("spend", topic="spend", start="latest")
    assert tried.trial == Version(number=2, topic="spend.v2", start="latest")
    assert Home(tmp_path).versions("spend", topic="spend") == tried
    assert Home(tmp_path).versions("other", topic="other").trial is None


def test_the_number_of_partitions_is_chosen_once_and_a_changed_setting_or_a_rescale_changes_it(tmp_path: Path) -> None:
    def partitions(setting: int | None, default: int = 2) -> int:
        return Home(tmp_path).partitions("spend", 1, setting=setting, default=default)

    assert [partitions(None), partitions(None, default=16)] == [2, 2], "the cores of another machine"
    assert [partitions(8), partitions(None), partitions(8)] == [8, 8, 8]
    Home(tmp_path).rescale("spend", 1, 3)
    assert [partitions(8), partitions(None), partitions(4)] == [3, 3, 4]
    assert Home(tmp_path).partitions("spend", 2, setting=None, default=5) == 5, "another version has its own"

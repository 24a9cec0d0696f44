"""Only the attempts of a task that reached the driver count: failed, dead and overtaken ones leave no row."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.log import Log
from tests.sinks.query_child import ROOT
from tests.sinks.streams import ids, staged_files

#: Each begins a session of its own, which runs one scenario after the other.
SESSIONS = {
    "retry": ("local[2,4]", ["format.die", "foreachBatch.raise"]),
    "more retries": ("local[2,4]", ["format.raise", "format.after", "foreachBatch.die"]),
    "cluster": ("cluster", ["format.raise", "format.dawdle", "foreachBatch.dawdle"]),
}


@pytest.mark.process
@pytest.mark.parametrize("session", ["retry", *(pytest.param(n, marks=pytest.mark.long) for n in [*SESSIONS][1:])])
def test_rows_of_attempts_that_failed_are_not_written(log: Log, tmp_path: Path, session: str) -> None:
    master, scenarios = SESSIONS[session]
    for topic in scenarios:
        log.create(topic, log.schema("out"), partitions=2, key="id")
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.sinks.attempts", str(tmp_path), master, *scenarios]
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    for topic in scenarios:
        assert ids(log, topic) == list(range(100)), topic
        overtaken = (tmp_path / f"overtaken-{topic}").exists()
        assert overtaken or not topic.endswith("dawdle"), "the second attempt was the quicker one"
    assert staged_files(log) == []

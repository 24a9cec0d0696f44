"""Processes share a queue without a server, and the death of one is noticed at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import headwater as hw

TAKE = """
import sys, headwater as hw
queue = hw.open(sys.argv[1]).queue("jobs")
print(len(queue.take(2, wait="30 seconds", lease="1 hour")), flush=True)
sys.stdin.read()
"""


@pytest.mark.process
def test_messages_of_a_killed_process_return_at_once_to_a_consumer_that_waits(tmp_path: Path) -> None:
    with hw.open(tmp_path / "log") as log:
        queue = log.queue("jobs", lease="1 hour")
        queue.put_many([1, 2, 3])
        command = [sys.executable, "-c", TAKE, str(tmp_path / "log")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "2\n"
            assert [message.body for message in queue.take(9)] == [3]
            os.kill(child.pid, signal.SIGKILL)
            began = time.monotonic()
            messages = queue.take(9, wait="60 seconds")
            assert [(message.body, message.attempt) for message in messages] == [(1, 2), (2, 2)]
            assert time.monotonic() - began < 30

"""What follows when a process dies with a message: the example of docs/explanation/redelivery-and-order.md."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import headwater as hw
from headwater.queues import Outgoing, Queue

TAKE = """
import sys, headwater as hw
log = hw.open(sys.argv[1])
for name in ("plain", "ordered", "single"):
    print(*[message.body for message in log.queue(name).take()], flush=True)
sys.stdin.read()
"""


def processed(queue: Queue, first: list[str]) -> list[str]:
    """Bodies in the order in which a worker acknowledges them, one message at a time, after those of `first`."""
    done = list(first)
    while len(done) < 3:
        for message in queue.take(wait="60 seconds"):
            done.append(message.body)
            message.ack()
    return done


@pytest.mark.process
def test_a_dead_processes_message_comes_after_later_ones_unless_the_queue_keeps_the_order(tmp_path: Path) -> None:
    with hw.open(tmp_path / "log") as log:
        plain = log.queue("plain", lease="1 hour")
        ordered = log.queue("ordered", lease="1 hour", ordered=True)
        single = log.queue("single", lease="1 hour", single_active=True)
        for queue in (plain, ordered, single):
            queue.put_many([Outgoing(body=body, key="Anna") for body in ("m3", "m4", "m5")])
        command = [sys.executable, "-c", TAKE, str(tmp_path / "log")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert [child.stdout.readline() for _ in range(3)] == ["m3\n"] * 3
            [later] = plain.take()  # while the other process has m3
            assert (ordered.take(), single.take()) == ([], [])
            os.kill(child.pid, signal.SIGKILL)
            later.ack()
        assert processed(plain, [later.body]) == ["m4", "m3", "m5"]
        assert processed(ordered, []) == ["m3", "m4", "m5"]
        assert processed(single, []) == ["m3", "m4", "m5"]

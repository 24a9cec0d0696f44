"""Kill the processes of a queue's workers, and compare what they did with what a queue promises.

Sixteen workers in four processes process messages of twenty keys. Half of the kills come from outside at a random time,
the others at a crash point of the log or the queue. Each worker writes what it does to a file: a line before it processes a
message, and one when the acknowledgement, or the rejection, has returned.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import headwater as hw
from headwater.faults import QUEUE_CRASH_POINTS, install
from headwater.queues import LeaseLost, Message, Outgoing, Queue

PROCESSES, THREADS, KEYS = 4, 4, 20
POINTS = (*QUEUE_CRASH_POINTS, "append.written", "append.half", "sync.synced", "commit.written", "commit.recorded")
MESSAGES_PER_KILL = 24
#: Each message with this remainder is rejected.
BAD = 7
DONE_SECONDS_MAX = 120.0


class Line(NamedTuple):
    """What a worker wrote: it began with a message, or the end of the delivery has returned."""

    at: int
    what: str
    number: int


@dataclass
class Verdict:
    """What is wrong with a series of lines."""

    messages: int
    processed: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.messages} messages, processed {self.processed} times, {len(self.problems)} problems"


def check(lines: Iterable[Line], *, messages: int, dead: Counter[int]) -> Verdict:
    """Compare what the workers wrote with the promises of a queue that keeps the order per key."""
    verdict = Verdict(messages)
    begun: Counter[int] = Counter()
    ended: set[int] = set()
    latest: dict[int, int] = {}
    for line in sorted(lines):
        if line.what == "ended":
            ended.add(line.number)
            continue
        begun[line.number] += 1
        if line.number in ended:
            verdict.problems.append(f"message {line.number} was delivered after its end")
        key = line.number % KEYS
        if line.number < latest.get(key, -1):
            verdict.problems.append(f"message {line.number} came after {latest[key]} of the same key")
        latest[key] = max(latest.get(key, -1), line.number)
    verdict.processed = begun.total()
    verdict.problems += [f"message {number} was never processed" for number in range(messages) if not begun[number]]
    expected = Counter(number for number in range(messages) if number % BAD == 0)
    if dead != expected:
        verdict.problems.append(f"dead letters differ: {(dead - expected) + (expected - dead)}")
    return verdict


def kill_workers(*, kills: int, seed: int, keep: bool, say: Callable[[str], None]) -> list[str]:
    """Kill workers so many times, let the queue be drained, and return what is wrong."""
    home = Path(tempfile.mkdtemp(prefix="headwater-chaos-queue-"))
    chance = random.Random(seed)
    with hw.open(home / "log") as log:
        queue = log.queue("jobs", ordered=True, count="failures", attempts_max=None, lease="5 minutes")
        workers: list[subprocess.Popen[bytes]] = []
        killed: Counter[str] = Counter()
        number = 0
        try:
            workers = [_start(home, chance) for _ in range(PROCESSES)]
            while killed.total() < kills:
                bodies = [
                    Outgoing(body=each, key=str(each % KEYS)) for each in range(number, number + MESSAGES_PER_KILL)
                ]
                queue.put_many(bodies)
                number += MESSAGES_PER_KILL
                place = chance.randrange(PROCESSES)
                # A worker with a crash point kills itself before that; the others are killed at a random time.
                try:
                    workers[place].wait(timeout=chance.uniform(0.2, 1.5))
                    killed["at a crash point"] += 1
                except subprocess.TimeoutExpired:
                    workers[place].kill()
                    workers[place].wait()
                    killed["at a random time"] += 1
                workers[place] = _start(home, chance)
                say(f"kill {killed.total()}: {queue.stats().length} messages left")
            problems = _drained(queue, workers, home, chance)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        letters = Counter(int(row["row"].split('"body":"')[1].split('"')[0]) for row in log.read("jobs.dlq").rows())
        queue.close()
    verdict = check(_lines(home), messages=number, dead=letters)
    problems += verdict.problems
    print(f"queue: killed {dict(killed)}; {verdict}")
    for problem in problems[:20]:
        print(f"WRONG {problem}")
    if problems or keep:
        print(f"folder: {home}")
    else:
        shutil.rmtree(home, ignore_errors=True)
    return problems


def _drained(queue: Queue, workers: list[subprocess.Popen[bytes]], home: Path, chance: random.Random) -> list[str]:
    """Wait until the queue is empty; workers that still kill themselves are started again."""
    deadline = time.monotonic() + DONE_SECONDS_MAX
    while queue.stats().length:
        if time.monotonic() > deadline:
            return [f"messages are left: {queue.stats()}"]
        for place, worker in enumerate(workers):
            if worker.poll() is not None:
                workers[place] = _start(home, chance, points=())
        time.sleep(0.05)
    return []


def _start(home: Path, chance: random.Random, *, points: tuple[str, ...] = POINTS) -> subprocess.Popen[bytes]:
    point = chance.choice(points) if points and chance.random() < 0.7 else ""
    command = [sys.executable, "-m", "tests.chaos.queue", str(home), point, str(chance.randint(1, 4))]
    return subprocess.Popen(command)


def _lines(home: Path) -> list[Line]:
    lines = []
    for path in home.glob("worker-*.txt"):
        for text in path.read_text().splitlines():
            at, what, number = text.split()
            lines.append(Line(int(at), what, int(number)))
    return lines


# -- the process of some workers ------------------------------------------------------------------------------------------


def work(home: Path, point: str, visits: int) -> None:
    """Process messages until this process is killed."""
    left = [visits]

    def hook(reached: str) -> None:
        if reached == point:
            left[0] -= 1
            if left[0] <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    log = hw.open(home / "log")
    queue = log.queue("jobs")
    file = os.open(home / f"worker-{os.getpid()}-{time.monotonic_ns()}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if point:
        install(hook)

    def note(what: str, message: Message) -> None:
        os.write(file, f"{time.monotonic_ns()} {what} {message.body}\n".encode())

    def process() -> None:
        while True:
            for message in queue.take(3, wait=1):
                note("began", message)
                try:
                    if message.body % BAD == 0:
                        message.reject(reason="bad")
                    else:
                        message.ack()
                except LeaseLost:
                    continue
                note("ended", message)

    threads = [threading.Thread(target=process) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))

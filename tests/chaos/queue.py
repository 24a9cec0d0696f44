"""Kill the processes of a queue's workers, and compare what they did with what a queue promises.

Sixteen workers in four processes process messages of twenty keys, and scheduled ones without a key. Half of the kills come
from outside at a random time, the others at a crash point of the log or the queue. Each worker writes what it does to a file: a line before it processes a
message, and one when the acknowledgement, or the rejection, has returned.

Over HTTP, the workers and the program that puts reach the queue through a server, and half of the kills are the server's.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import headwater as hw
from headwater.cli import leave_pandas_out
from headwater.faults import QUEUE_CRASH_POINTS, install
from headwater.log.errors import ServerUnreachable
from headwater.queues import LeaseLost, Message, Outgoing, Queue, WorkQueue
from tests.servers import free_port

PROCESSES, THREADS, KEYS = 4, 4, 20
POINTS = (*QUEUE_CRASH_POINTS, "append.written", "append.half", "sync.synced", "commit.written", "commit.recorded")
MESSAGES_PER_KILL = 24
#: Each message with this remainder is rejected.
BAD = 7
#: Each message with the last remainder has no key, and is scheduled.
SCHEDULED = 6
DELAY_SECONDS = 1.5
DONE_SECONDS_MAX = 120.0
START_SECONDS_MAX = 120.0
#: How long a worker over HTTP holds a message: nothing else tells the server that it was killed.
LEASE_SECONDS = 5
#: How long a program that cannot reach the server waits before it asks again.
AWAY_SECONDS = 0.1


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


def is_scheduled(number: int) -> bool:
    return number % SCHEDULED == SCHEDULED - 1


def check(lines: Iterable[Line], *, messages: int, dead: Counter[int], due: Mapping[int, int]) -> Verdict:
    """Compare what the workers wrote with the promises of a queue that keeps the order per key. `due` has the earliest times."""
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
        if line.at < due.get(line.number, 0):
            verdict.problems.append(f"message {line.number} came before its time")
        if is_scheduled(line.number):
            continue
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


class Processes:
    """The workers, and over HTTP the server, each started again after its end."""

    def __init__(self, home: Path, chance: random.Random, *, http: bool) -> None:
        self._home, self._chance = home, chance
        self.port = free_port() if http else None
        self.address = str(home / "log") if self.port is None else f"http://127.0.0.1:{self.port}"
        self.killed: Counter[str] = Counter()
        self.server = None if self.port is None else self._start("serve", str(self.port))
        self.workers = [self._start_worker() for _ in range(PROCESSES)]

    def kill_one(self) -> None:
        """Kill the server or a worker, and start it again."""
        if self.server is not None and self._chance.random() < 0.5:
            self._end(self.server, "server", seconds=self._chance.uniform(0.5, 3.0))
            self.server = self._start("serve", str(self.port))
        else:
            at_work = [each for each in range(PROCESSES) if self._is_at_work(self.workers[each], "worker")]
            place = self._chance.choice(at_work or range(PROCESSES))
            self._end(self.workers[place], "worker", seconds=self._chance.uniform(0.2, 1.5))
            self.workers[place] = self._start_worker()

    def serve_again(self, *, points: tuple[str, ...] = POINTS) -> None:
        """Start the server again if it has ended at a crash point."""
        if self.server is not None and self.server.poll() is not None:
            self.killed["server at a crash point"] += 1
            self.server = self._start("serve", str(self.port), points=points)

    def restart(self) -> None:
        """Start those again that have ended at a crash point; they kill themselves no more."""
        self.serve_again(points=())
        for place, worker in enumerate(self.workers):
            if worker.poll() is not None:
                self.workers[place] = self._start_worker(points=())

    def close(self) -> None:
        for process in [*self.workers, *([] if self.server is None else [self.server])]:
            process.kill()
            process.wait()

    def _end(self, process: subprocess.Popen[bytes], what: str, *, seconds: float) -> None:
        # The time begins when it is at work: where the machine is busy, a start takes longer than that.
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._is_at_work(process, what):
            if time.monotonic() > deadline:
                raise TimeoutError(f"a {what} did not start within {START_SECONDS_MAX:g} seconds")
            if process is not self.server:
                self.serve_again()  # a worker waits for it
            time.sleep(0.01)
        # A process with a crash point kills itself before that; the others are killed at a random time.
        try:
            process.wait(timeout=seconds)
            self.killed[f"{what} at a crash point"] += 1
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self.killed[f"{what} at a random time"] += 1

    def _is_at_work(self, process: subprocess.Popen[bytes], what: str) -> bool:
        return process.poll() is not None or bool(list(self._home.glob(f"{what}-{process.pid}-*.txt")))

    def _start_worker(self, *, points: tuple[str, ...] = POINTS) -> subprocess.Popen[bytes]:
        return self._start("work", self.address, points=() if self.port is not None else points)

    def _start(self, what: str, where: str, *, points: tuple[str, ...] = POINTS) -> subprocess.Popen[bytes]:
        point = self._chance.choice(points) if points and self._chance.random() < 0.7 else ""
        visits = str(self._chance.randint(1, 4))
        command = [sys.executable, "-m", "tests.chaos.queue", what, str(self._home), where, point, visits]
        return subprocess.Popen(command)


def kill_workers(*, kills: int, seed: int, keep: bool, say: Callable[[str], None], http: bool = False) -> list[str]:
    """Kill workers so many times, let the queue be drained, and return what is wrong."""
    home = Path(tempfile.mkdtemp(prefix="headwater-chaos-queue-"))
    with hw.open(home / "log") as log, ExitStack() as stack:
        lease = LEASE_SECONDS if http else "5 minutes"
        queue = log.queue(
            "jobs",
            ordered=True,
            count="failures",
            attempts_max=None,
            lease=lease,
            deduplicate="1 day" if http else None,
        )
        processes = Processes(home, random.Random(seed), http=http)
        number, due = 0, dict[int, int]()
        try:
            putter = stack.enter_context(_opened(processes.address)) if http else queue
            while processes.killed.total() < kills:
                numbers = range(number, number + MESSAGES_PER_KILL)
                earliest = time.monotonic_ns() + int(DELAY_SECONDS * 1e9)
                due |= {each: earliest for each in numbers if is_scheduled(each)}
                _put(putter, numbers, processes)
                number += MESSAGES_PER_KILL
                processes.kill_one()
                say(f"kill {processes.killed.total()}: {queue.stats().length} messages left")
            problems = _drained(queue, processes)
        finally:
            processes.close()
        letters = Counter(int(row["row"].split('"body":"')[1].split('"')[0]) for row in log.read("jobs.dlq").rows())
        queue.close()
    verdict = check(_lines(home), messages=number, dead=letters, due=due)
    problems += verdict.problems
    print(f"queue{' over HTTP' if http else ''}: killed {dict(processes.killed)}; {verdict}")
    for problem in problems[:20]:
        print(f"WRONG {problem}")
    if problems or keep:
        print(f"folder: {home}")
    else:
        shutil.rmtree(home, ignore_errors=True)
    return problems


def _put(queue: WorkQueue, numbers: range, processes: Processes) -> None:
    """Put messages once, however often the server is killed meanwhile: each has an id."""
    messages = [
        Outgoing(body=each, id=str(each), delay=DELAY_SECONDS)
        if is_scheduled(each)
        else Outgoing(body=each, key=str(each % KEYS), id=str(each))
        for each in numbers
    ]
    while True:
        try:
            queue.put_many(messages)
            return
        except ServerUnreachable:
            processes.serve_again()
            time.sleep(AWAY_SECONDS)


def _drained(queue: Queue, processes: Processes) -> list[str]:
    """Wait until the queue is empty; processes that still kill themselves are started again."""
    deadline = time.monotonic() + DONE_SECONDS_MAX
    while queue.stats().length:
        if time.monotonic() > deadline:
            return [f"messages are left: {queue.stats()}"]
        processes.restart()
        time.sleep(0.05)
    return []


@contextmanager
def _opened(address: str) -> Iterator[WorkQueue]:
    """The queue of a log, as soon as its server answers."""
    with hw.open(address) as log:
        queue: WorkQueue | None = None
        while queue is None:
            try:
                queue = log.queue("jobs")
            except ServerUnreachable:
                time.sleep(AWAY_SECONDS)
        yield queue


def _lines(home: Path) -> list[Line]:
    lines = []
    for path in home.glob("worker-*.txt"):
        for text in path.read_text().splitlines():
            at, what, number = text.split()
            lines.append(Line(int(at), what, int(number)))
    return lines


# -- the processes that are killed ---------------------------------------------------------------------------------------


def strike_at(point: str, visits: int) -> None:
    """Kill this process when it reaches a crash point for so many times."""
    left = [visits]

    def hook(reached: str) -> None:
        if reached == point:
            left[0] -= 1
            if left[0] <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    if point:
        install(hook)


def serve(home: Path, port: int) -> None:
    """Serve the log until this process is killed."""
    from headwater.http import Address, served  # workers start in half of the time without it

    with hw.open(home / "log") as log, served(log, Address(port=port)):
        (home / f"server-{os.getpid()}-{time.monotonic_ns()}.txt").touch()
        signal.pause()


def work(home: Path, queue: WorkQueue) -> None:
    """Process messages until this process is killed."""
    file = os.open(home / f"worker-{os.getpid()}-{time.monotonic_ns()}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(what: str, message: Message) -> None:
        os.write(file, f"{time.monotonic_ns()} {what} {message.body}\n".encode())

    def process() -> None:
        while True:
            try:
                messages = queue.take(3, wait=1)
            except ServerUnreachable:
                time.sleep(AWAY_SECONDS)
                continue
            for message in messages:
                note("began", message)
                try:
                    if message.body % BAD == 0:
                        message.reject(reason="bad")
                    else:
                        message.ack()
                except LeaseLost:
                    continue
                except ServerUnreachable:  # whether the message has ended is not known
                    continue
                note("ended", message)

    threads = [threading.Thread(target=process) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    leave_pandas_out()  # it takes longer to load than all of Headwater
    what, folder, where, point, visits = sys.argv[1:]
    strike_at(point, int(visits))
    if what == "serve":
        serve(Path(folder), int(where))
    else:
        with _opened(where) as jobs:
            work(Path(folder), jobs)

"""Kill the processes that send conflicting commands, and compare the histories with what event sourcing promises.

Eight processes send the same kinds of commands to ten accounts: single ones, batches, transfers in a transaction and
payments over a tagged boundary. Each command has an id that a second process sends, too. Half of the kills come from
outside at a random time, the others at a crash point. Each process writes to a file what was acknowledged to it.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import headwater as hw
from headwater.faults import SOURCING_CRASH_POINTS, install
from headwater.sourcing import CommandRejected, CommandRequest, RecordedEvent, partition_events
from tests.sourcing.account import DECIDER, Accounts, Deposit, Withdraw

PROCESSES, IDS = 8, 10
POINTS = (*SOURCING_CRASH_POINTS, "append.written", "append.half", "sync.synced", "commit.written", "commit.recorded")
BOUNDARY = ("kind:Deposited", "kind:Withdrawn")
STOP_SECONDS_MAX = 60.0


@dataclass
class Verdict:
    """What is wrong with the histories."""

    events: int
    commands: int = 0
    acknowledged: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.events} events of {self.commands} commands, {self.acknowledged} acknowledged, {len(self.problems)} problems"


def check(histories: dict[str, list[RecordedEvent]], acknowledged: Iterable[str]) -> Verdict:
    """Compare histories with the promises: numbered without gaps, each command once, and none that was acknowledged lost."""
    verdict = Verdict(sum(map(len, histories.values())))
    done: Counter[str] = Counter()
    transfers: dict[str, set[str]] = defaultdict(set)
    for id, history in histories.items():
        if [each.version for each in history] != list(range(1, len(history) + 1)):
            verdict.problems.append(f"the versions of {id} have gaps")
        for each in history:
            done[f"{id} {each.command_id}"] += 1
            if each.correlation:
                transfers[each.correlation].add(id)
    verdict.commands = len(done)
    verdict.problems += [f"command {name} was done {count} times" for name, count in done.items() if count > 1]
    verdict.problems += [f"transfer {name} has one side" for name, sides in transfers.items() if len(sides) != 2]
    for name in acknowledged:
        verdict.acknowledged += 1
        if name not in done:
            verdict.problems.append(f"command {name} was acknowledged, and is lost")
    return verdict


def kill_writers(*, kills: int, seed: int, keep: bool, say: Callable[[str], None]) -> list[str]:
    """Kill writers so many times, and return what is wrong."""
    home = Path(tempfile.mkdtemp(prefix="headwater-chaos-sourcing-"))
    chance = random.Random(seed)
    writers: list[subprocess.Popen[bytes]] = []
    killed: Counter[str] = Counter()
    with hw.open(home / "log") as log:
        hw.Entities(log, "account", DECIDER, partitions=3).close()
        try:
            writers = [_start(home, chance, place) for place in range(PROCESSES)]
            while killed.total() < kills:
                place = chance.randrange(PROCESSES)
                # A writer with a crash point kills itself before that; the others are killed at a random time.
                try:
                    writers[place].wait(timeout=chance.uniform(0.5, 2.5))
                    killed["at a crash point"] += 1
                except subprocess.TimeoutExpired:
                    writers[place].kill()
                    writers[place].wait()
                    killed["at a random time"] += 1
                writers[place] = _start(home, chance, place)
                say(f"kill {killed.total()}: {log.end_offsets('account.events')}")
            (home / "stop").touch()
            problems = _stopped(writers)
        finally:
            for writer in writers:
                writer.kill()
                writer.wait()
        problems += _compared(home, log)
    print(f"sourcing: killed {dict(killed)}")
    for problem in problems[:20]:
        print(f"WRONG {problem}")
    if problems or keep:
        print(f"folder: {home}")
    else:
        shutil.rmtree(home, ignore_errors=True)
    return problems


def _compared(home: Path, log: hw.Log) -> list[str]:
    """What is wrong, as the indexes of the writers say and as new ones say, which are built from the topic."""
    acknowledged = [line for path in home.glob("writer-*.txt") for line in path.read_text().splitlines()]
    problems = []
    states = []
    for _ in range(2):
        with hw.Entities(log, "account", DECIDER) as accounts:
            histories = {id: accounts.history(id) for id, _ in accounts.ids()}
            verdict = check(histories, acknowledged)
            print(f"sourcing: {verdict}")
            problems += verdict.problems
            states.append({id: accounts.load(id) for id in histories})
            for id, history in histories.items():
                if accounts.load(id).state != DECIDER.fold(each.event for each in history):
                    problems.append(f"the state of {id} is not the fold of its events")
        shutil.rmtree(log.home / "entities")
    if states[0] != states[1]:
        problems.append("an index that was built again has other states")
    return problems


def _stopped(writers: list[subprocess.Popen[bytes]]) -> list[str]:
    deadline = time.monotonic() + STOP_SECONDS_MAX
    for writer in writers:
        try:
            writer.wait(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return ["a writer does not end"]
    bad = [writer.returncode for writer in writers if writer.returncode not in (0, -signal.SIGKILL)]
    return [f"a writer ended with {code}" for code in bad]


def _start(home: Path, chance: random.Random, place: int) -> subprocess.Popen[bytes]:
    point = chance.choice(POINTS) if chance.random() < 0.7 else ""
    numbers = [str(place), point, str(chance.randint(1, 6)), str(chance.randrange(1 << 30))]
    return subprocess.Popen([sys.executable, "-m", "tests.chaos.sourcing", str(home), *numbers])


# -- the process of a writer ----------------------------------------------------------------------------------------------


def write(home: Path, place: int, point: str, visits: int, seed: int) -> None:
    """Send commands until this process is killed or told to stop."""
    left = [visits]

    def hook(reached: str) -> None:
        if reached == point:
            left[0] -= 1
            if left[0] <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    partition_events.RECENT_MAX = 5  # so that the index is written often
    chance = random.Random(seed)
    file = os.open(home / f"writer-{os.getpid()}-{time.monotonic_ns()}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if point:
        install(hook)
    with hw.open(home / "log") as log, hw.Entities(log, "account", DECIDER, snapshot_events=5) as accounts:
        while not (home / "stop").exists():
            # Two processes use each name, and after a kill the names are used again: most commands are sent twice.
            name = f"{place % (PROCESSES // 2)}-{len(os.listdir(home)) // PROCESSES}-{chance.randrange(200)}"
            for id, command_id in _send(accounts, name, random.Random(name)):
                os.write(file, f"{id} {command_id}\n".encode())


def _send(accounts: Accounts, name: str, chance: random.Random) -> list[tuple[str, str]]:
    """Send what a name stands for, always the same; return the acknowledged commands that have events."""
    id, other = (f"a-{number}" for number in chance.sample(range(IDS), 2))
    try:
        match chance.randrange(5):
            case 0 | 1:
                accounts.send(id, Deposit(1 + chance.randrange(9)), command_id=name)
                return [(id, name)]
            case 2:
                made = [CommandRequest(id=each, command=Deposit(2), command_id=f"{name}.m") for each in (id, other, id)]
                return [(each.id, f"{name}.m") for each in accounts.send_many(made)]
            case 3:
                with accounts.transaction() as transfer:
                    transfer.send(id, Withdraw(3), command_id=f"{name}.t", correlation=name)
                    transfer.send(other, Deposit(3), command_id=f"{name}.t", correlation=name)
                return [(id, f"{name}.t"), (other, f"{name}.t")]
            case _:
                accounts.decide_over(BOUNDARY, Withdraw(1), id="till", command_id=f"{name}.d")
                return [("till", f"{name}.d")]
    except CommandRejected:
        return []


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))

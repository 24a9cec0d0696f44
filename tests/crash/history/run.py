"""Let processes make histories on one log, kill them all the while, and judge what they saw.

    make crash ARGS="--history --minutes 15 --seed 7"            histories of a minute each, on a fresh log each time
    make crash ARGS="--history --minutes 1 --plant lost-append"  the same with a log that has a fault: it must be found

Kills come at random moments and at named crash points. The seed decides what each process tries and when it is to die;
how processes overlap is up to the machine, so that a seed does not repeat a history.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from headwater.testing import CRASH_POINTS, SINK_CRASH_POINTS, CrashAt, start_child
from headwater.testing.crash import PointCounts
from tests.crash.history.check import Verdict, Violation, check
from tests.crash.history.plant import PLANTS
from tests.crash.history.record import History
from tests.crash.history.work import WORLD, end, journals_of, live, look

#: All of the log's but those of making and deleting topics, which a history does not do.
POINTS = tuple(point for point in (*CRASH_POINTS, *SINK_CRASH_POINTS) if not point.startswith("topic."))
#: How long a process lives at most, also where it does not come to its crash point.
LIFE_SECONDS_MAX = 3.0
#: How long the last processes of a history may take; one that takes longer hangs.
END_SECONDS_MAX = 300.0
VIOLATIONS_SHOWN = 10


@dataclass
class Tally:
    """What all histories have come to."""

    histories: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    operations: Counter[tuple[str, str]] = field(default_factory=Counter)
    reads: int = 0
    rows_read: int = 0
    polls: int = 0
    checks: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)


@dataclass(kw_only=True)
class Life:
    """One process from its start to its kill."""

    pid: int
    at: CrashAt | None
    counts: PointCounts
    errors: Path
    until: float


class Processes:
    """The processes of one history: each that dies is followed by another in its place."""

    def __init__(self, folder: Path, home: Path, *, slots: int, seed: int, plant: str | None) -> None:
        self._folder = folder
        self._home = home
        self._random = random.Random(seed)
        self._plant = plant
        self._lives: dict[int, Life | None] = dict.fromkeys(range(slots))
        self._born = Counter[int]()
        self._points = list(POINTS)
        self.kills: Counter[str] = Counter()
        self.errors: list[str] = []

    def work(self, *, seconds: float, say: Callable[[int], None]) -> None:
        """Keep all slots filled with processes for so long, then kill those that still run."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.errors:
            for slot, life in self._lives.items():
                if life is None or self._is_over(life):
                    self._lives[slot] = self._start(slot)
            if self._random.random() < 0.002:
                self._kill_all()
            say(sum(self.kills.values()))
            time.sleep(0.005)  # the interval at which slots are checked; nothing depends on it
        self._kill_all()
        for life in self._lives.values():
            if life is not None:
                self._bury(life, os.waitpid(life.pid, 0)[1])

    def _start(self, slot: int) -> Life:
        number = self._born[slot]
        self._born[slot] += 1
        at, seconds = None, min(LIFE_SECONDS_MAX, 0.1 + self._random.expovariate(1.0))
        if self._random.random() < 0.6:
            at, seconds = self._crash(), LIFE_SECONDS_MAX
        counts = PointCounts()
        errors = self._home / f"p{slot}-{number}.errors"
        work = partial(
            live,
            self._folder,
            self._home,
            slot=slot,
            life=number,
            seed=self._random.randrange(2**32),
            plant=self._plant,
        )
        pid = start_child(work, at=at, counts=counts, errors=errors)
        return Life(pid=pid, at=at, counts=counts, errors=errors, until=time.monotonic() + seconds)

    def _crash(self) -> CrashAt:
        # In turn, so that no point is left out.
        point = self._points.pop(0)
        self._points.append(point)
        frequent = point.startswith(("append", "sync"))
        return CrashAt(point=point, visit=1 + int(self._random.expovariate(1 / (40 if frequent else 3))))

    def _is_over(self, life: Life) -> bool:
        ended, status = os.waitpid(life.pid, os.WNOHANG)
        if ended:
            self._bury(life, status)
            return True
        if time.monotonic() > life.until:
            os.kill(life.pid, signal.SIGKILL)
        return False

    def _kill_all(self) -> None:
        for life in self._lives.values():
            if life is not None:
                os.kill(life.pid, signal.SIGKILL)

    def _bury(self, life: Life, status: int) -> None:
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            reached = life.at is not None and life.counts.as_dict()[life.at.point] >= life.at.visit
            self.kills[life.at.point if life.at is not None and reached else "(at random)"] += 1
        else:
            text = life.errors.read_text(encoding="utf-8") if life.errors.exists() else f"status {status}"
            self.errors.append(f"a process came to its end by itself: {text}")


def play(
    home: Path, *, slots: int, seconds: float, seed: int, plant: str | None, tally: Tally, say: Callable[[int], None]
) -> Verdict:
    """One history on a fresh log."""
    folder = home / "log"
    journals = home / "journals"
    journals.mkdir(parents=True)
    processes = Processes(folder, journals, slots=slots, seed=seed, plant=plant)
    processes.work(seconds=seconds, say=say)
    wrong = list(processes.errors)
    for name, work in (("end", partial(end, folder, journals, slots=slots)), ("look", partial(look, folder, journals))):
        wrong += _last(work, home / f"{name}.errors")
    history = History.read(journals_of(journals))
    verdict = check(history, WORLD)
    verdict.violations[:0] = [Violation(check="errors", text=text) for text in wrong if not history.errors]
    _count(tally, history, verdict, processes.kills)
    return verdict


def _last(work: Callable[[], None], errors: Path) -> list[str]:
    """Run one of the last processes, which nothing kills unless it hangs."""
    child = start_child(work, errors=errors)
    deadline = time.monotonic() + END_SECONDS_MAX
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return (
                [] if status == 0 else [errors.read_text(encoding="utf-8") if errors.exists() else f"status {status}"]
            )
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return [f"{errors.stem}: the process hung for {END_SECONDS_MAX:.0f} seconds"]


def _count(tally: Tally, history: History, verdict: Verdict, kills: Counter[str]) -> None:
    tally.histories += 1
    tally.kills += kills
    for operation in history.operations.values():
        act = operation.act
        kind = "group commit" if act.kind == "offsets" else act.kind
        if act.expected_offset is not None or act.expected_key_offset is not None:
            kind = "conditional append"
        elif operation.prepared:
            kind = "prepared transaction"
        elif act.sequence is not None:
            kind = f"idempotent {kind}"
        tally.operations[kind, operation.status] += 1
    tally.polls += sum(1 for read in history.reads if read.group)
    tally.reads += sum(1 for read in history.reads if not read.group)
    tally.rows_read += sum(len(span.ids) for read in history.reads for span in read.spans)
    tally.checks += verdict.checks
    tally.violations += verdict.violations


def series(
    *, seconds: float, history_seconds: float, slots: int, seed: int, plant: str | None, quiet: bool, keep: bool = False
) -> Tally:
    """Histories one after the other, for so long."""
    from tests.crash.run import warm_up

    warm_up()
    tally = Tally()
    memory = Path("/dev/shm")
    root = Path(tempfile.mkdtemp(prefix="headwater-history-", dir=memory if os.access(memory, os.W_OK) else None))
    began = time.monotonic()
    left = seconds
    while left > 0.5 or not tally.histories:
        number = tally.histories
        say = _progress(began, f"history {number + 1}", quiet=quiet)
        home = root / str(number)
        verdict = play(
            home,
            slots=slots,
            seconds=min(left, history_seconds),
            seed=seed * 1_000 + number,
            plant=plant,
            tally=tally,
            say=say,
        )
        if not quiet:
            count = sum(tally.operations.values())
            print(
                f"\r{time.monotonic() - began:6.0f} s: history {number + 1} judged; so far {count} operations, "
                f"{sum(tally.kills.values())} kills, {len(tally.violations)} violations",
                flush=True,
            )
        for violation in verdict.violations[:VIOLATIONS_SHOWN]:
            print(f"VIOLATION {violation}")
        if keep or (verdict.violations and plant is None):
            kept = Path(tempfile.mkdtemp(prefix=f"headwater-history-{seed}-{number}-"))
            shutil.copytree(home, kept, dirs_exist_ok=True)
            print(f"folder: {kept}", flush=True)
        shutil.rmtree(home, ignore_errors=True)
        left = seconds - (time.monotonic() - began)
    shutil.rmtree(root, ignore_errors=True)
    return tally


def _progress(began: float, name: str, *, quiet: bool) -> Callable[[int], None]:
    """Shows once a second how many kills there were."""
    shown = 0.0

    def say(kills: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if not quiet and now - shown >= 1.0:
            shown = now
            print(f"\r{now - began:6.0f} s: {name}, {kills} kills ", end="", flush=True)

    return say


def report(tally: Tally) -> str:
    """Counts of operations, kills and checks, and how many claims did not hold."""
    kinds = sorted({kind for kind, _ in tally.operations})
    statuses = ("ok", "failed", "unknown")
    lines = ["", f"{'operation':32}" + "".join(f"{status:>10}" for status in statuses)]
    lines += [f"{kind:32}" + "".join(f"{tally.operations[kind, one]:>10}" for one in statuses) for kind in kinds]
    lines += [f"{'read':32}{tally.reads:>10}", f"{'poll of a group':32}{tally.polls:>10}"]
    lines += ["", f"{'killed at':32}{'kills':>10}"]
    lines += [f"{point:32}{tally.kills[point]:>10}" for point in (*POINTS, "(at random)")]
    lines += ["", f"{'claim':32}{'checks':>10}{'violations':>12}"]
    broken = Counter(violation.check for violation in tally.violations)
    lines += [f"{name:32}{tally.checks[name]:>10}{broken[name]:>12}" for name in sorted({*tally.checks, *broken})]
    lines += [
        "",
        f"{tally.histories} histories, {sum(tally.operations.values())} operations, {tally.rows_read} rows read, "
        f"{sum(tally.kills.values())} kills, {sum(tally.checks.values())} checks",
        f"violations: {len(tally.violations)}",
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    description = __doc__.splitlines()[0] if __doc__ else ""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.run --history", description=description)
    parser.add_argument("--history", action="store_true", help="this kind of run")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--history-seconds", type=float, default=45.0, help="after how long a new log is begun")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="use a log with this fault")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--keep", action="store_true", help="keep the log and the journals of each history")
    chosen = parser.parse_args(arguments)
    tally = series(
        seconds=chosen.minutes * 60,
        history_seconds=chosen.history_seconds,
        slots=chosen.processes,
        seed=chosen.seed,
        plant=chosen.plant,
        quiet=chosen.quiet,
        keep=chosen.keep,
    )
    print(report(tally))
    return 1 if tally.violations else 0

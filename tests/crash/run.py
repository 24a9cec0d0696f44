"""Run seeded crashes and show what they did.

    python -m tests.crash.run --runs 1000 --seed 1     1,000 crashes, each at another step or with another loss
    python -m tests.crash.run --only 1000042           one of them again, with its folder kept
    python -m tests.crash.run --history --minutes 15   many processes, killed again and again: see tests/crash/history

A warmed parent forks one child per crash, so that a run takes a fraction of the time that an interpreter needs to start.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from headwater.testing import (
    CRASH_POINTS,
    LOSSES,
    NAME_LOSSES,
    SINK_CRASH_POINTS,
    CrashAt,
    Disk,
    reboot,
    run_until_killed,
    start_child,
)
from tests.crash.checks import Verdict, check
from tests.crash.journal import Journal, Story
from tests.crash.scenarios import SCENARIOS, Scenario
from tests.crash.workload import Watcher, join_in, make_topics, open_log, work

POINTS = CRASH_POINTS + SINK_CRASH_POINTS
CROWD = 3
ACTS_PER_VISITOR = 1_000
SEEDS_PER_SERIES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Crash:
    """One end of the workload: the point at which it is killed and, for a power cut, what is lost."""

    at: CrashAt
    loss: str | None
    names: str

    def __str__(self) -> str:
        power = f", power lost: bytes {self.loss}, names {self.names}" if self.loss else ""
        return f"{self.at.point} at visit {self.at.visit}{power}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of a run, derived from its seed."""

    seed: int
    scenario: Scenario
    crashes: tuple[Crash, ...]
    bystander: bool
    crowd: bool

    @classmethod
    def of(cls, seed: int) -> Plan:
        """Consecutive seeds use all points in turn, so that a series covers each."""
        chance = random.Random(seed)
        point = POINTS[seed % len(POINTS)]
        scenario = chance.choice([scenario for scenario in SCENARIOS if point in scenario.points])
        powered = chance.random() < 0.5
        crashes = [cls._crash(chance, point, powered=powered)]
        while chance.random() < 0.3 and len(crashes) < 3:
            crashes.insert(0, cls._crash(chance, chance.choice(scenario.points), powered=chance.random() < 0.5))
        return cls(
            seed=seed,
            scenario=scenario,
            crashes=tuple(crashes),
            bystander=not powered and chance.random() < 0.4,
            crowd=chance.random() < 0.2,
        )

    @staticmethod
    def _crash(chance: random.Random, point: str, *, powered: bool) -> Crash:
        frequent = point.startswith(("append", "sync"))
        visit = 1 + int(chance.expovariate(1 / (6 if frequent else 2)))
        loss = chance.choice(LOSSES) if powered else None
        return Crash(at=CrashAt(point=point, visit=visit), loss=loss, names=chance.choice(NAME_LOSSES))

    def __str__(self) -> str:
        crashes = "; then ".join(map(str, self.crashes))
        watched = ", seen by a process that lives on" if self.bystander else ""
        crowd = ", opened by many at once" if self.crowd else ""
        return f"seed {self.seed}: {self.scenario.name}, {crashes}{watched}{crowd}"


@dataclass
class Tally:
    """The totals of a series of runs."""

    kills: Counter[str] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)
    names: Counter[str] = field(default_factory=Counter)
    scenarios: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    crashes: int = 0
    bystanders: int = 0
    crowds: int = 0
    acknowledged: int = 0
    seen: int = 0
    lost: int = 0
    doubled: int = 0
    reused: int = 0
    failures: list[str] = field(default_factory=list)


def run(plan: Plan, home: Path, tally: Tally) -> list[str]:
    """Run a plan, and return the violations."""
    home.mkdir(parents=True)
    journal = home / "journal"
    journal.touch()
    folder = home / "log"
    boots = 0
    disk = Disk(folder, home / "disk0")
    for place, crash in enumerate(plan.crashes):
        last = place == len(plan.crashes) - 1
        powered = any(later.loss for later in plan.crashes[place:])
        witness = _Witness(plan, folder, journal, home, power_lost=boots > 0) if last and plan.bystander else None
        ended = run_until_killed(
            lambda place=place, disk=disk, powered=powered: _work(plan, disk, journal, place, powered=powered),  # type: ignore[misc]
            at=crash.at,
            errors=home / "errors",
        )
        if (home / "errors").exists():
            return ["the workload failed:\n" + (home / "errors").read_text(encoding="utf-8")]
        tally.crashes += 1
        tally.kills[crash.at.point if ended.killed else "(came to its end)"] += 1
        if crash.loss is not None:
            boots += 1
            after = home / f"log{boots}"
            disk.cut(after, loss=crash.loss, names=crash.names, seed=plan.seed + place)
            shutil.rmtree(folder)
            after.rename(folder)
            disk = Disk(folder, home / f"disk{boots}")
            reboot(f"{plan.seed}-{boots}")
            tally.losses[crash.loss] += 1
            tally.names[crash.names] += 1
        if last and plan.crowd:
            wrong = _crowd(plan, folder, journal, home)
            if wrong:
                return wrong
        if last:
            verdict = witness.verdict() if witness else _in_child(plan, folder, journal, home, power_lost=boots > 0)
            return _count(tally, plan, verdict)
    return []


def _count(tally: Tally, plan: Plan, verdict: Verdict) -> list[str]:
    tally.runs += 1
    tally.scenarios[plan.scenario.name] += 1
    tally.bystanders += plan.bystander
    tally.crowds += plan.crowd
    tally.acknowledged += verdict.acknowledged
    tally.seen += verdict.seen
    tally.lost += verdict.lost
    tally.doubled += verdict.doubled
    tally.reused += verdict.reused
    return verdict.wrong


def _work(plan: Plan, disk: Disk, journal: Path, place: int, *, powered: bool) -> None:
    seed = plan.seed * 10 + place
    if not powered:
        work(disk.folder, journal, plan.scenario, seed=seed)
        return
    with disk.watching(seed=seed):
        work(disk.folder, journal, plan.scenario, seed=seed)


def _crowd(plan: Plan, folder: Path, journal: Path, home: Path) -> list[str]:
    """Start several processes at once after the crash: each recovers, reads, writes a little, and ends."""
    errors = [home / f"errors{place}" for place in range(CROWD)]
    first = Story.read(journal).number_next
    visit = partial(join_in, folder, journal, plan.scenario, seed=plan.seed)
    children = [
        start_child(partial(visit, place=place, first=first + place * ACTS_PER_VISITOR), errors=path)
        for place, path in enumerate(errors)
    ]
    for child in children:
        os.waitpid(child, 0)
    return [f"one of many failed:\n{path.read_text(encoding='utf-8')}" for path in errors if path.exists()]


def _in_child(plan: Plan, folder: Path, journal: Path, home: Path, *, power_lost: bool) -> Verdict:
    """Check the log in a new process."""

    def act() -> None:
        _write_verdict(home, check_folder(plan, folder, journal, power_lost=power_lost))

    run_until_killed(act, errors=home / "errors")
    return _read_verdict(home)


def check_folder(plan: Plan, folder: Path, journal: Path, *, power_lost: bool) -> Verdict:
    try:
        log = open_log(folder, Story.read(journal))
        make_topics(log, plan.scenario)
    except Exception as error:
        return Verdict(wrong=[f"the log does not open: {error!r}"])
    return check(log, plan.scenario, Journal(journal), power_lost=power_lost)


def _write_verdict(home: Path, verdict: Verdict) -> None:
    (home / "verdict").write_bytes(orjson.dumps(verdict.as_dict()))


def _read_verdict(home: Path) -> Verdict:
    if not (home / "verdict").exists():
        errors = home / "errors"
        return Verdict(wrong=["the check failed:\n" + (errors.read_text(encoding="utf-8") if errors.exists() else "?")])
    facts: dict[str, Any] = orjson.loads((home / "verdict").read_bytes())
    return Verdict(**facts)


class _Witness:
    """A process that has the log open while the other one is killed, and continues with its cached state."""

    def __init__(self, plan: Plan, folder: Path, journal: Path, home: Path, *, power_lost: bool) -> None:
        self._power_lost = power_lost
        self._home = home
        self._read, self._write = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            self._watch(plan, folder, journal)

    def _watch(self, plan: Plan, folder: Path, journal: Path) -> None:
        try:
            os.close(self._write)
            os.set_blocking(self._read, False)
            log = open_log(folder, Story.read(journal))
            make_topics(log, plan.scenario)
            watcher = Watcher(log, Journal(journal), plan.scenario, name="witness")
            while not self._told():
                watcher.look()
                time.sleep(0.001)
            watcher.look()
            verdict = check(log, plan.scenario, Journal(journal), power_lost=self._power_lost)
        except Exception as error:
            import traceback

            verdict = Verdict(wrong=["the witness failed: " + "".join(traceback.format_exception(error))])
        try:
            _write_verdict(self._home, verdict)
        finally:
            os._exit(0)

    def _told(self) -> bool:
        try:
            return os.read(self._read, 1) == b""
        except BlockingIOError:
            return False

    def verdict(self) -> Verdict:
        os.close(self._write)
        os.waitpid(self._child, 0)
        os.close(self._read)
        return _read_verdict(self._home)


def warm_up() -> None:
    """Import in the parent what every child would import: Arrow imports pandas with the first array."""
    pa.array([{"id": 1}]).to_pylist()


def series(seeds: range | list[int], *, keep: bool, quiet: bool) -> Tally:
    warm_up()
    tally = Tally()
    memory = Path("/dev/shm")
    root = Path(tempfile.mkdtemp(prefix="headwater-crash-", dir=memory if os.access(memory, os.W_OK) else None))
    began = time.monotonic()
    for place, seed in enumerate(seeds):
        plan = Plan.of(seed)
        home = root / str(seed)
        wrong = run(plan, home, tally)
        if wrong:
            kept = Path(tempfile.mkdtemp(prefix=f"headwater-crash-{seed}-"))
            shutil.copytree(home, kept, dirs_exist_ok=True)
            tally.failures.append(f"{plan}\n  folder: {kept}\n" + "\n".join(f"  - {one}" for one in wrong[:8]))
            print(f"\nWRONG {tally.failures[-1]}", flush=True)
        if keep:
            print(f"{plan}\nfolder: {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)
        if not quiet:
            rate = (place + 1) / (time.monotonic() - began)
            print(f"\r{place + 1}/{len(seeds)} runs, {rate:.1f}/s, {len(tally.failures)} wrong ", end="", flush=True)
    if not keep:
        shutil.rmtree(root, ignore_errors=True)
    if not quiet:
        print()
    return tally


def report(tally: Tally) -> str:
    lines = ["", f"{'killed at':24}{'kills':>8}"]
    lines += [f"{point:24}{tally.kills[point]:>8}" for point in (*POINTS, "(came to its end)")]
    lines += ["", f"{'power lost: bytes':24}{'runs':>8}"] + [f"{loss:24}{tally.losses[loss]:>8}" for loss in LOSSES]
    lines += ["", f"{'power lost: names':24}{'runs':>8}"] + [f"{loss:24}{tally.names[loss]:>8}" for loss in NAME_LOSSES]
    lines += ["", f"{'workload':24}{'runs':>8}"] + [f"{one.name:24}{tally.scenarios[one.name]:>8}" for one in SCENARIOS]
    lines += [
        "",
        f"{tally.runs} runs, {tally.crashes} crashes, {sum(tally.losses.values())} of them with power loss; "
        f"{tally.bystanders} runs seen by a process that lived on, {tally.crowds} opened by {CROWD} at once",
        f"acknowledged rows checked {tally.acknowledged}, rows seen by readers checked {tally.seen}, "
        f"lost {tally.lost}, doubled {tally.doubled}, re-used offsets {tally.reused}",
        f"runs with anything wrong: {len(tally.failures)}",
    ]
    return "\n".join(lines)


def missed(tally: Tally) -> list[str]:
    return [point for point in POINTS if not tally.kills[point]]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash.run", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="which series of runs")
    parser.add_argument("--only", type=int, help="one run, by the seed that a failure printed")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--history", action="store_true", help="histories of many processes; has its own --help")
    if "--history" in (sys.argv[1:] if arguments is None else arguments):
        from tests.crash.history import run as history

        return history.main(arguments)
    chosen = parser.parse_args(arguments)
    if chosen.only is not None:
        tally = series([chosen.only], keep=True, quiet=True)
        return 1 if tally.failures else 0
    first = chosen.seed * SEEDS_PER_SERIES
    tally = series(range(first, first + chosen.runs), keep=False, quiet=chosen.quiet)
    print(report(tally))
    if missed(tally):
        print(f"never killed at: {', '.join(missed(tally))}")
    for failure in tally.failures:
        print(f"WRONG {failure}".split("\n")[0])
    return 1 if tally.failures or missed(tally) else 0


if __name__ == "__main__":
    sys.exit(main())

"""A thousand rules at once: events a second, beside one rule over the same events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import headwater.log as hwlog
from benchmarks.harness import Bench, Result, Sample
from benchmarks.match.events import KINDS, LATE_BY, fill
from benchmarks.spark.workbench import Workbench, rate_result, workbench
from headwater import EventTime
from headwater.engine.contract import Broadcast
from headwater.operators import MatchRules

BATCHES = 4
ONE = "one rule"


def rule(number: int) -> str:
    """Rules that differ in what they look for: some share conditions, most do not."""
    first, second = KINDS[number % len(KINDS)], KINDS[number // len(KINDS) % len(KINDS)]
    low, high = number % 97, 999 - number % 89
    return f"""
        MEASURES A.amount AS low, B.amount AS high
        PATTERN (A B) WITHIN INTERVAL '10' SECOND
        DEFINE A AS kind = '{first}' AND amount <= {low}, B AS kind = '{second}' AND amount >= {high}
    """


def rules_1000(bench: Bench) -> list[Result]:
    """A thousand patterns of two rows each."""
    bench_spark = workbench(bench)
    rows, users, count = bench.size(1_000_000, 20_000), bench.size(20_000, 1_000), bench.size(1_000, 50)
    with bench.scratch("rules_1000") as folder:
        bench.say("rules_1000: filling")
        fill(folder / "log", "events", rows=rows, users=users)
        _store(folder / "log", "rules", count)
        _store(folder / "log", "one", 1)
        subjects = {
            "rules_1000": _subject(bench_spark, folder, "rules", rows),
            ONE: _subject(bench_spark, folder, "one", rows),
        }
        samples = bench.interleave("rules_1000", subjects, rounds=bench.size(3, 1))
    about = {"rows": rows, "keys": users, "rules": count, "batches": BATCHES}
    return [rate_result("rules_1000", samples, peer=ONE, about=about)]


def _store(log: Path, topic: str, count: int) -> None:
    with hwlog.open(log) as opened:
        opened.create(topic, {"id": "string", "text": "string", "enabled": "bool"}, key="id", durability="os")
        opened.append(topic, [{"id": f"r{one:04d}", "text": rule(one), "enabled": True} for one in range(count)])


def _subject(bench_spark: Workbench, folder: Path, topic: str, rows: int) -> Callable[[], Sample]:
    table = Broadcast(log=str(folder / "log"), topic=topic)

    def measure() -> Sample:
        source = bench_spark.topic(folder / "log", "events", rows_max=-(-rows // BATCHES))
        operator = MatchRules(rules=table, time=EventTime("at", delay=LATE_BY), by="user", name=topic)
        return bench_spark.run(operator(source), rows=rows).sample()

    return measure

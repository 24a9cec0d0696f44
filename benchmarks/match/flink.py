"""The three patterns beside Flink SQL's MATCH_RECOGNIZE, over the same rows, on the same two cores.

Flink has what is best for it: rows in two files that it reads in the order of time, state on the heap, objects used
again, no checkpoints, results thrown away. A job over one row is taken off its time, planned and started in the same
JVM just before: so neither its start nor its planning counts. Ours is a whole streaming query in ten batches, with its
state synced to disk in each.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from benchmarks.harness import Bar, Bench, Result, Sample, median_rate, shown
from benchmarks.match.events import LATE_BY, PATTERNS, fill, frames
from benchmarks.peer_servers import PeerUnavailable
from benchmarks.peer_venv import installed
from benchmarks.spark.workbench import CORES, Workbench, workbench
from headwater import EventTime
from headwater.operators import Match
from headwater.spark.java import find_java

VERSION = "2.3.0"
FLINK = f"Flink {VERSION} MATCH_RECOGNIZE"
HEAP = "4g"
BATCHES = 10
#: A run of Flink's is given up after this; then fewer rows are tried.
SECONDS_MAX = 420
#: Flink wants a last variable that ends: so a run is over with the first row that is not larger.
RISING = """
    MEASURES FIRST(up.at) AS began, LAST(up.amount) AS amount, COUNT(up.*) AS length
    PATTERN (low up{3,} down) WITHIN INTERVAL '10' SECOND
    DEFINE up AS amount > PREV(amount), down AS amount <= PREV(amount)
"""


@dataclass(frozen=True)
class Pair:
    """A pattern in our words and in Flink's, each with three measures."""

    ours: str
    measures: str
    pattern: str
    define: str

    @property
    def flink(self) -> str:
        return f"""
            SELECT * FROM events MATCH_RECOGNIZE (
                PARTITION BY user_id ORDER BY event_time, at_us MEASURES {self.measures} ONE ROW PER MATCH
                AFTER MATCH SKIP PAST LAST ROW PATTERN {self.pattern} WITHIN INTERVAL '10' SECOND DEFINE {self.define})
        """


PAIRS = {
    "abc": Pair(
        PATTERNS["abc"],
        "A.at_us AS m1, C.at_us AS m2, C.amount AS m3",
        "(A B C)",
        "A AS A.kind = 'a', B AS B.kind = 'b', C AS C.kind = 'c'",
    ),
    "small_big": Pair(
        PATTERNS["small_big"],
        "FIRST(small.at_us) AS m1, COUNT(small.amount) AS m2, big.amount AS m3",
        "(small{2,} big)",
        "small AS small.amount < 200, big AS big.amount > 800",
    ),
    "rising": Pair(
        RISING,
        "FIRST(up.at_us) AS m1, LAST(up.amount) AS m2, COUNT(up.amount) AS m3",
        "(low up{3,} down)",
        "up AS up.amount > COALESCE(LAST(up.amount, 1), low.amount), down AS down.amount <= LAST(up.amount)",
    ),
}


def abc_flink(bench: Bench) -> list[Result]:
    """A, B, C within ten seconds."""
    return beside_flink(bench, "abc")


def small_big_flink(bench: Bench) -> list[Result]:
    """Two or more small amounts, then a big one."""
    return beside_flink(bench, "small_big")


def rising_flink(bench: Bench) -> list[Result]:
    """A run of three or more amounts, each larger than the one before, and its end."""
    return beside_flink(bench, "rising")


def beside_flink(bench: Bench, pattern: str) -> list[Result]:
    name = f"{pattern}.flink"
    rows, users = bench.size(5_000_000, 20_000), bench.size(100_000, 2_000)
    try:
        flink = Flink.installed(bench)
    except PeerUnavailable as error:
        return [Result(name=name, value=None, unit="rows/s", peer=FLINK, note=str(error))]
    bench_spark = workbench(bench)
    with bench.scratch(name) as folder:
        matches = check_same(bench_spark, flink, folder, pattern)
        fill(folder / "log", "events", rows=rows, users=users)
        ours = [_ours(bench_spark, folder, pattern, rows) for _ in range(bench.size(4, 1))][-3:]
        theirs = flink.most(bench, folder, pattern, rows, users)
    bench.say(f"{name} ours {shown(median_rate(ours))}/s, Flink {shown(theirs.rate)}/s over {theirs.count:.0f} rows")
    about = {"rows": rows, "peer_rows": theirs.count, "keys": users, "batches": BATCHES, "same_matches": matches}
    bars = [Bar(figure="ratio", least=1.0)]
    rate = median_rate(ours)
    return [Result(name=name, value=rate, unit="rows/s", peer=FLINK, peer_value=theirs.rate, more=about, bars=bars)]


def _ours(bench_spark: Workbench, folder: Path, pattern: str, rows: int) -> Sample:
    source = bench_spark.topic(folder / "log", "events", rows_max=-(-rows // BATCHES))
    return bench_spark.run(_match(pattern)(source), rows=rows).sample()


def _match(pattern: str) -> Match:
    return Match(PAIRS[pattern].ours, time=EventTime("at", delay=LATE_BY), by="user", flink=True, name=pattern)


def check_same(bench_spark: Workbench, flink: Flink, folder: Path, pattern: str) -> int:
    """Both find the same matches in few rows; how many."""
    rows, users, every_us = 20_000, 50, 50_000
    table = pa.Table.from_batches(list(frames(rows, users, every_us)))
    found = bench_spark.spark.createDataFrame(table).transform(_match(pattern)).toArrow()
    ours = {tuple(_number(value) for value in row) for row in zip(*found.columns, strict=True)}
    path = exported(folder / "few", rows, users, every_us)
    theirs = {tuple(row) for row in flink.run(pattern, {"few": path}, collect=True)["rows"]}
    if not ours or ours != theirs:
        raise RuntimeError(f"{pattern}: {len(ours)} matches here, {len(theirs)} there, {len(ours & theirs)} in common")
    return len(ours)


# Any: a value of Arrow's.
def _number(value: Any) -> int:
    return int(value.value if pa.types.is_timestamp(value.type) else value.as_py())


def exported(folder: Path, rows: int, users: int, every_us: int = 20) -> Path:
    """The events as CSV, in a file for each core."""
    folder.mkdir(parents=True)
    options = pacsv.WriteOptions(include_header=False, quoting_style="none")
    kinds = pa.schema({"user": pa.int64(), "kind": pa.string(), "amount": pa.int64(), "at": pa.int64()})
    writers = [pacsv.CSVWriter(str(folder / f"{core}.csv"), kinds, write_options=options) for core in range(CORES)]
    for number, frame in enumerate(frames(rows, users, every_us)):
        writers[number % CORES].write_batch(frame.cast(kinds))
    for writer in writers:
        writer.close()
    return folder


@dataclass(frozen=True)
class Flink:
    """Flink in a virtual environment of its own."""

    python: Path

    @classmethod
    def installed(cls, bench: Bench) -> Flink:
        """Made once, beside the data of benchmarks."""
        return cls(installed(bench, "Flink", VERSION, "setuptools<81", f"apache-flink=={VERSION}"))

    def run(self, pattern: str, sources: Mapping[str, Path], *, collect: bool = False) -> dict[str, Any]:
        """A job for each source, one after the other in one JVM. Any: what the job says, as JSON."""
        paths = {name: str(path) for name, path in sources.items()}
        settings = {"query": PAIRS[pattern].flink, "sources": paths, "collect": collect}
        words = [str(self.python), str(Path(__file__).with_name("flink_job.py")), json.dumps(settings)]
        environ = {**os.environ, "JAVA_HOME": str(find_java().home), "JVM_ARGS": f"-Xms{HEAP} -Xmx{HEAP}"}
        environ.pop("PYTHONPATH", None)
        done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=SECONDS_MAX)
        if done.returncode:
            causes = [line for line in done.stderr.splitlines() if line.startswith("Caused by")]
            raise RuntimeError(f"Flink failed: {causes[-1] if causes else done.stderr[-500:]}")
        body: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return body

    def most(self, bench: Bench, folder: Path, pattern: str, rows: int, users: int) -> Sample:
        """The largest number of rows that Flink comes through in time, and how long it took."""
        one = exported(folder / "one", 1, 1)
        for share in (1, 4, 16, 64):
            path = exported(folder / f"rows-{share}", rows // share, users)
            try:
                seconds = self.run(pattern, {"first": one, "nothing": one, "all": path})["seconds"]
            except subprocess.TimeoutExpired:
                bench.say(f"{pattern}: Flink does not come through {rows // share} rows in {SECONDS_MAX} s")
                continue
            return Sample(rows // share, max(0.001, seconds["all"] - seconds["nothing"]), 0)
        raise PeerUnavailable(f"Flink does not come through {rows // 64} rows in {SECONDS_MAX} s")


PARTS: Mapping[str, Callable[[Bench], list[Result]]] = {
    "abc.flink": abc_flink,
    "small_big.flink": small_big_flink,
    "rising.flink": rising_flink,
}

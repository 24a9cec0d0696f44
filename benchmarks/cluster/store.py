"""What state and checkpoint in an object store cost a query, beside a folder on this disk.

The store is SeaweedFS on this machine, so that what is measured are its requests and not a network.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from pathlib import Path

import headwater
from benchmarks.cluster.events import Run, fill, run
from benchmarks.harness import Bench, Result, run_child
from benchmarks.peer_servers import seaweedfs
from benchmarks.s3a import s3a_jars
from benchmarks.spark.workbench import CORES
from headwater.spark.checkpoint_files import DEFAULT, SETTING

BATCHES = 20
DISK = "both on disk"
#: Where state and checkpoint are, and whether Spark renames files of its checkpoint as it does by itself.
PLACES = {
    DISK: ("disk", "disk", False),
    "state": ("s3", "disk", False),
    "both": ("s3", "s3", False),
    "both.renamed": ("s3", "s3", True),
}


def store(bench: Bench) -> list[Result]:
    """Small batches, where each request counts, and large ones."""
    s3a_jars()  # fetched before anything is measured
    results = []
    for kind, rows, users in (
        ("small", bench.size(20_000, 2_000), bench.size(1_000, 100)),
        ("large", bench.size(2_000_000, 100_000), bench.size(80_000, 1_000)),
    ):
        with bench.scratch(f"store.{kind}") as folder:
            fill(folder / "log", rows=rows, users=users)
            found = _rounds(bench, folder, kind, rows)
        results += [_result(f"store.{kind}.{name}", found[name], found[DISK], rows) for name in PLACES if name != DISK]
    return results


def _rounds(bench: Bench, folder: Path, kind: str, rows: int) -> dict[str, list[Run]]:
    """Let the places take turns, each in a process and with an empty store of its own."""
    found: dict[str, list[Run]] = {name: [] for name in PLACES}
    rounds = bench.size(2, 1)
    for number in range(rounds):
        for place in PLACES if number % 2 == 0 else reversed(PLACES):
            body = run_child("benchmarks.cluster.store", folder, f"run-{number}-{len(found[place])}", place, rows)
            found[place].append(Run(**body))
            milliseconds = found[place][-1].batch_ms_median
            bench.say(f"store.{kind} {number + 1}/{rounds} {place}: {milliseconds:.0f} ms per batch")
    return found


def _result(name: str, ours: list[Run], disk: list[Run], rows: int) -> Result:
    return Result(
        name=name,
        value=_batch_ms(ours),
        unit="ms/batch",
        peer=DISK,
        peer_value=_batch_ms(disk),
        more={
            "rows": rows,
            "batches": BATCHES,
            "rows_per_second": _rate(ours),
            "peer_rows_per_second": _rate(disk),
            "cpu_ms_per_batch": _cpu_ms(ours),
            "peer_cpu_ms_per_batch": _cpu_ms(disk),
        },
    )


def _batch_ms(runs: list[Run]) -> float:
    return statistics.median(one.batch_ms_median for one in runs)


def _rate(runs: list[Run]) -> float:
    return round(statistics.median(one.rows / one.seconds for one in runs))


def _cpu_ms(runs: list[Run]) -> float:
    return round(statistics.median(one.cpu_seconds / len(one.batch_ms) * 1_000 for one in runs), 1)


def _measured(folder: Path, name: str, place: str, rows: int) -> dict[str, object]:
    own = folder / f"{name}-{place}"
    with seaweedfs(own / "objects") as server:
        os.environ |= server.environment | {"HEADWATER_STATE_CACHE_DIR": str(own / "copies")}
        state, checkpoint, renamed = PLACES[place]
        conf = {"spark.driver.memory": "2g", "spark.jars": s3a_jars(), **({SETTING: DEFAULT} if renamed else {})}
        spark = headwater.session(
            "bench",
            master=f"local[{CORES}]",
            state=f"s3://{server.bucket}/state" if state == "s3" else own / "state",
            conf=conf,
        )
        checkpoints = f"s3a://{server.bucket}/checkpoint" if checkpoint == "s3" else str(own / "checkpoint")
        topic = f"{name}-{place}".replace(" ", "-")
        done = run(spark, folder / "log", checkpoint=checkpoints, topic=topic, rows=rows, batches=BATCHES)
        spark.stop()
    return vars(done)


if __name__ == "__main__":
    print(json.dumps(_measured(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))))

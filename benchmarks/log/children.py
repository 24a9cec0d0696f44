"""Measurements in a child process: `python -m benchmarks.log.children ACT …` prints one JSON object."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import percentile


def scan(folder: str, topic: str) -> dict[str, Any]:
    """Read a whole topic; return the peak memory of this process."""
    import headwater.log as hwlog
    from benchmarks.log import reads

    with hwlog.open(folder) as log:
        before = _peak_mb()
        began = time.perf_counter()
        rows = reads.scan(log, topic)
        return {"rows": rows, "seconds": time.perf_counter() - began, "before_mb": before, "peak_mb": _peak_mb()}


def write(folder: str, rows: str, rows_per_second: str) -> dict[str, Any]:
    """Append rows that carry the time at an even pace; half-way between two of them, sync a file of 4 KB writes."""
    import headwater.log as hwlog

    pause = 0.5 / float(rows_per_second)
    block = os.urandom(4096)
    appends: list[float] = []
    syncs: list[float] = []
    with hwlog.open(folder) as log:
        descriptor = os.open(Path(folder) / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        due = time.monotonic() + 0.2
        for _ in range(int(rows)):
            _sleep_until(due)
            began = time.monotonic_ns()
            log.append("rows", [{"sent_ns": began, "text": "x" * 80}])
            appends.append((time.monotonic_ns() - began) / 1e6)
            _sleep_until(due + pause)
            began = time.monotonic_ns()
            os.write(descriptor, block)
            os.fdatasync(descriptor)
            syncs.append((time.monotonic_ns() - began) / 1e6)
            due += 2 * pause
        os.close(descriptor)
    return {
        "append_p50": percentile(appends, 0.5),
        "sync_p50": percentile(syncs, 0.5),
        "sync_p99": percentile(syncs, 0.99),
    }


def open_log(folder: str) -> dict[str, Any]:
    """Open a log and ask for the ends of all its topics; imports are counted apart."""
    began = time.perf_counter()
    import headwater.log as hwlog

    imported = time.perf_counter()
    with hwlog.open(folder) as log:
        rows = sum(sum(log.end_offsets(topic).values()) for topic in log.topics())
        done = time.perf_counter()
    return {"seconds": done - imported, "import_seconds": imported - began, "rows": rows}


def append(folder: str, partition: str, count: str) -> dict[str, Any]:
    """Append batches to one partition; print when ready, and start on a signal."""
    import headwater.log as hwlog
    from benchmarks.log.rows import batches

    sources = batches()
    with hwlog.open(folder) as log:
        print("ready", flush=True)
        sys.stdin.readline()
        began, cpu = time.monotonic(), time.process_time()
        for number in range(int(count)):
            log.append("rows", sources[number % len(sources)], partition=int(partition))
        return {"began": began, "ended": time.monotonic(), "cpu_seconds": time.process_time() - cpu}


ACTS: dict[str, Callable[..., dict[str, Any]]] = {"append": append, "scan": scan, "write": write, "open": open_log}


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _sleep_until(due: float) -> None:
    left = due - time.monotonic()
    if left > 0:
        time.sleep(left)


if __name__ == "__main__":
    print(json.dumps(ACTS[sys.argv[1]](*sys.argv[2:])))

"""Which process to kill: one of Spark's Python workers, while it works."""

from __future__ import annotations

import contextlib
import time

import psutil

SAMPLE_SECONDS = 0.1


def kill_a_worker() -> int | None:
    """Kill the Python worker of this process's Spark that works hardest; its pid, or None where none works."""
    before = {worker: _seconds(worker) for worker in _workers()}
    time.sleep(SAMPLE_SECONDS)
    worked = {worker: _seconds(worker) - spent for worker, spent in before.items()}
    if not worked:
        return None
    busiest = max(worked, key=lambda worker: worked[worker])
    with contextlib.suppress(psutil.NoSuchProcess):
        busiest.kill()
        return int(busiest.pid)
    return None


def _workers() -> list[psutil.Process]:
    """Spark forks its workers from a daemon of the same command line."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            parent = process.parent()
            if _is_daemon(process) and parent is not None and _is_daemon(parent):
                found.append(process)
    return found


def _is_daemon(process: psutil.Process) -> bool:
    return bool(process.cmdline()[-2:] == ["pyspark.daemon", "pyspark.worker"])


def _seconds(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0

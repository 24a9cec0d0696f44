"""How long a session takes until it is ready, with the class archive and without."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness import Bench, Result

ARCHIVE_SECONDS_MAX = 120.0
WITH, WITHOUT = "archive", "no archive"


def session(bench: Bench) -> list[Result]:
    """Fresh processes: from their start to the session, and to the answer to a first query."""
    found: dict[str, list[dict[str, float]]] = {WITH: [], WITHOUT: []}
    environ = with_archive(bench)
    with bench.scratch("session") as folder:
        for number in range(rounds := bench.size(5, 1)):
            for subject, samples in found.items():
                sample = _start(environ, archive=subject == WITH, state=folder / "state")
                samples.append(sample)
                bench.say(f"session {number + 1}/{rounds} {subject}: {sample['ready_seconds']:.1f} s")
    return [
        _result("session", found, "ready_seconds", "s"),
        _result("session.cpu", found, "ready_cpu_seconds", "CPU-s"),
        _result("session.query", found, "query_seconds", "s"),
        _result("session.query.cpu", found, "query_cpu_seconds", "CPU-s"),
    ]


def with_archive(bench: Bench) -> Mapping[str, str]:
    """The environment with a cache of this run's own, in which there is an archive of Java's classes."""
    cache = bench.folder / "cache"
    environ = os.environ | {"XDG_CACHE_HOME": str(cache)}
    if not cache.exists():
        bench.say("a first session leaves the archive")
        _start(environ, archive=True, state=bench.folder / "state-of-archive")
        _wait_for_archive(cache)
    return environ


def _result(name: str, found: Mapping[str, list[dict[str, float]]], figure: str, unit: str) -> Result:
    ours, peer = (statistics.median(one[figure] for one in found[subject]) for subject in (WITH, WITHOUT))
    return Result(name=name, value=ours, unit=unit, peer=WITHOUT, peer_value=peer)


def _start(environ: Mapping[str, str], *, archive: bool, state: Path) -> dict[str, float]:
    words = [sys.executable, "-m", "benchmarks.start.children", "ready", str(archive), str(state)]
    began = time.monotonic()
    done = subprocess.run(words, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    # Any: JSON.
    body: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {
        "ready_seconds": body["ready_at"] - began,
        "query_seconds": body["queried_at"] - began,
        "ready_cpu_seconds": body["ready_cpu_seconds"],
        "query_cpu_seconds": body["query_cpu_seconds"],
    }


def _wait_for_archive(cache: Path) -> None:
    """The JVM writes it as it exits, which may take longer than the process that started it; the header comes last."""
    deadline = time.monotonic() + ARCHIVE_SECONDS_MAX
    while time.monotonic() < deadline:
        for path in cache.rglob("*.part"):
            with path.open("rb") as file:
                if any(file.read(4)):
                    return
        time.sleep(0.1)
    raise RuntimeError(f"no class archive after {ARCHIVE_SECONDS_MAX:.0f} s")

"""Programs in processes of their own, which begin together."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


def run_together(module: str, programs: Sequence[Sequence[object]]) -> tuple[float, list[str]]:
    """Run `python -m module …` with the arguments of each program; the seconds until all are done, and what each prints then."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for arguments in programs
    ]
    try:
        for process, arguments in zip(processes, programs, strict=True):
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"{module} {arguments} did not start")
        began = time.perf_counter()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process, arguments in zip(processes, programs, strict=True):
            assert process.stdout is not None
            if process.stdout.readline() != "done\n":
                raise RuntimeError(f"{module} {arguments} failed")
        seconds = time.perf_counter() - began
        outputs = [process.stdout.read() for process in processes if process.stdout is not None]
        for process in processes:
            process.wait(timeout=60)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
    return seconds, outputs


@contextmanager
def together() -> Iterator[None]:
    """In such a program: begin the block with the others, and say when it is done."""
    print("ready", flush=True)
    sys.stdin.readline()
    yield
    print("done", flush=True)

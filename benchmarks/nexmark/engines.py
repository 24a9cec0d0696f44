"""Engines in processes of their own: what is asked of them, and how much CPU and memory they take for it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from benchmarks.harness import Bench
from benchmarks.nexmark.child import Request
from benchmarks.peer_venv import installed
from benchmarks.spark.workbench import CORES, tree_cpu_seconds
from headwater.spark.java import find_java

ROOT = Path(__file__).resolve().parents[2]
#: The heap of each JVM.
MEMORY = "3g"
START_SECONDS_MAX = 180.0
#: A query is given up after this.
SECONDS_MAX = 300.0
MEMORY_SECONDS = 0.5
FLINK_VERSION, PATHWAY_VERSION, BYTEWAX_VERSION = "2.3.0", "0.33.0", "0.21.1"
#: Pathway and Bytewax get so many events: their rates do not depend on it, and the whole would take minutes.
PYTHON_EVENTS_MAX = 200_000


class QueryFailed(Exception):
    """An engine did not come through a query; the text is the reason."""


class QueryUnsupported(Exception):
    """An engine has no words for a query; the text is the reason."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A query that came to its end."""

    seconds: float
    cpu_seconds: float
    memory_bytes: int
    # Any: what the engine says, as JSON.
    answer: Mapping[str, Any]

    #: How many events there were.
    events: int


@dataclass(frozen=True, kw_only=True)
class Command:
    """How the process of an engine is started."""

    python: str
    module: str
    arguments: Sequence[str] = ()
    environ: Mapping[str, str] | None = None
    #: It reads CSV files, at most of so many events, and a run over the first of them is taken off its figures.
    csv_events_max: int | None = None
    csv_header: bool = False


class Engine:
    """The process of an engine. It waits between two requests, and takes no CPU meanwhile."""

    def __init__(self, name: str, command: Command, errors: Path) -> None:
        self.name = name
        self.command = command
        self._errors = errors
        self._process: subprocess.Popen[str] | None = None

    def run(self, request: Request) -> Run:
        """Run a query; a process that does not come through is ended, and a new one serves the next request."""
        process = self._started()
        before = tree_cpu_seconds(process.pid)
        with Peak(process.pid) as peak:
            answer = self._asked(process, request, SECONDS_MAX)
        if "unsupported" in answer:
            raise QueryUnsupported(answer["unsupported"])
        if "error" in answer:
            raise QueryFailed(answer["error"])
        return Run(
            seconds=answer["seconds"],
            cpu_seconds=tree_cpu_seconds(process.pid) - before,
            memory_bytes=peak.bytes,
            answer=answer,
            events=request["events"],
        )

    def _started(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        command = self.command
        environ = {**os.environ, **(command.environ or {})}
        if command.python != sys.executable:
            environ.pop("PYTHONPATH", None)
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [command.python, "-m", command.module, *command.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
                env=environ,
                cwd=ROOT,
            )
        self._answer(self._process, START_SECONDS_MAX)
        return self._process

    def _asked(self, process: subprocess.Popen[str], request: Request, seconds: float) -> Mapping[str, Any]:
        assert process.stdin is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        return self._answer(process, seconds)

    def _answer(self, process: subprocess.Popen[str], seconds: float) -> Mapping[str, Any]:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        line = process.stdout.readline() if ready else ""
        if not line:
            self.stop()
            raise QueryFailed("its process ended" if ready else f"no answer in {seconds:.0f} s")
        answer: Mapping[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        """End the process and all that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        processes = [psutil.Process(process.pid), *_below(process.pid)] if process.poll() is None else []
        for one in processes:
            with contextlib.suppress(psutil.Error):
                one.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Peak:
    """The most memory that a process and all below it hold meanwhile; a page that several share counts once."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            held = sum(_held(process) for process in (self._process, *(one.pid for one in _below(self._process))))
            self.bytes = max(self.bytes, held)
            if self._ended.wait(MEMORY_SECONDS):
                return


def _below(process: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return list(psutil.Process(process).children(recursive=True))
    return []


def _held(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0  # it has ended meanwhile
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def spark(folder: Path, kind: str) -> Command:
    """The process of Headwater or of bare Spark."""
    arguments = [kind, str(folder), str(CORES), MEMORY]
    return Command(python=sys.executable, module="benchmarks.nexmark.spark_child", arguments=arguments)


def flink(bench: Bench) -> Command:
    """The process of Flink."""
    python = installed(bench, "Flink", FLINK_VERSION, "setuptools<81", f"apache-flink=={FLINK_VERSION}")
    environ = {"JAVA_HOME": str(find_java().home), "JVM_ARGS": f"-Xmx{MEMORY}"}
    module = "benchmarks.nexmark.flink_child"
    return Command(python=str(python), module=module, arguments=[str(CORES)], environ=environ, csv_events_max=10**9)


def pathway(bench: Bench) -> Command:
    """The process of Pathway."""
    python = installed(bench, "Pathway", PATHWAY_VERSION, f"pathway=={PATHWAY_VERSION}")
    environ = {"PATHWAY_THREADS": str(CORES)}
    module = "benchmarks.nexmark.pathway_child"
    return Command(
        python=str(python), module=module, environ=environ, csv_events_max=PYTHON_EVENTS_MAX, csv_header=True
    )


def bytewax(bench: Bench) -> Command:
    """The process of Bytewax."""
    python = installed(bench, "Bytewax", BYTEWAX_VERSION, f"bytewax=={BYTEWAX_VERSION}", "pyarrow")
    module = "benchmarks.nexmark.bytewax_child"
    return Command(python=str(python), module=module, arguments=[str(CORES)], csv_events_max=PYTHON_EVENTS_MAX)


HEADWATER, SPARK = "Headwater", "Spark"
#: The engines by name, and how the process of each is started with a folder of its own.
ENGINES: Mapping[str, Callable[[Bench, Path], Command]] = {
    HEADWATER: lambda _bench, folder: spark(folder, "headwater"),
    SPARK: lambda _bench, folder: spark(folder, "spark"),
    "Flink": lambda bench, _folder: flink(bench),
    "Pathway": lambda bench, _folder: pathway(bench),
    "Bytewax": lambda bench, _folder: bytewax(bench),
}


def engine(bench: Bench, name: str) -> Engine:
    """An engine by name; raise `PeerUnavailable` if it cannot be installed."""
    folder = bench.folder / "engines" / name
    folder.mkdir(parents=True)
    return Engine(name, ENGINES[name](bench, folder), folder / "errors")

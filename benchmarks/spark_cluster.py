"""A standalone Spark cluster on this machine, from the programs that pip has brought: a master, and workers to kill."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from benchmarks.peer_servers import START_SECONDS_MAX, PeerUnavailable, free_port
from headwater.spark.java import find_java

_PACKAGE = "org.apache.spark.deploy"
#: Each start takes seconds of the processors otherwise: the processes live for a minute.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass
class Worker:
    """A worker with its executors and their Python processes."""

    process: subprocess.Popen[bytes]
    folder: Path
    cores: int

    def kill(self) -> None:
        """End the worker, its executors and their Python processes at once, as a host does that loses power."""
        for child in _family(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self.process.wait()


@dataclass
class SparkCluster:
    """A master that runs, and the workers that were started for it."""

    folder: Path
    host: str
    port: int
    process: subprocess.Popen[bytes]
    workers: list[Worker] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"spark://{self.host}:{self.port}"

    def add_worker(
        self, *, cores: int = 1, memory: str = "1g", host: str | None = None, before: Sequence[str] = ()
    ) -> Worker:
        """Start a worker; `before` are words in front of its command, such as `ip netns exec NAME`."""
        folder = self.folder / f"worker-{len(self.workers)}"
        place = host or self.host
        words = ["worker.Worker", "--host", place, "--port", str(free_port()), "--webui-port", "0"]
        words += ["--cores", str(cores), "--memory", memory, "--work-dir", str(folder), self.url]
        worker = Worker(_started(words, folder, before=before), folder, cores)
        self.workers.append(worker)
        return worker

    def await_workers(self) -> None:
        """Wait until the master knows all workers that live."""
        for worker in self.workers:
            if worker.process.poll() is None:
                _await(worker.folder / "log", "Successfully registered with master", worker.process)

    def executors(self, worker: Worker) -> list[int]:
        """The process ids of a worker's executors."""
        return [pid for pid in _family(worker.process.pid) if _is_executor(pid)]


@contextlib.contextmanager
def spark_cluster(folder: Path, *, workers: int = 2, cores: int = 1, host: str = "127.0.0.1") -> Iterator[SparkCluster]:
    """A master and workers, all in processes of their own, that end with the block."""
    port = free_port()
    words = ["master.Master", "--host", host, "--port", str(port), "--webui-port", "0"]
    cluster = SparkCluster(folder, host, port, _started(words, folder / "master"))
    try:
        for _ in range(workers):  # they try again until the master answers
            cluster.add_worker(cores=cores)
        cluster.await_workers()
        yield cluster
    finally:
        for worker in cluster.workers:
            worker.kill()
        cluster.process.kill()
        cluster.process.wait()


def environment(java: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of Spark's processes: no setting of the caller's own sessions."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {
        **kept,
        "JAVA_HOME": str(find_java().home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _JAVA,
        "PYSPARK_PYTHON": sys.executable,
        **(java or {}),
    }


def _started(words: Sequence[str], folder: Path, *, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True)
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    command = [*before, str(program), f"{_PACKAGE}.{words[0]}", *words[1:]]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment()
        )


def _await(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 3 * START_SECONDS_MAX
    while text not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise PeerUnavailable(f"Spark's worker did not start: {log.read_text(errors='replace')[-300:]!r}")
        time.sleep(0.05)


def _family(pid: int) -> list[int]:
    """A process and all that it has started, the youngest last."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return [pid, *(child.pid for child in root.children(recursive=True))]
    return []


def _is_executor(pid: int) -> bool:
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        return any("ExecutorBackend" in word for word in psutil.Process(pid).cmdline())
    return False

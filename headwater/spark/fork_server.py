"""A Python process that has loaded what Spark's Python processes need, and forks each of them from itself.

Spark starts a new Python for each streaming source, for each kind of planning and for its workers; each would import
PySpark, Arrow, pandas and Headwater again, which takes more than a second of processor time. A forked one has them at once,
and shares their memory. The server imports while the JVM starts.

`start` makes a small program that Spark takes for Python (`fork_client.py`): it hands its arguments, environment and
standard streams to the server. The server lives as long as the process that started it; its children end with Spark, as always.
A second `start` names the modules that have been loaded meanwhile, so that the server loads them, too.
Only on Linux: elsewhere, libraries of the system are not safe to fork.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

#: What Spark's Python processes import, beside the modules that they run.
NEEDED = (
    "pandas",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "pyspark.sql.streaming.datasource",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "headwater.spark.datasource",
    "headwater.spark.topic_sink",
)
#: Packages whose modules the server loads if its parent has: apps load the operators that they use before the session.
_SHARED = ("headwater.engine.", "headwater.operators.", "headwater.log.", "headwater.schema.")
#: The C library keeps so many bytes of freed memory for the next array. By default it gives large arrays back to the
#: system, and each page of the next one is touched for the first time again: half of the time of some aggregations.
_ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": str(32 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(128 * 2**20)}
_PROGRAM = "from headwater.spark.fork_server import main; main()"
_server: subprocess.Popen[bytes] | None = None
_program: Path | None = None
#: What the server of this process has been told to load.
_told: set[str] = set()


def start() -> Path | None:
    """Start the server of this process, if there is none yet; return the program to give to Spark as its Python."""
    global _server, _program
    if not sys.platform.startswith("linux"):
        return None
    loaded = {name for name in sys.modules if name.startswith(_SHARED)}
    if _server is not None and _program is not None and _server.poll() is None:
        _tell(_server, loaded - _told)
        return _program
    folder = Path(tempfile.mkdtemp(prefix="headwater-python-"))
    client = Path(__file__).with_name("fork_client.py")
    program, address = folder / "python", folder / "socket"
    command = [sys.executable, "-I", "-S", str(client), sys.executable, str(address)]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    program.chmod(0o700)
    # Strings must have one hash in all workers, as Spark's own processes have.
    environment = {**_ALLOCATION, **os.environ, "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen(128)  # a client that comes while the server loads modules waits
        arguments = [sys.executable, "-c", _PROGRAM, str(folder), str(listener.fileno()), ",".join(sorted(loaded))]
        _server = subprocess.Popen(arguments, stdin=subprocess.PIPE, env=environment, pass_fds=[listener.fileno()])
    _program = program
    _told.clear()
    _told.update(loaded)
    atexit.register(_end, _server, folder)
    return program


def _tell(server: subprocess.Popen[bytes], modules: set[str]) -> None:
    assert server.stdin is not None
    if modules:
        _told.update(modules)
        with suppress(OSError):  # it has ended: then Spark's processes load what they need
            server.stdin.write(f"{','.join(sorted(modules))}\n".encode())
            server.stdin.flush()


def _end(server: subprocess.Popen[bytes], folder: Path) -> None:
    if server.stdin is not None:
        server.stdin.close()
    server.terminate()  # it may be loading modules, and would only then see that its input has ended
    with suppress(subprocess.TimeoutExpired):
        server.wait(5)
    shutil.rmtree(folder, ignore_errors=True)


class Server:
    """Takes requests until its standard input ends; lines of it name modules to load."""

    def __init__(self, folder: Path, listener: socket.socket) -> None:
        self._folder = folder
        self._listener = listener
        #: By process id, the client that waits for its end.
        self._clients: dict[int, socket.socket] = {}
        #: The beginning of a line that has not come to its end.
        self._line = b""

    def load(self, modules: Iterable[str]) -> None:
        for name in modules:
            with suppress(ImportError):  # the process that needs it says so
                importlib.import_module(name)
        # Visited by each garbage collection of each process otherwise, and copied by the visit.
        gc.collect()
        gc.freeze()

    def serve(self) -> None:
        # Each end of a child wakes the poll.
        ends, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            poll = select.poll()
            for descriptor in (0, ends, self._listener.fileno()):
                poll.register(descriptor, select.POLLIN)
            by_descriptor = {client.fileno(): pid for pid, client in self._clients.items()}
            for descriptor in by_descriptor:
                poll.register(descriptor, select.POLLIN)
            ready = [descriptor for descriptor, _ in poll.poll()]
            if 0 in ready and not self._load_told():
                break
            if ends in ready:
                os.read(ends, 4096)
            self._reap()
            for descriptor in ready:
                pid = by_descriptor.get(descriptor)
                if pid in self._clients:  # Spark has ended the client
                    self._clients.pop(pid).close()
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)
            if self._listener.fileno() in ready:
                connection, _ = self._listener.accept()
                self._fork(connection, (ends, wake))
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _load_told(self) -> bool:
        """Load the modules that the parent names; return whether it is still there."""
        data = os.read(0, 1 << 16)
        *lines, self._line = (self._line + data).split(b"\n")
        if lines:
            self.load(name for line in lines for name in line.decode().split(",") if name)
        return bool(data)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                client = self._clients.pop(pid, None)
                if client is not None:
                    code = os.waitstatus_to_exitcode(status)
                    with client, suppress(OSError):
                        client.sendall(bytes([code if 0 <= code < 256 else 128 - code]))

    def _fork(self, connection: socket.socket, pipe: tuple[int, int]) -> None:
        received: list[int] = []
        try:
            connection.settimeout(5)
            size, received, _, _ = socket.recv_fds(connection, 4, 3)
            message = b""
            while len(message) < int.from_bytes(size, "big"):
                part = connection.recv(1 << 20)
                if not part:
                    return
                message += part
            if len(received) != 3:
                return
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for descriptor in (*pipe, self._listener.detach(), connection.detach()):
                    os.close(descriptor)
                for client in self._clients.values():
                    client.close()
                _become(message.decode(errors="surrogateescape").split("\0"), received)
            connection.settimeout(None)
            self._clients[pid] = connection
        except OSError:
            connection.close()  # the client becomes a failed process, and Spark tries again
        finally:
            for descriptor in received:
                os.close(descriptor)


def _become(request: list[str], streams: list[int]) -> None:
    """Make this forked process what the request asks for; never returns."""
    code = 1
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # Ctrl-C stays ignored, as under Spark's JVM
        folder, count, *values = request
        arguments, variables = values[: int(count)], values[int(count) :]
        os.chdir(folder)
        os.environ.clear()
        os.environ.update({name: value for name, _, value in (variable.partition("=") for variable in variables)})
        wanted = [folder, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        sys.path[:] = [*dict.fromkeys(wanted), *(path for path in sys.path if path and path not in wanted)]
        _, module, *rest = arguments
        sys.argv = [module, *rest]
        with suppress(OSError):  # for `ps` and `top`
            Path("/proc/self/comm").write_text(arguments[-1].rpartition(".")[2])
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 0 if ending.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(code & 0xFF)


def _reseed_after_fork() -> None:
    """NumPy's own generator would give each process the same numbers; Python's `random` takes care of itself."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        os.register_at_fork(after_in_child=numpy.random.seed)


def main() -> None:
    folder, descriptor, modules = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    server = Server(Path(folder), socket.socket(fileno=int(descriptor)))
    server.load((*NEEDED, *filter(None, modules.split(","))))
    _reseed_after_fork()
    server.serve()

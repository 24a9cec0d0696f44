"""A real server process for tests: it serves as many logs as it is asked to, each on a free port of 127.0.0.1.

One process for a whole run of the tests, for starting one takes a second; each test has a log and a port of its own.
Its clock is the test's: a file that the test writes and the process reads.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater.clock import ManualClock


class SharedClock(ManualClock):
    """A clock that moves only when told, and that another process can read."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        path.write_bytes(bytes(8))
        self._write()

    def advance(self, *, seconds: float) -> None:
        super().advance(seconds=seconds)
        self._write()

    def _write(self) -> None:
        with self.path.open("r+b") as file, mmap.mmap(file.fileno(), 8) as shared:
            shared[:] = struct.pack("<q", self._now_us)


class FollowedClock:
    """The clock of another process."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._shared = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)

    def now_us(self) -> int:
        now: int = struct.unpack("<q", self._shared[:])[0]
        return now


class ServerProcess:
    """The process, and how to tell it what to serve."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.http.process"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def serve(self, log: Path | str, *, clock: Path | None = None, **settings: Any) -> str:
        """Serve a log from now on; gives the address."""
        asked = {"log": str(log), "clock": None if clock is None else str(clock), "settings": settings}
        return str(self._ask({"serve": asked}))

    def stop(self, address: str) -> None:
        """Serve a log no longer."""
        self._ask({"stop": address})

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._process.communicate(timeout=20)

    # Any: JSON.
    def _ask(self, message: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the server's process has ended"
        return json.loads(line)


@contextlib.contextmanager
def server_process() -> Iterator[ServerProcess]:
    process = ServerProcess()
    try:
        yield process
    finally:
        process.close()


def _main() -> None:
    from headwater.config import Config
    from headwater.http import Address, Settings, served
    from headwater.log import open as open_log

    running: dict[str, contextlib.ExitStack] = {}
    for line in sys.stdin:
        message = json.loads(line)
        answer: Any = None
        if "serve" in message:
            asked = message["serve"]
            stack = contextlib.ExitStack()
            clock = None if asked["clock"] is None else FollowedClock(Path(asked["clock"]))
            log = stack.enter_context(open_log(asked["log"], clock=clock, config=Config(maintenance="manual")))
            settings = Settings(**asked["settings"])
            answer = stack.enter_context(served(log, Address(port=0), settings=settings))
            running[answer] = stack
        else:
            running.pop(message["stop"]).close()
        print(json.dumps(answer), flush=True)
    for stack in running.values():
        stack.close()


if __name__ == "__main__":
    _main()

"""PySpark's daemon, whose Python workers acknowledge at once what they have read.

Spark sends a worker its task in two writes, of which the second is small. The sender's kernel holds that one back until the first is
acknowledged (Nagle's algorithm), and the receiver's kernel waits with the acknowledgement, for it might go with an answer: 40 ms
for each task of each stage in Python. Here the worker's socket acknowledges after each read, and sends what it writes at once.

Spark starts this module in place of its own by the setting `spark.python.daemon.module`.
"""

from __future__ import annotations

import io
import os
import runpy
import socket
import stat
from typing import IO, Any

#: Only Linux has it.
_ACKNOWLEDGE = getattr(socket, "TCP_QUICKACK", None)
_fdopen = os.fdopen


class PromptReader(io.FileIO):
    """The reading end of a TCP connection, which acknowledges after each read."""

    def __init__(self, connection: socket.socket, descriptor: int) -> None:
        super().__init__(descriptor, "rb")
        self._connection = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # Any: a buffer, for which this release of Python has no type.
    def readinto(self, buffer: Any) -> int | None:
        count: int | None = super().readinto(buffer)
        assert _ACKNOWLEDGE is not None
        # Not kept by the kernel: each read needs it again.
        self._connection.setsockopt(socket.IPPROTO_TCP, _ACKNOWLEDGE, 1)
        return count

    def close(self) -> None:
        self._connection.close()
        super().close()


# Any: what `os.fdopen` takes.
def fdopen(descriptor: int, mode: str = "r", buffering: int = -1, *more: Any, **named: Any) -> IO[Any]:
    """Open a descriptor as `os.fdopen` does; the bytes of a TCP connection are read by a `PromptReader`."""
    if mode == "rb" and buffering > 1 and _ACKNOWLEDGE is not None and stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        connection = socket.socket(fileno=os.dup(descriptor))
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            return io.BufferedReader(PromptReader(connection, descriptor), buffering)
        connection.close()
    return _fdopen(descriptor, mode, buffering, *more, **named)


def main() -> None:
    os.fdopen = fdopen  # type: ignore[assignment]  # overloads that PySpark does not use
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

"""Logs that this process reads and writes, each opened once: a worker serves many tasks, a driver many batches."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from headwater.log import LocalLog
from headwater.log import open as open_log
from headwater.log.embedded import local_log
from headwater.log.errors import ReadOnly

#: By process and address: the inode of the log's marker file, so that a new log in the same folder is another one, and the
#: log. A forked worker opens its own.
_logs: dict[tuple[int, str], tuple[int, LocalLog]] = {}
_lock = threading.Lock()


def shared_log(address: str, *, create: bool = False) -> LocalLog:
    """Return the log at an address, opened once in this process; read-only if this process may not write to it."""
    with _lock:
        marker, key = Path(address) / "headwater.json", (os.getpid(), address)
        known = _logs.get(key)
        if known is None or known[0] != _inode(marker) or known[1].closed:
            log = _open(address, create=create)
            known = _logs[key] = (_inode(marker), log)
        return known[1]


def _inode(marker: Path) -> int:
    return marker.stat().st_ino if marker.exists() else -1


def _open(address: str, *, create: bool) -> LocalLog:
    try:
        return local_log(open_log(address, create=create))
    except ReadOnly:
        return local_log(open_log(address, read_only=True))

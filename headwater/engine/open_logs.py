"""Logs that this process reads and writes, each opened once: a worker serves many tasks, a driver many batches."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from headwater.config import Config
from headwater.home import is_remote
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.errors import ReadOnly

#: By process and address: the inode of the log's marker file, so that a new log in the same folder is another one, and the
#: log. A forked worker opens its own.
_logs: dict[tuple[int, str], tuple[int, Log]] = {}
_lock = threading.Lock()


def shared_log(address: str, *, create: bool = False) -> Log:
    """Return the log at an address, opened once in this process; read-only if this process may not write to it.

    The token for a remote log is that of the settings, which Spark's processes have from the environment of the driver.
    """
    with _lock:
        key = (os.getpid(), address)
        known = _logs.get(key)
        if known is None or known[0] != _inode(address) or known[1].closed:
            log = _open(address, create=create)
            known = _logs[key] = (_inode(address), log)
        return known[1]


def _inode(address: str) -> int:
    marker = Path(address) / "headwater.json"
    return marker.stat().st_ino if not is_remote(address) and marker.exists() else -1


def _open(address: str, *, create: bool) -> Log:
    if is_remote(address):
        return open_log(address, token=Config.load().token)
    try:
        return open_log(address, create=create)
    except ReadOnly:
        return open_log(address, read_only=True)

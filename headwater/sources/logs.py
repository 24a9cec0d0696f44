"""The logs that this process reads, each opened once: a worker serves many tasks, a planner many batches."""

from __future__ import annotations

import threading
from pathlib import Path

from headwater.errors import ReadOnly
from headwater.log import EmbeddedLog
from headwater.log import open as open_log

#: By address: the identity of the log's mark, so that a log made anew in the same folder is another one.
_logs: dict[str, tuple[int, EmbeddedLog]] = {}
_lock = threading.Lock()


def shared_log(address: str) -> EmbeddedLog:
    """The log at an address, open in this process; read-only where it cannot be written."""
    with _lock:
        mark = Path(address) / "headwater.json"
        identity = mark.stat().st_ino if mark.exists() else -1
        known = _logs.get(address)
        if known is None or known[0] != identity or known[1].closed:
            known = _logs[address] = (identity, _open(address))
        return known[1]


def _open(address: str) -> EmbeddedLog:
    try:
        return open_log(address, create=False)
    except ReadOnly:
        return open_log(address, read_only=True)

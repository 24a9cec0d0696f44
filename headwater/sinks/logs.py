"""The logs that this process writes, each opened once: a worker serves many tasks, a driver many batches."""

from __future__ import annotations

import threading
from pathlib import Path

from headwater.log import EmbeddedLog
from headwater.log import open as open_log

_logs: dict[str, tuple[int, EmbeddedLog]] = {}
_lock = threading.Lock()


def shared_log(address: str, *, create: bool = False) -> EmbeddedLog:
    """The log at an address, open in this process."""
    with _lock:
        mark = Path(address) / "headwater.json"
        identity = mark.stat().st_ino if mark.exists() else -1
        known = _logs.get(address)
        if known is None or known[0] != identity or known[1].closed:
            log = open_log(address, create=create)
            known = _logs[address] = (mark.stat().st_ino, log)
        return known[1]

"""Appends that are repeated while the log cannot take rows, for gateways whose senders do not send again.

Meanwhile nothing is read: a TCP sender waits, and what the kernel drops of UDP is counted. Were the gateway opened again instead, what it
has received, and what comes before it has its address again, would be lost without a trace.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from headwater.errors import FilesExhausted, Locked, Overdue
from headwater.gateways.port import Counters
from headwater.log.errors import UNREACHABLE, DiskFull

#: What may pass by itself. An answer of a server that was lost on the way makes the append happen twice.
PASSING = (DiskFull, FilesExhausted, Locked, Overdue, *UNREACHABLE)
WAIT_SECONDS = 0.1
WAIT_SECONDS_MAX = 5.0
T = TypeVar("T")
#: Calls a function, at once or until it works.
Attempt = Callable[[Callable[[], T]], T]


def at_once(append: Callable[[], T]) -> T:
    """Call a function, and let its error be raised."""
    return append()


class AppendRetry:
    """Calls an append until it works, or until the gateway is stopped: then it raises.

    >>> counters, attempts = Counters(), iter([DiskFull(path="/data"), None])
    >>> def append():
    ...     if (error := next(attempts)) is not None:
    ...         raise error
    ...     return "appended"
    >>> AppendRetry(counters, threading.Event())(append), counters.waits, counters.error[:8]
    ('appended', False, 'The disk')
    """

    def __init__(self, counters: Counters, stop: threading.Event) -> None:
        self._counters = counters
        self._stop = stop

    def __call__(self, append: Callable[[], T]) -> T:
        seconds = WAIT_SECONDS
        while True:
            try:
                result = append()
            except PASSING as error:
                self._counters.begin_wait(error)
                if self._stop.wait(seconds):
                    raise
                seconds = min(2 * seconds, WAIT_SECONDS_MAX)
            else:
                self._counters.waits = False
                return result

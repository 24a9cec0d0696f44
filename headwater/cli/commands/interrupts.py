"""Ctrl-C at the right moment: a step that must not be torn is finished first, and a second Ctrl-C does not wait."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Holds interrupts back while a step is being done; made for one block of code, in the main thread."""

    def __init__(self) -> None:
        self._before: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._is_held = False
        self._pending: int | None = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Take over the handlers that raise, for as long as the block runs."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._before[number] = handler
                    signal.signal(number, self._arrived)
        try:
            yield
        finally:
            for taken, handler in self._before.items():
                signal.signal(taken, handler)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Finish this step before an interrupt counts."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._pending is not None:
            self._before[self._pending](self._pending, None)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if self._is_held and self._pending is None:
            self._pending = number
        else:
            self._before[number](number, frame)

"""Ctrl-C and SIGTERM: a handler for a block of code, and steps that are finished before an interrupt takes effect."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def on_interrupt(handle: Callable[[], None]) -> Iterator[None]:
    """Call `handle` for each interrupt while the block runs."""
    before = {number: signal.signal(number, lambda *_: handle()) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Interrupts:
    """Delays Ctrl-C and SIGTERM until a step is finished; a second signal does not wait."""

    def __init__(self) -> None:
        self._before: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._is_held = False
        self._pending: int | None = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Replace the signal handlers while the block runs."""
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
        """Finish the block before an interrupt takes effect."""
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

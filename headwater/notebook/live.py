"""An output of a notebook that is updated when something changes, for a limited time."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.optional import require

SECONDS = 30.0
SECONDS_MAX = 3600.0
REFRESH_SECONDS = 0.25


class Changes(Protocol):
    """A source of changes: `next` returns None when the timeout is over, or when no more changes come."""

    # Any: a change, whose content is not used.
    def next(self, *, timeout: float | None = None) -> Any: ...


class Frame:
    """What the output shows at one moment: HTML in notebooks, a line in terminals."""

    def __init__(self, html: str, text: str) -> None:
        self._html = html
        self._text = text

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return self._text


def follow(
    drawn: Callable[[str], str],
    changes: Callable[[], AbstractContextManager[Changes]],
    *,
    name: str,
    seconds: float = SECONDS,
) -> None:
    """Show something, and update the same output whenever it changes, for so many seconds.

    `drawn` returns the current HTML, with a note below; it is called at most four times a second. An interrupt ends it without
    an error; `changes` is always closed at the end.
    """
    if not 0 < seconds <= SECONDS_MAX:
        raise ArgumentInvalid(name="seconds", value=seconds, expected=f"more than 0, and at most {SECONDS_MAX:.0f}")
    display = _display()
    deadline = time.monotonic() + seconds
    with changes() as source:
        output = display(Frame(drawn("Live."), name), display_id=True)
        ended = f"Stopped after {seconds:g} s; call it again to go on."
        try:
            while (left := deadline - time.monotonic()) > 0:
                if source.next(timeout=left) is None and time.monotonic() < deadline - REFRESH_SECONDS:
                    ended = "Stopped: nothing more comes."
                    break
                _skip_changes(source, until=min(deadline, time.monotonic() + REFRESH_SECONDS))
                output.update(Frame(drawn("Live."), name))
        except KeyboardInterrupt:
            ended = "Interrupted; call it again to go on."
        except HeadwaterError as error:  # such as: the app no longer runs
            ended = str(error)
    output.update(Frame(drawn(ended), name))


def _skip_changes(source: Changes, *, until: float) -> None:
    """Skip the changes that come until then, so that thousands of changes are one update."""
    while (left := until - time.monotonic()) > 0 and source.next(timeout=left) is not None:
        pass


# Any: a function of an optional package without types.
def _display() -> Any:
    return require("IPython.display", extra="notebook").display

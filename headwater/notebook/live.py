"""One output of a notebook that follows something for a while, and then stops by itself."""

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
    """Something that says when there is news; None when the time is over, or nothing more comes."""

    # Any: a change, which is only waited for.
    def next(self, *, timeout: float | None = None) -> Any: ...


class Frame:
    """What the output shows at one moment: HTML to notebooks, a line to terminals."""

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
    """Show something, and show it again in the same output whenever it changes, for so many seconds.

    `drawn` gives the HTML of this moment, with a note below. It is asked at most four times a second. An interrupt ends
    it quietly; whatever happens, `changes` is closed at the end.
    """
    if not 0 < seconds <= SECONDS_MAX:
        raise ArgumentInvalid(name="seconds", value=seconds, expected=f"more than 0, and at most {SECONDS_MAX:.0f}")
    display = _display()
    deadline = time.monotonic() + seconds
    with changes() as news:
        output = display(Frame(drawn("Live."), name), display_id=True)
        ended = f"Stopped after {seconds:g} s; call it again to go on."
        try:
            while (left := deadline - time.monotonic()) > 0:
                if news.next(timeout=left) is None and time.monotonic() < deadline - REFRESH_SECONDS:
                    ended = "Stopped: nothing more comes."
                    break
                _pass_over(news, until=min(deadline, time.monotonic() + REFRESH_SECONDS))
                output.update(Frame(drawn("Live."), name))
        except KeyboardInterrupt:
            ended = "Interrupted; call it again to go on."
        except HeadwaterError as error:  # such as: the app no longer runs
            ended = str(error)
    output.update(Frame(drawn(ended), name))


def _pass_over(news: Changes, *, until: float) -> None:
    """Let further changes gather for a moment, so that thousands of them are one picture."""
    while (left := until - time.monotonic()) > 0 and news.next(timeout=left) is not None:
        pass


# Any: a function of a package that is loaded when it is needed, and that has no types.
def _display() -> Any:
    return require("IPython.display", extra="notebook").display

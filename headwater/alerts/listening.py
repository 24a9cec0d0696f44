"""Hearing of alerts as they change, for a page that shows notifications: by polling, or by waiting for the next."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headwater.alerts.standing import Change

if TYPE_CHECKING:
    from headwater.alerts.book import Book

_LOOK_SECONDS = 1.0


class Listener:
    """A place in the history of alerts. It works in any process, whichever of them watches."""

    def __init__(self, book: Book, position: int) -> None:
        self._book = book
        #: The first record that has not been heard.
        self.position = position

    def poll(self) -> list[Change]:
        """The changes since the last call that browsers are to show; none where there are none."""
        found, self.position = self._book.changes(self.position)
        return [change for change in found if change.browser]

    def wait(self, *, seconds: float) -> list[Change]:
        """The same, but sleeps until there are some, for so long at most."""
        deadline = time.monotonic() + seconds
        while not (found := self.poll()) and (left := deadline - time.monotonic()) > 0:
            self._book.wait(self.position, seconds=min(left, _LOOK_SECONDS))
        return found

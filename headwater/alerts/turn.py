"""Of all processes that could look at the rules of a log, one does: the one that holds a lock.

The kernel gives the lock back however the process ends, so that another can take its turn.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class Turn:
    """A lock on a file, for as long as this process looks.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "alerts.lock"
    >>> first, second = Turn(place), Turn(place)
    >>> first.take(), second.take(), second.is_taken(), first.give_back(), second.is_taken()
    (True, False, True, None, False)
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: int | None = None

    @property
    def is_mine(self) -> bool:
        return self._held is not None

    def take(self) -> bool:
        """Whether it is our turn now; it stays so until it is given back."""
        if self._held is None:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                return False
            self._held = descriptor
        return True

    def is_taken(self) -> bool:
        """Whether it is anybody's turn, in this process or another."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # it never was
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def give_back(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None

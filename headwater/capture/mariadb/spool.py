"""Changes of one piece: in memory, and from some number of rows on in a temporary file."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from typing import IO

from headwater.capture.port import Changes

#: The most rows that are held in memory.
ROWS_MAX = 131_072


class Spool:
    """Changes in the order in which they were added; they can be read again."""

    def __init__(self) -> None:
        self.count = 0
        self._held: list[Changes] = []
        self._file: IO[bytes] | None = None

    @property
    def is_on_disk(self) -> bool:
        return self._file is not None

    def add(self, changes: Changes) -> None:
        self.count += changes.count
        self._held.append(changes)
        if self._file is not None or self.count > ROWS_MAX:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="headwater-capture-")  # noqa: SIM115 - it lives as long as the changes
            for one in self._held:
                pickle.dump(one, self._file, protocol=5)
            self._held.clear()

    def __iter__(self) -> Iterator[Changes]:
        yield from self._held
        if self._file is not None:
            self._file.seek(0)
            while True:
                try:
                    yield pickle.load(self._file)
                except EOFError:
                    return

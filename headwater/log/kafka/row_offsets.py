"""The offsets of rows. A message of one row has Kafka's offset; a row in a frame has that of its message and its place in it.

Offsets of frames are made of both numbers, so that they are in order and each row has one of its own:
`message * ROWS_MAX + row`. They have large gaps, so that the distance between two of them is no number of rows.
"""

from __future__ import annotations

import re

#: More rows than a frame can have.
ROWS_MAX = 65_536
_ROW = re.compile(r"row=(\d{1,5});")


class Numbering:
    """How Kafka's offsets are those of rows, for one format of values.

    >>> Numbering(per_row=False).first(2), Numbering(per_row=False).message(2 * ROWS_MAX + 7)
    (131072, 2)
    >>> Numbering(per_row=True).first(2)
    2
    """

    def __init__(self, *, per_row: bool) -> None:
        self.span = 1 if per_row else ROWS_MAX

    def first(self, message: int) -> int:
        """The offset of the first row of a message; of the end, if there is no such message yet."""
        return message * self.span

    def message(self, offset: int) -> int:
        """Kafka's offset of the message that holds a row, or of the first one behind it."""
        return offset // self.span

    def stop(self, offset: int) -> int:
        """Kafka's offset behind all messages with rows before an offset."""
        return -(-offset // self.span)

    def committed(self, offset: int, metadata: str = "") -> tuple[int, str]:
        """A group's offset as Kafka keeps it: that of the message, and the row in it as the first part of the metadata.

        >>> Numbering(per_row=False).committed(2 * ROWS_MAX + 7, "note")
        (2, 'row=7;note')
        """
        row = offset % self.span
        return offset // self.span, f"row={row};{metadata}" if row else metadata

    def offset(self, message: int, metadata: str | None) -> int:
        """The offset that `committed` gave to Kafka, which may also be one of another program.

        >>> Numbering(per_row=False).offset(2, "row=7;note") - 2 * ROWS_MAX
        7
        """
        found = _ROW.match(metadata or "")
        return message * self.span + (int(found[1]) if found and self.span > 1 else 0)

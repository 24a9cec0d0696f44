"""A file that grows, read in whole lines from a position; its identity survives a rename and is lost with a truncation.

A file is known by its device and inode, and by a hash of its first bytes: an inode is used again after a file was deleted. A position is
always behind a line end, or inside a line that is too long and whose beginning was rejected already.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Self

#: How many bytes from the beginning tell a file from another one that got its inode.
HEAD_BYTES = 256


@dataclass(frozen=True, kw_only=True)
class FilePosition:
    """How far a file was read, and what its first bytes were.

    `head` is the hash of the first `head_bytes`, all of which were read before the position.
    """

    file: str
    path: str
    offset: int = 0
    head: str = ""
    head_bytes: int = 0
    #: The position is inside of a line that is too long.
    in_long_line: bool = False


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Whole lines of a file without their ends, the position of each, and beginnings of lines that are too long."""

    lines: list[bytes]
    offsets: list[int]
    too_long: list[bytes]
    after: FilePosition


def file_id(status: os.stat_result) -> str:
    """The identity of a file: it stays the same when the file is renamed."""
    return f"{status.st_dev:x}:{status.st_ino:x}"


@dataclass
class FileLines:
    """An open file and its position. `read` moves nothing: `advance` does, when the lines are safe."""

    stream: BinaryIO
    position: FilePosition
    #: Since when there has been nothing to read, and whether its path belongs to another file now.
    idle_since_us: int | None = None
    rotated: bool = False

    @classmethod
    def open(cls, path: Path, position: FilePosition | None = None) -> Self | None:
        """Open a file at a position, at its beginning if the position is that of another file; None if it is gone."""
        try:
            stream = path.open("rb", buffering=0)
        except FileNotFoundError:
            return None
        own = file_id(os.fstat(stream.fileno()))
        if position is None or position.file != own:
            return cls(stream, FilePosition(file=own, path=str(path)))
        return cls(stream, replace(position, path=str(path)))

    @property
    def deleted(self) -> bool:
        return os.fstat(self.stream.fileno()).st_nlink == 0

    @property
    def size(self) -> int:
        return os.fstat(self.stream.fileno()).st_size

    def read(self, *, bytes_max: int, line_bytes_max: int, to_the_end: bool = False) -> Piece:
        """The next whole lines; with `to_the_end` also a last line that has no end.

        If the file was truncated, or replaced in place, it is read from its beginning.
        """
        position = self._position_now()
        data = os.pread(self.stream.fileno(), max(bytes_max, line_bytes_max + 1), position.offset)
        start, too_long = 0, []
        in_long_line = position.in_long_line
        if in_long_line:
            end = data.find(b"\n")
            start, in_long_line = (end + 1, False) if end >= 0 else (len(data), True)
        end = data.rfind(b"\n", start) + 1
        if end == 0 and len(data) - start > line_bytes_max:
            too_long.append(data[start : start + line_bytes_max])
            start = end = len(data)
            in_long_line = True
        elif to_the_end and position.offset + len(data) >= self.size:
            end = len(data)
        end = max(end, start)
        lines, offsets, at = [], [], position.offset + start
        for line in data[start:end].removesuffix(b"\n").split(b"\n") if end > start else []:
            if len(line) > line_bytes_max:
                too_long.append(line[:line_bytes_max])
            else:
                lines.append(line)
                offsets.append(at)
            at += len(line) + 1
        after = replace(position, offset=position.offset + end, in_long_line=in_long_line)
        return Piece(lines=lines, offsets=offsets, too_long=too_long, after=self._with_head(after))

    def advance(self, piece: Piece) -> None:
        self.position = piece.after

    def close(self) -> None:
        self.stream.close()

    def _position_now(self) -> FilePosition:
        """The position, or the beginning if these are no longer the bytes that were read before it."""
        if self.size >= self.position.offset and self._head(self.position.head_bytes) == self.position.head:
            return self.position
        return FilePosition(file=self.position.file, path=self.position.path)

    def _with_head(self, position: FilePosition) -> FilePosition:
        count = min(position.offset, HEAD_BYTES)
        if count == position.head_bytes:
            return position
        return replace(position, head=self._head(count), head_bytes=count)

    def _head(self, count: int) -> str:
        if count == 0:
            return ""
        return hashlib.blake2b(os.pread(self.stream.fileno(), count, 0), digest_size=12).hexdigest()

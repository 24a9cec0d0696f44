"""Messages of syslog in a stream of bytes, as RFC 6587 has them: with a count of octets before, or a line end behind.

Each message says which of the two it is: a count begins with a digit, a message with `<`. Memory is bounded: of a message that is too
long the beginning is kept, and the rest is skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_COUNT = re.compile(rb"([1-9][0-9]{0,8}) ")
_COUNT_BEGINNING = re.compile(rb"[1-9][0-9]{0,8}\Z")
_END = re.compile(rb"[\n\0]")


@dataclass
class Frames:
    """The messages in what was received so far.

    >>> frames = Frames(bytes_max=100)
    >>> frames.feed(b"11 <34>1 hello<34>line"), frames.feed(b" end\\n<3")
    (([b'<34>1 hello'], []), ([b'<34>line end'], []))
    >>> frames.end()
    ([b'<3'], [])
    """

    bytes_max: int
    _rest: bytearray = field(default_factory=bytearray)
    #: So many bytes of a message that is too long still come; -1: up to the next line end.
    _skip: int = 0

    @property
    def is_open(self) -> bool:
        """Whether a message has begun and not ended."""
        return bool(self._rest) or self._skip != 0

    def feed(self, data: bytes) -> tuple[list[bytes], list[bytes]]:
        """The messages that have ended, and the beginnings of those that are too long."""
        rest, messages, too_long, at = self._rest, list[bytes](), list[bytes](), 0
        rest += data
        while at < len(rest):
            if self._skip > 0:
                skipped = min(self._skip, len(rest) - at)
                self._skip -= skipped
                at += skipped
                continue
            end = _END.search(rest, at)
            if self._skip < 0:
                self._skip, at = (0, end.end()) if end is not None else (-1, len(rest))
                continue
            count = _COUNT.match(rest, at)
            if count is not None:
                size, start = int(count[1]), count.end()
                if size > self.bytes_max:
                    if len(rest) - start < self.bytes_max:
                        break
                    too_long.append(bytes(rest[start : start + self.bytes_max]))
                    at, self._skip = start + self.bytes_max, size - self.bytes_max
                elif len(rest) - start < size:
                    break
                else:
                    messages.append(bytes(rest[start : start + size]))
                    at = start + size
            elif _COUNT_BEGINNING.match(rest, at):
                break
            elif (len(rest) if end is None else end.start()) - at > self.bytes_max:
                too_long.append(bytes(rest[at : at + self.bytes_max]))
                at, self._skip = at + self.bytes_max, -1
            elif end is None:
                break
            else:
                message = bytes(rest[at : end.start()]).removesuffix(b"\r")
                if message:
                    messages.append(message)
                at = end.end()
        del rest[:at]
        return messages, too_long

    def end(self) -> tuple[list[bytes], list[bytes]]:
        """At the end of the stream: a last line without an end, and what came of a message whose count says more."""
        rest, self._rest = bytes(self._rest), bytearray()
        self._skip = 0
        if not rest:
            return [], []
        return ([], [rest]) if _COUNT.match(rest) or _COUNT_BEGINNING.match(rest) else ([rest], [])

"""The two output streams: terminals with colour and a width, or pipes of plain bytes.

Data goes to stdout as bytes, everything else goes to stderr as text.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
from typing import IO, BinaryIO

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
WIDTH_OF_A_PIPE = 100_000


def is_terminal(stream: IO[str] | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def wants_color(stream: IO[str] | None) -> bool:
    """Whether a stream is a terminal whose user has not asked for plain text (https://no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width_of(stream: IO[str]) -> int:
    """The columns of the terminal, or those of the variable `COLUMNS`; no limit in a pipe."""
    if is_terminal(stream) or os.environ.get("COLUMNS", "").isdecimal():
        return max(20, shutil.get_terminal_size().columns)
    return WIDTH_OF_A_PIPE


def painted(text: str, style: str, *, color: bool) -> str:
    """A text in a style if `color` is true.

    >>> painted("ok", "green", color=False)
    'ok'
    """
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if color and text else text


def data_stream() -> BinaryIO:
    """The stream for data: stdout as bytes."""
    return sys.stdout.buffer


def reader_is_gone() -> bool:
    """Whether the reader of our output has closed the pipe, so that a command that only waits can end."""
    if not hasattr(select, "poll"):
        return False
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))
    except (OSError, ValueError):  # a stream without a descriptor, as in tests
        return False


def discard_output() -> None:
    """Discard buffered output, so that the interpreter does not report a closed pipe when it exits."""
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, sys.stdout.fileno())
    except (OSError, ValueError):
        pass
    finally:
        os.close(null)

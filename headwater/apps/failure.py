"""Explain the failure of a query: the user's own line of code first, then the error, with the rest folded.

An error of Spark's is a text in which another text may stand: the traceback of a worker, with in it perhaps that of the
function which failed. `told` parses such texts; it is pure, and its tests use texts that Spark has written.
"""

from __future__ import annotations

import linecache
import os
import re
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_STANDARD = sysconfig.get_paths()["stdlib"] + os.sep
_FOREIGN = ("/site-packages/", "/dist-packages/", "/pyspark/", "/py4j/", "pyspark.zip/", "py4j-")
_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s*File "(?P<path>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>.+))?$')
_QUOTED = re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<name>[\w<>.]+)')
_CHAINED = ("The above exception was the direct cause", "During handling of the above exception")
_END = re.compile(r"^\s*(SQLSTATE:|=== Streaming Query ===|at [\w.$]+\(|Caused by:|\.\.\. \d+ more|JVM stacktrace:)")
_STREAM = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+(?=[\s;]|$).*", re.DOTALL)
_MODULES = re.compile(r"^(?:[a-z_][\w]*\.)+(?=[A-Z]\w*(?::|$))")
FOLDED = "The JVM's trace of {count} lines is left out; `--verbose` shows it."


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """The failure of a query, as people read it."""

    line: str
    """The failure in one line."""
    details: tuple[str, ...] = ()
    """The user's own line of code, if the error came from there, what it said, and how much is folded."""
    trace: str = ""
    """The complete traces."""


class Frame(NamedTuple):
    """A line of code in a traceback."""

    path: str
    line: int
    name: str
    source: str = ""

    @property
    def is_own(self) -> bool:
        """Whether it is the user's: not ours, not Spark's, not of a library."""
        path = self.path.replace("\\", "/")
        foreign = path.startswith((_PACKAGE, _STANDARD, "<frozen")) or any(part in path for part in _FOREIGN)
        return not foreign

    def __str__(self) -> str:
        return f"{shown_path(self.path)}:{self.line}, in {self.name}"


@dataclass(kw_only=True)
class Section:
    """One traceback of a text: its frames from the outermost on, and what the error said."""

    frames: list[Frame] = field(default_factory=list)
    message: list[str] = field(default_factory=list)
    is_caused: bool = False
    """Whether the section before tells what caused this one."""

    def own(self) -> Frame | None:
        """The innermost frame of the user's; one that only the message names counts where there is no other."""
        named = [_frame(match) for match in _QUOTED.finditer("\n".join(self.message))]
        return next((frame for frame in reversed([*named, *self.frames]) if frame.is_own), None)


def trouble_of(error: BaseException) -> Trouble:
    """Explain an exception."""
    text = _text_of(error)
    frames = [
        Frame(one.filename, one.lineno or 0, one.name, one.line or "")
        for one in traceback.extract_tb(error.__traceback__)
    ]
    return told(text, kind=type(error).__name__, frames=frames, java=_java_of(error))


def told(text: str, *, kind: str, frames: Sequence[Frame] = (), java: str = "") -> Trouble:
    """Parse the text of an error. `frames` are where it was raised in this process, `java` is the JVM's own trace.

    >>> text = 'Traceback (most recent call last):\\n  File "/a/fraud.py", line 9, in ratio\\n    return 1 / 0\\nE: no'
    >>> told(text, kind="PythonException").line
    'E: no (/a/fraud.py:9, in ratio)'
    """
    found = sections(text)
    section = _chosen(found)
    message = _cleaned(section.message) if section is not None else _first_paragraph(text, kind)
    own = section.own() if section is not None else None
    if own is None:
        own = next((frame for frame in reversed(frames) if frame.is_own), None)
    trace = "\n".join(part.rstrip() for part in (text, _formatted(frames), java) if part.strip())
    first = message.splitlines()[0] if message else kind
    line = first if own is None or _QUOTED.search(first) else f"{first} ({own})"
    return Trouble(line=_QUOTED.sub(_short_place, line), details=_details(own, message, text, java), trace=trace)


def _details(own: Frame | None, message: str, text: str, java: str) -> tuple[str, ...]:
    parts = []
    if own is not None:
        parts.append(str(own))
        source = own.source or linecache.getline(own.path, own.line).strip()
        parts += [f"    {source}"] if source else []
    parts += _QUOTED.sub(_short_place, message).splitlines()
    folded = len(text.splitlines()) + len(java.splitlines()) - len(message.splitlines())
    is_of_spark = bool(java) or "SQLSTATE" in text or "\tat " in text or "Py4J" in text
    return (*parts, FOLDED.format(count=folded)) if is_of_spark and folded > 0 else tuple(parts)


# -- reading ----------------------------------------------------------------------------------------------------------


def sections(text: str) -> list[Section]:
    """Return the tracebacks in a text, from first to last."""
    found: list[Section] = []
    caused = False
    ended = True
    for line in text.splitlines():
        if line.rstrip().endswith(_BEGIN):
            found.append(Section(is_caused=caused))
            caused = ended = False
        elif line.startswith(_CHAINED):
            caused = ended = True
        elif _END.match(line):
            ended = True
        elif found and not ended:
            ended = _read_line(found[-1], line)
    return [section for section in found if section.frames or section.message]


def _read_line(section: Section, line: str) -> bool:
    """Add a line to a traceback; return whether it was the last line."""
    match = _FRAME.match(line)
    if match is not None and not section.message:
        section.frames.append(_frame(match))
    elif line.startswith("    ") and section.frames and not section.message:
        last = section.frames[-1]
        if not last.source and line.strip(" ~^"):
            section.frames[-1] = last._replace(source=line.strip())
    elif line.strip() or section.message:
        section.message.append(line)
    return False


def _frame(match: re.Match[str]) -> Frame:
    return Frame(match["path"], int(match["line"]), match["name"] or "<module>")


def _chosen(found: Sequence[Section]) -> Section | None:
    """Choose the traceback to show: the innermost one, or its cause, that has the user's code in it."""
    for place in range(len(found) - 1, -1, -1):
        chain = list(_chain(found, place))
        own = [section for section in chain if section.own() is not None]
        if own:
            return own[-1]
    return found[-1] if found else None


def _chain(found: Sequence[Section], place: int) -> Iterator[Section]:
    """Yield a traceback, its cause, the cause of that, and so on."""
    yield found[place]
    while found[place].is_caused and place > 0:
        place -= 1
        yield found[place]


def _cleaned(lines: Sequence[str]) -> str:
    text = _SQLSTATE.sub("", "\n".join(lines)).strip()
    return _MODULES.sub("", text)


def _first_paragraph(text: str, kind: str) -> str:
    """Return the message of an error without a traceback: without ids, plans and the JVM's trace."""
    text = _SQLSTATE.sub("", _STREAM.sub("", text.strip()))
    lines = []
    for line in text.splitlines():
        if _END.match(line) or not line.strip():
            break
        lines.append(line)
    said = "\n".join(lines).strip()
    if not said or said == kind or ":" in said.split(" ")[0] or said.startswith("["):
        return said
    return f"{kind}: {said}"


# -- words ------------------------------------------------------------------------------------------------------------


def shown_path(path: str) -> str:
    """Return a path relative to the working folder, if the file is in it."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return path
    return path if relative.startswith(os.pardir) else relative


def _short_place(match: re.Match[str]) -> str:
    return str(_frame(match))


def _text_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # Py4J asks the JVM for it, which may be gone
        text = ""
    cause = error.__cause__
    if cause is not None and not text.count(_BEGIN):
        text = "".join(traceback.format_exception(error)).rstrip()
    return text or type(error).__name__


def _java_of(error: BaseException) -> str:
    """Return the JVM's trace, which PySpark keeps in a private attribute."""
    return str(getattr(error, "_stackTrace", None) or "")


def _formatted(frames: Sequence[Frame]) -> str:
    if not frames:
        return ""
    lines = [f'  File "{one.path}", line {one.line}, in {one.name}' for one in frames]
    return "\n".join(["Raised in this process:", *lines])


def told_of(trouble: Trouble) -> str:
    """Return the failure as text: one line, or the user's own line of code with the message below."""
    return "\n".join([trouble.line, *(f"  {line}" for line in trouble.details if line not in trouble.line)])

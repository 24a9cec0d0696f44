"""Files as they grow, line by line, each exactly once: what `tail -F` shows, as rows.

Rows and positions are committed in one transaction of the log, so that a gateway that was killed goes on behind the last line that it has
appended. A file is known by its inode and its first bytes, not by its name: it is read to its end after it was renamed or deleted, while the
new file of its name is read from the beginning. What cannot be known: lines that were written and truncated between two looks.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa

from headwater.errors import ArgumentInvalid, EncodingInvalid, RowInvalid
from headwater.faults import reach
from headwater.gateways.dead_letters import malformed_inputs
from headwater.gateways.file_lines import FileLines, FilePosition, Piece, file_id
from headwater.gateways.port import Counters, Direction
from headwater.log.client_config import Rows
from headwater.log.dead_letters import DeadLetter, dead_letter_topic, make_dead_letter_topic
from headwater.log.port import Log
from headwater.log.topic import Topic
from headwater.schema import parse_schema
from headwater.schema.encodings.json import decode_lines
from headwater.schema.rows import to_batches
from headwater.units import MIB, Duration, parse_seconds

LINE_SCHEMA: pa.Schema = parse_schema(
    "at timestamp not null, path string not null, position int64 not null, line string not null"
)
#: Compacted by gateway and file: how far each file was read.
POSITIONS_TOPIC = "__tail_positions"
_POSITIONS: pa.Schema = parse_schema(
    "gateway string not null, file string not null, path string not null, offset int64 not null, head string not null, "
    "head_bytes int32 not null, in_long_line bool not null, at timestamp not null"
)
#: What is read of one file at once, and of all files for one transaction.
PIECE_BYTES = 2 * MIB
TRANSACTION_BYTES = 8 * MIB
logger = logging.getLogger("headwater.gateways")
# Any: values of rows.
Row = dict[str, Any]
#: A line, and why it cannot be a row.
Malformed = tuple[bytes, str]


@dataclass(frozen=True, kw_only=True)
class Tail:
    """Lines of files as rows of a topic; `paths` are patterns, such as `/var/log/*.log`.

    With `format="json"` each line is an object with the columns of the topic, which `schema` creates if it is missing. Lines that are
    not UTF-8, not JSON or longer than `line_bytes_max` become dead letters. `start` says what happens to files that are there when the
    gateway runs for the first time: read from the "beginning", or only what comes at their "end"; later files are read from the beginning.

    >>> import tempfile, headwater
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "app.log").write_text("started\\nready\\nhalf a li")
    >>> log = headwater.open(folder / "log")
    >>> session = Tail(paths=(f"{folder}/*.log",)).open(log)
    >>> session.step()
    True
    >>> [(row["position"], row["line"]) for row in log.read("lines").rows()]
    [(0, 'started'), (8, 'ready')]
    >>> session.close()
    """

    paths: tuple[str, ...] = ()
    topic: str = "lines"
    format: Literal["text", "json"] = "text"
    schema: str | None = None
    start: Literal["beginning", "end"] = "beginning"
    line_bytes_max: int = MIB
    files_max: int = 500
    interval: Duration = "250 ms"
    #: A file that was renamed or deleted is read until nothing has come for so long.
    rotate_wait: Duration = "5 seconds"
    partitions: int = 1

    kind: ClassVar[str] = "tail"
    direction: ClassVar[Direction] = "in"

    def __post_init__(self) -> None:
        if not self.paths:
            raise ArgumentInvalid(name="paths", value=self.paths, expected="at least one path, such as /var/log/*.log")
        for name, known in (("format", ("text", "json")), ("start", ("beginning", "end"))):
            if getattr(self, name) not in known:
                raise ArgumentInvalid(name=name, value=getattr(self, name), expected=" or ".join(known))
        for name in ("line_bytes_max", "files_max"):
            if getattr(self, name) < 1:
                raise ArgumentInvalid(name=name, value=getattr(self, name), expected="at least 1")
        for name in ("interval", "rotate_wait"):
            parse_seconds(getattr(self, name), name=name)

    @property
    def name(self) -> str:
        return f"tail-{self.topic}"

    def create_topics(self, log: Log) -> None:
        if self.format == "text":
            log.create(self.topic, LINE_SCHEMA, time="at", partitions=self.partitions, exist_ok=True)
        elif self.schema is not None:
            log.create(self.topic, parse_schema(self.schema), partitions=self.partitions, exist_ok=True)
        else:
            log.topic(self.topic)
        make_dead_letter_topic(log, self.topic)

    def open(self, log: Log) -> TailSession:
        self.create_topics(log)
        _make_positions_topic(log)
        return TailSession(log, self)


class TailSession:
    """Looks at the files again and again; a second process with the same gateway fences the first."""

    def __init__(self, log: Log, gateway: Tail) -> None:
        self._log = log
        self._gateway = gateway
        self.counters = Counters()
        self.address = ", ".join(gateway.paths)
        self._rotate_wait_us = round(parse_seconds(gateway.rotate_wait) * 1e6)
        self._producer = f"gateway.{gateway.name}"
        self._epoch = log.open_producer(self._producer)
        self._files: dict[str, FileLines] = {}
        self._unreadable: set[str] = set()
        #: Positions of all files, also of those that are no longer followed.
        self._known = _positions(log, gateway.name)
        try:
            first = not self._known
            self._find()
            if first and gateway.start == "end":
                self._skip_to_ends()
            self._find_rotated()
        except BaseException:
            self.close()
            raise

    def run(self, stop: threading.Event) -> None:
        interval = parse_seconds(self._gateway.interval)
        while True:
            stopping = stop.is_set()
            moved = self.step()
            if stopping and not moved:
                return
            if not moved:
                stop.wait(interval)

    def step(self) -> bool:
        """Look for files and append the lines that are there, up to some megabytes; return whether any file was read further."""
        self._find()
        pieces = list(self._pieces())
        if pieces:
            self._append(pieces)
        return bool(pieces)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _find(self) -> None:
        """Follow the files that the patterns match, the oldest first; see which files have lost their name."""
        matches: dict[str, tuple[int, str]] = {}
        for pattern in self._gateway.paths:
            for path in glob.glob(pattern, recursive=True):
                try:
                    status = os.stat(path)
                except OSError:  # it is gone already
                    continue
                if stat.S_ISREG(status.st_mode):
                    matches.setdefault(file_id(status), (status.st_mtime_ns, path))
        for id, file in self._files.items():
            file.rotated = id not in matches
        for id, (_, path) in sorted(matches.items(), key=lambda one: one[1]):
            if id not in self._files:
                self._follow(path, self._known.get(id))

    def _follow(self, path: str, position: FilePosition | None) -> FileLines | None:
        if len(self._files) >= self._gateway.files_max:
            expected = f"a higher number: the paths match more files, such as {path}"
            raise ArgumentInvalid(name="files_max", value=self._gateway.files_max, expected=expected)
        try:
            file = FileLines.open(Path(path), position)
        except PermissionError as error:  # others are followed all the same
            if path not in self._unreadable:
                logger.warning("gateway %s: %s cannot be read: %s", self.name, path, error.strerror)
                self._unreadable.add(path)
            return None
        if file is not None:
            self._files[file.position.file] = file
        return file

    def _find_rotated(self) -> None:
        """Follow files that were renamed while no gateway ran, to their ends; forget those that are gone."""
        there = set(self._files)
        for folder in {os.path.dirname(position.path) for position in self._known.values()}:
            for path in Path(folder).iterdir() if Path(folder).is_dir() else ():
                with contextlib.suppress(FileNotFoundError):
                    status = path.stat()
                    id = file_id(status)
                    position = self._known.get(id)
                    if position is None or id in there:
                        continue
                    there.add(id)
                    if status.st_size > position.offset and (file := self._follow(str(path), position)):
                        file.rotated = True
        gone = [position for id, position in self._known.items() if id not in there]
        if gone:
            for position in gone:
                logger.info("gateway %s: %s is gone; it was read up to %d", self.name, position.path, position.offset)
                del self._known[position.file]
            self._forget(gone)

    @property
    def name(self) -> str:
        return self._gateway.name

    def _forget(self, positions: list[FilePosition]) -> None:
        rows = [{"gateway": self.name, "file": position.file, "_tombstone": True} for position in positions]
        self._log.append(POSITIONS_TOPIC, rows)

    def _skip_to_ends(self) -> None:
        """Begin behind what the files have: at the last line end."""
        for file in self._files.values():
            while True:
                piece = file.read(bytes_max=PIECE_BYTES, line_bytes_max=self._gateway.line_bytes_max)
                if piece.after == file.position:
                    break
                file.advance(piece)
        self._commit([], [], [file.position for file in self._files.values()])

    def _pieces(self) -> Iterator[tuple[FileLines, Piece]]:
        now_us, size = self._log.clock.now_us(), 0
        for id, file in list(self._files.items()):
            idle = file.idle_since_us is not None and now_us - file.idle_since_us >= self._rotate_wait_us
            ended = file.rotated and idle
            piece = file.read(bytes_max=PIECE_BYTES, line_bytes_max=self._gateway.line_bytes_max, to_the_end=ended)
            if piece.after != file.position:
                file.idle_since_us = None
                size += piece.after.offset - file.position.offset
                yield file, piece
                if size >= TRANSACTION_BYTES:
                    return
            elif file.idle_since_us is None:
                file.idle_since_us = now_us
            elif ended:
                self._end(id, file)

    def _end(self, id: str, file: FileLines) -> None:
        """Stop following a file that was renamed or deleted, and is read to its end."""
        if file.deleted:
            self._known.pop(id, None)
            self._forget([file.position])
        file.close()
        del self._files[id]

    def _append(self, pieces: list[tuple[FileLines, Piece]]) -> None:
        try:
            count, bad = self._commit_lines(pieces, one_by_one=False)
        except (EncodingInvalid, RowInvalid):
            count, bad = self._commit_lines(pieces, one_by_one=True)
        for file, piece in pieces:
            self._known[piece.after.file] = piece.after
            self.counters.add(bytes=max(0, piece.after.offset - file.position.offset))
            file.advance(piece)
        self.counters.add(received=count + bad, appended=count, rejected=bad)

    def _commit_lines(self, pieces: list[tuple[FileLines, Piece]], *, one_by_one: bool) -> tuple[int, int]:
        """Commit the rows and dead letters of pieces with the positions behind them; return how many there are of each."""
        now_us = self._log.clock.now_us()
        rows: list[Rows] = []
        bad: list[Malformed] = []
        for _, piece in pieces:
            bad += [(line, f"the line is longer than {self._gateway.line_bytes_max} bytes") for line in piece.too_long]
            if self._gateway.format == "text":
                rows.append(_text_rows(piece, bad, now_us=now_us))
            else:
                rows.append(self._json_rows(piece, bad, one_by_one=one_by_one))
        letters = malformed_inputs(self.name, self._gateway.topic, bad, at_us=now_us)
        self._commit([some for some in rows if len(some)], letters, [piece.after for _, piece in pieces])
        return sum(len(some) for some in rows), len(bad)

    def _commit(self, rows: list[Rows], letters: list[DeadLetter], positions: list[FilePosition]) -> None:
        now_us = self._log.clock.now_us()
        with self._log.transaction(self._producer, epoch=self._epoch) as transaction:
            for some in rows:
                transaction.append(self._gateway.topic, some)
            if letters:
                transaction.append(dead_letter_topic(self._gateway.topic), [letter.as_row() for letter in letters])
            transaction.append(POSITIONS_TOPIC, [_position_row(self.name, one, now_us) for one in positions])
            reach("tail.before_commit")
        reach("tail.committed")

    def _json_rows(self, piece: Piece, bad: list[Malformed], *, one_by_one: bool) -> list[Row]:
        """Rows of JSON lines. All are decoded at once; one by one, each that fails is malformed."""
        topic = self._log.topic(self._gateway.topic)
        lines = [line for line in piece.lines if line.strip()]
        if not one_by_one:
            return _decoded(lines, topic)
        rows = []
        for line in lines:
            try:
                found = _decoded([line], topic)
                to_batches(found, topic.schema, topic=topic.name, key=topic.key)
                rows += found
            except EncodingInvalid as error:
                bad.append((line, error.why))
            except RowInvalid as error:
                bad.append((line, f"column {error.column!r} {error.why}"))
        return rows


def _decoded(lines: list[bytes], topic: Topic) -> list[Row]:
    return [row for some in decode_lines(lines, topic.schema, topic=topic.name) for row in some]


def _text_rows(piece: Piece, bad: list[Malformed], *, now_us: int) -> pa.RecordBatch:
    lines, offsets = piece.lines, piece.offsets
    texts = _texts(lines)
    if texts is None:
        bad += [(line, "the line is not UTF-8") for line in lines if _texts([line]) is None]
        good = [(line, offset) for line, offset in zip(lines, offsets, strict=True) if _texts([line]) is not None]
        lines, offsets = [line for line, _ in good], [offset for _, offset in good]
        texts = _texts(lines)
    columns = [
        pa.repeat(now_us, len(lines)).cast(LINE_SCHEMA.field("at").type),
        pa.repeat(piece.after.path, len(lines)),
        pa.array(offsets, pa.int64()),
        pa.array(texts, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LINE_SCHEMA)


def _texts(lines: list[bytes]) -> list[str] | None:
    """Lines as text, without the carriage return of Windows; None if one is not UTF-8."""
    try:
        return [line.removesuffix(b"\r").decode() for line in lines]
    except UnicodeDecodeError:
        return None


def _make_positions_topic(log: Log) -> None:
    log.create_internal(
        Topic(
            name=POSITIONS_TOPIC,
            id="7a11" + "0" * 28,
            schema=_POSITIONS,
            key=("gateway", "file"),
            compact=True,
            segment_bytes_max=8 * MIB,
            created_us=log.clock.now_us(),
        )
    )


def _positions(log: Log, gateway: str) -> dict[str, FilePosition]:
    """How far each file was read, by the identity of the file."""
    rows = {row["file"]: row for row in log.read(POSITIONS_TOPIC).rows() if row["gateway"] == gateway}
    names = [field.name for field in fields(FilePosition)]
    return {
        file: FilePosition(**{name: row[name] for name in names}) for file, row in rows.items() if not row["_tombstone"]
    }


def _position_row(gateway: str, position: FilePosition, at_us: int) -> Row:
    return {"gateway": gateway, **asdict(position), "at": at_us}

"""Back up a log while it is written, and restore it.

A backup is a folder: `backup.json`, which has the size and the checksum of every file, and the files below `log/`.

**All partitions are copied as they were at one moment.** At that moment all commit logs are locked, and no transaction is
between its record and its tails: so a transaction is in all its partitions or in none. The ends of the internal topics
are read first, and first of all that of the committed offsets: a group's offset never points behind the rows that are
copied, and the journal of a queue never behind its messages (`in_order`). Appends go on all the time: a copy of a segment ends where
the partition ended at that moment. Only maintenance waits for the whole backup, because a compaction would remove rows
in favour of newer ones that are not copied.

A backup has its name only when it is complete and durable, and so has a restored log: `headwater.json` comes last.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c

from headwater.errors import HeadwaterError, InUse, NotFound, NotPossible
from headwater.faults import reach
from headwater.filelock import wait_for_lock
from headwater.log.embedded.files import (
    COPY_BYTES,
    dump_checked,
    load_checked,
    make_folders,
    open_file,
    replace_file,
    storage_errors,
    sync_folder,
)
from headwater.log.embedded.log import EmbeddedLog, local_log, open_folder
from headwater.log.embedded.partition import BACKUP_LOCK
from headwater.log.embedded.producers import SUFFIX
from headwater.log.embedded.segment import (
    SEGMENT_HEADER_BYTES,
    Segment,
    SegmentMap,
    list_segments,
    recorded_starts,
    start_path,
    walk,
)
from headwater.log.embedded.state import DELETED, StateFile, Tail
from headwater.log.embedded.topic import load_topic
from headwater.log.errors import BackupDamaged, FileCorrupt, FrameCorrupt, ReadOnly, SegmentMissing
from headwater.log.frame import HEADER_BYTES, payload_is_whole
from headwater.log.port import OFFSETS_TOPIC, Log
from headwater.log.topic_rules import INTERNAL

FORMAT = 1
MANIFEST = "backup.json"
#: The folder of a restore that is not complete, in its target.
_UNFINISHED = ".restore"

Progress = Callable[[int, int], None]


class File(NamedTuple):
    """A file of a backup."""

    bytes: int
    crc: int


@dataclass(frozen=True, kw_only=True)
class Backup:
    """What a backup has, as its `backup.json` says."""

    #: The id of the log.
    log: str
    #: The moment at which the partitions were cut.
    at_us: int
    #: The end of each partition with rows, by topic.
    ends: dict[str, dict[int, int]]
    #: Topics that were deleted while the backup was made; they are not in it.
    left_out: list[str]
    files: dict[str, File]
    #: How many of its bytes are files that it shares with an earlier backup.
    bytes_shared: int = 0

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())


def back_up(
    log: Log, target: str | Path, *, since: str | Path | None = None, progress: Progress | None = None
) -> Backup:
    """Copy a log to the new folder `target` while other processes write it.

    Every frame is checked while it is copied: a damaged log raises and leaves no backup. With `since`, an earlier backup
    of the same log, files that have not changed are hard links to its files, if both are on one file system.

    >>> import tempfile, headwater
    >>> folder = Path(tempfile.mkdtemp())
    >>> with headwater.open(folder / "data") as log:
    ...     _ = log.create("orders", {"id": "int64"})
    ...     _ = log.append("orders", [{"id": 7}])
    ...     back_up(log, folder / "monday").ends["orders"]
    {0: 1}
    >>> _ = restore(folder / "monday", folder / "restored")
    >>> with headwater.open(folder / "restored") as log:
    ...     [row["id"] for row in log.read("orders").rows()]
    [7]
    """
    local = local_log(log)
    if local.read_only:
        raise ReadOnly(path=local.address)
    return _Copy(local, Path(target), earlier=None if since is None else Path(since), progress=progress).run()


def load_backup(folder: Path) -> Backup:
    """Read `backup.json` of a backup; the files are not read."""
    try:
        body = load_checked(folder / MANIFEST, format_known=FORMAT)
    except FileNotFoundError:
        raise NotFound(kind="backup", name=str(folder)) from None
    except FileCorrupt as error:
        raise BackupDamaged(path=error.path, why=error.why) from error
    return Backup(
        log=body["log"],
        at_us=body["at_us"],
        ends={name: {int(number): end for number, end in ends.items()} for name, ends in body["ends"].items()},
        left_out=body["left_out"],
        files={path: File(size, crc) for path, (size, crc) in body["files"].items()},
    )


def check_backup(folder: str | Path, *, progress: Progress | None = None) -> Backup:
    """Read every file of a backup, and raise `BackupDamaged` unless each has its size and its checksum."""
    return _read_all(Path(folder), None, progress)


def restore(source: str | Path, target: str | Path, *, progress: Progress | None = None) -> Backup:
    """Make a log of a backup, in a folder that is new or empty. Every file is compared with its checksum.

    The log gets a new id: a backup of it is never continued as one of the log that it was copied from.
    """
    folder, target = Path(source), Path(target)
    load_backup(folder)
    with storage_errors(target):
        _check_empty(target)
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = target / _UNFINISHED
        shutil.rmtree(unfinished, ignore_errors=True)
        make_folders(unfinished)
    try:
        backup = _read_all(folder, unfinished, progress)
        reach("restore.copied")
        with storage_errors(target):
            for name in ("topics", "groups", "producers", "transactions"):
                make_folders(unfinished / name)
            _sync_folders(unfinished)
            for path in sorted(unfinished.iterdir()):
                os.rename(path, target / path.name)
                reach("restore.moved")
            unfinished.rmdir()
            body = load_checked(folder / "log" / "headwater.json", format_known=1)
            replace_file(target / "headwater.json", dump_checked({**body, "id": uuid.uuid4().hex}), durable=True)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    if backup.left_out:  # a later topic of that name has other rows
        with open_folder(target, create=False) as log:
            for name in backup.left_out:
                for group in log.committed_groups():
                    log.forget_offsets(group, name)
    return backup


# -- the copy -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cut:
    """Where each partition ends at the moment of the backup, and the files that change behind it."""

    at_us: int
    #: By topic: its id, and the tails of its partitions with rows.
    topics: dict[str, tuple[str, dict[int, Tail]]] = field(default_factory=dict)
    #: The bytes of the commit logs, by file name.
    commits: dict[str, bytes] = field(default_factory=dict)
    #: Open files of prepared transactions, by name.
    prepared: dict[str, int] = field(default_factory=dict)


class _Copy:
    """One backup: its folder, what is in it so far, and what it may share with an earlier one."""

    def __init__(self, log: EmbeddedLog, target: Path, *, earlier: Path | None, progress: Progress | None) -> None:
        self._log = log
        self._target = target
        self._folder = target.with_name(f".{target.name}.partial")
        self._progress = progress or (lambda *_: None)
        self._total = self._done = 0
        self._files: dict[str, File] = {}
        self._shared = 0
        self._earlier_folder = earlier
        self._earlier = None if earlier is None else load_backup(earlier)
        if self._earlier is not None and self._earlier.log != log.id:
            why = f"{earlier} is not a backup of this log"
            raise NotPossible(
                why=why, instead="Make a backup without an earlier one; a restored log begins a new series"
            )

    def run(self) -> Backup:
        with storage_errors(self._target):
            if self._target.exists():
                raise InUse(what=str(self._target), by="other files", instead="Name a folder that does not exist yet")
            self._target.parent.mkdir(parents=True, exist_ok=True)
        with self._without_maintenance():
            shutil.rmtree(self._folder, ignore_errors=True)  # of a process that died
            try:
                with storage_errors(self._folder):
                    self._folder.mkdir(mode=0o700)
                    (self._folder / "log").mkdir(mode=0o700)
                backup = self._copy()
                with storage_errors(self._target):
                    _sync_folders(self._folder)
                    reach("backup.complete")
                    os.rename(self._folder, self._target)
                    sync_folder(self._target.parent)
            except BaseException:
                shutil.rmtree(self._folder, ignore_errors=True)
                raise
        return backup

    @contextlib.contextmanager
    def _without_maintenance(self) -> Iterator[None]:
        """Wait until no process rewrites or deletes segments, and keep it so. Excludes a second backup, too."""
        path = self._log.path / BACKUP_LOCK
        descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            wait_for_lock(descriptor, path, seconds_max=self._log.config.lock_seconds_max)
            yield
        finally:
            os.close(descriptor)

    def _copy(self) -> Backup:
        self._recover_all()
        cut = self._cut()
        try:
            reach("backup.cut")
            self._total = self._size(cut)
            left_out = [name for name, (id_, tails) in cut.topics.items() if not self._copy_topic(name, id_, tails)]
            reach("backup.copied")
            for name, data in cut.commits.items():
                self._add(f"transactions/{name}", data)
            for name, descriptor in cut.prepared.items():
                self._add(f"transactions/prepared/{name}", _content(descriptor))
        finally:
            for descriptor in cut.prepared.values():
                os.close(descriptor)
        for path in sorted((self._log.path / "producers").glob("[!.]*")):
            self._add(f"producers/{path.name}", path.read_bytes())
        self._copy_archive()
        self._add("headwater.json", (self._log.path / "headwater.json").read_bytes())
        backup = Backup(
            log=self._log.id,
            at_us=cut.at_us,
            ends={
                name: {number: tail.offset for number, tail in tails.items()}
                for name, (_, tails) in cut.topics.items()
                if name not in left_out
            },
            left_out=left_out,
            files=self._files,
            bytes_shared=self._shared,
        )
        replace_file(self._folder / MANIFEST, _dumped(backup), durable=True)
        return backup

    # -- the moment ---------------------------------------------------------------------------------------------------

    def _recover_all(self) -> None:
        """Recover every partition, so that its recorded tail is true."""
        for name in self._log.topics(internal=True):
            with contextlib.suppress(NotFound):  # deleted in the meantime
                for partition in self._log.handle(name).partitions():
                    partition.visible()

    def _cut(self) -> _Cut:
        with self._log.commits().quiet() as commits:
            cut = _Cut(self._log.clock.now_us(), commits=commits)
            # First: a prepared transaction that is committed from now on must be in the backup as a prepared one.
            folder = self._log.path / "transactions" / "prepared"
            for name in os.listdir(folder) if folder.is_dir() else []:
                if not name.startswith("."):
                    with contextlib.suppress(FileNotFoundError):  # rolled back
                        cut.prepared[name] = open_file(folder / name, os.O_RDONLY)
            for name in in_order(self._log.topics(internal=True)):
                with contextlib.suppress(NotFound):
                    cut.topics[name] = self._tails(name)
        return cut

    def _tails(self, name: str) -> tuple[str, dict[int, Tail]]:
        """The id of a topic, and the ends of its partitions: for a topic of many they are read within microseconds."""
        folder = self._log.path / "topics" / name
        topic, _ = load_topic(folder)
        if topic.durability == "memory":
            return topic.id, {}  # its rows are lost with the machine anyway
        state = StateFile(folder / "state", partitions=topic.partitions, read_only=True)
        if state.counters()[1] == DELETED:
            raise NotFound(kind="topic", name=name)
        read = state.visible if topic.durability == "fsync" else state.written
        tails = {number: tail for number in range(topic.partitions) if (tail := read(number)) is not None}
        return topic.id, tails

    def _size(self, cut: _Cut) -> int:
        total = 0
        for name, (_, tails) in cut.topics.items():
            for number in tails:
                with contextlib.suppress(FileNotFoundError):
                    for segment in list_segments(self._log.path / "topics" / name / str(number))[0]:
                        total += segment.path.stat().st_size
        return total

    # -- files --------------------------------------------------------------------------------------------------------

    def _copy_topic(self, name: str, topic_id: str, tails: dict[int, Tail]) -> bool:
        """Copy a topic; False if it was deleted in the meantime."""
        folder = self._log.path / "topics" / name
        files, shared = dict(self._files), self._shared
        try:
            for number, tail in tails.items():
                self._copy_partition(folder / str(number), f"topics/{name}/{number}", tail)
            # Last: a later version of the settings has all that the rows need.
            topic, _ = load_topic(folder)
            if topic.id != topic_id:
                raise NotFound(kind="topic", name=name)
            self._add(f"topics/{name}/topic.json", (folder / "topic.json").read_bytes())
            if (folder / "floor").exists():
                self._add(f"topics/{name}/floor", (folder / "floor").read_bytes())
        except (HeadwaterError, OSError) as error:
            # Its folder is renamed before the first file is removed.
            with contextlib.suppress(NotFound):
                if load_topic(folder)[0].id == topic_id:
                    raise error from None
            self._files, self._shared = files, shared
            shutil.rmtree(self._folder / "log" / "topics" / name, ignore_errors=True)
            return False
        return True

    def _copy_partition(self, folder: Path, name: str, tail: Tail) -> None:
        chain = [segment for segment in list_segments(folder)[0] if segment.base <= tail.segment]
        starts = recorded_starts(folder)
        start = starts[-1] if starts else 0
        if chain[0].base > start if chain else tail.offset > start:
            raise SegmentMissing(partition=name.removeprefix("topics/"), offset=start)
        if starts:
            self._add(f"{name}/{start_path(folder, starts[-1]).name}", b"")
        dues = [*(segment.base for segment in chain[1:]), tail.offset]
        for segment, due in zip(chain, dues, strict=False):
            is_active = segment.base == tail.segment and not segment.rewritten
            self._copy_segment(segment, f"{name}/{segment.path.name}", due, tail.position if is_active else None)
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            if path.stem.isdigit() and int(path.stem) <= tail.segment:
                self._add(f"{name}/{path.name}", path.read_bytes())

    def _copy_segment(self, segment: Segment, name: str, due: int, length: int | None) -> None:
        """Copy a segment after checking its frames; of the active one, the first `length` bytes."""
        size = segment.path.stat().st_size
        if length is None and self._share(name, size):
            self._advance(size)
            return
        mapped = SegmentMap(segment.path, length=length)
        position, offset = SEGMENT_HEADER_BYTES, segment.base
        for position, header in walk(mapped.view):
            start = position + HEADER_BYTES
            if not payload_is_whole(header, mapped.view[start : start + header.payload_size]):
                break
            position, offset = position + header.size, header.offset_next
        if position != mapped.length or (length is not None and position != length):
            raise FrameCorrupt(path=str(segment.path), position=position, offset=offset, why="its checksum differs")
        if offset != due and not (segment.rewritten and segment.offset_next == due):
            why = f"its frames end at offset {offset}, and not at {due}"
            raise FrameCorrupt(path=str(segment.path), position=position, offset=offset, why=why)
        with self._new(name) as write:
            for at in range(0, mapped.length, COPY_BYTES):
                write(mapped.view[at : min(at + COPY_BYTES, mapped.length)])
                mapped.forget_before(at)
        self._advance(mapped.length)

    def _copy_archive(self) -> None:
        """Copy what retention has archived; an archive outside of the log's folder is not part of it."""
        folder = self._log.path / "archive"
        if self._log.config.archive_dir is None and folder.is_dir():
            for path in sorted(folder.glob("*/*/[!.]*.log")):
                name = str(path.relative_to(self._log.path))
                if not self._share(name, path.stat().st_size):
                    with self._new(name) as write, open(path, "rb") as file:
                        while data := file.read(COPY_BYTES):
                            write(data)

    def _share(self, name: str, size: int) -> bool:
        """Link a file of the earlier backup if it is the same one: a sealed segment never changes under its name."""
        known = None if self._earlier is None else self._earlier.files.get(name)
        if known is None or known.bytes != size or self._earlier_folder is None:
            return False
        path = self._folder / "log" / name
        make_folders(path.parent)
        try:
            os.link(self._earlier_folder / "log" / name, path)
        except OSError:  # another file system, or a file that is gone
            return False
        self._files[name] = known
        self._shared += size
        return True

    def _add(self, name: str, data: bytes) -> None:
        with self._new(name) as write:
            write(data)

    @contextlib.contextmanager
    def _new(self, name: str) -> Iterator[Callable[[Any], None]]:
        with _new_file(self._folder / "log" / name) as (write, file):
            yield write
        self._files[name] = file()

    def _advance(self, size: int) -> None:
        self._done += size
        self._progress(self._done, max(self._total, self._done))


def in_order(topics: Iterable[str]) -> list[str]:
    """The order in which the ends are read: what points to rows comes before these rows.

    That are the committed offsets, other internal topics, and topics with a suffix, such as the journal of a queue.

    >>> in_order(["jobs", "jobs.journal", "__audit", OFFSETS_TOPIC])
    ['__offsets', '__audit', 'jobs.journal', 'jobs']
    """
    return sorted(sorted(topics, reverse=True), key=lambda name: (name != OFFSETS_TOPIC, not name.startswith(INTERNAL)))


def _content(descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        return file.read()


def _dumped(backup: Backup) -> bytes:
    body = {
        "format": FORMAT,
        "log": backup.log,
        "at_us": backup.at_us,
        "ends": {name: {str(number): end for number, end in ends.items()} for name, ends in backup.ends.items()},
        "left_out": backup.left_out,
        "files": {name: list(file) for name, file in sorted(backup.files.items())},
    }
    return dump_checked(body)


# -- files of both directions -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[tuple[Callable[[Any], None], Callable[[], File]]]:
    """A new file that is durable at the end of the block: how to write to it, and how large it is then."""
    make_folders(path.parent)
    size = crc = 0

    def write(data: Any) -> None:  # Any: bytes or a view of them
        nonlocal size, crc
        size, crc = size + len(data), google_crc32c.extend(crc, bytes(data))
        file.write(data)

    with storage_errors(path), open(path, "xb", opener=open_file) as file:
        yield write, lambda: File(size, crc)
        file.flush()
        os.fsync(file.fileno())


def _read_all(folder: Path, target: Path | None, progress: Progress | None) -> Backup:
    """Compare all files of a backup with their checksums, and copy them to `target`."""
    backup = load_backup(folder)
    done = 0
    for name, known in backup.files.items():
        path = folder / "log" / name
        # `headwater.json` makes the folder a log: it comes last.
        copies = target is not None and name != "headwater.json"
        with contextlib.ExitStack() as stack:
            write = stack.enter_context(_new_file(target / name))[0] if target is not None and copies else None
            size = crc = 0
            for data in _pieces(path):
                size, crc = size + len(data), google_crc32c.extend(crc, data)
                if write is not None:
                    write(data)
                if progress is not None:
                    progress(done + size, backup.bytes)
        if (size, crc) != known:
            why = f"it has {size} bytes and not {known.bytes}" if size != known.bytes else "its checksum differs"
            raise BackupDamaged(path=str(path), why=why)
        done += size
    return backup


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            while data := file.read(COPY_BYTES):
                yield data
    except FileNotFoundError:
        raise BackupDamaged(path=str(path), why="it is gone") from None
    except OSError as error:
        raise BackupDamaged(path=str(path), why=str(error)) from error


def _check_empty(target: Path) -> None:
    """Raise unless a folder is new, empty, or left by a restore whose process died."""
    if target.exists() and (not target.is_dir() or any(path.name != _UNFINISHED for path in target.iterdir())):
        raise InUse(what=str(target), by="other files", instead="Restore into a folder that is new or empty")


def _sync_folders(folder: Path) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        sync_folder(Path(path))

"""Where state files live: a folder on a local or shared disk, written with care, or a prefix of an object store.

A file appears under its name only when it is whole and safe. Names are never used for two different contents, except
that a second attempt of the same task writes the same content again. Where several processes must agree on one content,
the first one to write it wins (`write_text_if_absent`), and the others read what it has written.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from pathlib import Path
from typing import Protocol

import pyarrow as pa

SUFFIX = ".arrow"
#: The schemes of addresses in an object store; `s3a` is Spark's name for `s3`.
OBJECT_SCHEMES = ("s3", "s3a", "memory")
#: How the names of runs of state begin. They are never used for two different contents.
RUN = "run-"
#: A file that was not finished for so long was being written by a process that was killed.
UNFINISHED_SECONDS_MAX = 3600.0


class Folder(Protocol):
    """A place for state files."""

    def map(self, name: str) -> pa.Table: ...
    def map_if_there(self, name: str) -> pa.Table | None: ...
    def write(self, name: str, table: pa.Table) -> None: ...
    def read_text(self, name: str) -> str | None: ...
    def write_text(self, name: str, text: str) -> None: ...
    def write_text_if_absent(self, name: str, text: str) -> bool: ...
    def names(self, prefix: str = "") -> list[str]: ...
    def modified(self, name: str) -> float | None: ...
    def size(self) -> int: ...
    def remove(self, name: str) -> None: ...
    def clear(self) -> None: ...
    def within(self, name: str) -> Folder: ...
    def folders(self) -> list[str]: ...
    def sync(self) -> None: ...
    def sweep(self) -> None: ...


def open_folder(address: str | Path) -> Folder:
    """A folder for an address: a path, or or `s3://bucket/prefix` with the extra `s3`."""
    text = str(address)
    if "://" in text and not text.startswith("file://"):
        from headwater.engine.object_folder import object_folder

        return object_folder(text)
    return LocalFolder(Path(text.removeprefix("file://")))


class LocalFolder:
    """A folder on a local or shared disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def map(self, name: str) -> pa.Table:
        with pa.memory_map(str(self.path / (name + SUFFIX))) as source:
            return pa.ipc.open_file(source).read_all()

    def map_if_there(self, name: str) -> pa.Table | None:
        try:
            return self.map(name)
        except FileNotFoundError:
            return None

    def write(self, name: str, table: pa.Table) -> None:
        temporary = self._temporary(name)
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        self._publish(temporary, name + SUFFIX)

    def read_text(self, name: str) -> str | None:
        try:
            return (self.path / name).read_text()
        except FileNotFoundError:
            return None

    def write_text(self, name: str, text: str) -> None:
        temporary = self._temporary(name)
        temporary.write_text(text)
        self._publish(temporary, name)

    def write_text_if_absent(self, name: str, text: str) -> bool:
        """Write a file unless there is one of its name; return whether this call has written it."""
        temporary = self._temporary(name)
        with temporary.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, self.path / name)  # fails where another process was first, unlike a rename
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        return True

    def names(self, prefix: str = "") -> list[str]:
        """The names of files and folders that begin with `prefix`, in order."""
        try:
            return sorted(name for name in os.listdir(self.path) if name.startswith(prefix) and name[0] != ".")
        except FileNotFoundError:
            return []

    def folders(self) -> list[str]:
        return [name for name in self.names() if (self.path / name).is_dir()]

    def modified(self, name: str) -> float | None:
        """When a file was written, in seconds since 1970; None if it is not there."""
        try:
            return (self.path / name).stat().st_mtime
        except FileNotFoundError:
            return None

    def size(self) -> int:
        """The bytes of the files; a query at work may delete and rename them meanwhile."""
        size = 0
        for name in self.names():
            with contextlib.suppress(FileNotFoundError):
                size += (self.path / name).stat().st_size
        return size

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def within(self, name: str) -> LocalFolder:
        return LocalFolder(self.path / name)

    def _temporary(self, name: str) -> Path:
        self.path.mkdir(parents=True, exist_ok=True)
        return self.path / f".{name}.{uuid.uuid4().hex}.tmp"

    def _publish(self, temporary: Path, name: str) -> None:
        descriptor = os.open(temporary, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, self.path / name)

    def sync(self) -> None:
        """Make the names as safe as the files; one call covers all files of a version."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sweep(self) -> None:
        """Remove what killed processes had begun to write; what others are writing now is younger."""
        oldest = time.time() - UNFINISHED_SECONDS_MAX
        with contextlib.suppress(FileNotFoundError), os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.startswith(".") and entry.stat().st_mtime < oldest:
                    os.unlink(entry.path)

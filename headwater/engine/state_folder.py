"""Where state files live: a local folder, written with care, or any address that fsspec knows.

A file appears under its name only when it is whole and safe. Names are never used for two different contents, except
that a second attempt of the same task writes the same content again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

SUFFIX = ".arrow"
#: A file that was not finished for so long was being written by a process that was killed.
UNFINISHED_SECONDS_MAX = 3600.0


class Folder(Protocol):
    """A place for state files."""

    def map(self, name: str) -> pa.Table: ...
    def map_if_there(self, name: str) -> pa.Table | None: ...
    def write(self, name: str, table: pa.Table) -> None: ...
    def read_text(self, name: str) -> str | None: ...
    def write_text(self, name: str, text: str) -> None: ...
    def names(self) -> list[str]: ...
    def remove(self, name: str) -> None: ...
    def clear(self) -> None: ...
    def within(self, name: str) -> Folder: ...
    def folders(self) -> list[str]: ...
    def sync(self) -> None: ...
    def sweep(self) -> None: ...


def open_folder(address: str) -> Folder:
    """A folder for an address: a path, or `memory://…`, `s3://…` and so on with fsspec installed."""
    if "://" in address and not address.startswith("file://"):
        return RemoteFolder(address)
    return LocalFolder(Path(address.removeprefix("file://")))


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

    def names(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self.path) if not name.startswith("."))
        except FileNotFoundError:
            return []

    def folders(self) -> list[str]:
        return [name for name in self.names() if (self.path / name).is_dir()]

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


class RemoteFolder:
    """A folder behind fsspec. Object stores publish a whole object at once, which is all that is asked of them."""

    def __init__(self, address: str) -> None:
        import fsspec

        self._address = address.rstrip("/")
        # Any: fsspec has no types.
        self._system: Any
        self._system, self._root = fsspec.core.url_to_fs(self._address)

    def map(self, name: str) -> pa.Table:
        with self._system.open(f"{self._root}/{name}{SUFFIX}", "rb") as file:
            return pa.ipc.open_file(pa.BufferReader(file.read())).read_all()

    def map_if_there(self, name: str) -> pa.Table | None:
        try:
            return self.map(name)
        except FileNotFoundError:
            return None

    def write(self, name: str, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        self._put(name + SUFFIX, sink.getvalue().to_pybytes())

    def read_text(self, name: str) -> str | None:
        try:
            with self._system.open(f"{self._root}/{name}", "rb") as file:
                text: str = file.read().decode()
                return text
        except FileNotFoundError:
            return None

    def write_text(self, name: str, text: str) -> None:
        self._put(name, text.encode())

    def names(self) -> list[str]:
        try:
            found = self._system.ls(self._root, detail=False)
        except FileNotFoundError:
            return []
        return sorted(str(path).rstrip("/").rsplit("/", 1)[-1] for path in found)

    def folders(self) -> list[str]:
        return [name for name in self.names() if self._system.isdir(f"{self._root}/{name}")]

    def remove(self, name: str) -> None:
        if self._system.exists(f"{self._root}/{name}"):
            self._system.rm(f"{self._root}/{name}")

    def clear(self) -> None:
        """Remove the folder with all that is in it."""
        if self._system.exists(self._root):
            self._system.rm(self._root, recursive=True)

    def within(self, name: str) -> RemoteFolder:
        return RemoteFolder(f"{self._address}/{name}")

    def sync(self) -> None:
        """Object stores are safe once the call returns."""

    def sweep(self) -> None:
        """An object that was not finished is nowhere to be seen."""

    def _put(self, name: str, data: bytes) -> None:
        self._system.makedirs(self._root, exist_ok=True)
        with self._system.open(f"{self._root}/{name}", "wb") as file:
            file.write(data)

"""State files in an object store: each an object, with copies of the runs of state on this machine's disk.

An object appears whole, and a conditional put (`If-None-Match: *`) gives a name to the first of several writers. The client
is obstore, because pyarrow's own has no conditional put. It runs threads that do not survive a fork: a process that
has called it must not fork children that call it, too. Spark's workers are forked from a process that has not.

A run has a name of its own, which is never used again. So it is fetched once by each machine, and not at all by the one that has
written it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.config import Config
from headwater.engine.state_folder import OBJECT_SCHEMES, RUN, SUFFIX
from headwater.errors import ArgumentInvalid, StorageError
from headwater.optional import require

if TYPE_CHECKING:
    from obstore.store import ObjectStore

#: Of the bytes that the copies may take, the share that is left when they took too many.
_KEPT_SHARE = 0.8


@dataclass(eq=False, kw_only=True)
class ObjectStoreFailed(StorageError):
    """A request to an object store was refused, or not answered after several attempts."""

    address: str
    why: str
    problem = "The object store did not do what was asked at {address}: {why}."
    remedy = (
        "Check the address, and `AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` "
        "in the environment of driver and executors. The bucket must exist."
    )


def object_folder(address: str) -> ObjectFolder:
    """The folder at `s3://bucket/prefix`; credentials and endpoint are those of the usual `AWS_…` variables."""
    scheme, _, rest = address.partition("://")
    if scheme not in OBJECT_SCHEMES:
        raise ArgumentInvalid(name="state", value=address, expected="a folder, or s3://bucket/prefix")
    bucket, _, prefix = rest.partition("/")
    scheme = "s3" if scheme == "s3a" else scheme
    copies = None if scheme == "memory" else _copies(f"{scheme}://{rest.rstrip('/')}")
    return ObjectFolder(_store(scheme, bucket, os.getpid()), f"{scheme}://{bucket}", prefix.rstrip("/"), copies)


class ObjectFolder:
    """A prefix of an object store."""

    def __init__(self, store: ObjectStore, base: str, prefix: str, copies: Copies | None = None) -> None:
        self._store = store
        self._base = base
        self._prefix = prefix
        self._copies = copies

    def map(self, name: str) -> pa.Table:
        if self._copies is None or not name.startswith(RUN):
            return _table(self._get(name + SUFFIX))
        copy = self._copies.map(name)
        if copy is None:
            self._copies.keep(name, self._get(name + SUFFIX))
            copy = self._copies.map(name)
        return _table(self._get(name + SUFFIX)) if copy is None else copy

    def map_if_there(self, name: str) -> pa.Table | None:
        try:
            return self.map(name)
        except FileNotFoundError:
            return None

    def write(self, name: str, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        data = sink.getvalue()
        self._put(name + SUFFIX, data)
        if self._copies is not None and name.startswith(RUN):
            self._copies.keep(name, data)

    def read_text(self, name: str) -> str | None:
        try:
            data: bytes = self._get(name).to_pybytes()
        except FileNotFoundError:
            return None
        return data.decode()

    def write_text(self, name: str, text: str) -> None:
        self._put(name, text.encode())

    def write_text_if_absent(self, name: str, text: str) -> bool:
        """Write an object unless there is one of its name; return whether its text is this one.

        The client repeats a request whose answer was lost. So a text that is found and equal counts as written here.
        """
        from obstore.exceptions import AlreadyExistsError

        with self._reported(name):
            try:
                self._store.put(self._path(name), text.encode(), mode="create", use_multipart=False)
            except AlreadyExistsError:
                return self.read_text(name) == text
        return True

    def names(self, prefix: str = "") -> list[str]:
        """The names of objects and folders that begin with `prefix`, in order; with a prefix those of objects alone."""
        root = f"{self._prefix}/" if self._prefix else ""
        with self._reported(prefix):
            if prefix:
                return sorted(self._following(root, prefix))
            found = self._store.list_with_delimiter(self._prefix or None)
            paths = [str(one["path"]) for one in found["objects"]] + [str(one) for one in found["common_prefixes"]]
        # Some stores list an empty folder as an object of its own name.
        return sorted(path.rstrip("/").removeprefix(root) for path in paths if path.startswith(root))

    def _following(self, root: str, prefix: str) -> Iterator[str]:
        # A listing takes whole folders only, but may begin behind a name; names come in their order.
        for chunk in self._store.list(self._prefix or None, offset=root + prefix):
            for one in chunk:
                name = str(one["path"]).removeprefix(root)
                if not name.startswith(prefix):
                    return
                if "/" not in name:
                    yield name

    def folders(self) -> list[str]:
        with self._reported(""):
            found = self._store.list_with_delimiter(self._prefix or None)["common_prefixes"]
        return sorted(str(path).rstrip("/").rsplit("/", 1)[-1] for path in found)

    def modified(self, name: str) -> float | None:
        """When an object was written, in seconds since 1970; None if it is not there."""
        with contextlib.suppress(FileNotFoundError), self._reported(name):
            return self._store.head(self._path(name))["last_modified"].timestamp()
        return None

    def size(self) -> int:
        """The bytes of the objects that lie in this folder itself."""
        with self._reported(""):
            return sum(int(one["size"]) for one in self._store.list_with_delimiter(self._prefix or None)["objects"])

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._reported(name):
            self._store.delete(self._path(name))
        if self._copies is not None:
            self._copies.remove(name.removesuffix(SUFFIX))

    def clear(self) -> None:
        """Remove all objects of the prefix."""
        with self._reported(""):
            for chunk in self._store.list(self._prefix or None):
                self._store.delete([str(one["path"]) for one in chunk])

    def within(self, name: str) -> ObjectFolder:
        prefix = f"{self._prefix}/{name}" if self._prefix else name
        copies = None if self._copies is None else self._copies.within(name)
        return ObjectFolder(self._store, self._base, prefix, copies)

    def sync(self) -> None:
        """An object is safe when the call that has put it returns."""

    def sweep(self) -> None:
        """An object that was not finished is not there."""

    def _path(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _get(self, name: str) -> pa.Buffer:
        with self._reported(name):
            return pa.py_buffer(self._store.get(self._path(name)).bytes())

    def _put(self, name: str, data: pa.Buffer | bytes) -> None:
        with self._reported(name):
            self._store.put(self._path(name), memoryview(data).cast("B"))

    @contextlib.contextmanager
    def _reported(self, name: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except BaseError as error:
            if isinstance(error, FileNotFoundError):
                raise
            why = " ".join(str(error).partition("\n\nDebug source")[0].split())
            raise ObjectStoreFailed(address=f"{self._base}/{self._path(name)}", why=why[:500]) from error


@dataclass(frozen=True)
class Copies:
    """Copies of runs on this machine, as memory maps; those not used for longest go when they are too many."""

    folder: Path
    root: Path
    bytes_max: int

    def map(self, name: str) -> pa.Table | None:
        path = self.folder / name
        try:
            with pa.memory_map(str(path)) as source:
                table = pa.ipc.open_file(source).read_all()
            os.utime(path)
        except FileNotFoundError:
            return None
        return table

    def keep(self, name: str, data: pa.Buffer) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self.folder / f".{uuid.uuid4().hex}.tmp"
        with pa.OSFile(str(temporary), "wb") as file:
            file.write(data)
        os.replace(temporary, self.folder / name)
        self._bound()

    def remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def within(self, name: str) -> Copies:
        return Copies(self.folder / name, self.root, self.bytes_max)

    def _bound(self) -> None:
        """Remove the copies not used for longest, if all together take too many bytes. What is mapped stays readable."""
        found = []
        for folder, _, names in os.walk(self.root):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    stat = os.stat(os.path.join(folder, name))
                    found.append((stat.st_mtime, stat.st_size, os.path.join(folder, name)))
        total = sum(size for _, size, _ in found)
        if total <= self.bytes_max:
            return
        for _, size, path in sorted(found):
            if total <= self.bytes_max * _KEPT_SHARE:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            total -= size


def is_configured() -> bool:
    """Whether the environment says how to reach an object store."""
    return any(name in os.environ for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_ENDPOINT_URL"))


def forget_settings() -> None:
    """Read settings and credentials again; they are read once by each process."""
    _config.cache_clear()
    _store.cache_clear()


def _copies(address: str) -> Copies:
    config = _config()
    base = config.state_cache_dir or Path(tempfile.gettempdir(), f"headwater-state-{os.getuid()}")
    root = base.absolute()
    return Copies(root / hashlib.sha256(address.encode()).hexdigest()[:16], root, config.state_cache_bytes_max)


@functools.cache
def _config() -> Config:
    return Config.load()


@functools.cache
def _store(scheme: str, bucket: str, process: int) -> ObjectStore:  # noqa: ARG001 - a forked child makes its own
    stores = require("obstore.store", extra="s3")
    if scheme == "memory":
        memory: ObjectStore = stores.MemoryStore()
        return memory
    # Plain HTTP is refused unless it is asked for; an endpoint that says http asks for it.
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    store: ObjectStore = stores.S3Store(bucket, client_options={"allow_http": endpoint.startswith("http://")})
    return store


def _table(data: pa.Buffer) -> pa.Table:
    return pa.ipc.open_file(pa.BufferReader(data)).read_all()

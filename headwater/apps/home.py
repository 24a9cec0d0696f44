"""The folder of an app: where its queries keep their checkpoints, which version of each is in use, and who runs it.

<home>/runner.lock            flock: held by the process that runs the app, for as long as it lives; with a lease one for each host
<home>/api.json               that process's address and token; only its user may read it
<home>/finders.json           what the queries look for: patterns, rules and stored searches
<home>/queries.json           the queries as the last run declared them: what they read and write
<home>/versions.json          which version of each query is in use, and which are being tried
<home>/queries/<query>/v1/    a version's checkpoint, where it began to read, and into how many partitions its state is cut
<home>/state/                 the state of operators, by query id
<home>/views.duckdb           the store of the views
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.apps.checkpoint import Checkpoint
from headwater.apps.errors import AppSilent, RunnerNotFound
from headwater.apps.status import Kind
from headwater.errors import InUse
from headwater.filelock import LeaderLock, is_locked
from headwater.log.errors import ServerUnreachable

if TYPE_CHECKING:
    from headwater.apps.declaration import Query
    from headwater.log.remote.connection import Connection


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of a query: its number, where it began to read, and the topic that it writes."""

    number: int
    topic: str | None
    start: str = "earliest"


@dataclass(frozen=True, kw_only=True)
class DeclaredQuery:
    """A query as its app declares it, as far as it matters to those who do not run the app."""

    name: str
    kind: Kind
    inputs: tuple[str, ...] = ()
    output: str | None = None
    sinks: Mapping[str, str] = field(default_factory=dict)
    """The guarantees of its sinks, by their names."""
    side_outputs: Mapping[str, str] = field(default_factory=dict)
    where: str = ""

    @staticmethod
    def of(query: Query) -> DeclaredQuery:
        return DeclaredQuery(
            name=query.name,
            kind=query.kind,
            inputs=query.reads,
            output=query.output,
            sinks={sink.name: sink.guarantee for sink in query.sinks},
            side_outputs=dict(query.side_outputs),
            where=query.where,
        )


@dataclass(frozen=True, kw_only=True)
class Versions:
    """The versions of a query: the one in use, and one that may be tried beside it."""

    active: Version
    trial: Version | None = None
    next_number: int = 2
    switching: bool = False
    """A switch has begun and must be finished before anything runs."""


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Who runs an app, as it has written it down."""

    pid: int
    address: str
    token: str = field(repr=False)
    started_us: int = 0


def trial_topic(topic: str, number: int) -> str:
    """Where a version writes while it is tried.

    >>> trial_topic("spend", 2)
    'spend.v2'
    """
    return f"{topic}.v{number}"


def _partitions_file(query: str, version: int) -> str:
    return f"queries/{query}/v{version}/partitions.json"


def homes(log: Path) -> dict[str, Home]:
    """Return the folders of a log's apps, by the names of the apps."""
    folder = log / "apps"
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    return {name: Home(folder / name) for name in names}


def home_of(log: Path, app: str) -> Home:
    """Return the folder of an app; raise `RunnerNotFound` if the log has no such app."""
    try:
        return homes(log)[app]
    except KeyError:
        raise RunnerNotFound(name=app) from None


class Home:
    """Reads and writes the folder of an app. Every file is replaced by one rename."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def state(self) -> Path:
        return self.path / "state"

    @property
    def views(self) -> Path:
        return self.path / "views.duckdb"

    def checkpoint(self, query: str, version: int) -> Path:
        return self.path / "queries" / query / f"v{version}" / "checkpoint"

    def read_checkpoint(self, query: str, version: int) -> Checkpoint:
        """Read how far a version of a query has come."""
        return Checkpoint.read(self.checkpoint(query, version))

    # -- queries ------------------------------------------------------------------------------------------------------

    def queries(self) -> list[DeclaredQuery]:
        """Return the queries of the app, as the process declared them that ran it last."""
        known = self._read("queries.json").get("queries", [])
        return [DeclaredQuery(**{**one, "inputs": tuple(one["inputs"])}) for one in known]

    def set_queries(self, queries: Sequence[DeclaredQuery]) -> None:
        if list(queries) != self.queries():
            self._write("queries.json", {"queries": [asdict(one) for one in queries]})

    def query_id(self, query: str, version: int) -> str | None:
        """The id that Spark has given to a version of a query; None before its first start."""
        try:
            return str(json.loads((self.checkpoint(query, version) / "metadata").read_text())["id"])
        except (FileNotFoundError, ValueError, KeyError):
            return None

    # -- versions -----------------------------------------------------------------------------------------------------

    def versions(self, query: str, *, topic: str | None) -> Versions:
        known = self._read("versions.json").get(query)
        if known is None:
            return Versions(active=Version(number=1, topic=topic))
        trial = known.get("trial")
        return Versions(
            active=Version(**known["active"]),
            trial=None if trial is None else Version(**trial),
            next_number=known.get("next_number", 2),
            switching=known.get("switching", False),
        )

    def set_versions(self, query: str, versions: Versions) -> None:
        self._write("versions.json", {**self._read("versions.json"), query: asdict(versions)})

    def try_version(self, query: str, *, topic: str | None, start: str) -> Versions:
        """Note that another version of a query is to run beside the one in use."""
        known = self.versions(query, topic=topic)
        number = known.next_number
        trial = Version(number=number, topic=None if topic is None else trial_topic(topic, number), start=start)
        known = replace(known, trial=trial, next_number=number + 1)
        self.set_versions(query, known)
        return known

    # -- partitions of state ------------------------------------------------------------------------------------------

    def partitions(self, query: str, version: int, *, setting: int | None, default: int) -> int:
        """Into how many partitions the state of a version is cut: chosen once, and kept with its checkpoint.

        It is the app's own `setting` if there is one, else `default`. A setting that has changed is used; the default
        depends on the machine, and does not.
        """
        known = self._read(_partitions_file(query, version))
        if not known or (setting is not None and setting != known["setting"]):
            known = {"partitions": default if setting is None else setting, "setting": setting}
            self._write(_partitions_file(query, version), known)
        return int(known["partitions"])

    def rescale(self, query: str, version: int, partitions: int) -> None:
        """Cut the state of a version into another number of partitions, from the next start of the query on."""
        known = self._read(_partitions_file(query, version))
        self._write(_partitions_file(query, version), {"setting": None, **known, "partitions": partitions})

    # -- what queries look for ----------------------------------------------------------------------------------------

    # Any: small JSON objects, here and below.
    def finders(self) -> dict[str, dict[str, Any]]:
        """The queries that find something: what they read, where their matches go, and by which operators."""
        return self._read("finders.json")

    def set_finders(self, query: str, *, reads: Sequence[str], topic: str | None, finders: Sequence[Any]) -> None:
        """Note what a query looks for; one that finds nothing is not noted."""
        others = {name: known for name, known in self.finders().items() if name != query}
        body = {"reads": list(reads), "topic": topic, "finders": list(finders)}
        known = {**others, query: body} if finders else others
        if known != self.finders():
            self._write("finders.json", known)

    # -- the process that runs the app --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def held(self, app: str, *, wait: bool = False, of_host: bool = False) -> Iterator[None]:
        """Be the one process that runs the app. The kernel gives the lock back, however the process ends.

        With `of_host`, be the one of this host: not every file system that hosts share has locks that they share, too.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        lock = LeaderLock(self.path / (f"runner.{socket.gethostname()}.lock" if of_host else "runner.lock"))
        if not lock.acquire(wait=wait):
            runner = self.runner()
            holder = "another process" if runner is None else f"process {runner.pid} at {runner.address}"
            instead = "Stop that one first, or start this one with `--standby`: it takes over when the other ends"
            raise InUse(what=f"App {app!r}", by=holder, instead=instead)
        try:
            yield
        finally:
            lock.release()

    def is_held(self) -> bool:
        """Whether some process runs the app now."""
        return any(is_locked(path) for path in self.path.glob("runner*.lock"))

    def announce(self, address: str) -> Runner:
        """Write down where the running process can be asked; a new token each time."""
        runner = Runner(
            pid=os.getpid(), address=address, token=secrets.token_urlsafe(32), started_us=time.time_ns() // 1_000
        )
        self._write("api.json", asdict(runner), private=True)
        return runner

    def withdraw(self) -> None:
        (self.path / "api.json").unlink(missing_ok=True)

    def active_runner(self) -> Runner | None:
        """Return the process that runs the app now; None if no process does, whatever a dead one has left behind."""
        return self.runner() if self.is_held() else None

    def connect(self, *, seconds_max: float) -> Connection:
        """Return a connection to the server of the process that runs the app; raise `RunnerNotFound` if none does."""
        from headwater.log.remote.connection import Connection

        runner = self.active_runner()
        if runner is None:
            raise RunnerNotFound(name=self.path.name)
        return Connection(runner.address, token=runner.token, seconds_max=seconds_max, attempts_max=1)

    @contextlib.contextmanager
    def connected(self, *, seconds_max: float) -> Iterator[Connection]:
        """Connect while the block runs; raise `AppSilent` if the process that runs the app does not answer."""
        with contextlib.closing(self.connect(seconds_max=seconds_max)) as connection:
            try:
                yield connection
            except ServerUnreachable as error:
                if self.is_held():
                    raise AppSilent(app=self.path.name) from error
                raise RunnerNotFound(name=self.path.name) from error

    def runner(self) -> Runner | None:
        """Return the process that announced itself last. It may be dead: its lock tells."""
        try:
            return Runner(**self._read("api.json"))
        except TypeError:
            return None

    # -- files --------------------------------------------------------------------------------------------------------

    # Any: small JSON objects.
    def _read(self, name: str) -> dict[str, Any]:
        try:
            body = json.loads((self.path / name).read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return body if isinstance(body, dict) else {}

    def _write(self, name: str, body: dict[str, Any], *, private: bool = False) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o644)
        with os.fdopen(descriptor, "w") as file:
            json.dump(body, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)

"""`headwater doctor` and `headwater version`: checks of this machine and this log, and the installed versions."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

import headwater
from headwater.cli import let_pandas_in
from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.tables import counted
from headwater.errors import HeadwaterError
from headwater.optional import EXTRAS
from headwater.units import GIB, MIB, format_bytes

if TYPE_CHECKING:
    from headwater.log.port import Log

#: File systems shared over a network: on these, `flock` does not exclude processes of other machines everywhere.
NETWORK_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs", "lustre"}
)
OPEN_FILES_MIN = 1024
INOTIFY_MIN = 128
#: The packages whose versions matter most in a report of a bug.
FOUNDATIONS = ("pyarrow", "pyspark", "duckdb", "nicegui")
_SIGNS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red"), "missing": ("–", "dim")}


Status = Literal["ok", "missing", "warning", "error"]


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    check: str
    found: str
    status: Status = "ok"
    remedy: str = ""


COMMANDS = Noun()


@COMMANDS.command("doctor")
def doctor(session: Session) -> None:
    """Check this machine and this log. Ends with 1 if a check finds an error."""
    let_pandas_in()  # or it would seem to be missing
    checks = list(_checks(session))
    width = max(len(one.check) for one in checks)
    lines = []
    for one in checks:
        sign, style = _SIGNS[one.status]
        lines.append(f"{session.paint(sign, style)} {one.check:<{width}}  {one.found}")
        lines += [f"  {'':<{width}}  {session.paint(one.remedy, 'dim')}"] if one.remedy else []
    healthy = all(one.status != "error" for one in checks)
    names = ("check", "status", "found", "remedy")
    records = [{name: getattr(one, name) for name in names} for one in checks]
    session.show({"ok": healthy, "checks": records}, lines)
    if not healthy:
        raise typer.Exit(1)


@COMMANDS.command("version")
def show_version(session: Session) -> None:
    """Show the version of Headwater, and those of Python and the packages that it stands on; `headwater doctor` finds Java, too."""
    record: dict[str, str | None] = {"headwater": headwater.__version__, "python": platform.python_version()}
    record |= {package: _version(package) for package in FOUNDATIONS}
    record["platform"] = f"{platform.system()} {platform.machine()}"
    session.show(record, [f"{name:<9}  {text or 'not installed'}" for name, text in record.items()])


def _version(package: str) -> str | None:
    try:
        return version(package)  # without importing it
    except PackageNotFoundError:
        return None


def _checks(session: Session) -> Iterator[Check]:
    yield check_python()
    yield check_pyarrow()
    yield check_java()
    yield from map(check_extra, EXTRAS)
    yield check_log(session)
    if not session.is_remote:
        folder = Path(session.config.log)
        yield check_writable(folder)
        yield check_disk(folder)
        yield check_file_system(folder)
    yield check_open_files()
    yield check_inotify()


def check_python() -> Check:
    return Check("Python", f"{platform.python_version()} ({platform.python_implementation()}, {sys.platform})")


def check_pyarrow() -> Check:
    try:
        import pyarrow
    except ImportError as error:
        remedy = "Install it again: `pip install --force-reinstall pyarrow`."
        return Check("pyarrow", str(error), "error", remedy)
    return Check("pyarrow", str(pyarrow.__version__))


def check_java() -> Check:
    """Report the Java that a Spark session would run on. Only Spark needs it, so its absence is no error."""
    from headwater.spark.errors import JavaMissing
    from headwater.spark.java import find_java

    try:
        java = find_java()
    except JavaMissing as error:
        return Check("Java", f"{error.found}; only Spark needs it", "missing", error.filled(error.remedy))
    return Check("Java", f"{java.version} in {java.home}{', installed by pip' if java.bundled else ''}")


def check_extra(name: str) -> Check:
    """Report whether the packages of an extra are installed. Not each user needs each extra, so its absence is no error."""
    extra = EXTRAS[name]
    if extra.missing():
        remedy = f"Run `pip install 'headwater[{name}]'`."
        return Check(f"[{name}]", f"not installed: {extra.purpose}", "missing", remedy)
    return Check(f"[{name}]", f"installed: {extra.purpose}")


def check_log(session: Session) -> Check:
    """Open the log and describe each topic. No rows are read, so this is quick."""
    path = session.config.log
    if not session.is_remote and not Path(path, "headwater.json").exists():
        return Check("Log", f"none yet at {path}", remedy="`headwater topic create NAME` makes it.")
    try:
        with session.log() as log:
            found = [log.describe(name) for name in log.topics(internal=True)]
            waiting = len(log.prepared())
            failures = {} if session.is_remote else _maintenance_failures(log)
    except (HeadwaterError, OSError, ValueError) as error:
        remedy = "" if session.is_remote else "`headwater log verify` says more."
        return Check("Log", str(error), "error", remedy)
    own = [one for one in found if not one.topic.name.startswith("__")]
    rows, size = counted(sum(one.rows for one in own), "row"), format_bytes(sum(one.bytes for one in found))
    text = f"{path}: {counted(len(own), 'topic')}, {rows}, {size}"
    if failures:
        (topic, partition), why = next(iter(failures.items()))
        text += f"; maintenance failed for {counted(len(failures), 'partition')}, {topic}/{partition}: {why}"
        return Check("Log", text, "error", "`headwater log verify` lists all of them, `headwater log repair` retries.")
    if waiting:
        remedy = "Commit or roll them back by their ids: `Log.prepared()` lists them."
        return Check("Log", f"{text}, {waiting} transactions prepared", "warning", remedy)
    return Check("Log", text)


def _maintenance_failures(log: Log) -> dict[tuple[str, int], str]:
    from headwater.log.embedded.log import local_log

    return local_log(log).maintenance_failures()


def check_writable(folder: Path) -> Check:
    nearest = _nearest(folder)
    if os.access(nearest, os.W_OK | os.X_OK):
        return Check("Folder", f"{nearest} can be written")
    remedy = "Run it as a user with permission, change the permissions, or choose another folder with `--log`."
    return Check("Folder", f"{nearest} cannot be written by this user", "error", remedy)


def check_disk(folder: Path) -> Check:
    usage = shutil.disk_usage(_nearest(folder))
    found = f"{format_bytes(usage.free)} free of {format_bytes(usage.total)}"
    if usage.free >= GIB:
        return Check("Disk", found)
    status: Status = "error" if usage.free < 100 * MIB else "warning"
    return Check("Disk", found, status, "Free some space, or give topics a retention.")


def check_file_system(folder: Path) -> Check:
    kind = file_system_of(_nearest(folder).resolve(), _mounts())
    if kind in NETWORK_SYSTEMS:
        remedy = (
            "Put the log on a local disk: file locks may not hold between machines, so several of them could damage it."
        )
        return Check("File system", f"{kind} (shared over a network)", "warning", remedy)
    if kind == "tmpfs":
        remedy = "Put the log on a disk, so that it survives a restart of the machine."
        return Check("File system", "tmpfs (in memory)", "warning", remedy)
    return Check("File system", kind or "unknown")


def file_system_of(path: Path, mounts: str) -> str:
    """The kind of the file system that holds a path, by the list of mounts.

    >>> file_system_of(Path("/srv/log"), "d / ext4 rw 0 0\\nhost:/x /srv nfs4 rw 0 0")
    'nfs4'
    """
    found, length = "", -1
    for mount in mounts.splitlines():
        _, point, kind, *_ = (*mount.split(" "), "", "", "")
        point = point.replace("\\040", " ")
        # The last of several mounts on one point is the one that is seen.
        if point and path.is_relative_to(point) and len(point) >= length:
            found, length = kind, len(point)
    return found


def check_open_files() -> Check:
    try:
        import resource
    except ImportError:
        return Check("Open files", "no limit known")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < OPEN_FILES_MIN:
        remedy = f"Raise it with `ulimit -n {min(hard, 65_536)}`, or lower `open_partitions_max`."
        return Check("Open files", f"at most {soft}", "warning", remedy)
    return Check("Open files", f"at most {soft:,}")


def check_inotify() -> Check:
    """Check how many readers of this user can wait with inotify; further readers poll."""
    try:
        limit = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    except (OSError, ValueError):
        return Check("Wake-up", "by polling: this system has no inotify")
    if limit < INOTIFY_MIN:
        remedy = "Raise it with `sysctl fs.inotify.max_user_instances=512`: readers beyond it poll, which costs time."
        return Check("Wake-up", f"inotify, at most {limit} readers", "warning", remedy)
    return Check("Wake-up", f"inotify, up to {limit} readers")


def _nearest(path: Path) -> Path:
    """The path, or the folder above it that exists."""
    return next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())


def _mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text()
    except OSError:
        return ""

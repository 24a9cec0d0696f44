"""The process of Spark's JVM: its options, its environment, and its start before there is a session.

A JVM takes seconds until it answers. A command that will need one starts it first, by `start_early`, and imports modules
and reads the user's app meanwhile. At that time the settings of the session are not known: a session that needs other
options of Java, or a cluster, ends the early JVM and starts its own.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headwater.spark import fork_server
from headwater.spark.archive_creation import CLASSES, create_in_background
from headwater.spark.cluster import driver_address, is_local
from headwater.spark.java import Archive, Java, find_java, launcher

OPTIONS = "spark.driver.extraJavaOptions"

_LOG4J = Path(__file__).with_name("log4j2.properties")
#: Settings that the session brings with it. What begins otherwise may be needed by the JVM when it starts.
_OF_SESSION = (
    "spark.app.",
    "spark.broadcast.",
    "spark.driver.bindAddress",
    "spark.driver.host",
    "spark.hadoop.",
    "spark.headwater.",
    "spark.master",
    "spark.python.daemon.",
    "spark.scheduler.",
    "spark.sql.",
    "spark.ui.",
)
#: Variables that the JVM itself reads, or that say with what it is started.
_OF_JAVA = ("AWS_", "HADOOP_", "HOME", "JAVA_", "JDK_", "PATH", "PYSPARK_", "SPARK_", "TMPDIR", "TZ", "_JAVA_")
_POLL_SECONDS = 0.01


def java_options(given: str, *, quiet: bool, archive: bool) -> str:
    """Return the options for the JVM that is about to start; where they say the same, those that are given count."""
    # Stopping a query in the middle of `foreachBatch`, Spark matches the trace with a pattern that takes some stack for
    # each letter of it: a long trace overflows the usual megabyte, and the query ends without an error.
    # Java's own bound is a fifth of it where its second compiler is off. A session of a dozen queries fills that, and Java then
    # throws compiled code away and interprets, for as long as the session lives.
    options = ["-Xss4m", "-XX:ReservedCodeCacheSize=240m", given]
    if quiet:
        options.append(f'"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"')
    if archive:
        java = find_java()
        home = spark_home()
        place = Archive.of(java, spark=_version(home), jars=home / "jars", flags=f"quiet={quiet} {CLASSES}")
        found = place.options()
        options += [f'"{option}"' for option in found]
        if not found:
            _create_at_exit(place, java, quiet=quiet)
    return " ".join(filter(None, options))


_asked_for: set[Path] = set()


def _create_at_exit(place: Archive, java: Java, *, quiet: bool) -> None:
    if place.path not in _asked_for:
        _asked_for.add(place.path)
        atexit.register(create_in_background, place, java, quiet=quiet)


def spark_home() -> Path:
    """Return the folder of PySpark; PySpark is not imported for it."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def _version(home: Path) -> str:
    text = (home / "version.py").read_text(encoding="utf-8")
    found = re.search(r"""^__version__[^=]*=\s*["']([^"']+)""", text, re.MULTILINE)
    return found[1] if found else "unknown"


@contextlib.contextmanager
def environment(master: str, *, quiet: bool) -> Iterator[None]:
    """Set what Spark's scripts look for in the environment, while the JVM starts."""
    during = _variables(master, quiet=quiet, python=fork_server.start)
    before = {name: os.environ.get(name) for name in during}
    os.environ.update(during)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# Any: a function that returns the program to give to Spark as its Python, if there is one.
def _variables(master: str, *, quiet: bool, python: Any) -> dict[str, str]:
    java = find_java()
    forks = is_local(master)
    address = "127.0.0.1" if forks else driver_address(master)
    if address is not None:
        os.environ.setdefault("SPARK_LOCAL_IP", address)
    during = {"JAVA_HOME": str(launcher(java) if quiet or not java.vectors else java.home)}
    if "PYSPARK_PYTHON" not in os.environ:  # a user who names a Python gets that one
        program = str((python() if forks else None) or sys.executable)
        during |= {"PYSPARK_PYTHON": program, "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", program)}
    return during


@dataclass(frozen=True, kw_only=True)
class EarlyJava:
    """A JVM that was started before its session."""

    process: subprocess.Popen[bytes]
    #: Where the JVM writes its port and its secret.
    connection: Path
    options: str
    #: The environment of this process at that time.
    environment: Mapping[str, str]

    def fits(self, settings: Mapping[str, str]) -> bool:
        """Whether a session with these settings could have started this JVM."""
        others = [name for name in settings if not name.startswith(_OF_SESSION) and name != OPTIONS]
        same = is_local(settings["spark.master"]) and settings[OPTIONS] == self.options
        changed = set(os.environ) ^ set(self.environment) | set(self._changed())
        gone = set(self.environment) - set(os.environ)
        return same and not others and not gone and not any(name.startswith(_OF_JAVA) for name in changed)

    def settings(self) -> dict[str, str]:
        """Return the settings by which Spark's Python processes get what was put into the environment since."""
        return {f"spark.executorEnv.{name}": value for name, value in self._changed().items()}

    def _changed(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if self.environment.get(name) != value}

    # Any: a gateway of py4j, which has no types.
    def gateway(self) -> Any | None:
        """Wait for the JVM, and return its gateway; None if the JVM has ended."""
        while not self.connection.is_file():
            if self.process.poll() is not None:
                return None
            time.sleep(_POLL_SECONDS)
        data = self.connection.read_bytes()
        port, length = struct.unpack_from(">i", data)[0], struct.unpack_from(">i", data, 4)[0]
        where = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": data[8 : 8 + length].decode()}
        from pyspark.java_gateway import launch_gateway

        os.environ.update(where)
        try:
            gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]  # it has no types
        finally:
            for name in where:
                del os.environ[name]
        gateway.proc = self.process
        return gateway

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


_early: EarlyJava | None = None


def start_early(given: str = "", *, quiet: bool = True) -> None:
    """Start the JVM of a session on this machine that will be asked for soon; `given` are options of Java that it will have.

    A session that does not fit starts its own.
    """
    global _early
    if (
        _early is not None
        or sys.platform == "win32"
        or {"PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"} & set(os.environ)
    ):
        return
    options = java_options(given, quiet=quiet, archive=True)
    folder = Path(tempfile.mkdtemp(prefix="headwater-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    connection = folder / "connection"
    variables = _variables("local", quiet=quiet, python=fork_server.start)
    command = [str(spark_home() / "bin" / "spark-submit"), "--conf", f"{OPTIONS}={options}", "pyspark-shell"]
    before = dict(os.environ)
    # The JVM ends when its standard input does.
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        env={**before, **variables, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection)},
        preexec_fn=_ignore_interrupts,
    )
    _early = EarlyJava(process=process, connection=connection, options=options, environment=before)
    atexit.register(_end_unused)


def is_starting() -> bool:
    """Whether a JVM was started early, and no session has asked for it yet."""
    return _early is not None


def _end_unused() -> None:
    """End a JVM that no session has asked for: it holds what this process writes to open."""
    if _early is not None:
        _early.end()


def _has_gateway() -> bool:
    """Whether this process has a JVM."""
    context = sys.modules.get("pyspark.core.context")
    return context is not None and context.SparkContext._gateway is not None


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def take_early(settings: Mapping[str, str]) -> EarlyJava | None:
    """Return the JVM that was started early, once; None if there is none. One that does not fit the settings is ended."""
    global _early
    early, _early = _early, None
    if early is not None and not early.fits(settings):
        early.end()
        return None
    return early

"""A Spark session with everything registered: sources, sinks, and settings that suit streams on one machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.home import absolute_address
from headwater.optional import require_extras
from headwater.spark import checkpoint_files, java_classes
from headwater.spark.cluster import cluster_settings, is_local, object_store_settings
from headwater.spark.java_process import OPTIONS, environment, java_options, take_early

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATE = "spark.headwater.state"
LOG = "spark.headwater.log"

#: Jobs, stages, tasks and SQL executions whose plans, graphs and metrics the JVM keeps; Spark's own bounds are a thousand,
#: and a hundred thousand tasks, which a query of small batches reaches within minutes.
_RETAINED = {
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "40",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    # How often all of it is stored again while tasks run; where there is no page, once at the end.
    "spark.ui.liveUpdate.period": "-1",
}
#: How many pieces of generated code are kept, compiled. Spark's own bound of a hundred is less than the queries of an app
#: have: then each batch compiles again what another one has pushed out.
_GENERATED_MAX = "2000"
#: Spark takes a whole block for what it sends to the tasks of a stage, some 50 kB. Its own four megabytes are an array so large that
#: Java's collector begins a cycle for each of them; and on one machine nothing is gained by large blocks.
_BROADCAST_BLOCK = "128k"
#: The loggers to which PySpark writes each error that it raises.
_ERROR_LOGS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def session(
    name: str = "headwater",
    *,
    master: str | None = None,
    log: str | Path | None = None,
    state: str | Path | None = None,
    conf: Mapping[str, Any] | None = None,
    quiet: bool = True,
    archive: bool = True,
) -> SparkSession:
    """A Spark session with Headwater's sources and sinks registered; an ordinary `SparkSession` in all else.

    `master` is by default `local` with all cores. `log` is the address that `format("headwater")` reads and writes
    where no option says another; `state` the folder for the state of operators, by default `./.headwater/state`, or
    `s3://bucket/prefix` in an object store, found by the usual `AWS_…` variables.
    Whatever stands in `conf` wins over Headwater's own settings. A quiet session prints errors only. With `archive`
    the first process that ends after a session starts another one in the background, which writes a class archive to
    the cache folder in about a minute; the archive halves the start of later sessions. On Linux, Spark's Python processes
    are forked from one that has loaded what they need, unless `PYSPARK_PYTHON` names another Python.

    On a cluster, `log` and `state` must be where driver and executors find them under one name, and each executor needs
    Headwater and its Python at the same path, or as `PYSPARK_PYTHON` says. The driver takes the address from which it
    reaches the master, unless `SPARK_LOCAL_IP` or `spark.driver.host` says another.

    A session that exists already is returned, with sources and sinks registered and its other settings as they are. That may
    be one of Spark Connect, which reads and writes topics; operators and sinks in `foreachBatch` raise there.
    """
    require_extras("spark")
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None or _is_remote():
        return _joined(SparkSession.builder.getOrCreate(), log=log, state=state)
    folder = absolute_address(Path(".headwater", "state") if state is None else state)
    settings = spark_settings(master or f"local[{_cores()}]", folder, log, conf or {})
    early = None
    if SparkContext._gateway is None:  # otherwise the JVM outlived an earlier session, and has its options
        settings[OPTIONS] = java_options(settings.get(OPTIONS, ""), quiet=quiet, archive=archive)
        early = take_early(settings)
        settings |= {} if early is None else early.settings()
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    if quiet:
        _silence_error_logs()
    with environment(settings["spark.master"], quiet=quiet):
        if early is not None and (gateway := early.gateway()) is not None:
            SparkContext._ensure_initialized(gateway=gateway)
        spark = builder.getOrCreate()
    return register(spark, state=settings[STATE], log=settings.get(LOG))


def is_lost(spark: SparkSession | None, *, seconds: float = 0.0) -> bool:
    """Whether the JVM of a session has ended, now or in the next few seconds. Every call to it would fail."""
    from headwater.engine.analyzed_plan import is_connect

    gateway = None if spark is None or is_connect(spark) else spark.sparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:  # a session that another program has started
        return False
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _joined(spark: SparkSession, *, log: str | Path | None, state: str | Path | None) -> SparkSession:
    """Register sources and sinks in a session that exists; its folders stay, unless others are given."""
    default = absolute_address(Path(".headwater", "state"))
    folder = absolute_address(state) if state is not None else str(spark.conf.get(STATE, default))
    spark.conf.set(STATE, folder)
    address = absolute_address(log) if log is not None else spark.conf.get(LOG, None)
    if address is not None:
        spark.conf.set(LOG, address)
    return register(spark, state=folder, log=address)


def register(spark: SparkSession, *, state: str | Path, log: str | None = None) -> SparkSession:
    """Register `format("headwater")` in a session; Spark's planner process learns both folders by it."""
    from headwater.engine.analyzed_plan import is_connect
    from headwater.spark.datasource import HeadwaterSource
    from headwater.spark.java import keep_resolved_names

    source = HeadwaterSource.bound(state=state, log=log)
    if is_connect(spark):
        spark.dataSource.register(source)
        return spark
    keep_resolved_names(spark.sparkContext._jvm)
    if java_classes.add_java_classes(spark):
        checkpoint_files.use_checkpoint_files(spark)
    with _shared_environment(spark):
        spark.dataSource.register(source)
    return spark


def _is_remote() -> bool:
    """Whether the sessions of this process are those of Spark Connect."""
    from pyspark.sql.utils import is_remote

    return is_remote() or "SPARK_REMOTE" in os.environ


@contextlib.contextmanager
def _shared_environment(spark: SparkSession) -> Iterator[None]:
    """Keep the environment of data sources that are registered meanwhile in a map that is safe for threads.

    Each stream that starts puts its settings into the map of the source, and all streams share it. Spark gives it one
    that two threads can corrupt: then no task can be sent until the session ends.
    """
    context = spark.sparkContext
    before = context.environment
    java = context._jvm
    assert java is not None
    context.environment = java.java.util.concurrent.ConcurrentHashMap(before)
    try:
        yield
    finally:
        context.environment = before


def spark_settings(master: str, state: str | Path, log: str | Path | None, conf: Mapping[str, Any]) -> dict[str, str]:
    """What a session is started with: settings that suit streams, and those of the caller, which win."""
    settings = {
        "spark.master": master,
        STATE: str(state),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.codegen.cache.maxEntries": _GENERATED_MAX,
        # Partition numbers carry meaning: state on disk belongs to them.
        "spark.sql.adaptive.streaming.stateless.enabled": "false",
        checkpoint_files.SETTING: checkpoint_files.DEFAULT,
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    if log is not None:
        settings[LOG] = absolute_address(log)
    if is_local(master):
        settings["spark.broadcast.blockSize"] = _BROADCAST_BLOCK
        settings["spark.python.daemon.module"] = "headwater.spark.worker_daemon"
        settings["spark.sql.shuffle.partitions"] = str(_cores_of(master))
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
    else:
        settings |= cluster_settings(master, os.environ)
    settings |= object_store_settings(os.environ)
    settings |= {key: _text(value) for key, value in conf.items()}
    # Spark keeps what its web page would show also where there is none.
    return settings if settings["spark.ui.enabled"] == "true" else {**_RETAINED, **settings}


def _silence_error_logs() -> None:
    """Keep PySpark from writing an error to stderr as JSON, with the JVM's trace, when it also raises the error."""
    from pyspark.logger import PySparkLogger

    for name in _ERROR_LOGS:
        PySparkLogger.getLogger(name).disabled = True


def _cores_of(master: str) -> int:
    """How many tasks run at once on a local master.

    >>> _cores_of("local[2,4]"), _cores_of("local"), _cores_of("local-cluster[2,3,1024]")
    (2, 1, 6)
    """
    kind, _, inside = master.rstrip("]").partition("[")
    numbers = [part.strip() for part in inside.split(",")]
    if kind == "local-cluster":
        return int(numbers[0]) * int(numbers[1])
    if not inside:
        return 1
    return _cores() if numbers[0] == "*" else int(numbers[0])


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

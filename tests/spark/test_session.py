"""The session: an ordinary one with everything registered, on whatever Java there is, and without noise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import headwater
from headwater.spark.java import Archive, find_java
from headwater.spark.session import spark_settings
from tests.conditions import until

SMOKE = """
import sys, pathlib
import headwater as hw

log = hw.open("log")
log.create("orders", {"id": "int64"}, exist_ok=True)
log.append("orders", [{"id": n} for n in range(10)])
spark = hw.session("smoke", master="local[1]", log="log", state="state")
rows = spark.readStream.format("headwater").load("orders")
doubled = rows.mapInArrow(lambda batches: batches, rows.schema).groupBy("id").count()
query = doubled.writeStream.outputMode("complete").format("memory").queryName("counted").option(
    "checkpointLocation", "checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
print(spark.table("counted").count(), spark._jvm.java.lang.System.getProperty("java.version"))
spark.stop()
"""


def smoke(folder: Path, environ: dict[str, str], *, hidden: bool = False) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    script = f"from headwater.spark import java\njava._FOLDERS = ()\n{SMOKE}" if hidden else SMOKE
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        # Files, not pipes: the JVM may still write its archive after Python has gone.
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=folder, env=environ, stdout=out, stderr=err, timeout=240
        )
    return subprocess.CompletedProcess(
        done.args, done.returncode, (folder / "out").read_text(), (folder / "err").read_text()
    )


def environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "JAVA_"))}
    return {**kept, **changes}


def test_the_session_is_the_one_that_exists(spark: SparkSession) -> None:
    state = Path(str(spark.conf.get("spark.headwater.state")))
    again = headwater.session("other", state=state)
    assert again.sparkContext is spark.sparkContext
    assert again.conf.get("spark.headwater.state") == str(state)


def test_an_error_is_raised_and_not_written_to_stderr_as_well(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AnalysisException, match="amont"):
        spark.createDataFrame([(1,)], "amount int").select("amont")
    with pytest.raises(AnalysisException, match="amont"):
        spark.sql("SELECT amont FROM VALUES (1) AS rows(amount)")
    assert capsys.readouterr() == ("", "")


def test_its_settings_suit_streams_on_one_machine(spark: SparkSession) -> None:
    wanted = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.adaptive.streaming.stateless.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    assert {key: spark.conf.get(key) for key in wanted} == wanted
    assert "RocksDB" in str(spark.conf.get("spark.sql.streaming.stateStore.providerClass"))


def test_what_nobody_can_look_at_is_not_kept(tmp_path: Path) -> None:
    settings = spark_settings("local[2]", tmp_path, None, {"spark.ui.retainedJobs": 7})
    assert (settings["spark.sql.ui.retainedExecutions"], settings["spark.ui.retainedJobs"]) == ("20", "7")


def test_a_session_with_sparks_web_page_keeps_what_the_page_shows(tmp_path: Path) -> None:
    settings = spark_settings("local[2]", tmp_path, None, {"spark.ui.enabled": True})
    assert not [name for name in settings if "retained" in name]


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize("kind", ["found", "bundled"])
def test_it_runs_on_the_java_that_is_there_and_on_the_one_that_pip_brings(kind: str, tmp_path: Path) -> None:
    environ = environment(HOME=str(tmp_path))
    if kind == "bundled":
        environ["PATH"] = str(path_without_java(tmp_path / "bin"))
    elif find_java().bundled:
        pytest.skip("there is no other Java here")
    done = smoke(tmp_path / "work", environ, hidden=kind == "bundled")
    assert done.returncode == 0, done.stderr
    rows, version = done.stdout.split()
    assert rows == "10"
    assert version.startswith("25") == (kind == "bundled")
    assert done.stderr == ""


@pytest.mark.long
@pytest.mark.process
def test_the_java_that_pip_brings_starts_again_with_the_archive_that_it_has_made(tmp_path: Path) -> None:
    environ = environment(HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache"))
    environ["PATH"] = str(path_without_java(tmp_path / "bin"))
    for _ in range(2):
        done = smoke(tmp_path / "work", environ, hidden=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[0] == "10"
        wait_for_archive(tmp_path / "cache")


def wait_for_archive(cache: Path) -> None:
    """The JVM writes its archive after Python has gone, and its first bytes last."""
    until(lambda: any(first_bytes(path).strip(b"\0") for path in cache.rglob("*.aot*")), "an archive was made")


def first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def path_without_java(folder: Path) -> Path:
    """A folder with all programs but `java`: Spark's scripts need some of them."""
    folder.mkdir()
    for place in ("/bin", "/usr/bin"):
        for program in Path(place).iterdir():
            link = folder / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    return folder


@pytest.mark.long
@pytest.mark.process
def test_a_broken_archive_never_stops_a_start(tmp_path: Path) -> None:
    import pyspark

    environ = environment(HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))
    jars = Path(pyspark.__file__).parent / "jars"
    place = Archive.of(find_java(), spark=pyspark.__version__, jars=jars, flags="quiet=True", environ=environ)
    place.path.parent.mkdir(parents=True)
    place.path.write_bytes(b"\xa8\xba\x0b\xf0" + b"broken" * 10_000)
    done = smoke(tmp_path / "work", environ)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_streams_that_start_at_once_share_an_environment_that_threads_may_change(spark: SparkSession) -> None:
    # Any: py4j objects have no types.
    java: Any = spark
    source = java._jsparkSession.sessionState().dataSourceManager().lookupDataSource("headwater")
    kind = source.dataSourceCls().envVars().getClass().getName()
    assert kind == "java.util.concurrent.ConcurrentHashMap"

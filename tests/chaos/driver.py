"""The child process that is killed: a session with the query, until a file named `stop` appears.

A query that failed because of a kill is started again in the same session, as a user would do. Any other failure ends
the process with a trace.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import headwater
from benchmarks.s3a import s3a_jars
from tests.chaos.kills import FOLDER, Control, Strike
from tests.chaos.query import start


def run(spark: SparkSession, home: Path, control: Control, *, log: str, checkpoint: str) -> None:
    explained: set[Strike] = set()
    while not (home / "stop").exists():
        query = start(spark, log, checkpoint=checkpoint)
        try:
            while not (home / "stop").exists():
                query.awaitTermination(0.2)  # type: ignore[arg-type]  # a part of a second is allowed
        except StreamingQueryException as failure:
            strikes = {strike for strike in control.strikes() if strike.life == os.environ[f"{FOLDER}_LIFE"]}
            if not strikes - explained:
                raise
            explained |= strikes
            print(f"started again in the same session: {str(failure).splitlines()[0]}", flush=True)
        finally:
            query.stop()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--log", required=True)
    parser.add_argument("--master", default="local[2,4]")
    parser.add_argument("--state", required=True)
    parser.add_argument("--checkpoint", required=True)
    chosen = parser.parse_args()
    control = Control(Path(os.environ[FOLDER]))
    home: Path = chosen.home
    began = time.monotonic()
    spark = headwater.session(
        "chaos",
        master=chosen.master,
        log=chosen.log,
        state=chosen.state,
        conf={
            "spark.sql.shuffle.partitions": 2,
            "spark.python.daemon.module": "tests.chaos.daemon",
            # A JVM that runs for seconds is faster without the optimizing compiler.
            "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=160m -Djava.io.tmpdir={home / 'tmp'}",
            "spark.local.dir": home / "tmp",
            **({"spark.jars": s3a_jars()} if chosen.checkpoint.startswith("s3a://") else {}),
        },
    )
    java = spark._jvm
    assert java is not None
    control.write("pids.json", {"driver": os.getpid(), "jvm": java.java.lang.ProcessHandle.current().pid()})
    print(f"life {os.environ[f'{FOLDER}_LIFE']}: session after {time.monotonic() - began:.1f} s", flush=True)
    run(spark, home, control, log=chosen.log, checkpoint=chosen.checkpoint)
    spark.stop()
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # without a JVM, Spark's own shutdown may wait for it
    sys.exit(code)

"""The child that is killed: a query from the topic `in` to the topic `out`, until it has caught up.

Each Python process of the query has a hook: the one that comes to the chosen point at the chosen visit, counted over all
of them, kills the driver, its JVM and itself at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

from headwater.faults import install

ROOT = Path(__file__).parents[2]
#: Rows of one batch: so few that a query is killed in one batch after the other, and has some left.
ROWS_MAX = 15
POINT, VISIT, COUNTER, GROUP = (f"HEADWATER_TEST_KILL_{name}" for name in ("POINT", "VISIT", "COUNTER", "GROUP"))


def watch() -> None:
    """Called by `sitecustomize` as each process begins."""
    point = os.environ.get(POINT)

    def hook(reached: str) -> None:
        if reached != point:
            return
        descriptor = os.open(os.environ[COUNTER], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, b".")
        if os.fstat(descriptor).st_size == int(os.environ[VISIT]):
            os.killpg(int(os.environ[GROUP]), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        os.close(descriptor)

    install(hook)


def run_until_killed(way: str, home: Path, *, point: str, visit: int) -> int:
    """Run the query in a child; returns how it ended."""
    customs = home / "customs"
    customs.mkdir(exist_ok=True)
    (customs / "sitecustomize.py").write_text("from tests.sinks.query_child import watch\nwatch()\n", encoding="utf-8")
    counter = home / f"visits-{uuid.uuid4().hex}"
    environ = {POINT: point, VISIT: str(visit), COUNTER: str(counter), "PYTHONPATH": f"{customs}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.sinks.query_child", way, str(home)],
        env=os.environ | environ, cwd=home, start_new_session=True, timeout=600, check=False,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    if done.returncode not in (0, -signal.SIGKILL):
        raise AssertionError(done.stderr.decode(errors="replace")[-4000:])
    return done.returncode


def run_to_the_end(way: str, home: Path) -> None:
    """Run the query in a child that is not killed."""
    assert run_until_killed(way, home, point="none", visit=1) == 0


def main(way: str, home: Path) -> None:
    os.environ[GROUP] = str(os.getpgid(0))
    import headwater
    from headwater.log import open as open_log
    from tests.sinks.streams import rows_of, run, writer_of

    spark = headwater.session("killed", master="local[2,4]", state=home / "state")
    log = open_log(home / "log")
    run(writer_of(rows_of(spark, log, rows_max=ROWS_MAX), log, way), home / "checkpoint")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

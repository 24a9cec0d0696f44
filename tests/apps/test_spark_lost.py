"""An app whose JVM was killed says so in one line and ends, so that a standby can take over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.conditions import SECONDS_MAX, until

FILE = """
import headwater as hw

app = hw.App("shop", log="./data", master="local[1]")
app.input("orders", {"id": "int64"}, key="id")

@app.topic(key="id")
def copied(orders):
    return orders
"""


def jvm_of(pid: int) -> int | None:
    return next((child.pid for child in psutil.Process(pid).children(recursive=True) if child.name() == "java"), None)


@pytest.mark.process
def test_a_killed_jvm_ends_the_app_with_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(FILE)
    child = subprocess.Popen(
        [sys.executable, "-m", "headwater.cli", "run", "shop.py"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        started = tmp_path / "data" / "apps" / "shop" / "queries" / "copied" / "v1" / "checkpoint" / "metadata"
        until(started.exists, "the query has started", child)
        jvm = jvm_of(child.pid)
        assert jvm is not None
        os.kill(jvm, signal.SIGKILL)
        _, errors = child.communicate(timeout=SECONDS_MAX)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 1
    # Whatever Spark's own threads have said before, this is what stands last.
    assert "The JVM of app 'shop' has ended. Start the app again" in errors.splitlines()[-1]

"""The benchmark of the server runs, and its last line can be read by a machine. No figure is judged here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.long
@pytest.mark.process
def test_the_server_is_measured_beside_the_embedded_log(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.server", "--quick", "--dir", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    results = {one["name"]: one for one in json.loads(done.stdout.splitlines()[-1])["results"]}
    assert {
        "produce.arrow",
        "produce.json",
        "consume.arrow",
        "consume.json",
        "sql.small",
        "tail.1",
        "tail.100",
    } <= results.keys()
    if shutil.which("chromium"):
        assert {
            f"console.{what}.{cache}" for what in ("first_paint", "live_table") for cache in ("cold", "warm")
        } <= results.keys()
    assert all(one["value"] > 0 for one in results.values())
    assert list(tmp_path.iterdir()) == []

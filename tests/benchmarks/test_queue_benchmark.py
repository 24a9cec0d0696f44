"""The benchmark of queues keeps to its contract: it runs, and its last line can be read by a machine. No figure is judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.queue.__main__ import PARTS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.process
def test_the_last_line_is_one_json_object_with_every_result(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.queue", "--quick", "--dir", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout.splitlines()[-1])
    assert body["benchmark"] == "queue"
    assert set(PARTS) <= {result["name"] for result in body["results"]}
    for result in body["results"]:
        assert {"name", "value", "unit", "peer", "peer_value", "ratio"} <= set(result)
        assert result["value"] > 0
    assert list(tmp_path.iterdir()) == []

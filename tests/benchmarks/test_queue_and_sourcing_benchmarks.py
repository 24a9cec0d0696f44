"""The benchmarks of queues and entities keep to their contract: they run, and a machine can read their last line. No figure is judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from benchmarks.queue.__main__ import PARTS as QUEUE_PARTS
from benchmarks.sourcing.__main__ import PARTS as SOURCING_PARTS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize(("benchmark", "parts"), [("queue", QUEUE_PARTS), ("sourcing", SOURCING_PARTS)])
def test_the_last_line_is_one_json_object_with_every_result(
    benchmark: str, parts: Iterable[str], tmp_path: Path
) -> None:
    words = [sys.executable, "-m", f"benchmarks.{benchmark}", "--quick", "--dir", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout.splitlines()[-1])
    assert body["benchmark"] == benchmark
    assert set(parts) <= {result["name"] for result in body["results"]}
    for result in body["results"]:
        assert {"name", "value", "unit", "peer", "peer_value", "ratio"} <= set(result)
        assert result["value"] > 0
    assert list(tmp_path.iterdir()) == []

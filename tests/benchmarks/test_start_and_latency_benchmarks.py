"""The benchmarks of starting and of latency keep to their contract: they run, and their last line can be read by a machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.latency.__main__ import PARTS as LATENCY
from benchmarks.start.__main__ import PARTS as START

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize(
    ("benchmark", "part", "names"),
    [
        ("start", "session", {"session", "session.cpu", "session.query", "session.query.cpu"}),
        ("start", "first_query,tutorial", {"first_query", "tutorial"}),
        ("latency", "view", {"view"}),
    ],
)
def test_a_part_runs_and_its_last_line_is_json(benchmark: str, part: str, names: set[str], tmp_path: Path) -> None:
    words = [sys.executable, "-m", f"benchmarks.{benchmark}", "--quick", "--only", part, "--dir", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout.splitlines()[-1])
    assert body["benchmark"] == benchmark
    assert {result["name"] for result in body["results"]} == names
    assert all(result["value"] > 0 for result in body["results"])
    assert list(tmp_path.iterdir()) == []


def test_every_part_of_the_promise_is_there() -> None:
    assert {"session", "first_query", "tutorial", "demo"} == set(START)
    assert {"map", "view"} == set(LATENCY)

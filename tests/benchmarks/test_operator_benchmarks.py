"""The benchmarks of operators keep to their contract: every name of the promise is there, and their parts run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.analytics.__main__ import PARTS as ANALYTICS
from benchmarks.joins.__main__ import PARTS as JOINS
from benchmarks.match.__main__ import PARTS as MATCH
from benchmarks.sketches.__main__ import PARTS as SKETCHES
from benchmarks.windows.__main__ import PARTS as WINDOWS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize(
    ("benchmark", "part", "names"),
    [
        ("windows", "tumbling", {"tumbling.keyed", "tumbling.pushed"}),
        ("match", "grammar", {"grammar"}),
        ("sketches", "operators", {"operators.seen_before", "operators.k_means"}),
    ],
)
def test_a_part_runs_and_its_last_line_is_json(benchmark: str, part: str, names: set[str], tmp_path: Path) -> None:
    words = [sys.executable, "-m", f"benchmarks.{benchmark}", "--quick", "--only", part, "--dir", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout.splitlines()[-1])
    assert body["benchmark"] == benchmark
    assert {result["name"] for result in body["results"]} == names


def test_every_part_of_the_promise_is_there() -> None:
    assert set(WINDOWS) == {"tumbling", "tumbling.native", "own", "state"}
    assert set(JOINS) == {"enrich", "tables", "within"}
    assert set(ANALYTICS) == {"rolling", "rate", "trend", "anomaly", "compared_to"}
    flink = {"abc.flink", "small_big.flink", "rising.flink"}
    assert set(MATCH) == {"abc.native", "abc.native10", "patterns", "rules_1000", "grammar"} | flink
    assert set(SKETCHES) == {"few", "many", "operators", "streams"}

"""The benchmark of clusters keeps to its contract: it runs, and its last line can be read by a machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.cluster.__main__ import PARTS

ROOT = Path(__file__).resolve().parents[2]
STORE = {f"store.{size}.{place}" for size in ("small", "large") for place in ("state", "both", "both.renamed")}


@pytest.mark.long
@pytest.mark.process
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("part", "names"),
    [
        ("executors", {"executors.2"}),
        ("store", STORE),
        ("failover", {"failover.restart"}),
        ("queries,disk", {"queries.2", "disk.numbers", "disk.texts"}),
    ],
)
def test_a_part_runs_and_its_last_line_is_json(part: str, names: set[str], tmp_path: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.cluster", "--quick", "--only", part, "--dir", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout.splitlines()[-1])
    assert body["benchmark"] == "cluster"
    assert {result["name"] for result in body["results"]} == names
    assert all(result["value"] > 0 for result in body["results"])
    assert list(tmp_path.iterdir()) == []


def test_every_part_of_the_promise_is_there() -> None:
    assert {"executors", "store", "failover"} <= set(PARTS)

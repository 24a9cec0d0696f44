"""The benchmark keeps to its contract: it runs, and its last line can be read by a machine. No figure is judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.spark.__main__ import PARTS

ROOT = Path(__file__).resolve().parent.parent.parent


def run(folder: Path, only: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "benchmarks.spark", "--quick", "--only", only, "--dir", str(folder)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=280)


@pytest.mark.long
@pytest.mark.process
def test_the_last_line_is_one_json_object_with_every_result(tmp_path: Path) -> None:
    done = run(tmp_path, "scan")
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout.splitlines()[-1])
    assert body["benchmark"] == "spark"
    results: dict[str, dict[str, Any]] = {result["name"]: result for result in body["results"]}
    assert {"scan", "scan.cpu", "scan.position"} == set(results)
    for result in results.values():
        assert {"name", "value", "unit", "peer", "peer_value", "ratio"} <= set(result)
        assert result["ratio"] == pytest.approx(result["value"] / result["peer_value"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_an_unknown_part_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    done = run(tmp_path, "keyed.magic")
    assert done.returncode != 0
    assert "keyed.magic" in done.stderr
    assert "keyed.native" in done.stderr


def test_every_part_of_the_promise_is_there() -> None:
    assert {"scan", "guard", "keyed.native", "keyed.tws", "sink"} == set(PARTS)

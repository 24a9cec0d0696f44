"""The benchmark of views and SQL runs, and its last line can be read by a machine. No figure is judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.long
@pytest.mark.process
def test_views_and_sql_are_measured(tmp_path: Path) -> None:
    only = "view.apply,view.lookup,view.subscribe,sql.topic"
    words = [sys.executable, "-m", "benchmarks.app", "--quick", "--only", only, "--dir", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    results = {one["name"]: one for one in json.loads(done.stdout.splitlines()[-1])["results"]}
    assert set(results) == {"view.apply", "view.lookup", "view.lookup.api", "view.subscribe", "sql.topic"}
    assert all(one["value"] > 0 for one in results.values())
    assert results["sql.topic"]["same_answer"]
    assert list(tmp_path.iterdir()) == []

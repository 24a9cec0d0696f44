"""The whole demo, as a stranger runs it: every output equals its recomputation, also when the company was killed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.demo.checking import EXPECTED, LATE

SECONDS_MAX = 850.0
#: Every output but the dead letters is that of a query.
QUERIES = [name for name, output in EXPECTED.items() if output.kind != "dead letters"]


# Any: JSON.
def demo(*arguments: str, folder: Path) -> tuple[list[dict[str, Any]], str]:
    """Run it to its end; what the check says, and what was told on the way."""
    command = [str(Path(sys.executable).with_name("headwater")), "demo", *arguments, "--dir", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, cwd=folder.parent)
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout), done.stderr


def all_hold(outcomes: list[dict[str, Any]]) -> bool:
    assert len(outcomes) == len(EXPECTED) + len(LATE)
    return all(one["holds"] and one["expected"] == one["got"] > 0 for one in outcomes)


@pytest.mark.slow
def test_every_output_of_the_company_equals_its_recomputation(tmp_path: Path) -> None:
    outcomes, told = demo("--seconds", "30", "--check", folder=tmp_path / "demo")
    assert all_hold(outcomes)
    assert told.index("open http://127.0.0.1:") < told.index("Spark is up") < told.index("has its first results")
    assert "nothing lost, nothing doubled" in told
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


@pytest.mark.slow
def test_a_company_that_was_killed_in_the_middle_loses_and_doubles_nothing(tmp_path: Path) -> None:
    outcomes, told = demo("crash", "--seconds", "20", folder=tmp_path / "demo")
    assert all_hold(outcomes)
    killed = re.search(r"kill -9 .* in the middle of a batch of (.+)", told)
    assert killed is not None
    assert set(killed[1].split(", ")) <= set(QUERIES)
    assert "all queries go on" in told

"""The whole demo, as a stranger runs it: every output equals its recomputation, although the company was killed.

How it looks in the browser meanwhile, and that a demo without a kill ends the same way, is tested in
`tests/console/test_the_demo.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from company.check import EXPECTED

from tests.examples.company.outcomes import all_hold

SECONDS_MAX = 850.0
#: Every output but the dead letters is that of a query.
QUERIES = [name for name, output in EXPECTED.items() if output.kind != "dead letters"]


@pytest.mark.long
@pytest.mark.process
def test_a_company_that_was_killed_in_the_middle_loses_and_doubles_nothing(tmp_path: Path) -> None:
    words = [str(Path(sys.executable).with_name("headwater")), "demo", "crash", "--seconds", "20", "--json"]
    command = [*words, "--dir", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, cwd=tmp_path)
    told = done.stderr
    assert done.returncode == 0, told + done.stdout
    assert all_hold(done.stdout)
    assert told.index("open http://127.0.0.1:") < told.index("Spark is up") < told.index("has its first results")
    killed = re.search(r"kill -9 .* in the middle of a batch of (.+)", told)
    assert killed is not None
    assert set(killed[1].split(", ")) <= set(QUERIES)
    assert "all queries go on" in told
    assert "nothing lost, nothing doubled" in told
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]

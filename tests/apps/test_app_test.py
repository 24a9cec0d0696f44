"""`AppTest` for users: it needs no session and no clock of theirs, and leaves their app as it was."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import ArgumentInvalid
from headwater.testing import AppTest

FILE = """
import headwater as hw

app = hw.App("shop", log="./data")
app.input("orders", {"id": "int64"}, key="id")


@app.topic(key="id")
def large(orders):
    return orders.where("id > 1")
"""
ALONE = """
import os
from headwater.testing import AppTest

with AppTest("shop.py") as test:
    test.feed("orders", [{"id": number} for number in range(4)])
    assert [row["id"] for row in test.rows("large")] == [2, 3]
    test.feed("orders", [{"id": 7}])
    assert [row["id"] for row in test.rows("large")] == [2, 3, 7]
print(sorted(os.listdir(".")))
"""


@pytest.mark.process
def test_it_starts_a_session_by_itself_and_leaves_no_files(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(FILE)
    done = subprocess.run(
        [sys.executable, "-B", "-c", ALONE], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["['shop.py']"]


def test_an_app_has_its_own_log_and_home_again_afterwards(tmp_path: Path) -> None:
    app = hw.App("shop", log=tmp_path / "data")
    app.input("orders", {"id": "int64"}, key="id")
    before = (app.log, app.home)
    with AppTest(app) as test:
        test.feed("orders", [{"id": 1}])
        assert test.log.read("orders").count() == 1
        assert (app.log, app.home) != before
    assert (app.log, app.home) == before
    assert not (tmp_path / "data").exists()


def test_time_moves_only_when_told(tmp_path: Path) -> None:
    app = hw.App("shop", log=tmp_path / "data")
    app.input("orders", {"id": "int64"}, key="id")
    start = datetime(2026, 5, 4, tzinfo=UTC)
    with AppTest(app, start=start) as test:
        assert test.now == start
        with pytest.raises(ArgumentInvalid):
            test.advance("soon")
        test.advance("90 minutes")
        assert (test.now - start).total_seconds() == 5_400
        test.feed("orders", [{"id": 1}])
        assert [row["_appended_at"] for row in test.log.read("orders").rows()] == [test.now]

"""`headwater mirror` copies topics and says how many rows it copied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.cli.app import run
from headwater.log.embedded import open_folder


def test_rows_and_positions_are_copied(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with open_folder(source) as log:
        for topic in ("shop.orders", "other"):
            log.create(topic, "id int64")
            log.append(topic, [{"id": 1}, {"id": 2}])
        log.commit_offsets("g", "shop.orders", {0: 1})
    assert run(["mirror", str(source), str(target), "--topics", "shop.*", "--groups", "--json"]) == 0
    written = capfd.readouterr()
    assert json.loads(written.out) == {"topics": 1, "rows": 2, "left": 0}
    assert f"2 rows of 1 topic copied to {target}." in written.err
    with open_folder(target) as log:
        assert log.topics() == ["shop.orders"]
        assert log.committed("g", "shop.orders") == {0: 1}


def test_a_source_that_does_not_exist_is_not_created(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["mirror", str(tmp_path / "nowhere"), str(tmp_path / "target")]) == 3
    assert not (tmp_path / "nowhere").exists()
    assert run(["mirror", str(tmp_path), str(tmp_path), "--source-token-env", "NO_SUCH_VARIABLE"]) == 2
    assert "NO_SUCH_VARIABLE" in capfd.readouterr().err

"""Values of rows that were appended are replaced, while everything else about the rows stays."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from headwater.config import Config
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log


def change(rows: pa.RecordBatch) -> pa.RecordBatch | None:
    """Replace odd values by -1."""
    values = rows.column("value").to_pylist()
    if not any(value % 2 for value in values):
        return None
    changed = pa.array([-1 if value % 2 else value for value in values], pa.int64())
    return rows.set_column(rows.schema.get_field_index("value"), "value", changed)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_rows_keep_their_offsets_and_times(tmp_path: Path, codec: Literal["none", "zstd"]) -> None:
    with open_log(tmp_path / "log", config=Config(maintenance="manual")) as log:
        log.create("t", {"key": "int64", "value": "int64"}, codec=codec, segment_bytes_max=4096)
        for number in range(50):
            log.append("t", [{"key": number, "value": number, "_headers": {"n": str(number)}}])
        log.punctuate("t", 7)
        before = log.read("t").rows()
        assert log.change_rows("t", change) == 25
        after = log.read("t").rows()
        assert [row["value"] for row in after] == [-1 if number % 2 else number for number in range(50)]
        assert [row | {"value": 0} for row in after] == [row | {"value": 0} for row in before]
        assert log.change_rows("t", lambda _: None) == 0
        log.append("t", [{"key": 50, "value": 51}])
        assert log.change_rows("t", lambda rows: change(rows) if rows.column("value")[0].as_py() == 51 else None) == 1
        assert log.read("t", start=50).rows()[0]["value"] == -1
        log.maintain("t", seal=True)
    with open_log(tmp_path / "log") as log:
        assert log.read("t").count() == 51


def test_a_producer_is_not_forgotten(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", config=Config(maintenance="manual")) as log:
        log.create("t", {"value": "int64"})
        epoch = log.open_producer("p")
        for sequence in range(3):
            log.append("t", [{"value": sequence}], producer="p", sequence=sequence, epoch=epoch)
        log.change_rows("t", change)
        assert log.append("t", [{"value": 1}], producer="p", sequence=2, epoch=epoch).duplicate
        assert [row["value"] for row in log.read("t").rows()] == [0, -1, 2]


def test_archived_rows_are_changed(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", config=Config(maintenance="manual")) as log:
        log.create("t", {"value": "int64"}, archive=True)
        log.append("t", [{"value": 1}])
        log.delete_before("t", {0: 1}, seal=True)
        log.append("t", [{"value": 3}])
        assert log.read("t").count() == 1
        log.change_rows("t", change)
        assert [row["value"] for row in log.read("t", archived=True).rows()] == [-1, -1]


def test_a_reader_in_the_middle_goes_on(log: EmbeddedLog) -> None:
    log.create("t", {"value": "int64"})
    for number in range(4):
        log.append("t", [{"value": number}])
    batches = log.read("t").batches()
    first = next(batches)
    log.change_rows("t", change)
    rest = [row["value"] for batch in batches for row in batch.rows()]
    assert len([row["value"] for row in first.rows()] + rest) == 4
    assert [row["value"] for row in log.read("t").rows()] == [0, -1, 2, -1]

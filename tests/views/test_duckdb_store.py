"""What only the embedded store has: one file, one writing process, a limit of memory, no way to other files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headwater.errors import Closed, Locked, NotFound
from headwater.log import Log
from headwater.optional import PackageMissing
from headwater.views import Delta, DuckStore, ViewKeeper, ViewPosition, stored_view
from headwater.views.errors import StatementInvalid, ViewInvalid
from tests.views.conftest import SPEND, spec


@pytest.mark.long
def test_a_view_larger_than_memory_works(tmp_path: Path) -> None:
    wide = spec(schema=pa.schema([("card", pa.int64()), ("text", pa.string())]))
    store = DuckStore(tmp_path / "views.duckdb", memory_limit="64MB", threads=2)
    store.declare(wide)
    random = np.random.default_rng(7)
    rows_max, step = 600_000, 50_000
    for start in range(0, rows_max, step):
        texts = [value.tobytes().hex() for value in random.integers(0, 2**63, (step, 16))]
        rows = pa.table({"card": np.arange(start, start + step), "text": texts})
        store.apply(wide, Delta(keys=rows.select(["card"]), rows=rows), ViewPosition(version=1, offsets={0: start}))
    assert (store.bytes() or 0) > 2 * 64_000_000
    again = pa.table({"card": np.arange(0, rows_max, 1000), "text": ["new"] * (rows_max // 1000)})
    store.apply(wide, Delta(keys=again.select(["card"]), rows=again), ViewPosition(version=1, offsets={0: rows_max}))
    [row] = store.query(
        "SELECT count(*) AS n, count(DISTINCT card) AS keys, sum(length(text)) AS size FROM spend"
    ).to_pylist()
    assert (row["n"], row["keys"]) == (rows_max, rows_max)
    assert row["size"] == (rows_max - 600) * 256 + 600 * 3
    found = store.query("SELECT card FROM spend WHERE text = 'new' ORDER BY text, card DESC LIMIT 1")
    assert found.to_pylist() == [{"card": rows_max - 1000}]
    store.close()


@pytest.mark.process
def test_another_process_cannot_write_it_meanwhile(tmp_path: Path) -> None:
    store = DuckStore(tmp_path / "views.duckdb")
    text = f"from headwater.views import DuckStore\nDuckStore({str(tmp_path / 'views.duckdb')!r})"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert "Locked" in done.stderr
    assert Locked.__name__ in done.stderr
    store.close()


def test_statements_cannot_reach_files(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    store = DuckStore(tmp_path / "views.duckdb")
    for statement in (f"SELECT * FROM '{tmp_path}/secret.csv'", f"SELECT * FROM read_text('{tmp_path}/secret.csv')"):
        with pytest.raises(StatementInvalid):
            store.query(statement)
    store.close()


def test_types_that_it_cannot_hold_are_refused(tmp_path: Path) -> None:
    store = DuckStore(tmp_path / "views.duckdb")
    with pytest.raises(ViewInvalid, match="at most 38 digits"):
        store.declare(spec(schema=pa.schema([("card", pa.int64()), ("value", pa.decimal256(60, 2))])))
    with pytest.raises(ViewInvalid, match="names of its fields"):
        struct = pa.struct([("a", pa.int8()), ("A", pa.int8())])
        store.declare(spec(schema=pa.schema([("card", pa.int64()), ("value", struct)])))
    store.declare(spec())
    with pytest.raises(ViewInvalid, match="view 'spend'"):
        store.declare(spec("Spend"))
    store.close()


def test_what_an_app_has_left_is_read_and_not_changed(log: Log, tmp_path: Path) -> None:
    log.create("spend", SPEND, key="card", compact=True)
    log.append("spend", [{"card": 1, "total": 1.0}])
    store = DuckStore(tmp_path / "views.duckdb")
    keeper = ViewKeeper(log, store)
    keeper.add(spec())
    keeper.catch_up()
    store.close()
    log.append("spend", [{"card": 1, "total": 2.0}])
    view = stored_view("spend", log=log, path=tmp_path / "views.duckdb")
    assert view.get(card=1) == {"card": 1, "total": 1.0, "shop": None}
    assert view.freshness > 0
    assert view.sql("SELECT total FROM spend").to_pylist() == [{"total": 1.0}]
    with pytest.raises(NotFound):
        stored_view("spend", log=log, path=tmp_path / "nowhere.duckdb")


def test_a_missing_package_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(PackageMissing, match=r"pip install 'headwater\[views\]'"):
        DuckStore(tmp_path / "views.duckdb")


@pytest.mark.process
def test_a_closed_store_leaves_nothing_of_duckdb_behind(tmp_path: Path) -> None:
    """Where a cache still holds the store as the process ends, the binding would print what leaked."""
    script = (
        "import ctypes, sys, threading\n"
        "from headwater.views import DuckStore\n"
        "store = DuckStore(sys.argv[1])\n"
        "ctypes.pythonapi.Py_IncRef(ctypes.py_object(store))\n"
        "thread = threading.Thread(target=lambda: store.query('SELECT 1'))\n"
        "thread.start()\n"
        "thread.join()\n"
        "store.stored()\n"
        "store.close()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "views.duckdb")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr == ""


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = DuckStore(tmp_path / "views.duckdb")
    store.close()
    store.close()
    with pytest.raises(Closed, match="view store is closed"):
        store.stored()

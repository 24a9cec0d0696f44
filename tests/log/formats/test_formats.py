"""Logs that earlier code has written are opened, read and appended to by today's code."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.config import Config
from headwater.log.embedded import EmbeddedLog, open_folder
from headwater.log.embedded.backup import back_up, restore
from headwater.log.embedded.commit_log import whole_records
from headwater.log.embedded.repair import verify
from headwater.views import ViewKeeper
from headwater.views.duckdb_store import DuckStore
from tests.log.formats.builder import ROWS, Deposit, accounts_of, build, rows_of, typed
from tests.views.conftest import spec

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.gz"))
WHAT_TO_DO = (
    "What a log has on disk has changed. If that is intended: run tests/log/formats/builder.py with the code before the"
    " change (its first lines say how), commit the archive, say in docs/reference/log-format.md what is new, and raise"
    " `FORMAT` if the last release would misread the new files."
)


class Earlier:
    """A log of earlier code, unpacked, and what that code read from it."""

    def __init__(self, archive: Path, folder: Path) -> None:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        self.folder = folder / "log"
        self.expected: dict[str, Any] = json.loads((folder / "expected.json").read_text())


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> Earlier:
    return Earlier(request.param, tmp_path)


def opened(folder: Path, *, read_only: bool = False) -> EmbeddedLog:
    return open_folder(folder, config=Config(maintenance="manual"), read_only=read_only)


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
def test_all_rows_are_read(earlier: Earlier, read_only: bool) -> None:
    with opened(earlier.folder, read_only=read_only) as log:
        assert {topic: without_nulls(rows_of(log, topic)) for topic in earlier.expected["rows"]} == {
            topic: without_nulls(rows) for topic, rows in earlier.expected["rows"].items()
        }
        assert verify(log).ok


def without_nulls(rows: list[list[Any]]) -> list[list[Any]]:
    return [[value for value in row if value[1] is not None] for row in rows]


def test_appends_groups_and_producers_go_on(earlier: Earlier) -> None:
    with opened(earlier.folder) as log:
        assert log.committed("g", "plain") == {0: earlier.expected["committed"]}
        assert log.append("plain", [{"id": 0}], producer="p", sequence=ROWS - 1).duplicate
        assert log.append("plain", [{"id": ROWS}], producer="p", sequence=ROWS).ranges == {0: (ROWS, ROWS + 1)}
        log.append("typed", [{**typed(ROWS + 1), "more": 2}])
        assert sum(log.end_offsets("typed").values()) == ROWS + 2
        log.alter("loose", schema={"id": "int64", "new": "string"})
        log.append("loose", [{"id": ROWS, "new": "column"}])
        assert log.read("loose").rows()[-1]["new"] == "column"
        assert verify(log).ok


def test_transactions_go_on(earlier: Earlier) -> None:
    with opened(earlier.folder) as log:
        assert log.committed_sequence("q") == earlier.expected["sequence"]
        assert log.prepared() == [earlier.expected["prepared"]]
        log.commit(earlier.expected["prepared"])
        for sequence in (ROWS - 1, ROWS):  # the first of them was committed by the earlier code
            with log.transaction("q", sequence=sequence) as transaction:
                transaction.append("parts", [{"id": sequence}], partition=1)
        ids = [row["id"] for row in log.read("parts").rows() if row["_partition"] == 1]
        assert ids == [*range(ROWS), ROWS]
        assert 1_000 in [row["id"] for row in log.read("parts").rows()]


def test_maintenance_goes_on(earlier: Earlier) -> None:
    with opened(earlier.folder) as log:
        log.append("table", [{"id": 0, "n": 99}])
        log.maintain("table", seal=True)
        assert {row["id"]: row["n"] for row in log.read("table").rows() if row.get("n") is not None}[0] == 99
        log.maintain(seal=True)
        assert verify(log).ok


def test_queues_entities_and_views_go_on(earlier: Earlier, tmp_path: Path) -> None:
    with opened(earlier.folder) as log:
        if "queue" in earlier.expected:
            with log.queue("jobs") as queue:
                messages = queue.take(n=9)
                assert [message.body["n"] for message in messages] == earlier.expected["queue"]
                queue.ack_many(messages[:2])  # one row of the journal, in a column that the earlier code did not have
            for index in (earlier.folder / "queues").rglob("*.sqlite*"):
                index.unlink()  # it is built again from the rows of both
            with log.queue("jobs") as queue:
                assert [message.body["n"] for message in queue.take(n=9)] == earlier.expected["queue"][2:]
        if "balance" in earlier.expected:
            with accounts_of(log) as accounts:
                accounts.send("ada", Deposit(1))
                assert accounts.load("ada").state.balance == earlier.expected["balance"] + 1
        store = DuckStore(tmp_path / "views.duckdb")
        keeper = ViewKeeper(log, store)
        keeper.add(spec(schema=pa.schema([("card", pa.int64()), ("total", pa.float64())])))
        keeper.catch_up()
        assert {row["card"]: row["total"] for row in keeper.view("spend").rows()} == {0: 1.0, 1: 1.0, 2: 0.0}
        keeper.stop()
        store.close()


def test_a_backup_of_an_earlier_log_is_complete(earlier: Earlier, tmp_path: Path) -> None:
    with opened(earlier.folder) as log:
        back_up(log, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    with opened(tmp_path / "restored") as log:
        assert sum(map(len, earlier.expected["rows"].values())) == sum(
            len(log.read(topic).rows()) for topic in earlier.expected["rows"]
        )


def test_the_newest_archive_has_what_today_is_written(tmp_path: Path) -> None:
    newest = Earlier(ARCHIVES[-1], tmp_path / "newest")
    today = tmp_path / "today"
    build(today / "log")
    assert shape(today / "log") == shape(newest.folder), WHAT_TO_DO


def shape(log: Path) -> dict[str, object]:
    """The kinds of files of a log, the numbers of their formats, the columns of topics and tables, and the fields of a commit record."""
    files = [path for path in log.rglob("*") if path.is_file() and not path.name.endswith(".lock")]
    records = [whole.record for whole in whole_records((log / "transactions/commits.log").read_bytes())]
    return {
        "files": {re.sub(r"[0-9a-f]{12,}|\d+", "N", str(path.relative_to(log))) for path in files},
        "headwater.json": json.loads((log / "headwater.json").read_text()).keys(),
        "formats": {path.name: json.loads(path.read_text())["format"] for path in files if path.suffix == ".json"},
        "commits": {name for record in records for name in record},
        "topics": {path.parent.name: columns_of(path) for path in files if path.name == "topic.json"},
        "tables": {path.parent.name.partition("-")[0]: tables_of(path) for path in files if path.suffix == ".sqlite"},
    }


def columns_of(topic: Path) -> list[list[tuple[str, str]]]:
    """The columns of a topic in each version of its schema."""
    schemas = json.loads(topic.read_text())["schemas"]
    return [[(one["name"], one["type"]) for one in schemas[version]["columns"]] for version in sorted(schemas)]


def tables_of(index: Path) -> list[str]:
    """What SQLite was told to create."""
    with contextlib.closing(sqlite3.connect(index)) as database:
        return sorted(text for (text,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"))

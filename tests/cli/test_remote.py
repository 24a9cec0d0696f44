"""Every command with the address of a server in place of a folder: it works the same, or refuses in one sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import headwater.log
from headwater.cli.commands import doctor
from headwater.http import Address, Tokens, served
from headwater.log import Log
from headwater.log.remote import connection
from headwater.views import DuckStore, ViewKeeper, ViewSpec
from tests.cli.conftest import ORDERS, USERS, Cli


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RETRY_SECONDS", 0.001)


@pytest.fixture
def folder(an_empty_folder: Path) -> Iterator[Log]:
    """The log that is served; it is not where commands would look for one."""
    with headwater.log.open(an_empty_folder / "elsewhere") as log:
        yield log


@pytest.fixture
def server(folder: Log, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with served(folder, Address(port=0), confined=False) as address:
        monkeypatch.setenv("HEADWATER_LOG", address)
        yield address


@pytest.fixture
def orders(cli: Cli, server: str) -> str:
    """The topic `orders` behind the server, made and filled by commands."""
    assert cli("topic", "create", "orders", "--schema", ORDERS, "--partitions", "3", "--key", "user").code == 0
    rows = [{"id": number, "user": USERS[number % 3], "amount": number / 2} for number in range(6)]
    Path("orders.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = cli("produce", "orders", "--file", "orders.jsonl")
    assert (done.code, len(done.out.splitlines())) == (0, 3)
    return server


def test_topics_are_made_described_changed_and_deleted(cli: Cli, orders: str) -> None:
    assert cli("topic", "list", "--json").json[0]["rows"] == 6
    assert cli("topic", "describe", "orders", "--json", "--log", orders).json["topic"]["partitions"] == 3
    assert cli("topic", "alter", "orders", "--retention", "7 days").code == 0
    assert cli("topic", "describe", "orders", "--json").json["topic"]["retention"]["seconds_max"] == 7 * 86_400
    assert cli("topic", "delete", "orders", "--yes").code == 0
    assert cli("topic", "describe", "orders").code == 3


@pytest.mark.usefixtures("orders")
def test_rows_are_read_alone_in_groups_and_at_the_end(cli: Cli) -> None:
    assert sorted(row["id"] for row in cli("consume", "orders", "-e", "--json").rows) == list(range(6))
    assert len(cli("consume", "orders", "-e", "--json", "-g", "readers").rows) == 6
    assert cli("consume", "orders", "-e", "--json", "-g", "readers").rows == []
    assert len(cli("tail", "orders", "-n", "2", "-e", "--json").rows) == 2
    assert len(cli("consume", "orders", "-e", "--json", "-o", "@-1h", "-n", "4").rows) == 4
    refused = cli("produce", "orders", "--file", "missing.jsonl")
    assert refused.code == 3


@pytest.mark.usefixtures("orders")
def test_groups_are_listed_moved_and_deleted(cli: Cli) -> None:
    cli("consume", "orders", "-e", "-q", "-g", "readers")
    assert [one["group"] for one in cli("group", "list", "--json").json] == ["readers"]
    assert sum(one["rows"] for one in cli("group", "lag", "readers", "--json").json) == 0
    assert cli("group", "seek", "readers", "--to", "start", "--yes").code == 0
    assert sum(one["rows"] for one in cli("group", "lag", "readers", "--json").json) == 6
    assert cli("group", "delete", "readers", "--yes").code == 0
    assert cli("group", "list", "--json").json == []


@pytest.mark.usefixtures("orders")
def test_topics_are_asked_with_sql(cli: Cli) -> None:
    found = cli("sql", "select user, sum(amount) as total from orders group by user order by user", "--json")
    assert found.json == [{"user": user, "total": total} for user, total in zip(USERS, (1.5, 2.5, 3.5), strict=True)]
    assert cli("sql", "select id from current.orders order by id", "--json").json == [{"id": n} for n in (3, 4, 5)]
    assert cli("view", "list", "--json").json == []


def test_views_are_asked_over_the_server_too(cli: Cli, server: str, folder: Log) -> None:
    schema = pa.schema([("user", pa.string()), ("total", pa.float64())])
    folder.create("spend", schema, key="user", compact=True)
    folder.append("spend", [{"user": "ada", "total": 42.0}])
    home = Path(folder.home, "apps", "shop")
    home.mkdir(parents=True)
    keeper = ViewKeeper(folder, DuckStore(home / "views.duckdb"))
    keeper.add(ViewSpec(name="spend", topic="spend", key=("user",), schema=schema))
    keeper.catch_up()
    keeper.stop()
    keeper.store.close()
    assert cli("sql", "select * from view.spend", "--json").json == [{"user": "ada", "total": 42.0}]
    assert [one["name"] for one in cli("view", "list", "--json", "--log", server).json] == ["spend"]
    assert "42.0" in cli("view", "show", "spend").out
    assert cli("sql", "select * from spend", "--app", "other").code == 3
    assert cli("query", "list", "--json").json == []
    for arguments in (["query", "graph"], ["replay", "spend"], ["ask", "spend"], ["view", "rebuild", "spend", "--yes"]):
        refused = cli(*arguments)
        assert (refused.code, refused.out) == (3, "")
        assert "No process runs a" in refused.err


@pytest.mark.usefixtures("orders")
def test_dead_letters_are_listed(cli: Cli) -> None:
    assert cli("dlq", "list", "--json").json == []
    assert cli("dlq", "show", "orders.dlq").code == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ["log", "verify"],
        ["log", "repair"],
        ["log", "compact"],
        ["token", "list"],
        ["token", "create", "ada", "--scope", "read:*"],
        ["token", "revoke", "ada", "--yes"],
        ["serve", "--port", "0"],
    ],
)
def test_what_needs_the_folder_says_so_in_one_sentence_and_asks_no_server(
    cli: Cli, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_LOG", "http://127.0.0.1:9")
    refused = cli(*arguments)
    assert (refused.code, refused.out) == (2, "")
    assert "Give the folder of the log" in refused.err
    assert len(refused.err.splitlines()) == 1
    assert not Path("http:").exists()


def test_a_doctor_asks_the_server(cli: Cli, orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "check_java", lambda: doctor.Check(check="Java", status="ok", found="openjdk 21"))
    checks = {one["check"]: one for one in cli("doctor", "--json").json["checks"]}
    assert orders in checks["Log"]["found"]
    assert "6 rows" in checks["Log"]["found"]
    assert "Folder" not in checks
    gone = cli("doctor", "--json", "--log", "http://127.0.0.1:9")
    assert gone.code == 1
    assert not Path("http:").exists()


def test_a_server_that_is_not_there_is_told(cli: Cli) -> None:
    for arguments in (["topic", "list"], ["sql", "select 1"], ["produce", "orders"]):
        failed = cli(*arguments, "--log", "http://127.0.0.1:9")
        assert (failed.code, failed.out) == (1, "")
        assert "cannot be reached" in failed.err


@pytest.fixture
def secret(folder: Log) -> str:
    return Tokens(folder.home).create("ada", ["read:*", "write:*", "admin:*"])


def test_the_token_is_a_setting_that_is_never_shown(
    cli: Cli, secret: str, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = cli("topic", "list")
    assert refused.code == 4
    assert "HEADWATER_TOKEN" in refused.err
    monkeypatch.setenv("HEADWATER_TOKEN", secret)
    assert cli("topic", "create", "orders", "--schema", ORDERS).code == 0
    assert cli("sql", "select count(*) as n from orders", "--json").json == [{"n": 0}]
    monkeypatch.delenv("HEADWATER_TOKEN")
    Path("headwater.toml").write_text(f'token = "{secret}"\nlog = "{server}"\n')
    assert cli("topic", "list", "--json").code == 0
    for form in ("table", "json", "jsonl", "csv"):
        shown = cli("config", "show", "--output", form)
        assert "not shown" in shown.out
        assert secret not in shown.out + shown.err
    for arguments in (["topic", "describe", "missing"], ["topic", "list", "--log", "http://127.0.0.1:9"]):
        failed = cli(*arguments, "--verbose")
        assert secret not in failed.out + failed.err


def test_a_token_that_is_no_text_is_refused_without_showing_it(cli: Cli) -> None:
    Path("headwater.toml").write_text("token = 73314510714175488")
    refused = cli("topic", "list")
    assert refused.code == 2
    assert "73314510714175488" not in refused.err

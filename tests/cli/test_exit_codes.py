"""Scripts can tell failures apart by the exit code, and people by one message with a remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.cli.app import explain
from headwater.errors import HeadwaterError, NotFound
from headwater.log.errors import DiskFull
from tests.cli.conftest import Cli, execute


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["topic", "create", "orders", "--schema", "id int65"], 2, "did you mean 'int64'?"),
        (["topic", "create", "../orders"], 2, "cannot name a topic"),
        (["topic", "create", "orders"], 5, "exists already"),
        (["topic", "describe", "oders"], 3, "Did you mean 'orders'?"),
        (["topic", "lits"], 2, "Did you mean 'list'"),
        (["topci"], 2, "Did you mean 'topic'?"),
        (["topic", "list", "--jsno"], 2, "--json"),
        (["topic", "list", "--output", "xml"], 2, "table, json, jsonl or csv"),
        (["consume", "orders", "-n", "many"], 2, "'many' is not a whole number"),
        (["consume", "orders", "-n", "-1"], 2, "-1 is less than 0"),
        (["consume", "orders", "-o", "yesterday"], 2, "@-1h"),
        (["consume", "orders", "-p", "7"], 3, "There is no partition 'orders/7'"),
        (["consume", "orders", "--columns", "usr"], 2, "usr"),
        (["consume", "orders", "--format", "%x"], 2, "%t"),
        (["consume"], 2, "Missing argument 'TOPIC'"),
        (["produce", "orders", "--file", "missing.csv"], 3, "missing.csv"),
        (["group", "describe", "billing"], 3, "There is no consumer group 'billing'"),
        (["schema", "check", "orders", "id string"], 2, "cannot change so"),
        (["--log", "elsewhere", "topic", "list"], 3, "There is no log 'elsewhere'"),
    ],
)
def test_each_mistake_has_its_code_and_one_message(cli: Cli, arguments: list[str], code: int, message: str) -> None:
    done = cli(*arguments)
    assert (done.code, done.out if code != 2 else "") == (code, "")
    assert message in done.err
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err


@pytest.mark.usefixtures("orders")
def test_verbose_shows_the_traceback_as_well(cli: Cli) -> None:
    done = cli("topic", "describe", "missing", "-v")
    assert done.code == 3
    assert "Traceback" in done.err


def test_a_remedy_of_the_command_line_names_flags_not_arguments() -> None:
    message, code = explain(NotFound(kind="log", name="x"))
    assert code == 3
    assert "create=False" not in message
    assert "--log" in message


def test_the_code_is_that_of_the_class() -> None:
    assert explain(DiskFull(path="x"))[1] == DiskFull.exit_code == 1
    for kind in HeadwaterError.__subclasses__():
        assert kind.exit_code in (1, 2, 3, 4, 5)


def test_what_nobody_expected_is_told_as_such() -> None:
    message, code = explain(ZeroDivisionError("division by zero"))
    assert code == 1
    assert "please report it" in message


def test_a_folder_that_may_not_be_written_is_code_4_to_write_and_fine_to_read(
    cli: Cli, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permissions do not bind root, as whom tests often run: so the question is answered for the log."""
    allowed = os.access
    monkeypatch.setattr(
        os,
        "access",
        lambda path, mode: allowed(path, mode) and not (mode & os.W_OK and orders in Path(path).resolve().parents),
    )
    assert cli("topic", "create", "more").code == 4
    assert cli("topic", "list", "--json").json[0]["rows"] == 6


@pytest.mark.process
def test_completion_knows_the_topics(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_HEADWATER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"headwater --log {orders} topic describe o")
    monkeypatch.setenv("COMP_CWORD", "5")
    assert execute().out.split() == ["orders"]


def test_a_permission_that_is_missing_is_code_4() -> None:
    assert explain(PermissionError(13, "Permission denied", "x"))[1] == 4


def test_a_noun_alone_lists_its_verbs(cli: Cli) -> None:
    done = cli("topic")
    assert done.code == 2
    assert "create" in done.err
    assert "error:" not in done.err

"""`headwater serve` and `headwater token`, as processes and as commands."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import headwater
from headwater.services.tokens import TokenInvalid, Tokens
from tests.cli.conftest import Cli, program

SECONDS_MAX = 240


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The command at work on a free port, and its address."""
    command = program("serve", "--port", "0", "--output", "jsonl", *arguments)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["address"], process
        finally:
            process.kill()


@pytest.mark.process
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.core), signal.SIGTERM])
def test_a_log_is_served_until_it_is_told_to_stop(number: int) -> None:
    with serving() as (address, process):
        with headwater.open(address) as log:
            log.create("orders", "id int64")
            log.append("orders", [{"id": 1}])
        process.send_signal(number)
        out, err = process.communicate(timeout=SECONDS_MAX)
    assert "Traceback" not in err
    assert out == ""
    with headwater.open("data") as log:
        assert log.read("orders").count() == 1


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_as_soon_as_the_address_is_told_is_heard(number: int) -> None:
    with serving() as (_, process):
        process.send_signal(number)
        _, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 128 + number
    assert "Traceback" not in err


@pytest.mark.process
def test_whoever_serves_says_what_a_statement_may_take() -> None:
    flags = ("--answer-rows", "2", "--statement-seconds", "0.5", "--statement-memory", "32 MiB")
    with serving(*flags) as (address, _):
        for statement, bound in {
            "SELECT * FROM range(3)": "2 rows",
            "SELECT sum(a.range * b.range) AS n FROM range(3000000) a, range(3000000) b": "0.5 seconds",
            "SELECT list(range) FROM range(100000000)": "32 MiB",
        }.items():
            answer = httpx.post(f"{address}/api/v1/sql", json={"sql": statement}, timeout=SECONDS_MAX)
            assert (answer.status_code, answer.json()["facts"]["bound"]) == (422, bound)
            assert "--statement-seconds" in answer.json()["detail"]


def test_other_machines_are_served_only_with_tokens(cli: Cli) -> None:
    refused = cli("serve", "--host", "0.0.0.0", "--port", "0")
    assert refused.code == 2
    assert "headwater token create" in refused.err
    assert refused.err.count("\n") == 1


@pytest.mark.process
def test_a_token_is_made_used_listed_and_revoked(cli: Cli) -> None:
    made = cli("token", "create", "ci", "--scope", "read:orders", "--scope", "admin:fresh", "--expires", "30 days")
    text = made.out.strip()
    assert text.startswith("hw_")
    assert text not in made.err
    listed = cli("token", "list", "--json").json
    assert [(one["name"], one["scopes"]) for one in listed] == [("ci", ["read:orders", "admin:fresh"])]
    assert text.rpartition("_")[2] not in cli("token", "list", "--json").out
    with serving() as (address, _):
        with headwater.open(address, token=text) as log:
            log.create("fresh", "id int64")
        assert cli("token", "revoke", "ci", "--yes").code == 0
        for given in (text, None):  # no token is left, and still one is asked for
            with headwater.open(address, token=given) as log, pytest.raises(TokenInvalid):
                log.topics()
    with headwater.open("data") as log:
        actions = [(row["action"], row["target"]) for row in log.read("__audit").rows()]
    assert actions == [
        ("tokens.create", "ci seconds=2592000.0"),
        ("topics.create", "name=fresh"),
        ("tokens.revoke", "ci"),
    ]


def test_a_token_of_a_file_is_stored_and_not_shown(cli: Cli, tmp_path: Path) -> None:
    text = f"hw_{'1' * 16}_{'2' * 43}"
    (tmp_path / "token").write_text(f"{text}\n")
    for _ in range(2):
        made = cli("token", "create", "admin", "--from-file", "token")
        assert (made.code, made.out) == (0, "")
        assert text not in made.err
    assert Tokens("data").check(text).name == "admin"
    (tmp_path / "token").write_text("replace-me\n")
    refused = cli("token", "create", "admin", "--from-file", "token")
    assert refused.code == 2
    assert "replace-me" not in refused.err


def test_mistakes_are_told_in_one_line(cli: Cli) -> None:
    assert cli("token", "create", "ci", "--scope", "see:x").code == 2
    assert cli("token", "revoke", "nobody", "--yes").code == 3
    assert cli("token", "list").out == ""

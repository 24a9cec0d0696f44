"""Queues and workers at the command line."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

import headwater
from tests.cli.conftest import Cli, program
from tests.conditions import until

JOBS = """
import headwater as hw

log = hw.open("data")

@log.worker("jobs", concurrency=2, retries=hw.Retry(attempts=2, delay="1 ms"))
def resize(message):
    if message.body == "bad":
        raise ValueError("no such picture")
"""


def test_messages_are_put_looked_at_taken_and_acknowledged(cli: Cli) -> None:
    assert cli("queue", "create", "jobs", "--attempts", "none", "--lease", "1 minute").code == 0
    assert cli("queue", "put", "jobs", '{"task": 1}', "--key", "a").out == "0-0\n"
    assert "3 messages put" in cli("queue", "put", "jobs", stdin='2\n"three"\n\n4\n').err
    assert [each["body"] for each in cli("queue", "peek", "jobs", "--json").json] == [{"task": 1}, 2, "three", 4]
    [first, second] = cli("queue", "take", "jobs", "-n", "2", "--json").json
    shown = cli("queue", "take", "jobs")
    assert "RECEIPT" in shown.out
    assert f"headwater queue ack jobs {shown.out.splitlines()[1].split()[0]}" in shown.err
    assert cli("queue", "ack", "jobs", first["receipt"]).code == 0
    assert cli("queue", "ack", "jobs", first["receipt"]).code == 5
    assert cli("queue", "release", "jobs", second["receipt"]).code == 0
    taken = cli("queue", "take", "jobs", "-n", "9", "--ack")
    assert [line.split()[-1] for line in taken.out.splitlines()] == ["BODY", "2", "4"]
    assert "No message can be taken from 'jobs': 1 held by workers." in cli("queue", "take", "jobs").err
    lines = cli("queue", "stats", "jobs").out
    assert "settings      body json, lease 1 min, attempts_max none" in lines
    [status] = cli("queue", "list", "--json").json
    assert (status["groups"][0]["stats"]["acknowledged"], status["length"]) == (3, 1)


def test_a_mistake_says_what_to_write_instead(cli: Cli) -> None:
    cli("queue", "create", "jobs")
    for arguments, code, hint in (
        (("put", "jobs", "hello"), 2, "--text"),
        (("put", "jbos", "1"), 3, "Did you mean 'jobs'?"),
        (("alter", "jobs"), 2, "at least one setting"),
        (("alter", "jobs", "--length", "many"), 2, "none for no limit"),
        (("ack", "jobs", "nonsense"), 2, "receipt"),
        (("create", "jobs", "--lease", "1 hour"), 5, "another value of lease"),
        (("take", "jobs", "--wait", "soon"), 2, "wait"),
    ):
        result = cli("queue", *arguments)
        assert (result.code, hint in result.err) == (code, True), result.err
    assert cli("queue", "put", "jobs", "hello", "--text").code == 0


def test_queues_are_altered_paused_replayed_and_deleted(cli: Cli) -> None:
    cli("queue", "create", "jobs")
    cli("queue", "put", "jobs", "1", "2")
    assert (
        cli("queue", "alter", "jobs", "--length", "10", "--ttl", "1 hour").out
        == "length_max is now 10\nttl is now 1 h\n"
    )
    assert cli("queue", "alter", "jobs", "--length", "none").out == "length_max is now none\n"
    cli("queue", "pause", "jobs")
    assert "paused: `headwater queue resume jobs`" in cli("queue", "take", "jobs").err
    cli("queue", "resume", "jobs")
    cli("queue", "take", "jobs", "-n", "2", "--ack")
    assert "2 messages wait" in cli("queue", "replay", "jobs", "--yes").err
    cli("queue", "bind", "events", "jobs", "--pattern", "orders.#")
    assert "bound to      events: orders.#" in cli("queue", "stats", "jobs").out
    cli("queue", "bind", "events", "jobs", "--remove")
    assert cli("queue", "delete", "jobs", "--yes").code == 0
    assert cli("queue", "list", "--json").json == []


def test_workers_of_a_file_run_until_the_queue_is_empty(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    cli("queue", "create", "jobs")
    cli("queue", "put", "jobs", *(json.dumps(each) for each in ("good", "bad", "fine")))
    [result] = cli("worker", "run", "jobs.py", "--until-empty", "--concurrency", "1", "--json").json
    assert (result["worker"], result["taken"], result["done"], result["failed"]) == ("resize", 4, 2, 2)
    assert "1 dead letter would be put again" in cli("queue", "redrive", "jobs", "--dry-run").out
    assert cli("queue", "redrive", "jobs", "--yes").out == "1 dead letter put again.\n"
    (tmp_path / "empty.py").write_text("")
    assert "@log.worker" in cli("worker", "run", "empty.py").err
    assert cli("worker", "run", "jobs.py", "--only", "rezise").code == 2


@pytest.mark.process
def test_a_worker_that_is_stopped_ends_its_calls_and_returns_other_messages(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(
        JOBS.replace('if message.body == "bad":', "import time; open('begun', 'w').close(); time.sleep(0.5)\n    if 0:")
    )
    with headwater.open(tmp_path / "data") as log:
        queue = log.queue("jobs")
        queue.put_many(list(range(50)))
        with subprocess.Popen(
            program("worker", "run", "jobs.py", "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            until((tmp_path / "begun").exists, process=process)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "Stopping" in err
        [result] = json.loads(out)
        stats = queue.stats()
        assert result["done"] == stats.acknowledged == 50 - stats.waiting > 0
        assert (stats.in_flight, stats.consumers) == (0, 0)

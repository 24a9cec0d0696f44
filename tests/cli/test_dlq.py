"""Dead letters on the command line: shown, redriven once, parked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headwater
from headwater.log.dead_letters import DeadLetter, append_dead_letters
from tests.cli.conftest import Cli


@pytest.fixture
def letters(an_empty_folder: Path) -> Path:
    """A topic of raw events, and three dead letters of it."""
    folder = an_empty_folder / "data"
    facts = [("EncodingInvalid", b"{", 1), ("EncodingInvalid", b"\xff\x1b[2J", 3), ("RowInvalid", b'{"id": "x"}', 1)]
    with headwater.open(folder) as log:
        log.create("events")
        found = [
            DeadLetter(
                topic="events", partition=0, offset=number, key=b"k", value=value, error=error, attempt=attempt,
                message=f"the value is no good\x1b[2J {number}", at_us=1_700_000_000_000_000 + number, query="q-1",
            )
            for number, (error, value, attempt) in enumerate(facts)
        ]  # fmt: skip
        append_dead_letters(log, "events", found)
    return folder


def test_without_dead_letters_there_is_nothing_to_list(cli: Cli, orders: Path) -> None:
    assert orders.exists()
    assert (cli("dlq", "list", "--json").json, cli("dlq", "list").err) == ([], "There are no dead letters.\n")


@pytest.mark.usefixtures("letters")
def test_the_list_is_a_contract(cli: Cli) -> None:
    records = cli("dlq", "list", "--json").json
    assert [(one["topic"], one["name"], one["total"], one["open"]) for one in records] == [
        ("events.dlq", "EncodingInvalid", 2, 2),
        ("events.dlq", "RowInvalid", 1, 1),
    ]
    assert set(records[0]) == {"topic", "name", "total", "open", "states", "attempts", "first_us", "last_us"}
    assert max(map(len, cli("dlq", "list").out.splitlines())) <= 110


@pytest.mark.usefixtures("letters")
def test_dead_letters_are_shown_whole_and_do_not_move_the_cursor(cli: Cli) -> None:
    shown = cli("dlq", "show", "events")
    assert "row of    events[0]@1" in shown.out
    assert "0xff1b5b324a" in shown.out
    assert "\x1b" not in shown.out
    records = cli("dlq", "show", "events", "--json").json
    assert records[1]["letter"]["value"] == {"base64": "/xtbMko="}
    letter = records[0]["letter"]
    assert (records[0]["state"], letter["value"], letter["query"]) == ("open", "{", "q-1")


@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        (["--reason", "RowInvalid"], [2]),
        (["--reason", "RowInvalid", "--reason", "EncodingInvalid", "-n", "2"], [0, 1]),
        (["--offset", "1-2"], [1, 2]),
        (["--offset", "0", "--offset", "2"], [0, 2]),
        (["--contains", "GOOD\x1b[2J 1"], [1]),
        (["--since", "@2023-11-14T22:13:20.000001"], [1, 2]),
        (["--until", "2023-11-14T22:13:20.000001"], [0]),
        (["--query", "q-2"], []),
        (["--state", "parked"], []),
    ],
)
def test_dead_letters_are_selected(cli: Cli, arguments: list[str], offsets: list[int]) -> None:
    records = cli("dlq", "show", "events", "--json", *arguments).json
    assert [one["letter"]["offset"] for one in records] == offsets


@pytest.mark.usefixtures("letters")
def test_a_redrive_is_shown_asked_for_and_done_once(cli: Cli) -> None:
    dry = cli("dlq", "redrive", "events", "--attempts-max", "3", "--dry-run")
    assert "Would redrive 2 rows and park 1 dead letter. Nothing was changed." in dry.err
    assert cli("dlq", "redrive", "events", "--attempts-max", "3").code == 2  # there is no terminal to ask on
    done = cli("dlq", "redrive", "events", "--attempts-max", "3", "--rate", "1000/s", "--yes", "--json")
    assert done.json == [
        {"state": "redriven", "reason": "EncodingInvalid", "dead_letters": 1, "done": True},
        {"state": "redriven", "reason": "RowInvalid", "dead_letters": 1, "done": True},
        {"state": "parked", "reason": "EncodingInvalid", "dead_letters": 1, "done": True},
    ]
    assert "Redrove 0 rows." in cli("dlq", "redrive", "events", "--yes").err
    rows = cli("consume", "events", "--exit", "--output", "jsonl").rows
    assert [row["value"] for row in rows] == ["{", '{"id": "x"}']
    assert rows[0]["_headers"]["headwater.attempt"] == "2"
    assert [one["state"] for one in cli("dlq", "show", "events", "--json").json] == ["redriven", "parked", "redriven"]
    assert "redriven" in cli("dlq", "show", "events").out


@pytest.mark.usefixtures("letters")
def test_dead_letters_are_parked_and_opened_again(cli: Cli) -> None:
    assert "Would park 2 dead letters" in cli("dlq", "park", "events", "-r", "EncodingInvalid", "--dry-run").err
    assert "Parked 2 dead letters." in cli("dlq", "park", "events", "-r", "EncodingInvalid", "--yes").err
    assert cli("dlq", "list", "events", "--json").json[0]["states"]["parked"] == 2
    assert "Opened 2 dead letters." in cli("dlq", "park", "events", "--undo", "--yes").err


@pytest.mark.usefixtures("letters")
def test_what_does_not_fit_is_said_and_makes_the_command_fail(cli: Cli) -> None:
    cli("topic", "create", "typed", "--schema", "id int64 not null")
    done = cli("dlq", "redrive", "events", "--to", "typed", "--yes")
    assert done.code == 1
    assert done.err.count("stays open: ") == 3


@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["show", "evnts"], 3, "evnts"),
        (["redrive", "evnts", "--yes"], 3, "Did you mean 'events'?"),
        (["redrive", "events", "--to", "nowhere", "--yes"], 3, "nowhere"),
        (["redrive", "events", "--rate", "fast"], 2, "100/s"),
        (["redrive", "events", "--rate", "0/s"], 2, "above 0"),
        (["redrive", "events", "--attempts-max", "0"], 2, "less than 1"),
        (["show", "events", "--offset", "9-7"], 2, "7-12"),
        (["show", "events", "--since", "yesterday"], 2, "--since"),
        (["show", "events", "--state", "gone"], 2, "open, redriven, parked"),
    ],
)
def test_each_mistake_has_one_message(cli: Cli, arguments: list[str], code: int, message: str) -> None:
    done = cli("dlq", *arguments)
    assert (done.code, done.err.count("\n")) == (code, 1)
    assert message in done.err


@pytest.mark.usefixtures("letters")
def test_csv_has_one_line_per_dead_letter(cli: Cli) -> None:
    lines = cli("dlq", "show", "events", "--output", "csv").out.splitlines()
    assert len(lines) == 4
    assert json.loads(cli("dlq", "show", "events", "--output", "jsonl").out.splitlines()[0])["letter"]["offset"] == 0

"""What the demo shows: lines where there is no terminal, a table at the end, and a failure where an output is wrong."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest
from company.check import Outcome

from headwater.apps.status import QueryStatus
from headwater.cli.app import run
from headwater.cli.demo.command import PORT, free_port
from headwater.cli.demo.display import Stage, show_outcomes
from headwater.cli.demo.process import Progress
from headwater.cli.session import Flags, Session

RIGHT = Outcome(name="top_pages", kind="view", expected=10, got=10, lost=0, doubled=0)
WRONG = Outcome(name="spending", kind="view", expected=10, got=11, lost=1, doubled=2)


def test_the_table_at_the_end_has_a_line_for_each_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert show_outcomes(Session.begin(Flags(no_color=True)), [RIGHT], appended=1_234, crashed=True)
    shown = capfdbinary.readouterr()
    title, line = shown.out.decode().splitlines()
    assert title.split() == ["OUTPUT", "WHAT", "EXPECTED", "GOT", "LOST", "DOUBLED"]
    assert line.split() == ["top_pages", "view", "10", "10", "0", "0"]
    assert "1,234 rows in, 1 outputs, through a crash: nothing lost, nothing doubled." in shown.err.decode()


def test_an_output_that_is_wrong_is_named(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert not show_outcomes(Session.begin(Flags(no_color=True)), [RIGHT, WRONG], appended=1, crashed=False)
    shown = capfdbinary.readouterr()
    assert shown.out.decode().splitlines()[-1].split() == ["spending", "view", "10", "11", "1", "2"]
    assert "spending: not what the input topics say" in shown.err.decode()


def test_without_a_terminal_it_says_where_to_look(capfd: pytest.CaptureFixture[str]) -> None:
    with Stage(Session.begin(Flags()), browser=False) as stage:
        stage.opened("http://127.0.0.1:8080/console")
        status = QueryStatus(name="spending", kind="view", state="running", batch=3, lag_rows=7)
        stage.look(Progress(address="http://127.0.0.1:8080", spark=True, statuses=(status,)), appended=5)
    assert "open http://127.0.0.1:8080/console" in capfd.readouterr().err


def test_the_port_is_the_first_that_is_free() -> None:
    with contextlib.suppress(OSError), socket.socket() as taken:
        taken.bind(("127.0.0.1", PORT))
        taken.listen()
        assert free_port() != PORT


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run(["demo", "--dir", str(tmp_path), "--check"]) == 2
    assert "a folder that is empty" in capfd.readouterr().err

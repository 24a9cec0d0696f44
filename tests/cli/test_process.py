"""Commands as processes: closed pipes, interrupts, and terminals that can be asked."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess

import pytest

from tests.cli.conftest import Cli, program
from tests.conditions import until

SECONDS_MAX = 240.0
pytestmark = pytest.mark.process


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(program(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=SECONDS_MAX)
    return process.returncode, out.decode(), err.decode()


def line_of(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode()


@pytest.mark.core
@pytest.mark.usefixtures("orders")
def test_a_closed_pipe_ends_a_command_quietly(cli: Cli) -> None:
    many = "".join(f'{{"id": {number}}}\n' for number in range(20_000))
    assert cli("produce", "orders", stdin=many).code == 0
    process = start("consume", "orders", "--json")
    assert line_of(process)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait(SECONDS_MAX) == 0
    process.stderr.close()


@pytest.mark.usefixtures("orders")
def test_a_tail_that_nobody_reads_ends_without_a_further_row() -> None:
    process = start("tail", "orders", "-n", "1", "--json")
    assert line_of(process)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(SECONDS_MAX) == 0
    assert process.stderr is not None
    process.stderr.close()


@pytest.mark.usefixtures("orders")
def test_a_tail_shows_a_row_as_it_comes_and_ctrl_c_ends_it(cli: Cli) -> None:
    process = start("tail", "orders", "-n", "0", "-f", r"%v\n")
    assert process.stdout is not None
    while not select.select([process.stdout], [], [], 0.2)[0]:  # the first ones may come before it looks
        assert cli("produce", "orders", stdin='{"id": 77}\n').code == 0
    assert '"id":77' in line_of(process)
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert (code, err) == (130, "")


@pytest.mark.core
@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_member_has_committed_what_it_printed(cli: Cli, number: int, code: int) -> None:
    process = start("consume", "orders", "-g", "billing", "-f", r"%o\n")
    printed = [line_of(process) for _ in range(6)]
    process.send_signal(number)
    assert ended(process)[0] == code
    assert len(printed) == 6
    assert sum(one["rows"] for one in cli("group", "lag", "billing", "--json").json) == 0
    assert cli("group", "list", "--json").json[0]["members"] == 0


@pytest.mark.usefixtures("orders")
def test_rows_of_a_slow_pipe_are_appended_as_they_come(cli: Cli) -> None:
    process = subprocess.Popen(program("produce", "orders", "-q"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b'{"id": 100}\n')
    process.stdin.flush()
    until(lambda: "100" in cli("consume", "orders", "-e", "-f", r"%v\n").out)
    process.stdin.write(b'{"id": 101}')
    process.communicate(timeout=SECONDS_MAX)
    assert "101" in cli("consume", "orders", "-e", "-f", r"%v\n").out


# -- on a terminal ----------------------------------------------------------------------------------------------------


def on_terminal(*arguments: str, answer: bytes = b"", environ: dict[str, str] | None = None) -> tuple[int, str]:
    """Run a command whose three streams are a terminal; the answer is typed as soon as it asks."""
    child, descriptor = pty.fork()
    if child == 0:  # pragma: no cover
        os.execve(program()[0], program(*arguments), {**os.environ, "TERM": "xterm", **(environ or {})})
    text = b""
    while True:
        try:
            data = os.read(descriptor, 65_536)
        except OSError:  # Linux says so when the other side is gone
            break
        if not data:
            break
        text += data
        if answer and text.rstrip().endswith(b"[y/N]:"):
            os.write(descriptor, answer)
            answer = b""
    os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text.decode()


def topics(cli: Cli) -> list[str]:
    return [one["name"] for one in json.loads(cli("topic", "list", "--json").out)]


@pytest.mark.core
@pytest.mark.usefixtures("orders")
def test_a_person_is_asked_before_something_is_destroyed(cli: Cli) -> None:
    code, text = on_terminal("topic", "delete", "orders", answer=b"n\n")
    assert code == 1
    assert "6 rows" in text
    assert "Nothing was changed." in text
    assert topics(cli) == ["orders"]
    code, _ = on_terminal("topic", "delete", "orders", answer=b"y\n")
    assert code == 0
    assert topics(cli) == []


@pytest.mark.usefixtures("orders")
def test_colour_is_for_terminals_that_want_it() -> None:
    assert "\x1b[1m" in on_terminal("topic", "list")[1]
    assert "\x1b[31m" in on_terminal("topic", "describe", "missing")[1]
    assert "\x1b" not in on_terminal("topic", "list", "--no-color")[1]
    assert "\x1b" not in on_terminal("topic", "list", environ={"NO_COLOR": "1"})[1]
    assert "\x1b" not in on_terminal("topic", "describe", "missing", environ={"NO_COLOR": "1"})[1]


@pytest.mark.usefixtures("orders")
def test_progress_is_for_terminals() -> None:
    assert "verify" in on_terminal("log", "verify")[1]
    assert "verify" not in on_terminal("log", "verify", "-q")[1]

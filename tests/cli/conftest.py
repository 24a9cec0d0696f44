"""Two ways to run a command: in this process, which is quick, and as a process of its own, which is the truth."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.cli.app import run
from headwater.cli.commands import consume

SECONDS_MAX = 240


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a command ended, and what it wrote where."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # Any: JSON
        return json.loads(self.out)

    @property
    def rows(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Cli = Callable[..., Result]


@pytest.fixture(autouse=True)
def an_empty_folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in a folder of its own, whatever the user's settings are; processes share their bytecode."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.getbasetemp() / "bytecode"))
    for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    # How long the last member of a group waits for partitions of others before it calls it the end.
    monkeypatch.setattr(consume, "GROUP_END_SECONDS", 0.05)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command in this process; what `stdin` has comes to it through a pipe."""

    def call(*arguments: str, stdin: str | bytes | None = None) -> Result:
        capsys.readouterr()
        if stdin is None:
            code = run(arguments)
        else:
            with _piped(stdin.encode() if isinstance(stdin, str) else stdin):
                code = run(arguments)
        out, err = capsys.readouterr()
        return Result(code=code, out=out, err=err)

    return call


@contextmanager
def _piped(data: bytes) -> Iterator[None]:
    """Have the standard input of this process be a pipe that brings some bytes, and ends."""
    reader, writer = os.pipe()

    def write() -> None:
        with open(writer, "wb") as pipe:
            pipe.write(data)

    thread = threading.Thread(target=write)
    thread.start()
    with open(reader, encoding="utf-8") as stdin, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", stdin)
        yield
    thread.join()


def program(*arguments: str) -> list[str]:
    """The command as a process; the environment is the test's own."""
    return [sys.executable, "-m", "headwater.cli", *arguments]


def execute(*arguments: str, stdin: str | bytes = b"", seconds: float = SECONDS_MAX) -> Result:
    """Run a command as a process, to its end."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(program(*arguments), input=data, capture_output=True, timeout=seconds)
    return Result(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())


#: Each of them has a partition of its own, out of three.
USERS = ("ada", "bob", "eve")
ORDERS = "id int64 not null, user string, amount float64"


@pytest.fixture(scope="session")
def made_orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of `orders`, made once; beside it the rows as a file."""
    folder = tmp_path_factory.mktemp("orders")
    rows = [{"id": number, "user": USERS[number % 3], "amount": number / 2} for number in range(6)]
    (folder / "orders.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with headwater.open(folder / "data") as log:
        log.create("orders", ORDERS, partitions=3, key="user")
        log.append("orders", rows)
    return folder


@pytest.fixture
def orders(made_orders: Path, an_empty_folder: Path) -> Path:
    """A log with the topic `orders`: three partitions by user, and six rows. They are in `orders.jsonl`, too."""
    shutil.copytree(made_orders, an_empty_folder, dirs_exist_ok=True)
    return an_empty_folder / "data"

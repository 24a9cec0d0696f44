"""Two ways to run a command: in this process, which is quick, and as a process of its own, which is the truth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.app import run

SECONDS_MAX = 60


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
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command in this process."""

    def call(*arguments: str) -> Result:
        capsys.readouterr()
        code = run(arguments)
        out, err = capsys.readouterr()
        return Result(code=code, out=out, err=err)

    return call


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


@pytest.fixture
def orders(cli: Cli, an_empty_folder: Path) -> Path:
    """A log with the topic `orders`: three partitions by user, and six rows."""
    rows = [{"id": number, "user": USERS[number % 3], "amount": number / 2} for number in range(6)]
    file = an_empty_folder / "orders.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli("topic", "create", "orders", "--schema", ORDERS, "--partitions", "3", "--key", "user").code == 0
    assert cli("produce", "orders", "--file", str(file)).code == 0
    return an_empty_folder / "data"

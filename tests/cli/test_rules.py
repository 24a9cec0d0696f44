"""Rules that hold for every command: its flags, its streams, its weight."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, execute

ROOT = Path(__file__).parents[2]


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    "arguments",
    [
        ["--json", "topic", "list"],
        ["topic", "--json", "list"],
        ["topic", "list", "--json"],
        ["topic", "list", "--output", "json"],
    ],
)
def test_global_flags_may_stand_anywhere(cli: Cli, arguments: list[str]) -> None:
    assert cli(*arguments).json[0]["name"] == "orders"


@pytest.mark.usefixtures("orders")
def test_the_flag_nearest_to_the_command_counts(cli: Cli) -> None:
    assert cli("--log", "elsewhere", "topic", "list", "--log", "data").code == 0


def test_the_log_comes_from_the_environment_too(cli: Cli, orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders.rename(orders.with_name("moved"))
    monkeypatch.setenv("HEADWATER_LOG", "moved")
    assert "orders" in cli("topic", "list").out


@pytest.mark.usefixtures("orders")
def test_the_output_can_be_lines_or_csv(cli: Cli) -> None:
    assert cli("topic", "list", "--output", "jsonl").rows[0]["rows"] == 6
    names, line = cli("topic", "list", "--output", "csv").out.splitlines()
    assert names.startswith("name,partitions,rows,bytes,key")
    assert line.startswith("orders,3,6,")
    assert '"[""user""]"' in line


@pytest.mark.usefixtures("orders")
def test_quiet_leaves_only_data_and_errors(cli: Cli) -> None:
    assert cli("topic", "create", "more", "-q").err == ""
    assert cli("topic", "describe", "missing", "-q").err != ""


def test_what_is_not_data_goes_to_stderr(cli: Cli) -> None:
    assert cli("topic", "create", "t", "--schema", "id int64").out == ""
    assert cli("group", "list").out == ""
    assert cli("group", "list", "--json").json == []


@pytest.mark.usefixtures("orders")
def test_a_pipe_sees_neither_colour_nor_progress() -> None:
    for arguments in (["topic", "list"], ["log", "verify"], ["topic", "describe", "x"]):
        done = execute(*arguments)
        assert "\x1b" not in done.out + done.err


def loaded_by(*arguments: str) -> set[str]:
    """The modules that a command has loaded when it ends."""
    script = "import sys\nfrom headwater.cli import leave_pandas_out\nleave_pandas_out()\nfrom headwater.cli.app import run\n"
    script += f"run({list(arguments)!r})\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


HEAVY = {"pyarrow", "numpy", "pandas", "pyspark", "pydantic", "rich.console"}


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    script = "import headwater.cli, headwater.cli.app, sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())


@pytest.mark.parametrize("arguments", [["--help"], ["version"], ["config", "show"], ["topic", "create", "--help"]])
def test_commands_that_need_no_log_load_nothing_heavy(arguments: list[str]) -> None:
    assert not HEAVY & loaded_by(*arguments)


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    "arguments", [["consume", "orders", "-e"], ["tail", "orders", "-e"], ["topic", "list"], ["group", "lag"]]
)
def test_no_command_loads_pandas_spark_or_pydantic(arguments: list[str]) -> None:
    assert not {"pandas", "pyspark", "pydantic", "rich.console"} & loaded_by(*arguments)


@pytest.mark.parametrize("arguments", [["--help"], ["version"]])
def test_what_needs_no_log_starts_without_arrow(arguments: list[str]) -> None:
    assert not {"pyarrow", "numpy", "duckdb", "fastapi", "nicegui"} & loaded_by(*arguments)


def test_the_reference_is_what_the_commands_say() -> None:
    done = subprocess.run(
        [sys.executable, "tools/cli_reference.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr

"""Rules that hold for every command: its flags, its streams, its weight."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from headwater.cli.app import WORDS, build
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


@pytest.mark.process
@pytest.mark.usefixtures("orders")
def test_a_pipe_sees_neither_colour_nor_progress() -> None:
    for arguments in (["topic", "list"], ["log", "verify"], ["topic", "describe", "x"]):
        done = execute(*arguments)
        assert "\x1b" not in done.out + done.err


def loaded_by(*commands: list[str]) -> dict[str, set[str]]:
    """The modules that a process has loaded after each of some commands."""
    script = "import sys\nimport headwater.cli as cli\ncli.leave_pandas_out()\ncli.load_compute_later()\n"
    script += "from headwater.cli.app import run\n"
    script += "print(*sys.modules, file=sys.stderr)\n"
    for command in commands:
        script += f"run({command!r})\nprint(*sys.modules, file=sys.stderr)\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = [set(line.split()) for line in done.stderr.splitlines() if line.startswith("sys ")]
    return dict(zip(["the import", *map(" ".join, commands)], lines, strict=True))


def command_modules(modules: set[str]) -> set[str]:
    prefix = "headwater.cli.commands."
    return {name.removeprefix(prefix) for name in modules if name.startswith(prefix)}


HEAVY = {"pyarrow", "numpy", "pandas", "pyspark", "pydantic", "rich.console", "duckdb", "fastapi", "nicegui"}


@pytest.mark.core
@pytest.mark.process
def test_commands_that_need_no_log_load_nothing_heavy() -> None:
    loaded = loaded_by(["version"], ["config", "show"], ["topic", "create", "--help"], ["--help"])
    assert {command: HEAVY & modules for command, modules in loaded.items() if HEAVY & modules} == {}
    assert command_modules(loaded["version"]) == {"doctor"}
    assert command_modules(loaded["config show"]) == {"doctor", "config"}, (
        "a command loads the module of its noun alone"
    )
    assert command_modules(loaded["--help"]) > {"consume", "serve", "topic"}


@pytest.mark.process
@pytest.mark.usefixtures("orders")
def test_no_command_loads_pandas_spark_or_pydantic() -> None:
    loaded = loaded_by(["topic", "list"], ["group", "lag"], ["consume", "orders", "-e"], ["tail", "orders", "-e"])
    unwanted = {"pandas", "pyspark", "pydantic", "rich.console"}
    assert {command: unwanted & modules for command, modules in loaded.items() if unwanted & modules} == {}
    assert {"asyncio", "ssl", "httpx", "pyarrow._compute"} & loaded["topic list"] == set()
    assert len(loaded["topic list"]) < 450, "it takes a millisecond for each module"


@pytest.mark.process
def test_a_module_that_is_loaded_late_has_its_functions() -> None:
    script = "import headwater.cli as cli\ncli.load_compute_later()\nimport pyarrow.compute as pc\n"
    script += "assert not hasattr(pc, 'no_such_function')\nprint(pc.max([1, 3, 2]), pc.__name__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("3 pyarrow.compute\n", "")


def words_of(application: typer.Typer) -> set[str]:
    command: Any = typer.main.get_command(application)  # Any: typer gives no types to the commands that it builds
    return {name for name, below in command.commands.items() if not below.hidden}


def test_each_word_names_the_module_that_has_its_command() -> None:
    assert words_of(build()) == set(WORDS)
    for module in set(WORDS.values()):
        words = {word for word in WORDS if WORDS[word] == module}
        assert words_of(build(min(words))) == words


def test_the_reference_is_what_the_commands_say() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "cli_reference.py"))
    assert tool["page"]() == tool["PAGE"].read_text(encoding="utf-8")

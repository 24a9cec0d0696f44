"""`headwater init`: a project that a newcomer can run, test and change."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx
import pytest

from headwater.apps.app_file import load_app
from headwater.config import Config
from tests.cli.conftest import Cli, Result, execute, program
from tests.cli.test_run import SECONDS_MAX
from tests.conditions import until

FILES = [".gitignore", "README.md", "headwater.toml", "pipeline.py", "tests/test_pipeline.py"]
ORDERS = [
    '{"user": "ada", "item": "tea", "amount": 42, "at": "2026-01-01T10:00:05Z"}',
    '{"user": "bob", "item": "pot", "amount": 120, "at": "2026-01-01T10:00:40Z"}',
]


def files(folder: str | Path) -> list[str]:
    found = (path for path in Path(folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(str(path.relative_to(folder)) for path in found)


def test_a_project_has_few_files_and_all_are_short(cli: Cli) -> None:
    done = cli("init", "shop")
    assert (done.code, done.out) == (0, "")
    assert files("shop") == FILES
    assert all(len(Path("shop", file).read_text().splitlines()) < 60 for file in FILES)
    assert "{{" not in "".join(Path("shop", file).read_text() for file in FILES)


def test_the_next_steps_are_told_and_can_be_silenced(cli: Cli) -> None:
    told = cli("init", "shop").err
    for step in ("cd shop", "headwater dev", "headwater produce orders", "headwater sql", "pytest"):
        assert step in told
    assert cli("init", "other", "-q").err == ""
    assert cli("init", "third", "--json").json == {"name": "third", "folder": "third", "files": [*_order()]}


def _order() -> list[str]:
    return ["pipeline.py", "headwater.toml", "tests/test_pipeline.py", "README.md", ".gitignore"]


def test_the_pipeline_is_an_app_with_a_topic_a_view_and_a_side_output(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("init", "shop")
    monkeypatch.chdir("shop")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    settings = Config.load(tomllib.loads(Path("headwater.toml").read_text()))
    assert settings.app == "pipeline.py"
    app = load_app(settings.app)
    assert (app.name, app.log) == ("shop", settings.log)
    assert [(query.name, query.kind, query.side_outputs) for query in app.queries] == [
        ("large_orders", "topic", {}),
        ("revenue", "view", {"late": "orders.late"}),
    ]


def test_every_python_file_has_a_docstring_and_every_query_a_comment(cli: Cli) -> None:
    cli("init", "shop")
    for file in ("pipeline.py", "tests/test_pipeline.py"):
        assert ast.get_docstring(ast.parse(Path("shop", file).read_text()))
    lines = Path("shop/pipeline.py").read_text().splitlines()
    assert all(
        lines[number - 1].startswith("# ") for number, line in enumerate(lines) if line.startswith(("@app", "app"))
    )


@pytest.mark.parametrize("name", ["my shop", "..", ".hidden", "shop/..", "-shop-", "a" * 201, "läden", 'x"y', "a\nb"])
def test_a_name_that_no_app_could_have_is_refused(cli: Cli, name: str) -> None:
    refused = cli("init", "--", name)
    assert refused.code == 2
    assert "cannot name a project" in refused.err
    assert files(".") == []


def test_nothing_is_written_where_something_is(cli: Cli) -> None:
    Path("shop").mkdir()
    Path("shop/notes.txt").write_text("mine")
    refused = cli("init", "shop")
    assert (refused.code, files("shop")) == (5, ["notes.txt"])
    assert "notes.txt" in refused.err
    Path("file").write_text("mine")
    assert cli("init", "file").code == 5
    assert Path("file").read_text() == "mine"
    Path("dangling").symlink_to("nowhere")
    assert cli("init", "dangling").code == 5


def test_the_current_folder_may_be_taken_and_may_hold_what_people_make_first(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("shop/.git").mkdir(parents=True)
    Path("shop/.venv").mkdir()
    monkeypatch.chdir("shop")
    done = cli("init", ".")
    assert done.code == 0
    assert "cd" not in done.err.split()
    assert 'hw.App("shop")' in Path("pipeline.py").read_text()


@pytest.mark.parametrize("verb", ["dev", "run"])
def test_without_a_file_the_settings_name_it(cli: Cli, verb: str) -> None:
    refused = cli(verb)
    assert refused.code == 2
    assert "headwater.toml" in refused.err
    assert "headwater init" in refused.err
    Path("headwater.toml").write_text('app = "missing.py"')
    refused = cli(verb)
    assert refused.code == 2
    assert "missing.py cannot be run" in refused.err


# -- as a newcomer does it --------------------------------------------------------------------------------------------


#: The limit of large orders, as a function that Spark's workers call.
LIMIT = """
from pyspark.sql import functions as F

def is_large(amount: float) -> bool:
    return amount >= 10

large = F.udf(is_large, "boolean")
"""


def ask(statement: str) -> Result:
    return execute("sql", statement, "--json")


def page() -> str:
    """The address of the console as `headwater dev` has told it: always the same."""
    told = set(re.findall(r"Open (http://\S+) in a browser", Path("../out.txt").read_text()))
    assert len(told) <= 1
    return told.pop() if told else ""


def has_query(name: str) -> bool:
    """Whether the console answers, and has a page of this query."""
    try:
        answer = httpx.get(f"{page()}/queries/{name}", timeout=SECONDS_MAX)
    except httpx.TransportError:  # between one app and the next
        return False
    return answer.status_code == 200 and "Traceback" not in answer.text


def large_orders() -> list[str]:
    return [str(row["user"]) for row in ask("SELECT user FROM large_orders").json]


@pytest.mark.long
@pytest.mark.process
def test_a_newcomers_first_project(monkeypatch: pytest.MonkeyPatch) -> None:
    assert execute("init", "shop").code == 0
    monkeypatch.chdir("shop")
    tested = subprocess.run([sys.executable, "-m", "pytest", "-q"], capture_output=True, text=True, timeout=SECONDS_MAX)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    with Path("../out.txt").open("w") as out:
        dev = subprocess.Popen(program("dev"), stdout=out, stderr=subprocess.STDOUT)
        try:
            until(lambda: execute("topic", "describe", "orders").code == 0, "the topic is there")
            until(lambda: page() != "" and has_query("large_orders"), "the console is there")
            for order in ORDERS:
                assert execute("produce", "orders", stdin=order).code == 0
            wanted = [{"minute": "2026-01-01T10:00:00Z", "revenue": 162.0, "orders": 2}]
            until(
                lambda: (found := ask("SELECT * FROM revenue")).code == 0 and found.json == wanted, "the view is right"
            )
            pipeline = Path("pipeline.py")
            Path("limit.py").write_text(LIMIT)
            text = pipeline.read_text().replace("import headwater as hw\n", "import headwater as hw\nimport limit\n")
            pipeline.write_text(text.replace('"amount >= 100"', 'limit.large("amount")'))
            until(lambda: "pipeline.py was saved: reloading" in Path("../out.txt").read_text(), "the change was seen")
            assert execute("produce", "orders", stdin=ORDERS[0]).code == 0
            until(lambda: large_orders() == ["bob", "ada"], "the change is at work")
            until(lambda: has_query("large_orders"), "the console is there again")
            Path("limit.py").write_text(LIMIT.replace(">= 10", ">= 99"))
            until(lambda: "limit.py was saved: reloading" in Path("../out.txt").read_text(), "this one, too")
            until(lambda: has_query("large_orders"), "the console is there again")
            for order in ORDERS:
                assert execute("produce", "orders", stdin=order).code == 0
            until(lambda: large_orders() == ["bob", "ada", "bob"], "a module is taken in, also by Spark's workers")
            pipeline.write_text(pipeline.read_text().replace('size="1 minute"', 'size="1 hour"'))
            until(lambda: "`headwater replay QUERY`" in Path("../out.txt").read_text(), "what was kept does not fit")
            until(
                lambda: execute("replay", "revenue", "--as", "v2").code == 0,
                "the new version starts beside the old one",
            )
            until(lambda: "caught up" in execute("replay", "revenue", "--compare").out, "it has caught up")
            assert execute("replay", "revenue", "--switch", seconds=SECONDS_MAX).code == 0
            wanted = [{"minute": "2026-01-01T10:00:00Z", "revenue": 366.0, "orders": 5}]
            until(lambda: ask("SELECT * FROM revenue").json == wanted, "the view says what the new version says")
            dev.send_signal(signal.SIGINT)
            assert dev.wait(SECONDS_MAX) == 0
        finally:
            dev.kill()
            dev.wait(60)
    left = [file for file in files(".") if not file.startswith(("data/", ".pytest_cache/", ".hypothesis/"))]
    assert left == sorted([*FILES, "limit.py"])
